"""Reading the past of a sequence again: the input of earlier blocks, and entries that were written under another model.

An entry names the ends of the inputs that its model had, and its blocks are numbered in the order of their sources. So
reading it takes the sources of its model version: the entries between two changes.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lockstep.core.sequence import SequenceState
from lockstep.engine.columns.runner import Span
from lockstep.engine.errors import LogTooShort
from lockstep.engine.events.columns import EventBatch, concat
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.project import Project
from lockstep.engine.model.windows import SourceWindow
from lockstep.engine.runtime.sequence.entries import BlockCounter, Decision, SequencePosition, counted
from lockstep.engine.runtime.sequence.model_statement import compiled
from lockstep.engine.runtime.sequence.reader import Range, RangeReader, join_ranges
from lockstep.engine.runtime.sequence.streams import ProjectStreams, sources, takes_records
from lockstep.engine.runtime.worker.divided_input import Reader
from lockstep.errors import DataError, Trimmed
from lockstep.log.port import Bus

_FORM = ("form", "stream", "decode", "avro_schema", "date_format", "upsert")


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """The entries after entry `number` name the inputs of these sources, in order.

    A source is its path and its schema; one that takes records says also how, as JSON. `begins` are the offsets at
    which the version takes over each input, by name.
    """

    number: int
    sources: tuple[tuple[str, ...], ...]
    begins: Mapping[str, int]

    @classmethod
    def at(cls, position: SequencePosition, graph: Graph) -> ModelVersion:
        """The version of a model that begins at a position."""
        named = tuple((node.path, str(node.schema), *_record_form(node)) for node in sources(graph))
        return cls(position.number, named, position.ends)

    @property
    def paths(self) -> tuple[str, ...]:
        """The sources by path."""
        return tuple(path for path, *_ in self.sources)

    def origins(self) -> frozenset[tuple[str, str | None]]:
        """The sources by path, with the stream whose records they take, if it is not the project's own."""
        return frozenset((path, json.loads(form[0])["stream"] if form else None) for path, _, *form in self.sources)

    def nodes(self) -> tuple[Node, ...]:
        """The sources as they were."""
        return tuple(_source(index, *named) for index, named in enumerate(self.sources))

    def graph(self) -> Graph:
        """A model of the sources alone."""
        return Graph(Project(name="", queries=()), self.nodes(), "")


@dataclass(frozen=True, slots=True)
class ModelHistory:
    """All that the state of windows is made of: what lies after `base`, in one model version or several.

    `base` is the beginning of the sequence, or where windows were last emptied.
    """

    base: SequencePosition
    versions: tuple[ModelVersion, ...]

    @classmethod
    def begin(cls, base: SequencePosition, graph: Graph) -> ModelHistory:
        """Nothing happened yet."""
        return cls(base, (ModelVersion.at(base, graph),))

    def changed(self, position: SequencePosition, graph: Graph) -> ModelHistory:
        """The history with a model that comes into force at a position."""
        version = ModelVersion.at(position, graph)
        return (
            self if version.sources == self.versions[-1].sources else replace(self, versions=(*self.versions, version))
        )

    def version_of(self, position: SequencePosition) -> int:
        """The index of the model version to which the entries after a position belong."""
        return max(bisect_right(self.versions, position.number, key=lambda version: version.number) - 1, 0)

    def lasting(self, version: int) -> frozenset[str]:
        """The sources of a model version that are still there: what came in for others is not needed any more.

        One that takes the records of another stream since then is another source.
        """
        return frozenset(
            path for path, _ in frozenset.intersection(*(each.origins() for each in self.versions[version:]))
        )

    def tree(self) -> dict[str, Any]:
        """As plain values."""
        versions = [
            [version.number, [list(source) for source in version.sources], dict(version.begins)]
            for version in self.versions
        ]
        return {"base": self.base.tree(), "eras": versions}

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> ModelHistory:
        """Back from plain values."""
        versions = [
            ModelVersion(number, tuple(tuple(each) for each in named), dict(begins))
            for number, named, begins in tree["eras"]
        ]
        return cls(SequencePosition.of(tree["base"]), tuple(versions))


def read_model_history(bus: Bus, streams: ProjectStreams) -> ModelHistory:
    """The history as the sequence log tells it; clients are not in it, so that it is no place to read on from."""
    log, position, past, graph = bus.open(streams.sequence), SequencePosition(), None, None
    try:
        for state, entry in counted(log, SequenceState()):
            decision, known = Decision.of(entry), position
            position = known.after(state, decision, BlockCounter(decision.blocks, decision.events, {}))
            if known.knows(decision):
                continue
            if decision.states is not None:
                graph = compiled(decision.states)
                past = ModelHistory.begin(position, graph) if past is None else past.changed(position, graph)
            if decision.reset and graph is not None:
                past = ModelHistory.begin(position, graph)
    except Trimmed as error:
        raise LogTooShort(window=log.name, stream=log.name, needed=0, first=log.bounds().first) from error
    if past is None:
        raise DataError(reason=f"No model is stated on {log.name}.")
    return past


class VersionedReader(RangeReader):
    """Reads any range of the past, across control entries, as the model in force sees it."""

    def __init__(
        self,
        bus: Bus,
        graph: Graph,
        streams: ProjectStreams,
        past: ModelHistory,
        needed: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        super().__init__(bus, graph, streams, needed)
        self._bus, self._streams, self._past = bus, streams, past
        self._opened: dict[int, RangeReader] = {}

    @property
    def is_plain(self) -> bool:
        """Whether all that it reads is of one model version, as another reader of the model would see it."""
        return len(self._past.versions) == 1

    def read(self, position: SequencePosition, upto: int, max_events: int | None = None) -> Range:
        """Everything after `position` through entry `upto`, or until it is large enough.

        Of one version also what could not be read, and the lineage: another shard may take it for what it reads first.
        """
        end, taken = position, []
        last = None if max_events is None else position.events + max_events
        while end.number < upto and (last is None or end.events < last):
            taken.append(self._read_on(end, upto, None if last is None else last - end.events))
            end = taken[-1].end
        made = join_ranges(position, end, taken)
        return replace(made, control=None) if self.is_plain else Range(made.span, end, ())

    def check_reach(self, position: SequencePosition) -> None:
        """Refuse if an input begins after what is needed of it."""
        first = self._past.version_of(position)
        for version in range(first, len(self._past.versions)):
            begins = self._past.versions[version].begins
            self._reader(version).check_reach(position if version == first else replace(position, ends=begins))

    def _read_on(self, position: SequencePosition, upto: int, max_events: int | None) -> Range:
        """A part of one model version, or the entry that ends it."""
        versions, at = self._past.versions, self._past.version_of(position)
        taken = self._reader(at).read(position, upto, max_events)
        if at + 1 < len(versions) and taken.end.number == versions[at + 1].number:
            return replace(taken, end=taken.end.only(taken.end.ends))
        lasting = self._past.lasting(at)
        inputs = {path: batch for path, batch in taken.span.inputs.items() if path in lasting}
        return replace(taken, span=replace(taken.span, inputs=inputs))

    def _reader(self, version: int) -> RangeReader:
        """The reader of a model version; of what the model in force does not need it decodes no columns."""
        if version not in self._opened:
            self._opened[version] = RangeReader(self._bus, self._past.versions[version].graph(), self._streams)
        if self._needed is None:
            return self._opened[version]
        lasting = self._past.lasting(version)
        wanted = {path: names for path, names in self._needed.items() if path in lasting}
        nothing = dict.fromkeys(self._past.versions[version].paths, frozenset[str]())
        return self._opened[version].only({**nothing, **wanted})


def _source(index: int, path: str, schema: str, form: str = "{}") -> Node:
    query, _, name = path.partition("/")
    made = Schema.parse(schema)
    window = SourceWindow(name=name, schema=made, **json.loads(form))
    return Node(index, query, window, made, (), (), is_indexed=True)


def _record_form(node: Node) -> tuple[str, ...]:
    """How a source takes records; nothing if it takes events."""
    if not takes_records(node):
        return ()
    return (json.dumps({name: getattr(node.window, name) for name in _FORM}),)


_CACHED_EVENTS = 500_000
"""Events kept decoded: what leaves a short window was read a moment ago."""
_CACHED_SPANS = 256
"""Ranges kept, however small: a quiet engine has many."""
_SEGMENT_EVENTS = 50_000
"""Positions are remembered about this far apart."""


class LogHistory:
    """Reads any block from the earliest one needed on. It is what `lockstep.engine.columns.runner.History` asks for.

    `marks` are positions in order; what lies between two of them is read, and kept for a while, as one.
    """

    def __init__(self, reader: Reader, schemas: dict[str, Schema], marks: Sequence[SequencePosition]) -> None:
        self.reader, self._schemas = reader, schemas
        self._marks = list(marks)
        self._is_sealed = True
        """Whether the last mark stays where it is: what follows it is not to be read together with what is before."""
        self._spans: list[Span] = []

    def add(self, start: SequencePosition, end: SequencePosition, span: Span) -> None:
        """Remember a range that was just read; it begins where the last one ended."""
        if not self._marks:
            self._marks = [start, end]
        elif not self._is_sealed and len(self._marks) > 1 and end.events - self._marks[-2].events <= _SEGMENT_EVENTS:
            self._marks[-1] = end
        else:
            self._marks.append(end)
        self._is_sealed = False
        self._keep(span)

    def seal(self, position: SequencePosition) -> None:
        """A control entry was passed: ranges end before it and begin after it."""
        if self._marks:
            self._marks.append(position)
        self._is_sealed = True

    def forget_before(self, block: int | None) -> None:
        """Drop what lies wholly before `block`; None: nothing of the past is needed."""
        keep = len(self._marks) - 1 if block is None else self._segment_of(block)
        del self._marks[: max(keep, 0)]

    @property
    def earliest(self) -> SequencePosition | None:
        """The first position that is remembered: the logs must reach back to it."""
        return self._marks[0] if self._marks else None

    @property
    def marks(self) -> tuple[SequencePosition, ...]:
        """The positions that it reads from."""
        return tuple(self._marks)

    def read(self, source: str, first_block: int, last_block: int) -> EventBatch:
        """The raw input events of some blocks, for one source window."""
        parts, block = [EventBatch.empty(self._schemas[source])], first_block
        while block <= last_block:
            span = self._span_with(block)
            batch = span.inputs.get(source)
            if batch is not None:
                low, high = np.searchsorted(batch.block, [block, last_block + 1])
                parts.append(batch.slice(int(low), int(high)))
            block = span.last + 1
        return concat(parts[1:] or parts)

    def _span_with(self, block: int) -> Span:
        for span in reversed(self._spans):
            if span.first <= block <= span.last:
                return span
        at = self._segment_of(block)
        if not 0 <= at < len(self._marks) - 1:
            raise DataError(reason=f"Block {block} was asked for again, but the place of its input was forgotten.")
        position, upto = self._marks[at], self._marks[at + 1].number
        while True:
            taken = self.reader.read(position, upto)
            position = taken.end
            self._keep(taken.span)
            if taken.span.last >= block or position.number >= upto:
                return taken.span

    def _segment_of(self, block: int) -> int:
        return bisect_right(self._marks, block - 1, key=lambda mark: mark.block) - 1

    def _keep(self, span: Span) -> None:
        self._spans.append(span)
        while len(self._spans) > _CACHED_SPANS or (len(self._spans) > 2 and self._size() > _CACHED_EVENTS):
            del self._spans[0]

    def _size(self) -> int:
        return sum(len(batch) for span in self._spans for batch in span.inputs.values())
