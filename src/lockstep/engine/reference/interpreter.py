"""The interpreter: what the answer of a model is, one block and one event at a time.

For each block every window is evaluated once, parents before children, on the output blocks of its parents in the order
of the edges. Everything faster is tested against this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

from lockstep.engine.errors import ModelMismatch, WindowNotFound
from lockstep.engine.events.event import Event, InputBlock
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.reference.operator import (
    BadEvent,
    Moment,
    Notice,
    Operator,
    Tree,
    WindowCounts,
    moves_clock,
    rows_added,
)
from lockstep.engine.reference.options import OutputOptions


class Station:
    """A window at work: its operator, its output options, its counts, and what it last said."""

    __slots__ = ("counts", "node", "only", "operator", "options", "output", "parents", "slots")

    def __init__(self, node: Node, before: Sequence[Station]) -> None:
        self.node = node
        self.parents = [(before[parent.node], parent.slot) for parent in node.parents]
        is_simple = len(self.parents) == 1 and self.parents[0][1] < 0
        self.only = self.parents[0][0] if is_simple else None
        """The parent, if there is just one, of which it takes everything: by far the most frequent case."""
        self.operator = make_operator(node)
        self.options = OutputOptions(node)
        self.counts = WindowCounts()
        self.output: list[Event] = []
        self.slots: dict[int, list[Event]] = {}

    def inputs(self) -> list[Sequence[Event]]:
        """What its parents said, in the order of the edges."""
        if self.only is not None:
            return [self.only.output]
        return [parent.output if slot < 0 else parent.slots.get(slot, ()) for parent, slot in self.parents]

    def run(self, inputs: Sequence[Sequence[Event]], moment: Moment) -> list[Event]:
        """Evaluate one block. A window to which nothing came is not called, except by ticks."""
        count = len(inputs[0]) if len(inputs) == 1 else sum(map(len, inputs))
        if not count and not moment.is_tick:
            self.output, self.slots = [], {}
            return self.output
        events = self.operator.evaluate(inputs, moment)
        counts = self.counts
        counts.events_in += count
        counts.rows += rows_added(events)
        if not self.options.is_plain:
            events = self.options.apply(events, moment)
            self.slots = self.options.split(events, moment)
        counts.events_out += len(events)
        self.output = events
        return events

    def dump(self) -> Tree:
        """The state of the window."""
        return {"operator": self.operator.dump(), "options": self.options.dump(), "counts": self.counts.dump()}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self.operator.load(state["operator"])
        self.options.load(state["options"])
        self.counts = WindowCounts.load(state["counts"])


class Interpreter:
    """Runs a model over blocks.

    interpreter = Interpreter(graph)
    outputs = interpreter.evaluate(InputBlock(1, "trades", events))    # {"query/window": [events], ...}

    Bad events and notices go to the callbacks, or, without them, to the lists `bad` and `notices`. After an error in
    user code the state is not defined: load the last dump.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        on_bad: Callable[[BadEvent], None] | None = None,
        on_notice: Callable[[Notice], None] | None = None,
    ) -> None:
        self.graph = graph
        self.clock_us = 0
        self.bad: list[BadEvent] = []
        self.notices: list[Notice] = []
        self._on_bad = on_bad or self.bad.append
        self._on_notice = on_notice or self.notices.append
        stations: list[Station] = []
        for node in graph.nodes:
            stations.append(Station(node, stations))
        self._by_path = {station.node.path: station for station in stations}
        self._sources: dict[str, Station] = {}

    @property
    def counts(self) -> dict[str, WindowCounts]:
        """The counts of every window by path."""
        return {path: station.counts for path, station in self._by_path.items()}

    def evaluate(self, block: InputBlock) -> dict[str, list[Event]]:
        """The output block of every window by path, after its output options."""
        target = self._source(block.window) if block.window or block.events else None
        is_tick = block.tick_us is not None and moves_clock(block.tick_us)
        if is_tick and block.tick_us is not None:
            self.clock_us = max(self.clock_us, block.tick_us)
        moment = Moment(
            block.number, self.clock_us, is_tick, block.transactional, self._refused, self._on_notice, block.lagging
        )
        outputs: dict[str, list[Event]] = {}
        for path, station in self._by_path.items():
            if station.parents:
                inputs = station.inputs()
            else:
                inputs = [block.events if station is target else ()]
            outputs[path] = station.run(inputs, moment)
        return outputs

    def _source(self, name: str) -> Station:
        """The source window that injected events are for, by path or by a name that only one window has."""
        found = self._sources.get(name)
        if found is None:
            node = self.graph.find(name)
            if node is None or not node.is_source:
                known = ", ".join(each.path for each in self.graph.nodes if each.is_source)
                raise WindowNotFound(model=self.graph.project.name, what="source window", name=name, known=known)
            found = self._sources[name] = self._by_path[node.path]
        return found

    def _refused(self, bad: BadEvent) -> None:
        self._by_path[bad.window].counts.count_bad(bad.reason)
        self._on_bad(bad)

    def dump(self) -> Tree:
        """The whole state between two blocks."""
        windows = {path: station.dump() for path, station in self._by_path.items()}
        return {"fingerprint": self.graph.fingerprint, "clock_us": self.clock_us, "windows": windows}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state of the same model."""
        if state["fingerprint"] != self.graph.fingerprint:
            raise ModelMismatch(place="the dump", found=state["fingerprint"], wanted=self.graph.fingerprint)
        self.clock_us = state["clock_us"]
        for path, station in self._by_path.items():
            station.load(state["windows"][path])


OPERATORS = {
    "source": ("source", "SourceOperator"),
    "copy": ("source", "CopyOperator"),
    "aggregate": ("aggregate", "AggregateOperator"),
    "filter": ("compute", "FilterOperator"),
    "compute": ("compute", "ComputeOperator"),
    "union": ("join", "UnionOperator"),
    "join": ("join", "JoinOperator"),
    "pattern": ("pattern", "PatternOperator"),
    "functional": ("functional", "FunctionalOperator"),
    "counter": ("shapes", "CounterOperator"),
    "transpose": ("shapes", "TransposeOperator"),
    "remove-state": ("shapes", "RemoveStateOperator"),
    "notification": ("notification", "NotificationOperator"),
    "procedural": ("user_code", "ProceduralOperator"),
    "custom": ("custom", "CustomOperator"),
    "idle": ("source", "IdleOperator"),
}
"""Module and class by the kind of window; a module is loaded when a model first needs it."""


def make_operator(node: Node) -> Operator:
    """A new operator for a window, without state."""
    module, name = OPERATORS[node.window.kind]
    operator: Operator = getattr(import_module(f"lockstep.engine.reference.{module}"), name)(node)
    return operator
