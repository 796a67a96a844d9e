"""What stands on a sequence log: marks, and entries that say how far each input is taken and what time it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lockstep.core.doubts import contradicts
from lockstep.core.sequence import Entry, Mark, SequenceState, fold
from lockstep.engine.errors import SequenceBroken
from lockstep.errors import DataError
from lockstep.log.batch import BatchView
from lockstep.log.port import Log


@dataclass(frozen=True, slots=True)
class Statement:
    """Which model is in force from an entry on, as YAML, and whose windows' blocks are published."""

    model: str
    publish: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PersistPoint:
    """One engine, of that incarnation, writes its state behind this entry into folder `path`."""

    id: str
    by: str
    path: str


@dataclass(frozen=True, slots=True)
class TrimPoint:
    """Below these offsets nobody needs the sequence log and the inputs any more; `inputs` by the paths of sources."""

    sequence: int
    inputs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Decision:
    """The body of an entry.

    `ends` are offsets in the inputs by the paths of the sources: what lies between the last ends and these is the
    input, whoever wrote it. Then the clock ticks to `tick_us`, if it is given. `blocks` and `events` count everything
    up to here, so that a range can be cut to size without reading it; they are checked when it is read, as is `crc`,
    the checksum of the frames it takes. An entry that turns something takes no input: a new model's `ends` are those
    of its own sources. `request` is the id of what was asked: a second entry with the same one changes nothing.
    """

    ends: Mapping[str, int]
    blocks: int
    events: int
    tick_us: int | None = None
    crc: int | None = None
    gaps: Mapping[str, int] | None = None
    """Inputs whose records below these offsets were gone before they were taken; each is a block of its own."""
    states: Statement | None = None
    prepare: Statement | None = None
    """Every engine tries whether it can run this model, and says so in its report; nothing else changes."""
    persist: PersistPoint | None = None
    trim: TrimPoint | None = None
    reset: bool = False
    clients: Mapping[str, int] | None = None
    """With a reset: for each client the last message taken, so that whoever joins later can begin there."""
    running: bool | None = None
    """Whether input is taken from now on."""
    request: str | None = None
    lagging: bool | None = None
    """With a tick: input that was there when the entry was made is left to a later one."""

    @property
    def turns(self) -> bool:
        """Whether what is computed stops at this entry for a moment: a model, a reset or a snapshot."""
        return self.reset or self.states is not None or self.persist is not None

    def body(self) -> str:
        """As it stands on the log: what is not said is left out."""
        told = {name: value for name, value in asdict(self).items() if value is not None}
        if not self.reset:
            del told["reset"]
        return json.dumps(told, separators=(",", ":"))

    @classmethod
    def of(cls, entry: Entry) -> Decision:
        """Back from an entry."""
        fields = known_fields(cls, json.loads(entry.body), "An entry of a sequence log")
        if not isinstance(fields["ends"], dict):
            raise DataError(reason="An entry of a sequence log does not name its inputs; an older version wrote it.")
        for name in fields.keys() & {"states", "prepare"}:
            stated = known_fields(Statement, fields[name], "A model on a sequence log")
            fields[name] = Statement(stated["model"], tuple(stated["publish"]))
        for name, kind in (("persist", PersistPoint), ("trim", TrimPoint)):
            if name in fields:
                fields[name] = kind(**known_fields(kind, fields[name], f"A decision to {name}"))
        return cls(**fields)


def encode(record: Mark | Entry) -> bytes:
    """One record as JSON."""
    return json.dumps({"kind": type(record).__name__.lower(), **asdict(record)}, separators=(",", ":")).encode()


def decode(data: bytes) -> Mark | Entry:
    """Back from JSON."""
    fields = json.loads(data)
    kind = fields.pop("kind")
    if kind not in ("mark", "entry"):
        raise DataError(reason=f"A sequence log holds a record of unknown kind {kind!r}; a newer version wrote it.")
    made = Mark if kind == "mark" else Entry
    return made(**known_fields(made, fields, "A record of a sequence log"))


def known_fields(kind: type[Any], fields: dict[str, Any], what: str) -> dict[str, Any]:
    """The fields of a record as they are; DataError if it has some that only a newer version can know."""
    if unknown := fields.keys() - kind.__dataclass_fields__.keys():
        raise DataError(reason=f"{what} says {', '.join(sorted(unknown))}, which a newer version wrote.")
    return fields


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
        if isinstance(record, Entry) and contradicts(state, record):
            raise SequenceBroken(stream=log.name, number=record.number, last=state.number)
        state, counts = fold(state, at, record)
        if counts and isinstance(record, Entry):
            yield state, record
            if state.number == upto:
                return
