"""What a window keeps between blocks, and whether it works on columns."""

from __future__ import annotations

from lockstep.engine.columns.traits import (
    NOTHING,
    Traits,
    find_traits,
    has_plain_output,
    input_traits,
    is_pure,
    may_overflow,
    needs_facts,
    rows_because,
)
from lockstep.engine.events.schema import FieldType
from lockstep.engine.language.compiler import AggregateCall, AggregateExpression
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.schemas import changes_key, compiled_aggregate, names_of
from lockstep.engine.model.windows import (
    AggregateWindow,
    ComputeWindow,
    CopyWindow,
    FieldPlug,
    FilterWindow,
    JoinWindow,
    Retention,
    SourceWindow,
    UnionWindow,
)

_COUNTS = frozenset({"count", "countnonnull", "countnull"})
_SUMS = frozenset({"sum", "ave", "wave", "std", "var"})
_EXTREMES = frozenset({"min", "max"})
_PLAIN = {
    "join": "the rows of both sides by key",
    "pattern": "the matches that have begun",
    "counter": "counts for each input",
    "transpose": "one row per group",
    "remove-state": "the number of the last event",
    "notification": "whom each channel told when",
    "procedural": "what its handler keeps",
    "custom": "what its class keeps, and its rows by key",
    "functional": "the number of the last event, and its rows by key",
}
"""Kinds whose state does not depend on what is around them."""
_ROWS = {
    "source": "it takes more than inserts, has retention, or has a double in its key",
    "copy": "a key of its parent may come again",
    "filter": "its expression looks at more than the row",
    "compute": "its expressions look at more than the row",
    "idle": "no edge leads to it",
    "aggregate": "its groups, one of its functions, or what its parent gives has no column form",
}
"""Why windows of kinds with a column form may have none."""


def retention_of(node: Node) -> Retention | None:
    """How long its rows stay, if that is bounded."""
    window = node.window
    return window.retention if isinstance(window, SourceWindow | CopyWindow) else None


class StatePlan:
    """What the windows of a graph keep, and how they work."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._traits = find_traits(graph)

    def parent_traits(self, node: Node) -> Traits:
        """What can be said about a window's first input."""
        return input_traits(node, self._traits, 0) if node.parents else NOTHING

    def works_on_columns(self, node: Node) -> bool:
        """Whether the fast path has a column form for this window; else it goes row by row, with the same answer."""
        window = node.window
        if isinstance(window, SourceWindow):
            kinds = [node.schema.fields[place].type for place in node.schema.keys]
            return window.insert_only and window.retention is None and FieldType.DOUBLE not in kinds
        if isinstance(window, CopyWindow):
            unique = self.parent_traits(node).is_unique
            return unique or (window.retention is None and not node.is_indexed)
        if isinstance(window, FilterWindow | ComputeWindow):
            return is_pure(node)
        if isinstance(window, JoinWindow | UnionWindow):
            return rows_because(node, self._traits) is None
        return isinstance(window, AggregateWindow) and self._sums_columns(node, window)

    def rows_because(self, node: Node) -> str:
        """Why it goes row by row; nothing if it does not."""
        if self.works_on_columns(node):
            return ""
        if isinstance(node.window, JoinWindow | UnionWindow):
            return rows_because(node, self._traits) or ""
        if node.parents and changes_key(node.window, node.inputs[0]):
            return "its key is not that of its input"
        return _ROWS.get(node.window.kind, f"a {node.window.kind} window has no column form")

    def _sums_columns(self, node: Node, window: AggregateWindow) -> bool:
        parent = self.parent_traits(node)
        kinds = [node.schema.fields[place].type for place in node.schema.keys]
        groups_fit = all(kind.is_integer or kind in (FieldType.STRING, FieldType.BLOB) for kind in kinds)
        if not parent.is_sound or window.initialize is not None or not groups_fit:
            return False
        declared = [field.type for field in node.schema if not field.key]
        expressions = [
            _expression(node, window, content, kind) for content, kind in zip(window.fields, declared, strict=True)
        ]
        pairs = zip(expressions, declared, strict=True)
        return all(made is not None and _has_columns(made, kind, parent) for made, kind in pairs)

    def members(self, node: Node) -> str:
        """Where the rows are that a window must remember: in the log, in its state, or nowhere."""
        window = node.window
        if isinstance(window, SourceWindow):
            kept = node.is_indexed and not window.autogen_key
            return "state" if kept or window.retention is not None else "none"
        if isinstance(window, CopyWindow):
            return self._copy_members(node, window)
        if isinstance(window, AggregateWindow):
            return "none" if self._is_additive(node, window) else "state"
        if window.kind in ("union", "functional") or (node.parents and changes_key(window, node.inputs[0])):
            return "state" if node.is_indexed else "none"
        return "state" if window.kind in ("join", "pattern", "transpose", "procedural", "custom") else "none"

    def _copy_members(self, node: Node, window: CopyWindow) -> str:
        parent = self.parent_traits(node)
        if window.retention is None:
            return "none" if parent.is_unique or not node.is_indexed else "state"
        return "log" if parent.is_unique and self._log_has(node, window.retention) else "state"

    def _log_has(self, node: Node, retention: Retention) -> bool:
        """The log holds a source's rows as they are, if it makes no keys; the model's clock it does not hold.

        A stream that is not the project's own lets records go by rules of its own.
        """
        source = self._graph.nodes[node.parents[0].node]
        window = source.window
        if not isinstance(window, SourceWindow) or window.autogen_key or not has_plain_output(source):
            return False
        if window.takes_records:
            return False
        return not retention.by_time or retention.field is not None

    def _is_additive(self, node: Node, window: AggregateWindow) -> bool:
        """Sums and counts can be taken back without knowing the other members."""
        if not self._sums_columns(node, window):
            return False
        made = (_expression(node, window, content, None) for content in window.fields)
        names = {call.function for each in made if each is not None for call in each.calls}
        return not names & _EXTREMES or self.parent_traits(node).inserts_only

    def state(self, node: Node) -> str:
        """What is kept, in words."""
        words = self._words(node)
        return f"{words}; what waits for the pulse" if node.window.pulse_us is not None else words

    def _words(self, node: Node) -> str:
        window, members = node.window, self.members(node)
        if isinstance(window, SourceWindow):
            return _source_words(window, members)
        if isinstance(window, CopyWindow):
            return self._copy_words(node, members)
        if isinstance(window, AggregateWindow):
            return self._aggregate_words(node, members)
        if members == "state" and isinstance(window, ComputeWindow):
            return "its rows by key, and the row of its input that each is made of"
        if isinstance(window, FilterWindow | ComputeWindow):
            return "nothing" if window.initialize is None else "the variables of its expressions"
        if isinstance(window, JoinWindow) and self.works_on_columns(node) and not needs_facts(node):
            return "the rows of its dimension by key"
        return _PLAIN[window.kind] if window.kind in _PLAIN else _rows_or_nothing(members)

    def _copy_words(self, node: Node, members: str) -> str:
        if members == "log":
            return "clock and tail position; its rows are read from the log"
        if retention_of(node) is not None and self.works_on_columns(node):
            return "its rows in the order they came"
        return _rows_or_nothing(members)

    def _aggregate_words(self, node: Node, members: str) -> str:
        if members == "none":
            return "one row per group"
        if self.works_on_columns(node):
            return "one row per group, with queues for min and max"
        return "one row per group, and its members"


def _expression(
    node: Node, window: AggregateWindow, content: str | FieldPlug, kind: FieldType | None
) -> AggregateExpression | None:
    """What makes a field of a type; None for a function of one's own."""
    if isinstance(content, FieldPlug):
        return None
    return compiled_aggregate(content, names_of(node.inputs[0]), window.initialize, kind)


def _has_columns(made: AggregateExpression, declared: FieldType, parent: Traits) -> bool:
    if not made.combine.is_pure or may_overflow(made, declared):
        return False
    return all(_call_has_columns(call, parent) for call in made.calls)


def _call_has_columns(call: AggregateCall, parent: Traits) -> bool:
    if not all(argument.is_pure for argument in call.arguments):
        return False
    if call.function in _COUNTS:
        return True
    numeric = bool(call.arguments) and all(argument.type.is_numeric for argument in call.arguments)
    if call.function in _EXTREMES:
        return numeric and (parent.inserts_only or parent.is_queue)
    return numeric and call.function in _SUMS


def _source_words(window: SourceWindow, members: str) -> str:
    if members == "none":
        return "the last key it made" if window.autogen_key else "nothing"
    return "the keys it has seen" if window.insert_only and window.retention is None else "its rows by key"


def _rows_or_nothing(members: str) -> str:
    return "its rows by key" if members == "state" else "nothing"
