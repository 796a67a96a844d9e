"""Deliveries seen from outside: what a group made of an outbox, what is in doubt, and an operator's orders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from lockstep.core.delivery import AGAIN, DEAD, DONE, OPEN, SKIP, SKIPPED, UNKNOWN, Doubt, Ledger, Order, Pending
from lockstep.errors import DataError, IllegalState, RecordNotFound, StreamNotFound
from lockstep.log.config import check_name
from lockstep.log.port import Log
from lockstep.streams.carrier_shard import ledger_name, load, write
from lockstep.streams.client import Lockstep
from lockstep.streams.deadletters import DeadLetter, dead_letters
from lockstep.streams.handlers import fitting_name, original_headers
from lockstep.streams.outbox import ID_HEADER
from lockstep.streams.record import Record

BEGUN, WAITING = "begun", "waiting"


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryView:
    """An item as its ledger tells it: begun, waiting (for its next try), done, dead or skipped."""

    id: str
    stream: str
    offset: int
    state: str
    attempts: int
    in_doubt: bool
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DoubtView:
    """An attempt that was begun and whose carrier did not say how it ended, and what is known of it by now."""

    id: str
    stream: str
    offset: int
    epoch: int
    attempt: int
    fate: str
    """open, tried again, done, done and tried again, failed, skipped, or dead."""


class Deliveries:
    """What one group made of one outbox."""

    def __init__(self, bus: Lockstep, outbox: str, group: str) -> None:
        self.outbox, self.group = check_name("Stream", outbox), check_name("Group", group)
        self._bus = bus

    def items(self, *, unfinished: bool = False) -> list[DeliveryView]:
        """Items that the ledgers know: all that are begun and not finished with, and the last ones that are."""
        found: list[DeliveryView] = []
        for stream, log in self._ledgers():
            ledger = load(log)
            found += [_pending(item, stream, pending, ledger) for item, pending in ledger.pending.items()]
            if not unfinished:
                found += [
                    DeliveryView(id=item, stream=stream, offset=end.offset, state=end.outcome, attempts=end.attempts,
                                 in_doubt=False, reason=end.reason)
                    for item, end in ledger.settled.items()
                ]  # fmt: skip
        return found

    def doubts(self, *, unresolved: bool = False) -> list[DoubtView]:
        """Attempts in doubt, the oldest first; of each shard the last two hundred."""
        found = [(stream, doubt) for stream, log in self._ledgers() for doubt in load(log).doubts.values()]
        return [_doubt(stream, doubt) for stream, doubt in found if not unresolved or doubt.fate == OPEN]

    def skip(self, item: str) -> None:
        """Have an item not carried out, or not tried again; the next one of its key has its turn.

        An attempt that is under way is not cut short.
        """
        known = [(log, load(log)) for _, log in self._ledgers()]
        holding = [(log, ledger) for log, ledger in known if item in ledger.pending or item in ledger.settled]
        for _, ledger in holding:
            settled = ledger.settled.get(item)
            if settled is not None and settled.outcome in (DONE, SKIPPED):
                raise IllegalState(what=f"Item {item!r}", action="be skipped", reason=f"it is {settled.outcome}")
        for log, _ in holding or known:  # the log of an item that was not begun is not known
            self._order(log, item, SKIP)

    def retry(self, item: str) -> int:
        """Put an item on the outbox again that was given up or skipped; returns its new offset."""
        stream, log, ledger = self._holding(item)
        settled = ledger.settled.get(item)
        if settled is None or settled.outcome == DONE:
            state = BEGUN if settled is None else settled.outcome
            raise IllegalState(what=f"Item {item!r}", action="be tried anew", reason=f"it is {state}")
        if settled.offset == UNKNOWN:
            reason = "it was skipped before anybody began it; publish it again under another id"
            raise IllegalState(what=f"Item {item!r}", action="be tried anew", reason=reason)
        record = self._record(stream, item, settled.offset)
        if settled.outcome != DEAD:
            self._order(log, item, AGAIN)
        others = tuple(pair for pair in original_headers(record.headers) if pair[0] != ID_HEADER)
        headers = ((ID_HEADER, item.encode()), *others)
        with self._bus.publisher(self.outbox, create=False) as publisher:
            return publisher.publish(record.value, key=record.key, headers=headers).result(30.0)

    def _order(self, log: Log, item: str, verdict: str) -> None:
        write(log, Order(item, verdict, self._bus.runtime.new_id().hex()), self._bus.runtime)

    def _holding(self, item: str) -> tuple[str, Log, Ledger]:
        for stream, log in self._ledgers():
            ledger = load(log)
            if item in ledger.settled or item in ledger.pending:
                return stream, log, ledger
        raise DataError(reason=f"The ledgers of group {self.group} on {self.outbox} do not know item {item!r}.")

    def _record(self, stream: str, item: str, offset: int) -> Record:
        """The record of an item: where it stood on the outbox, else its dead letter."""
        with suppress(RecordNotFound, DataError):  # it may be trimmed since
            return self._bus.get(stream, offset)
        for letter in self._letters():
            if letter.stream == stream and (letter.offset == offset or _id_of(letter.record) == item):
                return letter.record
        raise RecordNotFound(stream=stream, offset=offset)

    def _letters(self) -> Iterator[DeadLetter]:
        try:
            yield from dead_letters(self._bus, fitting_name(self.outbox, ".dlq"))
        except StreamNotFound:
            return

    def _ledgers(self) -> list[tuple[str, Log]]:
        """The ledger of each shard of the outbox, with the shard's name."""
        outbox = [log.name for log in self._bus.logs(self.outbox)]
        return list(zip(outbox, self._bus.logs(ledger_name(self.outbox, self.group)), strict=True))


def _pending(item: str, stream: str, pending: Pending, ledger: Ledger) -> DeliveryView:
    return DeliveryView(
        id=item, stream=stream, offset=pending.offset, state=BEGUN if pending.open else WAITING,
        attempts=pending.attempts, in_doubt=ledger.in_doubt(item), reason=pending.reason,
    )  # fmt: skip


def _doubt(stream: str, doubt: Doubt) -> DoubtView:
    return DoubtView(
        id=doubt.id, stream=stream, offset=doubt.offset, epoch=doubt.epoch, attempt=doubt.attempt, fate=doubt.fate
    )


def _id_of(record: Record) -> str:
    found = record.header(ID_HEADER)
    return "" if found is None else found.decode(errors="replace")
