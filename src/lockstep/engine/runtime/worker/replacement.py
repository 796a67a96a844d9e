"""Another model at an entry of the sequence log, while the project runs.

Windows that the change does not touch keep their pages. The others get the state that they would have if they had
always been so: history is replayed through the new model, silently, up to the entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lockstep.engine.columns import pages
from lockstep.engine.columns.evaluator import Evaluator, duty_of
from lockstep.engine.errors import LogTooShort, SourceReplaced
from lockstep.engine.events.frame_layout import FrameHead, layout_of, read_head
from lockstep.engine.model.changes import compare
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.guard import clock_of
from lockstep.engine.model.plan import make_plan
from lockstep.engine.model.plan_state import StatePlan, retention_of
from lockstep.engine.model.windows import CopyWindow
from lockstep.engine.reference.operator import WindowCounts
from lockstep.engine.runtime.output.outlet import is_barrier
from lockstep.engine.runtime.sequence.entries import SequencePosition
from lockstep.engine.runtime.sequence.reader import RangeReader, end_of, values_between
from lockstep.engine.runtime.sequence.streams import ProjectStreams, open_inputs
from lockstep.engine.runtime.worker.divided_input import DividedReader, PartFolder, Reader
from lockstep.engine.runtime.worker.history import LogHistory, ModelHistory, VersionedReader, read_model_history
from lockstep.errors import StreamNotFound
from lockstep.log.offsets import step_back
from lockstep.log.port import Bus, Log

_REPLAY_EVENTS = 200_000
_LAST_RECORDS = 64
"""Of an out stream: barriers stand among the last ones, one for each change of the lead."""
_MODEL = "model"
"""The page of the clock and of all counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardContext:
    """The shard that a worker evaluates: the bus, the streams of its project, and its number among how many."""

    bus: Bus
    streams: ProjectStreams
    shard: int = 0
    shards: int = 1
    parts: PartFolder | None = None
    """Where shards on this machine leave pieces of input for each other."""

    def reader(self, plain: RangeReader, evaluator: Evaluator) -> Reader:
        """A reader of the columns and rows that an evaluator needs."""
        needed = plain.only(evaluator.needed)
        if not evaluator.divided_inputs:
            return needed
        parts = self.parts if plain.is_plain else None
        return DividedReader(needed, evaluator.divided_inputs, evaluator.graph.fingerprint, parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerState:
    """The state of a worker: its model, the windows whose output it gives, all pages, and how to read the past."""

    graph: Graph
    wanted: frozenset[str]
    pages: Mapping[str, bytes]
    marks: Sequence[SequencePosition]
    past: ModelHistory


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplacedModel:
    """The state after a change of the model; `pages` are all of its pages, of which none counts as changed."""

    evaluator: Evaluator
    history: LogHistory
    position: SequencePosition
    past: ModelHistory
    pages: Mapping[str, bytes]


def replace_model(
    before: WorkerState, end: SequencePosition, graph: Graph, wanted: frozenset[str], context: ShardContext
) -> ReplacedModel:
    """Switch to another model at the control entry whose range ends at `end`."""
    position = end.only(end.ends)
    past = before.past.changed(position, graph)
    stale = stale_windows(before.graph, graph, context, begun=wanted - before.wanted)
    rebuilt = WorkerState(graph=graph, wanted=wanted, pages={}, marks=(), past=past)
    if stale - untouched_windows(before.graph, graph):
        _check_held(past, context, stale)
        rebuilt = replay(rebuilt, position, context)
    found = merged_pages(before.pages, rebuilt.pages, _active(graph, context), stale)
    marks = _merged_marks(*before.marks, *rebuilt.marks, position)
    return _replaced(replace(rebuilt, pages=found, marks=marks), position, context)


def empty_windows(
    before: WorkerState,  # noqa: ARG001 - as replace_model has it
    end: SequencePosition,
    graph: Graph,
    wanted: frozenset[str],
    context: ShardContext,
) -> ReplacedModel:
    """Start empty at the control entry whose range ends at `end`: no rows, no counts, no clock and no past."""
    position = end.only(end.ends)
    fresh = WorkerState(graph=graph, wanted=wanted, pages={}, marks=(), past=ModelHistory.begin(position, graph))
    return _replaced(fresh, position, context)


def load_evaluator(state: WorkerState, context: ShardContext) -> tuple[Evaluator, LogHistory]:
    """An evaluator with the state in some pages, and the history that it reads."""
    reader = VersionedReader(context.bus, state.graph, context.streams, state.past)
    schemas = {node.path: node.schema for node in state.graph.nodes}
    history = LogHistory(reader, schemas, state.marks)
    evaluator = Evaluator(state.graph, wanted=state.wanted, history=history, shard=context.shard, shards=context.shards)
    history.reader = context.reader(reader, evaluator)
    evaluator.load(state.pages)
    history.forget_before(evaluator.earliest_block())
    return evaluator, history


def replay(start: WorkerState, upto: SequencePosition, context: ShardContext) -> WorkerState:
    """The state of a model as if it had been in force from the base of the past on; its output is discarded."""
    evaluator, history = load_evaluator(start, context)
    position = start.past.base
    while position.number < upto.number:
        taken = history.reader.read(position, upto.number, _REPLAY_EVENTS)
        history.add(position, taken.end, taken.span)
        evaluator.evaluate(taken.span, silent=True)
        history.forget_before(evaluator.earliest_block())
        position = taken.end
    found = {name: page for name, page in evaluator.changed_pages() if page is not None}
    return WorkerState(graph=start.graph, wanted=start.wanted, pages=found, marks=history.marks, past=start.past)


def stale_windows(old: Graph, new: Graph, context: ShardContext, *, begun: frozenset[str]) -> frozenset[str]:
    """The windows of a shard whose pages do not fit the new model; `begun` are those that were not shown before.

    Those that must be rebuilt; those that have other rows on this shard now; and those that kept only the columns that
    were used, if more may be used now.
    """
    before, after, kept = _active(old, context), _active(new, context), compare(old, new).kept
    stale = {path for path, fields in after.items() if path not in kept or before.get(path) != fields}
    keeping, looked_at = StatePlan(new), stale | begun
    for node in reversed(new.nodes):
        if node.path in looked_at:
            looked_at |= {new.nodes[parent.node].path for parent in node.parents}
            if node.path in after and _keeps_columns(node, keeping):
                stale.add(node.path)
    return frozenset(stale)


def untouched_windows(old: Graph, new: Graph) -> frozenset[str]:
    """New windows of new sources alone, for which nothing came in yet; without those that the clock moves."""
    known = {node.path for node in old.nodes}
    found: set[str] = set()
    for node in new.nodes:
        above = {new.nodes[parent.node].path for parent in node.parents}
        if node.path not in known and above <= found and clock_of(node) != "model clock":
            found.add(node.path)
    return frozenset(found)


def merged_pages(
    old: Mapping[str, bytes], rebuilt: Mapping[str, bytes], windows: Mapping[str, Any], stale: frozenset[str]
) -> dict[str, bytes]:
    """The pages of some windows: of those that are stale the rebuilt ones, of the others the old ones."""
    found = {name: page for name, page in old.items() if _owner(name) in windows and _owner(name) not in stale}
    found |= {name: page for name, page in rebuilt.items() if _owner(name) in stale}
    clock_us, counts = _model_page(old)
    _, fresh = _model_page(rebuilt)
    nothing = WindowCounts().dump()
    found[_MODEL] = pages.pack(
        [clock_us, {path: (fresh if path in stale else counts).get(path, nothing) for path in windows}]
    )
    return found


def page_changes(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """The changes that turn one set of pages into another; None removes a page."""
    gone: dict[str, bytes | None] = dict.fromkeys(old.keys() - new.keys())
    return gone | {name: page for name, page in new.items() if old.get(name) != page}


def missing_history(
    old: Graph,
    new: Graph,
    context: ShardContext,
    *,
    past: ModelHistory | None = None,
    begun: frozenset[str] = frozenset(),
) -> list[str]:
    """What the logs no longer hold of the past, in words; none if nothing has to be rebuilt from it, on any shard.

    Without a `past` it is the one that the sequence log tells.
    """
    everybody = [replace(context, shard=shard) for shard in range(context.shards)]
    stale = frozenset[str]().union(*(stale_windows(old, new, each, begun=begun) for each in everybody))
    rebuilt = ", ".join(sorted(stale - untouched_windows(old, new)))
    if not rebuilt:
        return []
    try:
        gaps = [*_gaps(past or read_model_history(context.bus, context.streams), context.bus, context.streams)]
    except LogTooShort as error:
        gaps = [(context.streams.sequence, error.params["needed"], error.params["first"])]
    except (SourceReplaced, StreamNotFound) as error:
        return [f"To rebuild {rebuilt}, the records of before are needed: {error}"]
    return [
        f"To rebuild {rebuilt}, {name} is needed from offset {needed} on, but it begins at {first}."
        for name, needed, first in gaps
    ]


def outputs_of_others(new: Graph, context: ShardContext, begun: Iterable[str]) -> list[str]:
    """Out streams that windows would begin to write to and that hold events of another schema, in words.

    A window of the same name was removed or not published for a while, and its readers can't read the new one.
    """
    names = set(context.bus.names())
    nodes = {node.path: node for node in new.nodes}
    found = []
    for path in sorted(begun):
        stream = context.streams.output(nodes[path])
        head = _last_head(context.bus.open(stream)) if stream in names else None
        if head is not None and head.fingerprint != layout_of(nodes[path].schema).fingerprint:
            found.append(
                f"Window {path} would be published to {stream}, which holds events of another schema from a window "
                f"that had this name: give the window another name, or delete that stream when nobody reads it."
            )
    return found


def _last_head(log: Log) -> FrameHead | None:
    """The head of the last frame on an out stream; None if there is none among its last records."""
    bounds = log.bounds()
    start = step_back(log, bounds.next, _LAST_RECORDS, bounds.first)
    values = [value for _, value in values_between(log, start, bounds.next)]
    return next((read_head(value) for value in reversed(values) if not is_barrier(value)), None)


def _replaced(state: WorkerState, position: SequencePosition, context: ShardContext) -> ReplacedModel:
    evaluator, history = load_evaluator(state, context)
    return ReplacedModel(evaluator=evaluator, history=history, position=position, past=state.past, pages=state.pages)


def _check_held(past: ModelHistory, context: ShardContext, stale: frozenset[str]) -> None:
    for name, needed, first in _gaps(past, context.bus, context.streams):
        raise LogTooShort(window=f"To rebuild {', '.join(sorted(stale))} one", stream=name, needed=needed, first=first)


def _gaps(past: ModelHistory, bus: Bus, streams: ProjectStreams) -> Iterator[tuple[str, object, object]]:
    """Each log that begins after what is needed of it, with both offsets."""
    needed = {streams.sequence: past.base.sequence.upto + 1}
    for version in past.versions:
        for each in open_inputs(bus, streams, version.graph()):
            begins = end_of(each, version.begins)
            needed[each.log.name] = min(needed.get(each.log.name, begins), begins)
    for name, start in needed.items():
        first = bus.open(name).bounds().first
        if start < first:
            yield name, start, first


def _active(graph: Graph, context: ShardContext) -> dict[str, tuple[str, ...]]:
    """The windows that a shard evaluates, with the fields by which their rows are divided."""
    active = duty_of(graph, context.shard, context.shards).active
    splits = make_plan(graph).splits if context.shards > 1 else ()
    fields = {index: split.fields for split in splits for index in split.divided}
    return {graph.nodes[index].path: fields.get(index, ()) for index in sorted(active)}


def _keeps_columns(node: Node, keeping: StatePlan) -> bool:
    """Whether a window keeps rows itself, and of these only the columns that are needed."""
    is_copy = isinstance(node.window, CopyWindow) and retention_of(node) is not None
    return is_copy and keeping.works_on_columns(node) and keeping.members(node) == "state"


def _owner(name: str) -> str:
    return name.rpartition(":")[0]


def _model_page(found: Mapping[str, bytes]) -> tuple[int, dict[str, Any]]:
    if _MODEL not in found:
        return 0, {}
    clock_us, counts = pages.unpack(found[_MODEL])
    return clock_us, counts


def _merged_marks(*marks: SequencePosition) -> list[SequencePosition]:
    """All marks in the order of their entries, each once: the range between two neighbours can be read."""
    by_number = {mark.number: mark for mark in marks}
    return [by_number[number] for number in sorted(by_number)]
