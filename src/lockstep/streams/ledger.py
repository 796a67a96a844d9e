"""The log of a ledger: its records as JSON, read to their end, trimmed when nothing below is needed any more."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from lockstep.core.delivery import OUTCOMES, Barrier, Begun, Doubt, Ended, Entry, Ledger, Memo, Order
from lockstep.errors import DataError
from lockstep.log.batch import NO_PRODUCER, BatchView, pack
from lockstep.log.config import StreamConfig
from lockstep.log.port import Log
from lockstep.runtime import Runtime, logger
from lockstep.streams.handling import fitting_name

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
