"""What a project's subscribers must get: its sequence log and inputs read in the plainest way, and the interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from change_worlds import Oracle as ChangingOracle
from kernel_worlds import Answer

from lockstep.core.sequence import Entry, SequenceState, fold
from lockstep.engine.errors import FrameDamaged
from lockstep.engine.events.event import Event, Flag, InputBlock, Opcode
from lockstep.engine.events.frames import decode_frame
from lockstep.engine.events.json_format import parse_event
from lockstep.engine.events.schema import FieldType
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.windows import SourceWindow
from lockstep.engine.runtime.sequence.entries import Decision, decode
from lockstep.engine.runtime.sequence.model_statement import compiled
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.engine.runtime.sequence.streams import ProjectStreams, own_sources
from lockstep.log.batch import NO_PRODUCER, BatchView
from lockstep.log.port import Bus

Values = list[tuple[int, bytes]]


@dataclass(frozen=True)
class Record:
    """A record of a stream that is not the project's own."""

    offset: int
    key: bytes | None
    value: bytes
    created_ns: int
    sender: bytes | None
    number: int


class Recorder:
    """Everything that ever stood on the sequence log and the inputs, also what engines have trimmed since."""

    def __init__(self, bus: Bus, streams: ProjectStreams) -> None:
        self._bus, self._streams = bus, streams
        self._kept: dict[str, Values] = {}
        self._records: dict[str, dict[int, Record]] = {}
        self._root = streams.sequence.removesuffix("S")

    def keep(self, name: str) -> None:
        """Called before a log is trimmed."""
        if name == self._streams.sequence or name.endswith(".I") or not name.startswith(self._root):
            self.values(name)

    def values(self, name: str) -> Values:
        """Offsets and values from the beginning to the end of a log."""
        kept = self._kept.setdefault(name, [])
        log = self._bus.open(name)
        start = kept[-1][0] + 1 if kept else log.bounds().first
        kept += values_between(log, start, log.bounds().next)
        return kept

    def records(self, name: str, start: int, end: int) -> Iterator[Record]:
        """The records of a stream that is not the project's own, from `start` to `end`."""
        known = self._records.setdefault(name, {})
        log = self._bus.open(name)
        at = max(log.bounds().first, max(known, default=-1) + 1)
        while at < log.bounds().next and (stored := log.read(at)):
            for entry in stored:
                view = BatchView(entry.base, entry.data, name)
                sender = None if view.producer == NO_PRODUCER else view.producer
                rows = zip(view.keys(), view.values(), view.created(), strict=True)
                for index, (key, value, created_ns) in enumerate(rows):
                    number = view.sequence + index
                    known[view.base + index] = Record(view.base + index, key, value, created_ns, sender, number)
                at = view.end
        return (record for offset, record in sorted(known.items()) if start <= offset < end)

    def entries(self) -> Iterator[Entry]:
        """The entries that count."""
        state = SequenceState()
        for at, value in self.values(self._streams.sequence):
            record = decode(value)
            state, counts = fold(state, at, record)
            if counts and isinstance(record, Entry):
                yield record

    def input(self, node: Node, start: int, end: int) -> Iterator[bytes]:
        """The records of a source's input from `start` to `end`."""
        for at, value in self.values(self._streams.input(node)):
            if start <= at < end:
                yield value


def stream_of(name: str) -> str:
    """The log of an input that takes records."""
    return name.partition("@")[2].rpartition(":")[0]


def event_of(node: Node, record: Record, shard: int) -> Event:
    """A record as an event; ValueError if it is none."""
    window = node.window
    assert isinstance(window, SourceWindow)
    if window.decode == "json":
        return parse_event(record.value.decode(), node.schema)
    texts = {"key": record.key, "value": record.value}
    blobs = {field.name for field in node.schema if field.type is FieldType.BLOB}
    parts = {name: data if data is None or name in blobs else data.decode() for name, data in texts.items()}
    values = {**parts, "offset": record.offset, "time": record.created_ns // 1000, "shard": shard}
    return Event(Opcode.INSERT, Flag.NORMAL, tuple(values[name] for name in node.schema.names))


@dataclass
class Oracle:
    """The answer, the counts, and the blocks of bad records, each as often as there are."""

    windows: ChangingOracle
    bad: list[int] = field(default_factory=list)
    notices: list[int] = field(default_factory=list)
    blocks: int = 0
    events: int = 0
    persists: int = 0
    changes: int = 0
    senders: dict[tuple[str, bytes], int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    """Up to where the input of each source is taken."""

    @property
    def answer(self) -> Answer:
        return self.windows.answer

    @property
    def graph(self) -> Graph:
        """The model in force at the end."""
        return self.windows.graph

    @property
    def counts(self) -> dict[str, Any]:
        return {path: counts.dump() for path, counts in self.windows.interpreter.counts.items()}

    @classmethod
    def of(cls, recorder: Recorder, graph: Graph) -> Oracle:
        """Follow every entry that counts. Frames with client ids are not understood here."""
        found = cls(ChangingOracle(graph, answer={node.path: [] for node in graph.nodes}))
        done = set[str]()
        for entry in recorder.entries():
            decision = Decision.of(entry)
            is_new = decision.request is None or decision.request not in done
            done |= {decision.request} if decision.request is not None else set()
            if is_new:
                found.turn(decision)
            now = dict(decision.ends)
            if decision.states is None:
                found.take_records(recorder, decision)
            for node in own_sources(found.graph) if decision.states is None else ():
                for value in recorder.input(node, found.ends.get(node.path, 0), now[node.path]):
                    for block in found.blocks_in(value, node):
                        found.take(block)
            found.ends = now
            if decision.tick_us is not None:
                found.take(InputBlock(found.blocks + 1, tick_us=decision.tick_us, lagging=bool(decision.lagging)))
        return found

    def left_over(self, recorder: Recorder) -> dict[str, int]:
        """How many records of each input nobody has taken."""
        found = {
            node.path: sum(1 for _ in recorder.input(node, self.ends.get(node.path, 0), 1 << 62))
            for node in own_sources(self.graph)
        }
        for name, end in self.ends.items():
            if "@" in name:
                found[name] = sum(1 for _ in recorder.records(stream_of(name), end, 1 << 62))
        return {path: count for path, count in found.items() if count}

    def turn(self, decision: Decision) -> None:
        """Another model, empty windows, or a snapshot."""
        self.persists += decision.persist is not None
        if decision.reset:
            self.windows.reset()
        if decision.states is not None:
            graph = compiled(decision.states)
            if graph.fingerprint != self.graph.fingerprint:
                self.changes += 1
                self.windows.change(graph)
                for node in graph.nodes:
                    self.answer.setdefault(node.path, [])

    def blocks_in(self, value: bytes, node: Node) -> Iterator[InputBlock]:
        """The blocks of a record of an input."""
        try:
            frame = decode_frame(value, node.schema, number_from=self.blocks + 1)
        except FrameDamaged:
            self.refuse()
            return
        events = {number: tuple(given) for number, given in frame.batch.blocks()}
        for number in frame.numbers:
            yield InputBlock(int(number), node.path, events.get(int(number), ()), number in frame.transactional)

    def take_records(self, recorder: Recorder, decision: Decision) -> None:
        """Record by record; models in these tests have sources of one form."""
        for name, end in decision.ends.items():
            path, at, _ = name.partition("@")
            if not at:
                continue
            start = self.ends[name]
            if name in (decision.gaps or {}):
                start = (decision.gaps or {})[name]
                self.refuse()
            for record in recorder.records(stream_of(name), start, end):
                self.take_record(name, path, record)

    def take_record(self, name: str, path: str, record: Record) -> None:
        if record.sender is not None:
            latest = self.senders.get((name, record.sender), -1)
            self.senders[name, record.sender] = max(latest, record.number)
            if record.number <= latest:
                return
        node = self.graph.find(path)
        assert node is not None
        shard = int(stream_of(name).partition("/")[2] or 0)
        try:
            event = event_of(node, record, shard)
        except ValueError:
            self.refuse()
            self.events += 1
            return
        self.take(InputBlock(self.blocks + 1, path, (event,)))

    def refuse(self) -> None:
        """A block without events, under which something is reported."""
        self.blocks += 1
        self.bad.append(self.blocks)
        self.windows.blocks.append(InputBlock(self.blocks))

    def take(self, block: InputBlock) -> None:
        self.blocks += 1
        self.events += len(block.events)
        assert block.number == self.blocks
        self.windows.feed([block])
        interpreter = self.windows.interpreter
        self.bad += [block.number for _ in self.windows.bad]
        self.notices += [notice.block for notice in interpreter.notices]
        self.windows.bad.clear()
        interpreter.notices.clear()
