"""The ledger of deliveries: what was begun, what became of it, and what is in doubt.

A ledger is a log beside one shard of an outbox. Its records are folded in order, and every reader comes to the same
answer. Two kinds of records must be told apart: decisions (begun, given up, skipped) count only if their writer was the
owner in force when they came to stand on the log; facts (done, failed, refused) count from any owner, and late.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

DONE, FAILED, REFUSED, DEAD, SKIPPED = "done", "failed", "refused", "dead", "skipped"
"""How an attempt or an item ended. Refused: another attempt can't help. Dead: it was given up."""
OUTCOMES = (DONE, FAILED, REFUSED, DEAD, SKIPPED)
SKIP, AGAIN = "skip", "again"
"""What an operator may decide, and what may be done about an item in doubt."""

OPEN, TRIED_AGAIN, WAS_DONE, WAS_DONE_TWICE, HAD_FAILED = (
    "open",
    "tried again",
    "done",
    "done and tried again",
    "failed",
)
"""What is known of a doubt by now; `skipped` and `dead` besides."""

UNKNOWN = -1
"""The offset of an item that was skipped before anybody began it."""
REMEMBER = 10_000
DOUBTS_KEPT = 200
ORDERS_REMEMBERED = 16  # an order whose append landed twice, late, must not count twice

Mark = tuple[int, str, int, int]
"""Of an attempt: epoch, owner, offset of the item on the outbox, number."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """A new owner says so: after this, what an older one begins does not count."""

    epoch: int
    owner: str


@dataclass(frozen=True, slots=True)
class Begun:
    """The owner is about to carry out the item that stands at `offset` of the outbox."""

    epoch: int
    owner: str
    id: str
    offset: int
    attempt: int

    @property
    def mark(self) -> Mark:
        """What tells this attempt from all others for the item."""
        return self.epoch, self.owner, self.offset, self.attempt


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt ended (done, failed, refused), or the owner is finished with the item (dead, skipped)."""

    epoch: int
    owner: str
    id: str
    offset: int
    attempt: int
    outcome: str
    reason: str = ""

    @property
    def mark(self) -> Mark:
        """The attempt that ended."""
        return self.epoch, self.owner, self.offset, self.attempt


@dataclass(frozen=True, slots=True)
class Order:
    """An operator has an item skipped, or has forgotten how it ended. `request` makes a doubled append harmless."""

    id: str
    verdict: str
    request: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """An attempt that was begun, and whose owner lost its shard before it said how it ended."""

    id: str
    offset: int
    epoch: int
    owner: str
    attempt: int
    fate: str = OPEN

    @property
    def mark(self) -> Mark:
        """The attempt in doubt."""
        return self.epoch, self.owner, self.offset, self.attempt


@dataclass(frozen=True, slots=True)
class Memo:
    """The doubts so far, written before the records that tell of them are trimmed."""

    doubts: tuple[Doubt, ...]


Entry = Barrier | Begun | Ended | Order | Memo


@dataclass(slots=True)
class Pending:
    """What the ledger says of an item that is not finished with."""

    offset: int
    first_at: int
    """Where its first record stands: the ledger must be kept from there on."""
    attempts: int = 0
    open: set[Mark] = field(default_factory=set)
    """Attempts that were begun and did not end, as far as is known."""
    is_refused: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Settled:
    """How an item ended for good, where it stands on the outbox, and where the record stands that says so.

    A copy of an item that is done or skipped is not carried out. One of an item that was given up is, if it stands
    later on the outbox: it was sent back from the dead letters.
    """

    outcome: str
    offset: int
    at: int
    reason: str = ""
    attempts: int = 0

    def covers(self, offset: int) -> bool:
        """Whether the copy at an offset of the outbox is finished with."""
        return self.outcome != DEAD or offset <= self.offset


class Ledger:
    """The fold of one ledger. Remembers how the last `remember` items ended; a copy of one of these is known as one."""

    def __init__(self, remember: int = REMEMBER) -> None:
        self.epoch = 0
        self.owner: str | None = None
        self.upto = self.in_force_at = -1
        """How far it was read, and where the last record stands that says who is in force."""
        self.pending: dict[str, Pending] = {}
        self.settled: dict[str, Settled] = {}
        self.doubts: dict[tuple[str, Mark], Doubt] = {}
        self._remember = remember
        self._orders: list[str] = []

    def apply(self, at: int, entry: Entry) -> bool:
        """Fold the record at offset `at`; whether it counts. What is already folded in does not."""
        if at <= self.upto:
            return False
        self.upto = at
        match entry:
            case Barrier():
                return self._pass(at, entry)
            case Begun():
                return self._begin(at, entry)
            case Ended():
                return self._end(at, entry)
            case Order():
                return self._order(at, entry)
            case Memo(doubts):
                return self._recall(doubts)

    def is_in_force(self, epoch: int, owner: str) -> bool:
        """Whether nobody has taken over from this owner, as far as the ledger was read."""
        return (self.epoch, self.owner) == (epoch, owner)

    def is_over(self, item: str, offset: int) -> bool:
        """Whether the item at an offset of the outbox is finished with, or a later copy stands for it."""
        settled, pending = self.settled.get(item), self.pending.get(item)
        is_before = pending is not None and offset < pending.offset
        return is_before or (settled is not None and settled.covers(offset))

    def in_doubt(self, item: str) -> bool:
        """Whether an attempt of an older epoch was begun and did not end."""
        pending = self.pending.get(item)
        return pending is not None and any(mark[:2] != (self.epoch, self.owner) for mark in pending.open)

    def may_have_been_done(self, item: str) -> bool:
        """Whether nobody knows how an attempt ended, be it one from before the item was given up and sent back."""
        fates = (OPEN, TRIED_AGAIN, DEAD)
        return any(doubt.id == item and doubt.fate in fates for doubt in self.doubts.values())

    def forget_before(self, offset: int) -> None:
        """Drop unfinished items below an offset of the outbox: they are finished with, and a copy came late."""
        for item in [item for item, pending in self.pending.items() if pending.offset < offset]:
            del self.pending[item]

    def items_from(self) -> int:
        """The first offset of the ledger whose record still says something of an item."""
        first_open = min((pending.first_at for pending in self.pending.values()), default=self.upto)
        first_settled = next(iter(self.settled.values())).at if self.settled else self.upto
        return min(first_open, first_settled, self.upto)

    def needed_from(self) -> int:
        """What is below may be trimmed: a fold that begins here knows who is in force, and all items."""
        return min(self.items_from(), self.in_force_at)

    def memo(self) -> Memo:
        """The doubts, to be written again before a trim."""
        return Memo(tuple(self.doubts.values()))

    def _pass(self, at: int, barrier: Barrier) -> bool:
        """A new owner, or once more the one in force: then what stands before is not needed to know it."""
        self._adopt(at, barrier.epoch, barrier.owner)
        if not self.is_in_force(barrier.epoch, barrier.owner):
            return False
        self.in_force_at = at
        return True

    def _adopt(self, at: int, epoch: int, owner: str) -> None:
        """A higher epoch begins, also without its barrier, which may be trimmed. The first owner of an epoch has it."""
        if epoch <= self.epoch:
            return
        self.epoch, self.owner, self.in_force_at = epoch, owner, at
        for item, pending in self.pending.items():
            for mark in sorted(pending.open):
                self._note(Doubt(item, mark[2], mark[0], mark[1], mark[3]))

    def _begin(self, at: int, begun: Begun) -> bool:
        self._adopt(at, begun.epoch, begun.owner)
        if not self.is_in_force(begun.epoch, begun.owner) or self.is_over(begun.id, begun.offset):
            return False
        self.settled.pop(begun.id, None)
        pending = self.pending.setdefault(begun.id, Pending(begun.offset, at))
        if begun.attempt <= pending.attempts:  # a copy, perhaps of one that has ended
            return False
        pending.attempts, pending.offset = begun.attempt, begun.offset
        pending.open.add(begun.mark)
        self._tell(begun.id, {OPEN: TRIED_AGAIN, WAS_DONE: WAS_DONE_TWICE})
        return True

    def _end(self, at: int, ended: Ended) -> bool:
        self._adopt(at, ended.epoch, ended.owner)
        pending = self.pending.get(ended.id)
        if pending is not None:
            pending.open.discard(ended.mark)
        is_decision = ended.outcome in (DEAD, SKIPPED)
        if is_decision and not self.is_in_force(ended.epoch, ended.owner):
            return False
        if not is_decision:
            self._resolve(ended)
        if ended.outcome == DONE or is_decision:
            return self._settle(ended.id, Settled(ended.outcome, ended.offset, at, ended.reason, ended.attempt))
        if pending is not None:
            pending.is_refused = pending.is_refused or ended.outcome == REFUSED
            pending.reason = ended.reason
        return True

    def _settle(self, item: str, how: Settled) -> bool:
        known = self.settled.get(item)
        if known is not None and (known.outcome == DONE or how.outcome != DONE):
            return False
        pending = self.pending.get(item)
        if how.outcome == DEAD and pending is not None and pending.offset > how.offset:
            return False  # a late copy: the item was sent back from the dead letters since
        self.pending.pop(item, None)
        self.settled.pop(item, None)  # so that it stands last
        self.settled[item] = how
        while len(self.settled) > self._remember:
            del self.settled[next(iter(self.settled))]
        if how.outcome != DONE:
            self._tell(item, {OPEN: how.outcome})
        return True

    def _order(self, at: int, order: Order) -> bool:
        if order.request in self._orders:
            return False
        self._orders = [*self._orders, order.request][-ORDERS_REMEMBERED:]
        if order.verdict == SKIP:
            pending = self.pending.get(order.id)
            known = self.settled.get(order.id)
            offset = UNKNOWN if pending is None else pending.offset
            if known is not None and known.outcome == DEAD:  # and it may have been sent back
                del self.settled[order.id]
                offset = max(offset, known.offset)
            return self._settle(order.id, Settled(SKIPPED, offset, at, "an operator skipped it"))
        self.settled.pop(order.id, None)
        self.pending.pop(order.id, None)
        return True

    def _recall(self, doubts: tuple[Doubt, ...]) -> bool:
        """Doubts from before the log was trimmed; of those that are known, more may be known by now."""
        told = {(doubt.id, doubt.mark): doubt for doubt in doubts}
        self.doubts = {**told, **self.doubts}
        self._bound_doubts()
        return True

    def _note(self, doubt: Doubt) -> None:
        if (doubt.id, doubt.mark) not in self.doubts:
            self.doubts[doubt.id, doubt.mark] = doubt
            self._bound_doubts()

    def _resolve(self, ended: Ended) -> None:
        """An attempt in doubt did end, and its owner says so late."""
        doubt = self.doubts.get((ended.id, ended.mark))
        if doubt is None:
            return
        done = WAS_DONE_TWICE if doubt.fate == TRIED_AGAIN else WAS_DONE
        fate = done if ended.outcome == DONE else HAD_FAILED
        self.doubts[ended.id, ended.mark] = replace(doubt, fate=fate)

    def _tell(self, item: str, fates: dict[str, str]) -> None:
        for key, doubt in self.doubts.items():
            if doubt.id == item and doubt.fate in fates:
                self.doubts[key] = replace(doubt, fate=fates[doubt.fate])

    def _bound_doubts(self) -> None:
        while len(self.doubts) > DOUBTS_KEPT:
            del self.doubts[next(iter(self.doubts))]
