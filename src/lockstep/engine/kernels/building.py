"""A column operator, or else the row operator, for every window; and which columns have to be there for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lockstep.engine.kernels.aggregate import AggregateColumns
from lockstep.engine.kernels.copying import CopyColumns, PassColumns
from lockstep.engine.kernels.custom import CustomColumns
from lockstep.engine.kernels.division import Duty
from lockstep.engine.kernels.forms import rows_because
from lockstep.engine.kernels.functions import column_calls
from lockstep.engine.kernels.join import JoinColumns
from lockstep.engine.kernels.members import KeptMembers, LoggedMembers, Members
from lockstep.engine.kernels.moments import ColumnOperator
from lockstep.engine.kernels.rows import RowOperator
from lockstep.engine.kernels.rules import make_rule
from lockstep.engine.kernels.source import SourceColumns
from lockstep.engine.kernels.span import History
from lockstep.engine.kernels.stateless import ComputeColumns, FilterColumns
from lockstep.engine.kernels.traits import NOTHING, Traits, find_traits, has_plain_output, input_traits, is_pure
from lockstep.engine.kernels.union import PassingUnion, UnionColumns
from lockstep.engine.model.graph import Graph, Node
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

Needs = Mapping[int, frozenset[str]]
"""For each window the fields of its output that somebody needs."""


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
