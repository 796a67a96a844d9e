"""A project whose model changes while it runs: workers without Spark on a bus in memory, and what they should say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from kernel_worlds import Answer, Collected, texts

from lockstep.engine.columns.runner import Results
from lockstep.engine.events.event import InputBlock
from lockstep.engine.model.changes import compare
from lockstep.engine.model.graph import Graph
from lockstep.engine.reference.interpreter import Interpreter
from lockstep.engine.reference.operator import BadEvent, WindowCounts
from lockstep.engine.runtime.output.event_streams import EventPublisher
from lockstep.engine.runtime.sequence.entries import Decision, SequencePosition
from lockstep.engine.runtime.sequence.model_statement import compiled, inputs_of, inputs_opener, statement_of
from lockstep.engine.runtime.sequence.reader import Range, RangeReader
from lockstep.engine.runtime.sequence.sequencer import Sequencer, SequencerOptions
from lockstep.engine.runtime.sequence.streams import ProjectStreams, sources
from lockstep.engine.runtime.worker.history import ModelHistory
from lockstep.engine.runtime.worker.replacement import (
    ShardContext,
    WorkerState,
    empty_windows,
    load_evaluator,
    page_changes,
    replace_model,
)
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.streams.client import Lockstep


def every(graph: Graph) -> frozenset[str]:
    return frozenset(node.path for node in graph.nodes)


def leaves(graph: Graph) -> frozenset[str]:
    """The windows that no other reads."""
    read = {parent.node for node in graph.nodes for parent in node.parents}
    return frozenset(node.path for node in graph.nodes if node.index not in read)


def bad_texts(bad: Iterable[BadEvent]) -> list[str]:
    """Without the events: of a row that is refused a worker knows only the columns it needs."""
    return [f"{each.block} {each.window} {each.reason} {each.detail}" for each in bad]


Shown = Callable[[Graph], frozenset[str]]
"""Which windows of a model are published."""


class Worker:
    """One shard, as a worker of the engine would hold it; `stored` is what a snapshot would be."""

    def __init__(self, graph: Graph, seat: ShardContext, shown: Shown) -> None:
        self.seat = seat
        reader = RangeReader(seat.bus, graph, seat.streams)
        self.position = reader.start()
        self.standing = WorkerState(
            graph=graph, wanted=shown(graph), pages={}, marks=(), past=ModelHistory.begin(self.position, graph)
        )
        self.stored: dict[str, bytes] = {}
        self._sit()

    def _sit(self) -> None:
        self.evaluator, self.history = load_evaluator(self.standing, self.seat)
        self._open()

    def _open(self) -> None:
        reader = RangeReader(self.seat.bus, self.standing.graph, self.seat.streams)
        self.reader = reader.only(self.evaluator.needed)

    def restart(self) -> None:
        """From the snapshot, with what else its head must hold as plain values."""
        self.snapshot()
        past, at = ModelHistory.of(self.standing.past.tree()), SequencePosition.of(self.position.tree())
        self.standing, self.position = replace(self.standing, past=past, pages=dict(self.stored)), at
        self._sit()

    def snapshot(self) -> None:
        """Write the pages that changed."""
        for name, page in self.evaluator.changed_pages():
            self._store(name, page)
        self.standing = replace(self.standing, pages=dict(self.stored), marks=self.history.marks)

    def _store(self, name: str, page: bytes | None) -> None:
        if page is None:
            self.stored.pop(name, None)
        else:
            self.stored[name] = page

    def step(self, upto: int, max_events: int | None) -> Results | None:
        """Take the next range; None if it is an entry that turns something."""
        taken = self.reader.read(self.position, upto, max_events)
        if taken.control is not None:
            self._turn(taken)
            return None
        self.history.add(self.position, taken.end, taken.span)
        results = self.evaluator.evaluate(taken.span)
        self.position = taken.end
        self.history.forget_before(self.evaluator.earliest_block())
        return results

    def _turn(self, taken: Range) -> None:
        assert taken.control is not None
        self.snapshot()
        graph, wanted = self.standing.graph, self.standing.wanted
        if taken.control.states is not None:
            graph, wanted = compiled(taken.control.states), frozenset(taken.control.states.publish)
        turn = empty_windows if taken.control.reset else replace_model
        if taken.control.reset or taken.control.states is not None:
            made = turn(self.standing, taken.end, graph, wanted, self.seat)
            for name, page in page_changes(self.stored, made.pages).items():
                self._store(name, page)
            self.standing = WorkerState(
                graph=graph, wanted=wanted, pages=made.pages, marks=made.history.marks, past=made.past
            )
            self.evaluator, self.history, self.position = made.evaluator, made.history, made.position
            self._open()
        else:
            self.position = taken.end
            self.history.seal(self.position)


class ChangingProject:
    """Publishers, the sequence and the workers of a project."""

    def __init__(self, graph: Graph, *, shards: int = 1, entry_events: int = 1, shown: Shown = every) -> None:
        self.graph, self.shown = graph, shown
        self.runtime = ThreadRuntime()
        self.connection = Lockstep(open_bus(f"memory:change-{self.runtime.new_id().hex()}", self.runtime), self.runtime)
        self.bus = self.connection.bus
        self.streams = ProjectStreams(cluster="test", project=graph.project.name)
        self.streams.create(self.bus, graph, frozenset())
        self.past = ModelHistory.begin(SequencePosition(ends={node.path: 0 for node in sources(graph)}), graph)
        self.sequencer = Sequencer(
            self.bus.open(self.streams.sequence),
            inputs_of(self.bus, self.streams, graph),
            self.runtime,
            SequencerOptions(entry_events=entry_events),
            self.past.base,
            restate=inputs_opener(self.bus, self.streams, ticks=False),
        )
        self.sequencer.lead()
        self._open_publishers()
        self.workers = [
            Worker(graph, ShardContext(bus=self.bus, streams=self.streams, shard=shard, shards=shards), shown)
            for shard in range(shards)
        ]
        self.found = Collected()

    def feed(self, blocks: Sequence[InputBlock]) -> None:
        """Have blocks sequenced in just this order, one entry each."""
        for block in blocks:
            if block.tick_us is not None:
                self.sequencer.tick(block.tick_us)
            else:
                self.publishers[block.window].publish(block.events, transactional=block.transactional)
            self.settle()

    def settle(self) -> None:
        """Have everything sequenced."""
        for publisher in self.publishers.values():
            publisher.flush()
        while not self.sequencer.is_caught_up():
            self.sequencer.step()

    def change(self, graph: Graph, *, reset: bool = False) -> None:
        """Have an entry with another model."""
        self.sequencer.ask(Decision(states=statement_of(graph, self.shown(graph)), reset=reset))
        while self.sequencer.step():
            pass
        self.graph = graph
        self.past = self.past.changed(self.sequencer.position, graph)
        self._open_publishers()

    def reset(self) -> None:
        """Have an entry that empties all windows."""
        self.sequencer.ask(Decision(reset=True))
        self.settle()

    def run(self, *, upto: int | None = None, max_events: int | None = None) -> None:
        """Evaluate entries on all shards."""
        stop = self.sequencer.position.number if upto is None else upto
        while self.workers[0].position.number < stop:
            parts = [worker.step(stop, max_events) for worker in self.workers]
            results = [part for part in parts if part is not None]
            if results:
                self.found.add_shards(results)

    def counts(self) -> dict[str, WindowCounts]:
        """The counts of all windows, over all shards."""
        found: dict[str, WindowCounts] = {}
        for worker in self.workers:
            for path, counts in worker.evaluator.counts().items():
                found[path] = found.get(path, WindowCounts()) + counts
        return found

    def _open_publishers(self) -> None:
        self.publishers = {
            node.path: EventPublisher(self.connection, self.streams.input(node), node.schema)
            for node in sources(self.graph)
        }


@dataclass
class Oracle:
    """The interpreter: windows that are kept go on, the others go over everything since their sources were there."""

    graph: Graph
    shown: Shown = every
    blocks: list[InputBlock] = field(default_factory=list)
    since: dict[str, int] = field(default_factory=dict)
    answer: Answer = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.interpreter = Interpreter(self.graph)

    def feed(self, blocks: Sequence[InputBlock]) -> None:
        for block in blocks:
            self.blocks.append(block)
            given = self.interpreter.evaluate(block)
            for path, events in ((path, given[path]) for path in self.shown(self.graph)):
                self.answer.setdefault(path, []).extend(texts(block.number, events))
        self.bad += bad_texts(self.interpreter.bad)
        self.interpreter.bad.clear()

    def change(self, graph: Graph) -> None:
        kept = compare(self.graph, graph).kept
        present = {node.path for node in self.graph.nodes if node.is_source}
        self.since = {
            node.path: self.since.get(node.path, 0) if node.path in present else len(self.blocks)
            for node in graph.nodes
            if node.is_source
        }
        fresh = Interpreter(graph)
        for place, block in enumerate(self.blocks):
            is_seen = block.tick_us is not None or self.since.get(block.window, place + 1) <= place
            fresh.evaluate(block if is_seen else InputBlock(block.number))
        state, old = fresh.dump(), self.interpreter.dump()
        state["windows"] |= {path: old["windows"][path] for path in kept}
        self.graph, self.interpreter = graph, Interpreter(graph)
        self.interpreter.load(state)

    def reset(self) -> None:
        self.blocks, self.since = [], {}
        self.interpreter = Interpreter(self.graph)


def check(project: ChangingProject, oracle: Oracle) -> None:
    """Events, bad events and counts are the oracle's."""
    for path in {*oracle.answer, *project.found.answer}:
        assert project.found.answer.get(path, []) == oracle.answer.get(path, []), path
    assert sorted(bad_texts(project.found.bad)) == sorted(oracle.bad)
    assert project.counts() == oracle.interpreter.counts
    assert {worker.evaluator.clock_us for worker in project.workers} == {oracle.interpreter.clock_us}
