"""The records of a sequence log, and the position that follows from folding them.

An entry says how far each input is taken and what time it is; a position is enough to go on reading from there, and to
drop what came twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from google_crc32c import extend

from lockstep.core.doubts import contradicts
from lockstep.core.sequence import Entry, Mark, SequenceState, fold
from lockstep.engine.errors import SequenceBroken
from lockstep.engine.events.frames import FrameHead
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
    """The engine of that incarnation writes its state after this entry into folder `path`."""

    id: str
    by: str
    path: str


@dataclass(frozen=True, slots=True)
class TrimPoint:
    """Below these offsets the sequence log and the inputs are no longer needed; `inputs` by the paths of sources."""

    sequence: int
    inputs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Decision:
    """The body of an entry.

    `ends` are offsets in the inputs by the paths of the sources: what lies between the last ends and these is the
    input, no matter who wrote it. Then the clock ticks to `tick_us`, if it is given. `blocks` and `events` count
    everything up to here, so that a range can be cut to size without reading it; they are checked when it is read, as
    is `crc`, the checksum of the frames it takes. A control entry takes no input: a new model's `ends` are those of its
    own sources. `request` is the id of the request: a second entry with the same one changes nothing.

    To ask for a decision give only what is asked for, as in `Decision(reset=True)`: the sequencer fills in the rest.
    """

    ends: Mapping[str, int] = field(default_factory=dict)
    blocks: int = 0
    events: int = 0
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
    """With a reset: for each client the last message taken, so that an engine that joins later can begin there."""
    running: bool | None = None
    """Whether input is taken from now on."""
    request: str | None = None
    lagging: bool | None = None
    """With a tick: input that was there when the entry was made is left to a later one."""

    @property
    def is_control(self) -> bool:
        """Whether workers stop at this entry: it states a model, empties windows or asks for a snapshot."""
        return self.reset or self.states is not None or self.persist is not None

    def body(self) -> str:
        """The decision as JSON; fields that are None are left out."""
        told = {name: value for name, value in asdict(self).items() if value is not None}
        if not self.reset:
            del told["reset"]
        return json.dumps(told, separators=(",", ":"))

    @classmethod
    def of(cls, entry: Entry) -> Decision:
        """The decision in an entry; DataError if another version wrote what this one does not know."""
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
    """The fields of a record; DataError if it has unknown ones, which a newer version wrote."""
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
    """The entries after `state` that count, each with the state after it, through number `upto` or to the end."""
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


REQUESTS_REMEMBERED = 64
"""A request whose entry came twice must not be carried out twice."""
CLIENTS_REMEMBERED = 4096
"""Clients of all inputs whose last number is known. Those that sent nothing for longest are forgotten first."""
PRODUCERS_REMEMBERED = 4096
"""Publishers without a client's name whose last record is known, so that a copy of it is not taken again.

As many as readers of streams remember: an append that is sent again may come after those of many others.
"""
_COPIED_BYTES = 4096
"""Copying more than that costs more than looking at it where it lies."""

Sender = tuple[str, int]
"""The producer of a record's batch, and the record's number among all of that producer."""


@dataclass(frozen=True, slots=True)
class SequencePosition:
    """What follows from the sequence log and the inputs up to one entry."""

    sequence: SequenceState = field(default_factory=SequenceState)
    ends: Mapping[str, int] = field(default_factory=dict)
    """For each input, by the path of its source, the offset up to which it is taken."""
    block: int = 0
    """The number of the last block."""
    events: int = 0
    clients: Mapping[str, int] = field(default_factory=dict)
    """For each client that numbers its messages, by the path of the source and its id, the last number taken.

    The most recent client stands last.
    """
    stated_at: int = -1
    """Where on the sequence log the model in force is stated; -1: nowhere yet."""
    requests: tuple[str, ...] = ()
    """The last requests that entries answered."""
    running: bool = True
    """Whether input is taken."""
    producers: Mapping[str, int] = field(default_factory=dict)
    """For each publisher without a client's name the last record taken, as `clients`."""

    @property
    def number(self) -> int:
        """The number of the last entry."""
        return self.sequence.number

    def tree(self) -> dict[str, Any]:
        """As plain values. Of thousands of clients and producers a plain copy is made, not one name by name."""
        known = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in known.items()} | {
            "sequence": asdict(self.sequence)
        }

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> SequencePosition:
        """Back from plain values; clients that were left out are none."""
        if not isinstance(tree["ends"], Mapping):
            raise DataError(reason="A position does not name its inputs; an older version wrote it.")
        sequence = SequenceState(**known_fields(SequenceState, tree["sequence"], "The sequence of a position"))
        known = {**known_fields(cls, dict(tree), "A position"), "sequence": sequence, "ends": dict(tree["ends"])}
        requests, clients = tuple(tree.get("requests", ())), tree.get("clients") or {}
        return cls(**{**known, "requests": requests, "clients": clients})

    def after(self, sequence: SequenceState, decision: Decision, counter: BlockCounter) -> SequencePosition:
        """The position after an entry, whose blocks `counter` has counted; `sequence` is the fold with the entry."""
        stated_at = self.stated_at if decision.states is None or self.knows(decision) else sequence.upto
        requests = self.requests
        if decision.request is not None and decision.request not in requests:
            requests = (*requests, decision.request)[-REQUESTS_REMEMBERED:]
        running = self.running if decision.running is None else decision.running
        producers = {} if decision.reset else counter.producers  # an engine that begins there does not know them
        return SequencePosition(
            sequence, decision.ends, counter.block, counter.events, counter.clients, stated_at, requests, running,
            producers,
        )  # fmt: skip

    def only(self, sources: Iterable[str]) -> SequencePosition:
        """The position without clients and producers of other sources than these."""
        kept = set(sources)
        clients, producers = (
            {name: last for name, last in known.items() if name.rpartition("/")[0] in kept}
            for known in (self.clients, self.producers)
        )
        return replace(self, clients=clients, producers=producers)

    def knows(self, decision: Decision) -> bool:
        """Whether the request of an entry was carried out before."""
        return decision.request is not None and decision.request in self.requests


@dataclass(slots=True)
class BlockCounter:
    """Numbers the blocks of frames in order. The leader and every reader count with it, so that they agree."""

    block: int
    events: int
    clients: dict[str, int]
    crc: int = 0
    """The checksum of the frames of the entry at hand."""
    producers: dict[str, int] = field(default_factory=dict)

    @classmethod
    def at(cls, position: SequencePosition) -> BlockCounter:
        """One that continues from a position."""
        return cls(position.block, position.events, dict(position.clients), producers=dict(position.producers))

    def sum_up(self, value: bytes) -> None:
        """Add a frame to the checksum; without its own at its end, after which every frame looks alike."""
        if len(value) < _COPIED_BYTES:
            self.crc = extend(self.crc, value[:-4])
        else:
            self.crc = extend(self.crc, np.frombuffer(value, np.uint8)[:-4])

    def sum_up_batch(self, view: BatchView) -> None:
        """Add a stored batch of records to the checksum."""
        self.crc = extend(self.crc, view.raw)

    def take(self, head: FrameHead | None, source: str, sender: Sender | None = None) -> int | None:
        """Number the blocks of a frame of input `source`; how many at its beginning are left out, as they came before.

        A record that is no frame, and a frame before which messages of its client are missing, is one empty block, and
        the answer is None: it has a number, under which it is reported. A record of a `sender` whose number came before
        is a copy, which a bus may store, and is left out.
        """
        if sender is not None and (head is None or head.client is None) and self._is_copy(sender, source):
            return 0 if head is None else head.blocks
        known = None if head is None else self._known(head, source)
        if head is None or known is None:
            self.block += 1
        elif known < head.blocks:
            self.block += head.blocks - known
            self.events += head.events
        return known

    def take_records(self, count: int, source: str, sender: Sender | None) -> int:
        """Number the records of a stored batch, one block each; how many at its beginning are copies, and left out.

        `sender` is the producer, and the number of the first record.
        """
        known = 0 if sender is None else min(max(self._latest(sender, source, count) - sender[1] + 1, 0), count)
        self.block += count - known
        self.events += count - known
        return known

    def pass_gap(self) -> None:
        """Records that were trimmed before they were taken are one empty block, under which they are reported."""
        self.block += 1

    def _is_copy(self, sender: Sender, source: str) -> bool:
        return sender[1] <= self._latest(sender, source, 1)

    def _latest(self, sender: Sender, source: str, count: int) -> int:
        """The last record of a producer so far; from now on it is the last of these."""
        producer, last = f"{source}/{sender[0]}", sender[1] + count - 1
        latest = self.producers.pop(producer, -1)  # so that the order is that of their last records
        self.producers[producer] = max(latest, last)
        if len(self.producers) > PRODUCERS_REMEMBERED:
            del self.producers[next(iter(self.producers))]
        return latest

    def _known(self, head: FrameHead, source: str) -> int | None:
        if head.client is None:
            return 0
        client, first, last = f"{source}/{head.client.hex()}", head.first, head.first + head.blocks - 1
        latest = self.clients.get(client, first - 1)
        if first > latest + 1:
            return None
        self.clients.pop(client, None)  # so that the order is that of their last messages
        self.clients[client] = max(latest, last)
        if len(self.clients) > CLIENTS_REMEMBERED:
            del self.clients[next(iter(self.clients))]
        return min(latest + 1 - first, head.blocks)
