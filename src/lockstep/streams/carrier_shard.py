"""One shard of an outbox in the hands of a carrier: its ledger, its items, and what is to be done now."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from lockstep.core.delivery import Barrier
from lockstep.core.dispatch import Dispatcher, Job
from lockstep.errors import AppendUncertain, ServerUnreachable
from lockstep.runtime import Runtime, logger
from lockstep.streams.ledger import LedgerLog
from lockstep.streams.outbox import Item, Label, made_item
from lockstep.streams.record import Record

REASON_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Load:
    """An item in the window: its record, and what that says of itself."""

    record: Record
    label: Label
    is_for_us: bool


@dataclass(frozen=True, slots=True)
class Errand:
    """A job in the hands of a worker."""

    shard: CarrierShard
    job: Job
    load: Load

    @property
    def item(self) -> Item:
        """What the handler gets."""
        job, epoch = self.job, self.shard.dispatcher.epoch
        return made_item(self.load.record, self.load.label, attempt=job.attempt, in_doubt=job.in_doubt, epoch=epoch)


class CarrierShard:
    """Works through one shard of an outbox. `epoch` is that of the seat; only the carrier's own thread calls it."""

    def __init__(self, stream: str, epoch: int, ledger: LedgerLog, dispatcher: Dispatcher, runtime: Runtime) -> None:
        self.stream, self.epoch, self.ledger, self.dispatcher = stream, epoch, ledger, dispatcher
        self._runtime = runtime
        self._loads: dict[int, Load] = {}
        self.bytes = 0
        """Of the records in the window."""
        self.doubts = 0
        """Items found in doubt when it was taken over."""
        self.lost_at: float | None = None

    def give(self, load: Load) -> None:
        """A record was read from the outbox."""
        offset = load.record.offset
        self._loads[offset] = load
        self.bytes += len(load.record.value)
        if load.is_for_us:
            self.dispatcher.add(offset, load.label.id, load.record.key)
        else:
            self.dispatcher.pass_over(offset)

    def loads(self) -> list[Load]:
        """What is in the window, in order: to be given to another that begins anew."""
        return list(self._loads.values())

    def pump(self, room: int) -> None:
        """Read the ledger, append what is wanted, and read that back if it is there already."""
        now = self._runtime.monotonic()
        self._read(now)
        entries = self.dispatcher.wants(now, room)
        if not entries:
            return
        try:
            self.ledger.append(entries)
        except (AppendUncertain, ServerUnreachable) as error:  # what is not read back is sent again
            logger.warning(
                "Records of a ledger were not acknowledged",
                extra={"action": "ledger_append", "stream": self.ledger.log.name, "reason": str(error)},
            )
        self._read(now)

    def take(self) -> list[Errand]:
        """What is to be done now. Only after the group's log was read to its end, and still names this carrier."""
        return [Errand(self, job, self._loads[job.offset]) for job in self.dispatcher.take()]

    def finished(self, job: Job, outcome: str, reason: str) -> None:
        """How a job ended."""
        self.dispatcher.finished(job, outcome, reason[:REASON_CHARACTERS], self._runtime.monotonic())

    def confirmable(self) -> int | None:
        """The last offset up to which everything is finished with, once; its records are let go of."""
        self._lighten()
        offset = self.dispatcher.confirmable()
        if offset is None:
            return None
        for done in list(takewhile(lambda at: at <= offset, self._loads)):
            self.bytes -= len(self._loads.pop(done).record.value)
        return offset

    def _lighten(self) -> None:
        """Let go of the bodies of items that are finished with, though one before them is not.

        They only move the position from now on, also if the ledger has to be read anew.
        """
        for offset in self.dispatcher.newly_over():
            load = self._loads[offset]
            self.bytes -= len(load.record.value)
            self._loads[offset] = Load(load.record._replace(value=b""), load.label, is_for_us=False)

    def tidy(self, confirmed: int) -> None:
        """Keep the ledger short."""
        self.dispatcher.ledger.forget_before(confirmed + 1)
        self.ledger.tidy(self.dispatcher.ledger)

    def lose(self) -> None:
        """It is another carrier's now."""
        self.dispatcher.lose()
        self.lost_at = self._runtime.monotonic()

    def _read(self, now: float) -> None:
        was_open = self.dispatcher.is_open
        for at, entry in self.ledger.read_new():
            self.dispatcher.observe(at, entry, now)
            if not was_open and isinstance(entry, Barrier) and self.dispatcher.is_open:
                was_open = True
                self._tell_doubts()

    def _tell_doubts(self) -> None:
        ledger = self.dispatcher.ledger
        for item in [item for item in ledger.pending if ledger.in_doubt(item)]:
            self.doubts += 1
            offset = ledger.pending[item].offset
            logger.warning(
                "Item %s at offset %d of %s is in doubt: it was begun, and its carrier did not say how it ended",
                item, offset, self.stream,
                extra={"action": "delivery_in_doubt", "stream": self.stream, "offset": offset, "id": item},
            )  # fmt: skip
