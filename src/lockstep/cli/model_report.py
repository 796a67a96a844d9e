"""What a run gave: the counts of every window, the lines that were no events, and how long it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lockstep.cli.output import Output, plural, table

if TYPE_CHECKING:
    from lockstep.engine.model.graph import Graph
    from lockstep.engine.reference.operator import WindowCounts
    from lockstep.engine.runtime.files import BadLines, FileOutcome


def window_rows(graph: Graph, counts: Mapping[str, WindowCounts]) -> list[dict[str, Any]]:
    """The counts of every window, in the order in which they are evaluated."""
    return [
        {
            "window": node.path,
            "kind": node.window.kind,
            "rows": found.rows if found else 0,
            "in": found.events_in if found else 0,
            "out": found.events_out if found else 0,
            "bad": dict(sorted(found.bad.items())) if found else {},
        }
        for node, found in ((node, counts.get(node.path)) for node in graph.nodes)
    ]


def bad_lines_tree(bad: BadLines) -> dict[str, Any]:
    """The lines that were no events, as data."""
    return {
        "total": bad.total,
        "files": [{"file": file, "reasons": dict(sorted(reasons.items()))} for file, reasons in bad.counts.items()],
        "first": [
            {"file": file, "line": item.line, "reason": item.reason, "detail": item.detail, "text": item.text}
            for file, item in bad.first
        ],
    }


def show_windows(
    output: Output, rows: Sequence[Mapping[str, Any]], lines: Mapping[str, int] | None = None, *, aside: bool = False
) -> None:
    """A table of counts, `aside` on stderr; `lines` are those written to files."""
    numbers = {name: [f"{row[name]:,}" for row in rows] for name in ("rows", "in", "out")}
    if lines:
        numbers["lines"] = [f"{lines[row['window']]:,}" if row["window"] in lines else "-" for row in rows]
    numbers["bad"] = [f"{sum(row['bad'].values()):,}" for row in rows]
    columns = {
        "window": [row["window"] for row in rows],
        **({"kind": [row["kind"] for row in rows]} if all("kind" in row for row in rows) else {}),
        **dict(_to_the_right(name, cells) for name, cells in numbers.items()),
        **({"why": [in_words(row["bad"]) for row in rows]} if any(row["bad"] for row in rows) else {}),
    }
    body = list(zip(*columns.values(), strict=True))
    if aside:
        for line in table(list(columns), body):
            output.note(line)
    else:
        output.table(list(columns), body)


def _to_the_right(name: str, cells: Sequence[str]) -> tuple[str, list[str]]:
    width = max(map(len, [name, *cells]))
    return name.rjust(width), [cell.rjust(width) for cell in cells]


def in_words(reasons: Mapping[str, int]) -> str:
    """2 duplicate-key, 1 null-key."""
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())


def show_bad_lines(output: Output, bad: BadLines) -> None:
    """Which lines were no events, to stderr; the first ones in full."""
    for file, reasons in bad.counts.items():
        total = sum(reasons.values())
        said = "1 line is no event and" if total == 1 else f"{total:,} lines are no events and"
        if "transaction" in reasons:
            said = f"{total:,} lines are"
        output.warn(f"{file}: {said} left out: {in_words(dict(sorted(reasons.items())))}.")
    for file, item in bad.first:
        output.note(f"  {file}, line {item.line}: {item.reason}: {item.detail}: {item.text}")
    if bad.total > len(bad.first):
        output.note(f"  and {bad.total - len(bad.first):,} more.")


def check_some_taken(bad: BadLines, events: int) -> None:
    """NoLineTaken if there were lines, and not one of them was an event."""
    bad.check_some_taken(events)


def show_refused(output: Output, refused: Sequence[Mapping[str, Any]]) -> None:
    """The first events that windows refused, to stderr; how many there were in all is in the counts."""
    if refused:
        output.warn("Windows refused events. The first:")
    for item in refused:
        output.note(f"  {item['window']}, block {item['block']}: {item['reason']}: {item['detail']}")


SMALL_EVENTS = 200_000
"""Up to here most of the time goes into starting Spark."""


def show_speed(output: Output, outcome: FileOutcome, *, on_spark: bool) -> None:
    """How much it was, and how long it took."""
    took = f"{outcome.seconds:,.1f} s" if outcome.seconds >= 0.1 else f"{outcome.seconds * 1000:,.1f} ms"
    ready = f"; Spark was ready after {outcome.started_s:,.1f} s" if on_spark else ""
    output.note(
        f"{plural(outcome.events, 'event')} in {plural(outcome.blocks, 'block')}, {took}"
        f" ({per_second(outcome.events, outcome.seconds):,} events/s){ready}."
    )
    if on_spark and outcome.events < SMALL_EVENTS:
        output.note("For small inputs, --runner local gives the same answer without starting Spark.")


def per_second(count: int, seconds: float) -> int:
    """How many in a second, 0 if nothing took no time."""
    return round(count / seconds) if seconds > 0 else 0
