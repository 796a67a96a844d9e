"""The evaluator: a model over ranges of blocks, with an operator for each window that a shard runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lockstep.engine.columns import pages
from lockstep.engine.columns.aggregate import AggregateColumns, column_calls
from lockstep.engine.columns.copy import CopyColumns, KeptMembers, LoggedMembers, Members, PassColumns
from lockstep.engine.columns.custom import CustomColumns
from lockstep.engine.columns.flow import INSERT, Flow
from lockstep.engine.columns.join import JoinColumns
from lockstep.engine.columns.rows import OPTIONS, ROWS, OptionRows, RowOperator
from lockstep.engine.columns.rules import make_rule
from lockstep.engine.columns.runner import ColumnOperator, History, Moments, Pages, Results, Span, no_blocks
from lockstep.engine.columns.sharding import InputShare, Share
from lockstep.engine.columns.source import SourceColumns
from lockstep.engine.columns.stateless import ComputeColumns, FilterColumns
from lockstep.engine.columns.traits import (
    NOTHING,
    Traits,
    find_traits,
    has_plain_output,
    input_traits,
    is_pure,
    rows_because,
)
from lockstep.engine.columns.union import PassingUnion, UnionColumns
from lockstep.engine.errors import SnapshotDamaged
from lockstep.engine.events.columns import EventBatch, Int64s
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.plan import Plan, make_plan
from lockstep.engine.model.schemas import fact_sides
from lockstep.engine.model.windows import (
    AggregateWindow,
    ComputeWindow,
    CopyWindow,
    CustomWindow,
    FilterWindow,
    JoinWindow,
    Retention,
    SourceWindow,
    UnionWindow,
)
from lockstep.engine.reference.operator import BadEvent, WindowCounts, moves_clock

_MODEL = "model"


class Evaluator:
    """Runs a model over spans of blocks.

    evaluator = Evaluator(graph, wanted=frozenset({"query/window"}), history=log)
    results = evaluator.evaluate(Span(1, 200_000, {"query/source": batch}))

    With `history` windows over what the log holds keep no rows. As one of several shards it gives the outputs, counts
    and bad events of its own windows and rows only. After an error in user code the state is not defined.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        wanted: frozenset[str],
        history: History | None = None,
        shard: int = 0,
        shards: int = 1,
    ) -> None:
        self.graph, self.wanted, self.clock_us = graph, wanted, 0
        self._duty = duty_of(graph, shard, shards)
        operators, needs = Builder(graph, self._duty, history).build(self._wanted_here())
        self._stations = {
            index: Station(graph.nodes[index], operator, self._is_looked_at(index))
            for index, operator in operators.items()
        }
        self._by_path = {station.node.path: station for station in self._stations.values()}
        self.needed: Mapping[str, frozenset[str]] = {
            graph.nodes[index].path: source_fields(graph.nodes[index], operators[index], needs[index])
            for index in operators
            if graph.nodes[index].is_source
        }
        self.divided_inputs = self._divided_inputs(needs)
        self._dirty = False

    def evaluate(self, span: Span, *, silent: bool = False) -> Results:
        """Take the blocks of a span, which begins where the last one ended; with `silent` no output is kept."""
        span = replace(span, ticks=tuple(tick for tick in span.ticks if moves_clock(tick[1])))
        results = Results({}, {}, [], [])
        moments = Moments(span, self.clock_us, lambda bad: self._refused(bad, results), results.notices.append)
        outputs: dict[str, EventBatch] = {}
        places: dict[str, tuple[Int64s, Int64s]] = {}
        for index, station in self._stations.items():
            shown = not silent and index in self._duty.owned and station.node.path in self.wanted
            station.run(self._inputs(station.node, span), moments, shown=shown)
            if shown:
                outputs[station.node.path] = station.output.batch()
                if index in self._duty.divided:
                    places[station.node.path] = station.output.places or (no_blocks(), no_blocks())
        for station in self._stations.values():
            station.forget()
        self.clock_us = max([self.clock_us, *(time for _, time in span.ticks)])
        self._dirty = True
        # By block, within it by window: the order in which going block by block would have met them.
        bad = sorted(results.bad, key=lambda each: each.block)
        return Results(outputs, places, bad, sorted(results.notices, key=lambda each: each.block))

    def counts(self) -> dict[str, WindowCounts]:
        """The counts of the windows it answers for, by path."""
        return {self.graph.nodes[index].path: self._stations[index].counts for index in sorted(self._duty.owned)}

    def earliest_block(self) -> int | None:
        """The first block whose input events some window still needs from the log."""
        found = [station.operator.earliest_block() for station in self._stations.values()]
        return min((block for block in found if block is not None), default=None)

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """The pages of state that changed since the last call, by name; None: the page is gone."""
        for station in self._stations.values():
            for name, page in station.changed_pages():
                yield f"{station.node.path}:{name}", page
        if self._dirty:
            self._dirty = False
            counts = {station.node.path: station.counts.dump() for station in self._stations.values()}
            yield _MODEL, pages.pack([self.clock_us, counts])

    def load(self, found: Mapping[str, bytes]) -> None:
        """Go on from pages: a new evaluator becomes the one that made them."""
        by_path: dict[str, dict[str, bytes]] = {}
        for name, page in found.items():
            path, _, rest = name.rpartition(":")
            by_path.setdefault(path, {})[rest] = page
        if _MODEL in found:
            self.clock_us, counts = pages.unpack(found[_MODEL])
            for station in self._stations.values():
                station.counts = WindowCounts.load(counts[station.node.path])
        for station in self._stations.values():
            station.load(by_path.get(station.node.path, {}))

    def _divided_inputs(self, needs: Mapping[int, frozenset[str]]) -> Mapping[str, InputShare]:
        """What it needs of each source, if it is enough for all to have the rows of one shard; else nothing."""
        found = {}
        for index in sorted(self._duty.active):
            node = self.graph.nodes[index]
            if node.is_source:
                share, columns = self._duty.share_of(self.graph, index), self._looked_at(index)
                if share is None or columns is None or node.path in self._wanted_here():
                    return {}
                found[node.path] = InputShare(share, columns, self._own_columns(index, share, needs))
        return found

    def _looked_at(self, source: int) -> frozenset[str] | None:
        """The columns that are looked at in rows of other shards; None if it may be all."""
        operator = self._stations[source].operator
        found = operator.checked if isinstance(operator, SourceColumns) else None
        for station in self._fed(source):
            if found is not None and isinstance(station.operator, CopyColumns):
                followed = station.operator.followed
                found = None if followed is None else found | followed
        return found

    def _own_columns(self, source: int, share: Share, needs: Mapping[int, frozenset[str]]) -> frozenset[str]:
        """The columns of a source that are needed of the rows of this shard."""
        fed = self._fed(source)
        if not all(isinstance(station.operator, CopyColumns) for station in fed):
            return self.needed[self.graph.nodes[source].path]
        return frozenset(share.fields).union(*(needs[station.node.index] for station in fed))

    def _fed(self, source: int) -> list[Station]:
        stations = self._stations.values()
        return [each for each in stations if any(parent.node == source for parent in each.node.parents)]

    def _wanted_here(self) -> frozenset[str]:
        return frozenset(self.graph.nodes[index].path for index in self._duty.owned) & self.wanted

    def _is_looked_at(self, index: int) -> bool:
        children = (self.graph.nodes[child] for child in self._duty.active)
        return any(parent.node == index for node in children for parent in node.parents)

    def _inputs(self, node: Node, span: Span) -> list[Flow]:
        if node.is_source:
            batch = span.inputs.get(node.path)
            return [Flow.empty(node.schema) if batch is None else Flow.of(batch)]
        flows = [self._stations[parent.node].seen(parent.slot) for parent in node.parents]
        share = self._duty.shares.get(node.index)
        if share is not None and not self._stations[node.index].divides:
            return [shared(flow, share) for flow in flows]
        return flows

    def _refused(self, bad: BadEvent, results: Results) -> None:
        station = self._by_path[bad.window]
        station.counts.count_bad(bad.reason)
        if station.node.index in self._duty.owned:
            results.bad.append(bad)


def shared(flow: Flow, share: Share) -> Flow:
    """The events of one shard, with their places."""
    own = share.own_of(flow)
    at, index = own.places, flow.index_in_block(own.places)
    return Flow(
        flow.schema, flow.block[at], flow.opcode[at], flow.flags[at], own.parts, own.rows, (index, np.zeros_like(index))
    )


Needs = Mapping[int, frozenset[str]]
"""For each window the fields of its output that are needed."""


class Builder:
    """Chooses the operators of a graph."""

    def __init__(self, graph: Graph, duty: Duty, history: History | None) -> None:
        self._graph, self._duty, self._history = graph, duty, history
        self._traits = find_traits(graph)

    def build(self, wanted: frozenset[str]) -> tuple[dict[int, ColumnOperator], dict[int, frozenset[str]]]:
        """The operators of the active windows, and the fields that each must give."""
        drafts = {index: self._draft(self._graph.nodes[index]) for index in sorted(self._duty.active)}
        needs = self._needs(drafts, wanted)
        for index in drafts:
            node = self._graph.nodes[index]
            if self._retains(node):
                drafts[index] = CopyColumns(node, self._members(node, needs[index]), self._duty.shares.get(index))
        return drafts, needs

    def _draft(self, node: Node) -> ColumnOperator:
        """The operator; for a copy with retention on columns just a stand-in."""
        window, parent = node.window, input_traits(node, self._traits, 0) if node.parents else NOTHING
        if isinstance(window, SourceWindow) and _is_column_source(node, window):
            return SourceColumns(node)
        if isinstance(window, CopyWindow) and self._passes(node, window, parent):
            return PassColumns(node)
        if isinstance(window, FilterWindow) and is_pure(node):
            return FilterColumns(node)
        if isinstance(window, ComputeWindow) and is_pure(node):
            return ComputeColumns(node)
        if isinstance(window, AggregateWindow):
            found = column_calls(node, parent)
            if found is not None:
                return AggregateColumns(node, *found)
        if isinstance(window, JoinWindow) and rows_because(node, self._traits) is None:
            fact = fact_sides(window, *node.inputs)[0]
            return JoinColumns(node, input_traits(node, self._traits, fact))
        if isinstance(window, UnionWindow) and rows_because(node, self._traits) is None:
            return UnionColumns(node) if node.is_indexed else PassingUnion(node)
        if isinstance(window, CustomWindow):
            return CustomColumns(node)
        return RowOperator(node, is_divided=node.index in self._duty.divided)

    def _passes(self, node: Node, window: CopyWindow, parent: Traits) -> bool:
        if window.retention is None:
            return parent.is_unique or not node.is_indexed
        return self._retains(node)

    def _retains(self, node: Node) -> bool:
        window = node.window
        if not isinstance(window, CopyWindow) or window.retention is None:
            return False
        return input_traits(node, self._traits, 0).is_unique

    def _members(self, node: Node, needs: frozenset[str]) -> Members:
        retention = _retention(node)
        rule = make_rule(retention, node.schema)
        source = self._graph.nodes[node.parents[0].node]
        if self._history is not None and self._reads_log(source, retention):
            return LoggedMembers(rule, self._history, source.path)
        return KeptMembers(rule, sorted(needs))

    def _reads_log(self, source: Node, retention: Retention) -> bool:
        """The log holds a source's rows as they are, if it makes no keys; the model's clock it does not hold.

        A stream that is not the project's own lets records go by rules of its own.
        """
        window = source.window
        if not isinstance(window, SourceWindow) or window.autogen_key or not has_plain_output(source):
            return False
        if window.takes_records:
            return False
        return not retention.by_time or retention.field is not None

    def _needs(self, operators: Mapping[int, ColumnOperator], wanted: frozenset[str]) -> dict[int, frozenset[str]]:
        needs: dict[int, set[str]] = {index: set() for index in operators}
        for index in sorted(operators, reverse=True):
            node = self._graph.nodes[index]
            if node.path in wanted or not has_plain_output(node):
                needs[index].update(node.schema.names)
            for port, parent in enumerate(node.parents):
                needs[parent.node].update(self._takes(node, operators[index], needs[index], port))
        return {index: frozenset(names) for index, names in needs.items()}

    def _takes(self, node: Node, operator: ColumnOperator, needs: set[str], port: int) -> Sequence[str]:
        """The fields of an input that a window looks at or passes on."""
        share = self._duty.shares.get(node.index)
        shared = () if share is None else share.fields
        if isinstance(operator, RowOperator | UnionColumns):
            return node.inputs[port].names
        if isinstance(operator, JoinColumns):
            return operator.fields(port)
        if isinstance(operator, FilterColumns):
            return [*needs, *operator.expression.fields, *shared]
        if isinstance(operator, ComputeColumns):
            if operator.may_overflow:
                return node.inputs[port].names
            return [*operator.copied, *(name for _, each in operator.steps for name in each.fields), *shared]
        if isinstance(operator, AggregateColumns):
            return [*operator.fields, *shared]
        field = _retention(node).field if self._retains(node) else None
        return [*needs, *shared, *([field] if field is not None else [])]


def source_fields(node: Node, operator: ColumnOperator, needs: frozenset[str]) -> frozenset[str]:
    """The columns a source must be fed with."""
    if isinstance(operator, RowOperator):
        return frozenset(node.schema.names)
    window = node.window
    keys = frozenset(node.schema.names[place] for place in node.schema.keys)
    if isinstance(window, SourceWindow) and window.autogen_key:
        return needs - keys
    return needs | keys


def _is_column_source(node: Node, window: SourceWindow) -> bool:
    """Insert-only, with keys that a set can tell apart as an index does."""
    kinds = [node.schema.fields[place].type for place in node.schema.keys]
    return window.insert_only and window.retention is None and all(kind.value != "double" for kind in kinds)


def _retention(node: Node) -> Retention:
    retention = node.window.retention if isinstance(node.window, CopyWindow) else None
    assert retention is not None, "only asked for copies with retention"
    return retention


@dataclass(frozen=True, slots=True)
class Duty:
    """What one shard does."""

    owned: frozenset[int]
    """Windows whose output, counts and bad events it gives."""
    active: frozenset[int]
    """Those, and the windows they are fed by."""
    divided: frozenset[int] = frozenset()
    shares: dict[int, Share] = field(default_factory=dict)
    """For windows that are divided, and fed by one that is not: the rows to take."""

    def share_of(self, graph: Graph, source: int) -> Share | None:
        """The share that all windows take which a source feeds; None if one of them takes all rows."""
        fed = [node.index for node in graph.nodes if any(parent.node == source for parent in node.parents)]
        shares = [self.shares.get(index) for index in fed if index in self.active]
        return shares[0] if shares and None not in shares else None


def duty_of(graph: Graph, shard: int, shards: int) -> Duty:
    """The part of a model that falls to a shard."""
    everything = frozenset(range(len(graph.nodes)))
    if shards == 1:
        return Duty(everything, everything)
    plan = make_plan(graph)
    if not plan.splits:
        owned = _components(plan, shard, shards) if len(plan.components) > 1 else everything if shard == 0 else ()
        return Duty(frozenset(owned), frozenset(owned))
    divided = frozenset(index for split in plan.splits for index in split.divided)
    owned = divided | (everything - divided if shard == 0 else frozenset())
    shares = {
        index: Share(split.fields, shard, shards)
        for split in plan.splits
        for index in split.divided
        if any(parent.node not in divided for parent in graph.nodes[index].parents)
    }
    return Duty(frozenset(owned), _with_ancestors(graph, owned), divided, shares)


def _components(plan: Plan, shard: int, shards: int) -> Iterable[int]:
    return [index for number, part in enumerate(plan.components) if number % shards == shard for index in part]


def _with_ancestors(graph: Graph, owned: frozenset[int]) -> frozenset[int]:
    found = set(owned)
    for node in reversed(graph.nodes):
        if node.index in found:
            found.update(parent.node for parent in node.parents)
    return frozenset(found)


class Station:
    """Runs one window over spans. `is_looked_at`: another window takes its output."""

    def __init__(self, node: Node, operator: ColumnOperator, is_looked_at: bool) -> None:
        self.node, self.operator = node, operator
        self.counts = WindowCounts()
        self._options = None if has_plain_output(node) else OptionRows(node)
        self._inserts_only = node.window.output_insert_only and self._options is None
        self._is_looked_at = is_looked_at
        self._empty = Flow.empty(node.schema)
        self.output, self._slots = self._empty, dict[int, Flow]()

    @property
    def divides(self) -> bool:
        """Whether the operator itself takes only the rows of its shard."""
        return isinstance(self.operator, CopyColumns)

    def run(self, inputs: Sequence[Flow], moments: Moments, *, shown: bool) -> None:
        """Evaluate a span."""
        changes_output = self._options is not None or self._inserts_only
        emit = shown or self._is_looked_at or changes_output
        made = self.operator.evaluate(inputs, moments, emit=emit)
        self.counts.events_in += sum(map(len, inputs)) if made.taken is None else made.taken
        self.counts.rows += made.rows
        self.output = self._empty if made.flow is None else made.flow
        events = made.events
        if changes_output:
            self._apply_options(moments)
            events = len(self.output)
        self.counts.events_out += events

    def _apply_options(self, moments: Moments) -> None:
        if self._options is not None:
            self.output, self._slots = self._options.apply(self.output, moments)
        else:
            self.output = self.output.select(self.output.opcode == INSERT)

    def seen(self, slot: int) -> Flow:
        """What a child sees of the last span."""
        return self.output if slot < 0 else self._slots.get(slot, self._empty)

    def forget(self) -> None:
        """Let the last output go."""
        self.output, self._slots = self._empty, {}

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """Pages of the window and of its options."""
        yield from self.operator.changed_pages()
        if self._options is not None:
            yield from self._options.changed_pages()

    def load(self, pages: Pages) -> None:
        """Go on from pages."""
        if ROWS in pages and not self.operator.loads_rows:
            reason = f"{self.node.path} worked row by row when it was taken, by an earlier version"
            raise SnapshotDamaged(place=self.node.path, reason=reason)
        self.operator.load({name: page for name, page in pages.items() if name != OPTIONS})
        if self._options is not None:
            self._options.load(pages)
