"""The determinism guard: every window whose answer depends on a wall clock.

The model's clock moves by ticks, which are written into the log once: all engines that read this log agree. But run
the same events again, and the ticks come elsewhere. A window that follows a time field has no such trouble.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.plan_state import retention_of
from lockstep.engine.model.schemas import Names, compiled, compiled_aggregate, join_names, names_of
from lockstep.engine.model.windows import (
    AggregateWindow,
    ComputeWindow,
    CounterWindow,
    CustomWindow,
    FilterWindow,
    FunctionalWindow,
    Initializer,
    JoinWindow,
    NotificationWindow,
    Pattern,
    PatternWindow,
    TransposeWindow,
)

_CALLED = re.compile(r"([A-Za-z_]\w*)\s*\(")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


class ClockUse(NamedTuple):
    """A window whose answer depends on a wall clock, why, and what to do about it."""

    path: str
    why: str
    remedy: str


def clock_dependence(graph: Graph) -> list[ClockUse]:
    """Every such window, in evaluation order: by itself, or because of a parent."""
    found: dict[int, ClockUse] = {}
    for node in graph.nodes:
        own = own_reason(node)
        if own is not None:
            found[node.index] = ClockUse(node.path, *own)
            continue
        tainted = [graph.nodes[parent.node].path for parent in node.parents if parent.node in found]
        if tainted:
            why = f"it is made of {' and '.join(dict.fromkeys(tainted))}, which depends on the clock"
            found[node.index] = ClockUse(node.path, why, f"Fix {tainted[0]}.")
    return list(found.values())


def clock_of(node: Node) -> str:
    """Whose time a window follows: `field NAME`, `model clock` or `none`."""
    window, retention = node.window, retention_of(node)
    if window.pulse_us is not None:
        return "model clock"
    if retention is not None and retention.by_time:
        return f"field {retention.field}" if retention.field is not None else "model clock"
    if own_reason(node) is not None:
        return "model clock"
    return pattern_clock(window) if isinstance(window, PatternWindow) else "none"


def pattern_clock(window: PatternWindow) -> str:
    """A pattern that needs no ticks follows its time fields."""
    names = dict.fromkeys(name for pattern in window.patterns for name, _ in pattern.time_fields)
    return f"field {', '.join(names)}" if names else "none"


def needs_ticks(pattern: Pattern) -> bool:
    """Whether a pattern measures times without a time field for each of its sources."""
    given = {source for _, source in pattern.time_fields}
    return "{" in pattern.logic and any(event.source not in given for event in pattern.events)


def own_reason(node: Node) -> tuple[str, str] | None:
    """Why a window itself depends on the clock, and the remedy; None if it does not."""
    window, retention = node.window, retention_of(node)
    if window.pulse_us is not None:
        return "its pulse-interval decides when and with what its events leave", "Take pulse-interval away."
    if retention is not None and retention.by_time and retention.field is None:
        return "its retention has no time field", "Give the retention a date or stamp field."
    return _reason_of_kind(node) or _reason_of_expressions(node)


def _reason_of_kind(node: Node) -> tuple[str, str] | None:
    window = node.window
    if isinstance(window, CounterWindow):
        return "its rates and intervals follow the model's clock", "Count with an aggregate window instead."
    if isinstance(window, CustomWindow) and window.tick_us is not None:
        return "its tick follows the model's clock", "Take tick away, or don't compare it from run to run."
    if isinstance(window, TransposeWindow) and window.clear_us is not None:
        return "its clear-timeout follows the model's clock", "Take clear-timeout away."
    if isinstance(window, PatternWindow) and any(needs_ticks(pattern) for pattern in window.patterns):
        return "its logic measures times without time fields", "Give the pattern a time field for each source."
    if isinstance(window, NotificationWindow):
        throttles = any(channel.throttle_us for channel in window.channels)
        also = ", and its throttle-interval follows it" if throttles else ""
        return f"its rows and messages carry the model's clock{also}", "Don't compare them from run to run."
    return _reason_of_functions(_texts(window)) if isinstance(window, FunctionalWindow) else None


def _texts(window: FunctionalWindow) -> Iterable[str]:
    yield from (text for _, text in window.functions)
    yield from (item.text for item in window.properties)
    yield from (window.generate or "", window.opcode or "")
    for loop in window.loops:
        yield from (loop.use, *(text for _, text in loop.functions), *(item.text for item in loop.properties))


def _reason_of_functions(texts: Iterable[str]) -> tuple[str, str] | None:
    from lockstep.engine.reference.function_library import CALLS

    for text in texts:
        for name in _CALLED.findall(_QUOTED.sub("''", text)):
            if name.lower() in CALLS and CALLS[name.lower()].reads_clock:
                problem = f"its function {text!r} reads the clock with {name}()"
                return problem, "Use a time field of the events instead."
    return None


def _reason_of_expressions(node: Node) -> tuple[str, str] | None:
    window = node.window
    if isinstance(window, AggregateWindow):
        found = _reason_of_aggregates(window, names_of(node.inputs[0]))
    elif isinstance(window, ComputeWindow):
        found = _reason_of_texts(window.fields, names_of(node.inputs[0]), window.initialize)
    elif isinstance(window, FilterWindow):
        found = _reason_of_texts((window.expression,), names_of(node.inputs[0]), window.initialize)
    elif isinstance(window, JoinWindow):
        texts = tuple(field.expression for field in window.fields if field.expression is not None)
        found = _reason_of_texts(texts, join_names(node.inputs[0], node.inputs[1]), None)
    elif isinstance(window, PatternWindow):
        found = _reason_of_patterns(node, window)
    else:
        found = None
    if found is None and window.splitter is not None:
        splitter = window.splitter
        found = _reason_of_texts((splitter.expression,), names_of(node.schema), splitter.initialize)
    return found


def _reason_of_texts(texts: Iterable[str], names: Names, initialize: Initializer | None) -> tuple[str, str] | None:
    for text in texts:
        clocks = compiled(text, names, initialize).clocks
        if clocks:
            return _reading(text, clocks[0])
    return None


def _reason_of_patterns(node: Node, window: PatternWindow) -> tuple[str, str] | None:
    from lockstep.engine.reference.pattern_logic import compile_events, scope_of

    ports = {parent.name: port for port, parent in enumerate(node.parents)}
    for pattern in window.patterns:
        events = compile_events(pattern, ports, node.inputs)
        for event in pattern.events:
            test = events.tests[event.name]
            for expression in (*test.conditions, *(binding.value for binding in test.bindings)):
                if expression.clocks:
                    return _reading(event.expression, expression.clocks[0])
        for output in pattern.output:
            if output.expression is None or not output.expression.strip():
                continue
            names = events.variables
            if output.node is not None:
                names = scope_of(node.inputs[events.tests[output.node].port], names)[0].names
            found = _reason_of_texts((output.expression,), names, None)
            if found is not None:
                return found
    return None


def _reason_of_aggregates(window: AggregateWindow, names: Names) -> tuple[str, str] | None:
    for text in window.fields:
        if not isinstance(text, str):
            continue
        expression = compiled_aggregate(text, names, window.initialize)
        timed = [call.function for call in expression.calls if call.function.endswith("timed")]
        if timed:
            problem = f"its function {timed[0]} in {text!r} counts the time by the model's clock"
            return problem, "Put a copy window with retention on a time field before it, and use the plain function."
        if expression.clocks:
            return _reading(text, expression.clocks[0])
    return None


def _reading(text: str, function: str) -> tuple[str, str]:
    return f"its expression {text!r} reads the clock with {function}()", "Use a time field of the events instead."
