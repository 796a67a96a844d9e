"""What stands on a sequence log: marks, and entries that say how far each input is taken and what time it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from lockstep.core.sequence import Entry, Mark, SequenceState, fold
from lockstep.errors import DataError
from lockstep.log.batch import BatchView
from lockstep.log.port import Log


@dataclass(frozen=True, slots=True)
class Decision:
    """The body of an entry.

    `ends` are offsets in the inputs, in the order of the sources: what lies between the last ends and these is the
    input, whoever wrote it. Then the clock ticks to `tick_us`, if it is given. `blocks` and `events` count everything
    up to here, so that a range can be cut to size without reading it; they are checked when it is read.
    """

    ends: tuple[int, ...]
    blocks: int
    events: int
    tick_us: int | None = None

    def body(self) -> str:
        """As it stands on the log."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def of(cls, entry: Entry) -> Decision:
        """Back from an entry."""
        fields = json.loads(entry.body)
        return cls(tuple(fields["ends"]), fields["blocks"], fields["events"], fields["tick_us"])


def encode(record: Mark | Entry) -> bytes:
    """One record as JSON."""
    return json.dumps({"kind": type(record).__name__.lower(), **asdict(record)}, separators=(",", ":")).encode()


def decode(data: bytes) -> Mark | Entry:
    """Back from JSON."""
    fields = json.loads(data)
    kind = fields.pop("kind")
    if kind not in ("mark", "entry"):
        raise DataError(reason=f"A sequence log holds a record of unknown kind {kind!r}; a newer version wrote it.")
    return Mark(**fields) if kind == "mark" else Entry(**fields)


def records(log: Log, start: int) -> Iterator[tuple[int, Mark | Entry]]:
    """Offsets and records from `start` to the end of the log."""
    while entries := log.read(start):
        for stored in entries:
            view = BatchView(stored.base, stored.data, log.name)
            for index, value in enumerate(view.values()):
                if view.base + index >= start:
                    yield view.base + index, decode(value)
            start = view.end


def counted(log: Log, state: SequenceState, upto: int | None = None) -> Iterator[tuple[SequenceState, Entry]]:
    """The entries behind `state` that count, each with the state after it, through number `upto` or to the end."""
    if upto is not None and state.number >= upto:
        return
    for at, record in records(log, state.upto + 1):
        state, counts = fold(state, at, record)
        if counts and isinstance(record, Entry):
            yield state, record
            if state.number == upto:
                return
