"""What can be said about the events of a window before any comes: it decides which windows may work on columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lockstep.engine.events.types import FieldType
from lockstep.engine.expressions.compiler import AggregateExpression, Scope, compile_expression
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.windows import (
    AggregateWindow,
    ComputeWindow,
    CopyWindow,
    FilterWindow,
    SourceWindow,
)

_COUNT = re.compile(r"\s*ESP_aCount\w*\s*\([^()]*\)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Traits:
    """Of a window's output.

    is_sound      what is deleted or updated was inserted before, with the same values
    inserts_only  there are no deletes and no updates
    is_unique     inserts only, and no key comes twice
    is_queue      no updates, and rows are deleted in the order in which they came
    """

    is_sound: bool = False
    inserts_only: bool = False
    is_unique: bool = False
    is_queue: bool = False


NOTHING = Traits()
INSERTS = Traits(is_sound=True, inserts_only=True, is_queue=True)


def find_traits(graph: Graph) -> list[Traits]:
    """The traits of every window's output, after its options."""
    found: list[Traits] = []
    for node in graph.nodes:
        found.append(_with_options(node, _traits(node, [input_traits(node, found, 0)] if node.parents else [])))
    return found


def input_traits(node: Node, found: Sequence[Traits], port: int) -> Traits:
    """The traits of what a window gets; a slot may get halves of updates."""
    parent = node.parents[port]
    return found[parent.node] if parent.slot < 0 else NOTHING


def is_pure(node: Node) -> bool:
    """Whether the expressions of a filter or compute window look at nothing but the row."""
    window = node.window
    assert isinstance(window, FilterWindow | ComputeWindow)
    if window.initialize is not None:
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
        keeps_key = _key_names(node, 0) == {node.schema.names[place] for place in node.schema.keys}
        made = replace(parents[0], is_unique=parents[0].is_unique and keeps_key)
        return made if is_pure(node) else NOTHING
    return Traits(is_sound=True) if isinstance(window, AggregateWindow) else NOTHING


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


def _key_names(node: Node, port: int) -> set[str]:
    schema = node.inputs[port]
    return {schema.names[place] for place in schema.keys}
