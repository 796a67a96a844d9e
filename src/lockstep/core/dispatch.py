"""One shard of an outbox at work: which item may be begun, done, tried again or given up, in the order of its lanes.

The caller appends what `wants` returns, reads the ledger, gives every record to `observe`, and carries out what `take`
returns; how that ended it tells to `finished`. Nothing is done that was not read back as begun in this owner's epoch.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass

from lockstep.core.delivery import FAILED, REFUSED, SKIP, SKIPPED, Barrier, Begun, Ended, Entry, Ledger

IN_DOUBT = "in doubt"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """How often an item is tried, with which pauses, and what is done about one in doubt: again or skip."""

    retries: int = 10
    backoff_s: float = 1.0
    backoff_max_s: float = 300.0
    on_doubt: str = "again"
    resend_s: float = 0.5
    """A record that was not read back for so long is sent again."""

    def pause_s(self, attempt: int) -> float:
        """How long to wait after the failed attempt of that number; the first has number 1."""
        return min(self.backoff_s * 2.0 ** min(attempt - 1, 60), self.backoff_max_s)


@dataclass(slots=True)
class Waiting:
    """An item that was read from the outbox, in its lane."""

    offset: int
    id: str
    lane: Hashable
    due: float = 0.0
    is_busy: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """Something to do now: carry an item out, or write its dead letter."""

    offset: int
    id: str
    attempt: int
    gives_up: bool = False
    in_doubt: bool = False
    reason: str = ""


class Dispatcher:
    """Decides what may be begun in one shard of an outbox. The ledger's epoch is never below `group_epoch`."""

    def __init__(self, ledger: Ledger, owner: str, group_epoch: int, rules: Rules) -> None:
        self.ledger, self.owner, self.epoch = ledger, owner, 0
        self.is_leaving = False
        """The shard is to be handed over: what is begun is finished, and nothing new is begun."""
        self._group_epoch, self._rules = group_epoch, rules
        self._is_open = self._is_lost = False
        self._lanes: dict[Hashable, deque[Waiting]] = {}
        self._ready: deque[Hashable] = deque()
        self._delayed: list[tuple[float, int, Hashable]] = []
        self._order: deque[int] = deque()
        self._over: set[int] = set()
        self._newly_over: list[int] = []
        self._by_id: dict[str, Waiting] = {}
        """The items that are begun, by id: of two with the same id, the second waits."""
        self._outgoing: dict[Entry, float] = {}
        """What was not read back yet, and when it was sent last."""
        self._counted: deque[Job] = deque()
        self._running: dict[str, Job] = {}
        self._barrier: Barrier | None = None
        self._prefix: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether its barrier was read back and nobody has taken over since."""
        return self._is_open and not self.is_fenced

    @property
    def is_fenced(self) -> bool:
        """Whether another owner is known by now."""
        return self._is_lost or (self._is_open and not self.ledger.is_in_force(self.epoch, self.owner))

    @property
    def is_at_work(self) -> bool:
        """Whether something is being done, or what became of it is not on the ledger yet."""
        if self._running or any(isinstance(entry, Ended) for entry in self._outgoing):
            return True
        return self.is_open and bool(self._by_id)

    @property
    def running(self) -> int:
        """How many jobs were taken and are not finished."""
        return len(self._running)

    @property
    def begun(self) -> int:
        """How many items are begun or about to be: each needs a worker."""
        return len(self._by_id)

    @property
    def size(self) -> int:
        """Items that are not finished with, or stand after one that is not."""
        return len(self._order)

    def add(self, offset: int, item: str, lane: Hashable | None) -> None:
        """An item was read from the outbox; offsets come in order. Without a lane it has an order with copies only."""
        self._order.append(offset)
        place: Hashable = ("lane", lane) if lane is not None else ("id", item)
        queue = self._lanes.setdefault(place, deque())
        queue.append(Waiting(offset, item, place))
        if len(queue) == 1:
            self._ready.append(place)

    def pass_over(self, offset: int) -> None:
        """A record that is not for this group: it only moves the position."""
        self._order.append(offset)
        self._finish_offset(offset)

    def lose(self) -> None:
        """Another carrier owns the shard: what is under way is told when it ends, and nothing else is done."""
        self._is_lost = True
        self._counted.clear()

    def wants(self, now: float, room: int) -> list[Entry]:
        """What is to be appended now; at most `room` items are begun."""
        if not self._is_open:
            return [] if self._is_lost else self._with_barrier(now)
        due = [entry for entry, sent in self._outgoing.items() if now - sent >= self._rules.resend_s]
        if self.is_fenced:
            due = [entry for entry in due if isinstance(entry, Ended)]
        elif not self.is_leaving:
            due += self._begin(now, room)
        for entry in due:
            self._outgoing[entry] = now
        return due

    def observe(self, at: int, entry: Entry, now: float) -> bool:
        """A record was read from the ledger; whether it counts."""
        counts = self.ledger.apply(at, entry)
        is_mine = self._outgoing.pop(entry, None) is not None
        match entry:
            case Barrier():
                self._opened(entry)
            case Begun() if is_mine:
                self._read_back(entry, now)
            case Ended() if is_mine:
                self._ended(entry, now)
            case _:
                self._look_at_waiting(now)
        return counts

    def take(self) -> list[Job]:
        """What is to be done now. Only after the group's log was read to its end, and still names this owner."""
        if not self.is_open:
            return []
        jobs, self._counted = list(self._counted), deque()
        taken = [job for job in jobs if not self.ledger.is_over(job.id, job.offset)]
        self._running |= {job.id: job for job in taken}
        for job in jobs:
            if job.id not in self._running:  # its owner before says now that it was done
                self._close(self._by_id[job.id])
        return taken

    @property
    def has_jobs(self) -> bool:
        """Whether there is something to take."""
        return bool(self._counted)

    def finished(self, job: Job, outcome: str, reason: str, now: float) -> None:
        """How a job ended; a letter that could not be written (FAILED) is tried again."""
        self._running.pop(job.id, None)
        if job.gives_up and outcome == FAILED:
            self._again(self._by_id[job.id], now + self._rules.pause_s(1))
            return
        self._outgoing[Ended(self.epoch, self.owner, job.id, job.offset, job.attempt, outcome, reason)] = float("-inf")

    def confirmable(self) -> int | None:
        """The last offset up to which everything is finished with, once; None if that did not move."""
        found, self._prefix = self._prefix, None
        return found

    def newly_over(self) -> list[int]:
        """The offsets of items that were finished with since the last call: what they hold is not needed any more."""
        found, self._newly_over = self._newly_over, []
        return found

    def next_due(self) -> float:
        """When something is to be done that nobody will wake it for."""
        times = [sent + self._rules.resend_s for sent in self._outgoing.values()]
        if self._delayed:
            times.append(self._delayed[0][0])
        return min(times, default=float("inf"))

    def retries_open(self) -> int:
        """Items that wait to be tried again."""
        return len(self._delayed)

    # the barrier

    def _with_barrier(self, now: float) -> list[Entry]:
        barrier = self._barrier
        if barrier is None or barrier.epoch <= self.ledger.epoch:  # another one has that epoch, or a higher one
            self._outgoing.clear()
            barrier = self._barrier = Barrier(max(self._group_epoch, self.ledger.epoch + 1), self.owner)
        if now - self._outgoing.get(barrier, float("-inf")) < self._rules.resend_s:
            return []
        self._outgoing[barrier] = now
        return [barrier]

    def _opened(self, barrier: Barrier) -> None:
        if barrier == self._barrier and self.ledger.is_in_force(barrier.epoch, barrier.owner):
            self.epoch, self._is_open = barrier.epoch, True

    # beginning

    def _begin(self, now: float, room: int) -> list[Entry]:
        """Records for the heads of free lanes."""
        while self._delayed and self._delayed[0][0] <= now:
            _, _, lane = heapq.heappop(self._delayed)
            self._ready.append(lane)
        made: list[Entry] = []
        put_off: list[Hashable] = []
        while self._ready and len(self._by_id) < room:
            lane = self._ready.popleft()
            queue = self._lanes.get(lane)
            if not queue or queue[0].is_busy or queue[0].due > now:
                continue
            if queue[0].id in self._by_id:
                put_off.append(lane)
                continue
            entry = self._next_step(queue[0])
            if entry is not None:
                made.append(entry)
        self._ready.extend(put_off)
        return made

    def _next_step(self, waiting: Waiting) -> Entry | None:
        """What comes first for an item: nothing if it is finished with, else a record; its lane is busy then."""
        ledger = self.ledger
        if ledger.is_over(waiting.id, waiting.offset):
            self._close(waiting)
            return None
        waiting.is_busy = True
        self._by_id[waiting.id] = waiting
        pending = ledger.pending.get(waiting.id)
        attempts = 0 if pending is None else pending.attempts
        if ledger.in_doubt(waiting.id) and self._rules.on_doubt == SKIP:
            return Ended(self.epoch, self.owner, waiting.id, waiting.offset, attempts, SKIPPED, IN_DOUBT)
        if pending is not None and (pending.is_refused or attempts > self._rules.retries):
            self._counted.append(Job(waiting.offset, waiting.id, attempts, gives_up=True, reason=pending.reason))
            return None
        return Begun(self.epoch, self.owner, waiting.id, waiting.offset, attempts + 1)

    def _read_back(self, begun: Begun, now: float) -> None:
        waiting, pending = self._by_id.get(begun.id), self.ledger.pending.get(begun.id)
        if waiting is None:
            return
        if pending is None or begun.mark not in pending.open:
            if self.ledger.is_over(begun.id, begun.offset):  # its owner before says that it was done
                self._close(waiting)
            elif not self.is_fenced:  # an operator's order came between: begin anew, but not at once for ever
                self._again(waiting, now + self._rules.resend_s)
            return
        in_doubt = len(pending.open) > 1 or self.ledger.may_have_been_done(begun.id)
        self._counted.append(Job(waiting.offset, waiting.id, begun.attempt, in_doubt=in_doubt))

    # ending

    def _ended(self, ended: Ended, now: float) -> None:
        waiting = self._by_id.get(ended.id)
        if waiting is None:
            return
        if self.ledger.is_over(ended.id, ended.offset):
            self._close(waiting)
        elif ended.outcome == FAILED and ended.attempt <= self._rules.retries:
            self._again(waiting, now + self._rules.pause_s(ended.attempt))
        elif ended.outcome in (FAILED, REFUSED) or not self.is_fenced:
            self._again(waiting, now)

    def _again(self, waiting: Waiting, due: float) -> None:
        """Its turn comes again at a time; nothing overtakes it in its lane."""
        waiting.is_busy, waiting.due = False, due
        self._by_id.pop(waiting.id, None)
        heapq.heappush(self._delayed, (due, waiting.offset, waiting.lane))

    def _close(self, waiting: Waiting) -> None:
        """The item is finished with: the next one of its lane has its turn."""
        if self._by_id.get(waiting.id) is waiting:
            del self._by_id[waiting.id]
        queue = self._lanes[waiting.lane]
        queue.popleft()
        if queue:
            self._ready.append(waiting.lane)
        else:
            del self._lanes[waiting.lane]
        self._finish_offset(waiting.offset)

    def _finish_offset(self, offset: int) -> None:
        self._over.add(offset)
        self._newly_over.append(offset)
        while self._order and self._order[0] in self._over:
            self._prefix = self._order.popleft()
            self._over.discard(self._prefix)

    def _look_at_waiting(self, now: float) -> None:
        """Others decided about items: those that wait for their next try look again now."""
        for _, _, lane in self._delayed:
            head = self._lanes[lane][0] if lane in self._lanes else None
            if head is not None and self.ledger.is_over(head.id, head.offset):
                head.due = now
                self._ready.append(lane)
