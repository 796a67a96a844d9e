"""What is known of a window's events before any comes, and why a join or union goes row by row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from lockstep.engine.events.schema import FieldType, Schema
from lockstep.engine.language.compiler import AggregateExpression, Scope, compile_expression
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.schemas import changes_key, fact_sides, join_fields, join_names, meets_many
from lockstep.engine.model.windows import (
    AggregateWindow,
    ComputeWindow,
    CopyWindow,
    FilterWindow,
    JoinWindow,
    SourceWindow,
    UnionWindow,
)

_COUNT = re.compile(r"\s*ESP_aCount\w*\s*\([^()]*\)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Traits:
    """Of a window's output.

    is_sound      what is deleted or updated was inserted before, with the same values
    inserts_only  there are no deletes and no updates
    is_unique     inserts only, and no key comes twice
    is_queue      no updates, and rows are deleted in the order in which they came
    is_whole      no event is a partial one, of which nulls stand for old values
    """

    is_sound: bool = False
    inserts_only: bool = False
    is_unique: bool = False
    is_queue: bool = False
    is_whole: bool = False


NOTHING = Traits()
INSERTS = Traits(is_sound=True, inserts_only=True, is_queue=True)


def find_traits(graph: Graph) -> list[Traits]:
    """The traits of every window's output, after its options."""
    found: list[Traits] = []
    for node in graph.nodes:
        parents = [input_traits(node, found, port) for port in range(len(node.parents))]
        is_whole = _is_whole(node, [found[parent.node] for parent in node.parents])
        found.append(replace(_with_options(node, _traits(node, parents)), is_whole=is_whole))
    return found


def input_traits(node: Node, found: Sequence[Traits], port: int) -> Traits:
    """The traits of what a window gets; a slot may get halves of updates."""
    parent = node.parents[port]
    return found[parent.node] if parent.slot < 0 else Traits(is_whole=found[parent.node].is_whole)


def is_pure(node: Node) -> bool:
    """Whether a filter or compute window looks at nothing but the row, and leaves it its key."""
    window = node.window
    assert isinstance(window, FilterWindow | ComputeWindow)
    if window.initialize is not None or changes_key(window, node.inputs[0]):
        return False
    texts = (window.expression,) if isinstance(window, FilterWindow) else window.fields
    scope = Scope.of(node.inputs[0])
    return all(compile_expression(text, scope).is_pure for text in texts)


def may_overflow(expression: AggregateExpression, declared: FieldType) -> bool:
    """Whether a value may be too large for its field: that is reported with the row that caused it, so row by row."""
    if declared is not FieldType.INT32 or expression.type is FieldType.INT32:
        return False
    return not _COUNT.fullmatch(expression.text)


def has_plain_output(node: Node) -> bool:
    """Nothing is done with its output, except perhaps leaving out all but inserts."""
    window = node.window
    return window.pulse_us is None and not window.collapse_updates and window.splitter is None


def _traits(node: Node, parents: Sequence[Traits]) -> Traits:
    window = node.window
    if isinstance(window, SourceWindow):
        return _source(node, window)
    if isinstance(window, CopyWindow):
        return _copy(node, window, parents[0])
    if isinstance(window, FilterWindow):
        return parents[0] if is_pure(node) else NOTHING
    if isinstance(window, ComputeWindow):
        if changes_key(window, node.inputs[0]):
            return Traits(is_sound=node.is_indexed)
        return parents[0] if is_pure(node) else NOTHING
    if isinstance(window, JoinWindow):
        return _join(node, window, parents[fact_sides(window, *node.inputs)[0]])
    if isinstance(window, UnionWindow):
        return _union(node, parents)
    return Traits(is_sound=True) if isinstance(window, AggregateWindow) else NOTHING


def _is_whole(node: Node, parents: Sequence[Traits]) -> bool:
    """An index puts partial rows together; what code of users gives is not looked at."""
    window = node.window
    if isinstance(window, SourceWindow):
        return node.is_indexed or window.retention is not None
    return window.kind not in ("procedural", "custom") and all(parent.is_whole for parent in parents)


def keeps_facts(window: JoinWindow, fact: int) -> bool:
    """Whether the rows of a join's fact side are kept."""
    return (window.left_index, window.right_index)[fact] != "pi_EMPTY"


def _join(node: Node, window: JoinWindow, facts: Traits) -> Traits:
    """What leaves a join that keeps its facts is what it gave out before."""
    if meets_many(window, *node.inputs):
        return Traits(is_sound=True)
    is_kept = keeps_facts(window, fact_sides(window, *node.inputs)[0])
    is_told_once = not is_kept or (facts.is_unique and window.no_regenerates)
    if facts.inserts_only and is_told_once and window.type != "fullouter":
        # Nothing that a dimension row does is shown; a fact is shown once, under its own key.
        return replace(INSERTS, is_unique=facts.is_unique)
    return Traits(is_sound=is_kept)


def _union(node: Node, parents: Sequence[Traits]) -> Traits:
    if node.is_indexed:
        return Traits(is_sound=True)
    if all(parent.inserts_only for parent in parents):
        return INSERTS
    return Traits(is_sound=all(parent.is_sound for parent in parents))


def _source(node: Node, window: SourceWindow) -> Traits:
    if window.insert_only and window.retention is None:
        return replace(INSERTS, is_unique=node.is_indexed or window.autogen_key)
    return Traits(is_sound=node.is_indexed or window.retention is not None)


def _copy(node: Node, window: CopyWindow, parent: Traits) -> Traits:
    if window.retention is None:
        indexed = replace(parent, is_sound=True) if parent.is_unique else Traits(is_sound=True)
        return indexed if node.is_indexed else parent
    return Traits(is_sound=True, is_queue=parent.is_unique)


def _with_options(node: Node, raw: Traits) -> Traits:
    window = node.window
    if window.output_insert_only:
        return replace(INSERTS, is_unique=raw.is_unique)
    if window.pulse_us is not None or window.collapse_updates:
        return replace(raw, is_queue=raw.inserts_only)
    return raw


def rows_because(node: Node, traits: Sequence[Traits]) -> str | None:
    """The reason; None if it works on columns. `traits` are those of all windows before it."""
    if isinstance(node.window, JoinWindow):
        return _why_join_by_rows(node, node.window, traits)
    parents = [input_traits(node, traits, port) for port in range(len(node.parents))]
    return _why_union_by_rows(node, parents)


def needs_facts(node: Node) -> bool:
    """Whether a join on columns keeps its facts: a dimension row that changes makes anew those that meet it."""
    window = cast(JoinWindow, node.window)
    return not window.no_regenerates and keeps_facts(window, fact_sides(window, *node.inputs)[0])


def _why_join_by_rows(node: Node, window: JoinWindow, traits: Sequence[Traits]) -> str | None:
    if meets_many(window, *node.inputs):
        return "a row of either side may meet many of the other"
    fact = fact_sides(window, *node.inputs)[0]
    if not keeps_facts(window, 1 - fact):
        return "its dimension is not kept, so that a fact has to remember what it met"
    may_change = window.type == "fullouter" or not input_traits(node, traits, fact).is_unique
    if window.no_regenerates and keeps_facts(window, fact) and may_change:
        return "with no_regenerates a fact that may change has to remember what it met"
    for port, schema in enumerate(node.inputs):
        names = {schema.names[place] for place in schema.keys} | {pair[port] for pair in window.conditions}
        odd = _no_key(schema, names)
        if odd is not None:
            return f"{odd} is looked up"
    left, right = node.inputs
    for one, other in window.conditions:
        if left[one].type is not right[other].type:
            return f"{one} and {other} are of different types"
    return _expressions(node, window)


def _expressions(node: Node, window: JoinWindow) -> str | None:
    left, right = node.inputs
    scope = Scope(join_names(left, right))
    for made, field in zip(join_fields(window, left, right), node.schema, strict=True):
        if made.expression is None:
            continue
        expression = compile_expression(made.expression, scope, wanted=field.type)
        if not expression.is_pure:
            return f"{field.name} looks at more than the two rows"
        if field.type is FieldType.INT32 and expression.type is not FieldType.INT32:
            return f"{field.name} may be too large for an int32, which is reported event by event"
    return None


def _why_union_by_rows(node: Node, parents: Sequence[Traits]) -> str | None:
    if not node.is_indexed:
        return None
    odd = _no_key(node.schema, (node.schema.names[place] for place in node.schema.keys))
    if odd is not None:
        return f"{odd} is its key"
    if not all(parent.is_whole for parent in parents):
        return "an input may give partial rows, which are put together one by one"
    return None


def _no_key(schema: Schema, names: Iterable[str]) -> str | None:
    """A field whose values are no good numbers for keys: NaN and the two zeros."""
    for name in sorted(names):
        kind = schema[name].type
        if not (kind.is_integer or kind in (FieldType.STRING, FieldType.BLOB)):
            return f"{name}, a {kind.value},"
    return None
