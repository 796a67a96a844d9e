"""One shard of an outbox in the hands of a carrier: its ledger, its items, what is to be done now."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any

from lockstep.core.delivery import OUTCOMES, Barrier, Begun, Doubt, Ended, Entry, Ledger, Memo, Order
from lockstep.core.dispatch import Dispatcher, Job
from lockstep.errors import AppendUncertain, DataError, ServerUnreachable
from lockstep.log.batch import NO_PRODUCER, BatchView, pack
from lockstep.log.config import StreamConfig
from lockstep.log.port import Log
from lockstep.runtime import Runtime, logger
from lockstep.streams.handlers import fitting_name
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
        """Read the ledger and append the change, or read it back if it is there already."""
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


CONFIG = StreamConfig(capacity=None)
SUFFIX = ".ledger"
TRIM_EVERY = 2_000
"""Records that are not needed any more before they are trimmed."""
_KINDS = {kind.__name__.lower(): kind for kind in (Barrier, Begun, Ended, Order)}
_TYPES = {
    "epoch": int, "attempt": int, "offset": int, "owner": str, "id": str, "outcome": str, "reason": str,
    "verdict": str, "request": str,
}  # fmt: skip


def ledger_name(outbox: str, group: str) -> str:
    """The stream in which a group keeps what became of the items of an outbox."""
    return fitting_name(f"{outbox}.{group}", SUFFIX)


def encode(entry: Entry) -> bytes:
    """One record as JSON."""
    fields = {name: getattr(entry, name) for name in entry.__slots__}
    if isinstance(entry, Memo):
        fields["doubts"] = [asdict(doubt) for doubt in entry.doubts]
    return json.dumps({"kind": type(entry).__name__.lower(), **fields}, separators=(",", ":")).encode()


def decode(data: bytes) -> Entry:
    """Back from JSON; DataError for what no carrier writes."""
    try:
        fields: dict[str, Any] = json.loads(data)
        kind = fields.pop("kind")
        if kind == "memo":
            return Memo(tuple(Doubt(**doubt) for doubt in fields["doubts"]))
        made: Entry = _KINDS[kind](**fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(reason=f"A ledger holds a record that is not one: {error}") from None
    is_whole = all(type(value) is _TYPES[name] for name, value in fields.items())
    if not is_whole or fields.get("outcome", OUTCOMES[0]) not in OUTCOMES:
        raise DataError(reason="A ledger holds a record with values that no carrier writes.")
    return made


def entries_of(log: Log, offset: int) -> Iterator[tuple[int, Entry | None]]:
    """Offsets and records from an offset on; None for one that is not valid, which counts for nothing."""
    while stored := log.read(offset):
        for one in stored:
            view = BatchView(one.base, one.data, log.name)
            for index, value in enumerate(view.values()):
                if view.base + index >= offset:
                    yield view.base + index, _valid(value, log.name, view.base + index)
            offset = max(offset, view.end)


def _valid(value: bytes, stream: str, at: int) -> Entry | None:
    try:
        return decode(value)
    except DataError as error:
        extra = {"action": "ledger_record_invalid", "stream": stream, "offset": at}
        logger.error("Record %d of %s counts for nothing: %s", at, stream, error, extra=extra)
        return None


def load(log: Log) -> Ledger:
    """What a ledger says now, for those who only look."""
    ledger = Ledger()
    for at, entry in entries_of(log, log.bounds().first):
        if entry is not None:
            ledger.apply(at, entry)
    return ledger


class LedgerLog:
    """A carrier's way to the ledger of one shard. Not to be shared between threads."""

    def __init__(self, log: Log, runtime: Runtime) -> None:
        self.log, self._runtime = log, runtime
        self.next = log.bounds().first
        """Where to read on."""

    def read_new(self) -> list[tuple[int, Entry]]:
        """Records that were not read yet. Trimmed or TakenBack mean that a fold of this log has to begin anew."""
        found = []
        for at, entry in entries_of(self.log, self.next):
            self.next = at + 1
            if entry is not None:
                found.append((at, entry))
        return found

    def append(self, entries: Sequence[Entry]) -> None:
        """Add records in one step. Nothing may be made of the answer: what counts is what is read back."""
        self.log.append([_packed(entries, self._runtime)])

    def tidy(self, ledger: Ledger) -> bool:
        """Trim what is not needed any more, if that is much; whether it did.

        First the owner in force says once more that it is, and which doubts there were: a fold may begin there.
        """
        first, needed = self.log.bounds().first, ledger.items_from()
        if (needed - first) // self.log.limits.stride < TRIM_EVERY or ledger.owner is None:
            return False
        if ledger.in_force_at < needed:
            self.append([Barrier(ledger.epoch, ledger.owner), *([ledger.memo()] if ledger.doubts else [])])
            return False
        self.log.trim(needed)
        return True


def _packed(entries: Iterable[Entry], runtime: Runtime) -> Any:
    values = [encode(entry) for entry in entries]
    return pack(values, producer=NO_PRODUCER, sequence=0, created_ns=runtime.wall_ns())


def write(log: Log, entry: Entry, runtime: Runtime) -> None:
    """Add one record from outside: an operator's order."""
    log.append([_packed([entry], runtime)])
