"""The one line that says what a window does, for pictures and lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockstep.engine.model import windows as w
from lockstep.engine.model.durations import duration_text
from lockstep.engine.model.graph import Node

WIDTH = 36


def shortened(text: str, width: int = WIDTH) -> str:
    """A text on one line, cut where it grows too long."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def label_of(node: Node) -> str:
    """What matters most about a window."""
    words = _WORDS.get(type(node.window))
    return shortened(words(node.window)) if words else ""


def retention_words(retention: w.Retention | None) -> str:
    """How long rows stay."""
    if retention is None:
        return "keeps all rows"
    limit = duration_text(retention.limit) if retention.by_time else f"{retention.limit} rows"
    kind = retention.kind.partition("_")[2].replace("_", " ")
    field = f" of {retention.field}" if retention.field else ""
    return f"{kind} {limit}{field}"


def _keys(window: Any) -> str:
    return ", ".join(field.name for field in window.schema if field.key) or "nothing"


def _source(window: w.SourceWindow) -> str:
    kept = f", {retention_words(window.retention)}" if window.retention else ""
    records = f"records of {window.stream}, " if window.takes_records else ""
    return f"{records}key {_keys(window)}{', insert only' if window.insert_only else ''}{kept}"


def _join(window: w.JoinWindow) -> str:
    pairs = (left if left == right else f"{left} = {right}" for left, right in window.conditions)
    return f"{window.type} on {', '.join(pairs)}"


def _pattern(window: w.PatternWindow) -> str:
    return "; ".join(pattern.logic for pattern in window.patterns)


def _counter(window: w.CounterWindow) -> str:
    return "in all" if window.count_us is None else f"every {duration_text(window.count_us)}"


def _transpose(window: w.TransposeWindow) -> str:
    return f"{window.mode}: {window.tag_name} of {', '.join(window.tag_values)}"


def _remove_state(window: w.RemoveStateWindow) -> str:
    return f"without {', '.join(window.remove)}" if window.remove else "numbered inserts"


def _notification(window: w.NotificationWindow) -> str:
    return ", ".join(f"{channel.kind} to {channel.to}" for channel in window.channels)


_WORDS: dict[type[w.Window], Callable[[Any], str]] = {
    w.SourceWindow: _source,
    w.CopyWindow: lambda window: retention_words(window.retention),
    w.AggregateWindow: lambda window: f"by {_keys(window)}",
    w.FilterWindow: lambda window: window.expression,
    w.ComputeWindow: lambda window: ", ".join(field.name for field in window.schema if not field.key),
    w.JoinWindow: _join,
    w.UnionWindow: lambda window: "strict" if window.strict else "all rows",
    w.PatternWindow: _pattern,
    w.FunctionalWindow: lambda window: ", ".join(name for name, _ in window.functions),
    w.CounterWindow: _counter,
    w.TransposeWindow: _transpose,
    w.RemoveStateWindow: _remove_state,
    w.NotificationWindow: _notification,
    w.ProceduralWindow: lambda window: f"{window.module}:{window.handler}",
    w.CustomWindow: lambda window: f"{window.module}:{window.class_} {window.version}",
}
