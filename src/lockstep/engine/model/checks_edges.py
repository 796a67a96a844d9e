"""Checks of how windows are connected."""

from __future__ import annotations

from lockstep.engine.model.checks_survey import Placed, Survey
from lockstep.engine.model.faults import Fault, Findings, did_you_mean
from lockstep.engine.model.project import ContinuousQuery, Edge
from lockstep.engine.model.schemas import output_schema
from lockstep.engine.model.windows import (
    AggregateWindow,
    JoinWindow,
    SourceWindow,
    Window,
)

_SEVERAL = (
    "union", "pattern", "counter", "procedural", "custom", "join", "functional", "notification", "unread",
)  # fmt: skip
"""Kinds that can have more than one input."""
_FEED = "Add an edge from the window that feeds it."


def check_edges(seen: Survey, findings: Findings) -> None:
    """Edges that lead nowhere, windows with too many inputs or none, cycles."""
    for query in seen.project.queries:
        by_name = {window.name: window for window in query.windows}
        for edge in query.edges:
            _check_ends(query, edge, by_name, findings)
            _check_slot(query, edge, by_name, findings)
        _check_repeats(query, findings)
        for window in query.windows:
            _check_inputs(query, window, findings)
    for cycle in seen.cycles:
        place = f"query {cycle[0].split('/', maxsplit=1)[0]}"
        problem = f"Windows feed each other in a circle: {' -> '.join(path.split('/', 1)[1] for path in cycle)}."
        findings.add(place, problem, "Remove one of these edges: a window can't wait for its own answer.")


def _check_ends(query: ContinuousQuery, edge: Edge, by_name: dict[str, Window], findings: Findings) -> None:
    for name in (edge.source, edge.target):
        if name not in by_name:
            problem = f"The edge {edge.source} -> {edge.target} names window {name!r}, which does not exist."
            findings.add(f"query {query.name}", problem, did_you_mean(name, by_name, "window"))


def _check_slot(query: ContinuousQuery, edge: Edge, by_name: dict[str, Window], findings: Findings) -> None:
    place = f"query {query.name}"
    if edge.slot < -1:
        problem = f"The edge {edge.source} -> {edge.target} takes slot {edge.slot}."
        findings.add(place, problem, "Slots count from 0; -1 takes everything.")
    source = by_name.get(edge.source)
    if edge.slot >= 0 and source is not None and source.splitter is None:
        problem = f"The edge {edge.source} -> {edge.target} takes slot {edge.slot}, but {edge.source} has no splitter."
        findings.add(place, problem, f"Give {edge.source} a splitter expression, or take the slot away.")


def _check_repeats(query: ContinuousQuery, findings: Findings) -> None:
    seen: set[tuple[str, str, int]] = set()
    for edge in query.edges:
        key = (edge.source, edge.target, edge.slot)
        if key in seen and not _joins(query, edge.target):
            problem = f"The edge {edge.source} -> {edge.target} is there twice."
            findings.add(f"query {query.name}", problem, "Remove one of them.")
        seen.add(key)


def _joins(query: ContinuousQuery, name: str) -> bool:
    """A join may have the same window on both sides."""
    return any(isinstance(window, JoinWindow) and window.name == name for window in query.windows)


def _check_inputs(query: ContinuousQuery, window: Window, findings: Findings) -> None:
    place = f"{query.name}/{window.name}"
    count = sum(edge.target == window.name for edge in query.edges)
    if isinstance(window, SourceWindow):
        if count:
            remedy = "Remove the edge, or make it a copy window."
            findings.add(place, "It is a source window, but an edge leads to it.", remedy)
    elif is_idle(window, count) or window.kind == "unread":
        return
    elif count == 0 and not isinstance(window, JoinWindow):
        findings.add(place, _nothing_leads_to(window), _FEED)
    elif isinstance(window, JoinWindow) and count != 2:
        remedy = (
            "Give it exactly two: the first is the left side, the second the right, unless their roles say otherwise."
        )
        findings.add(place, f"It is a join, but {count} edge(s) lead to it.", remedy)
    elif isinstance(window, JoinWindow):
        sides = [edge.side for edge in query.edges if edge.target == window.name]
        if sides[0] is not None and sides[0] == sides[1]:
            remedy = "Give one of them the role left, the other the role right."
            findings.add(place, f"It is a join, and both edges that lead to it are its {sides[0]} side.", remedy)
    elif count > 1 and window.kind not in _SEVERAL:
        remedy = "Put a union window in front of it."
        findings.add(place, f"It is a {window.kind} window, but {count} edges lead to it.", remedy)


def is_idle(window: Window, inputs: int) -> bool:
    """Whether it can do without an input: no edge leads to it, and its rows are known all the same.

    A copy, filter or union has no fields then, and a join would be another one: those are faults.
    """
    known = not isinstance(window, SourceWindow | JoinWindow) and output_schema(window, ()) is not None
    return inputs == 0 and known


def idle_windows(seen: Survey) -> list[Fault]:
    """Windows that run and give nothing, because no edge leads to them: no faults, but hardly ever meant so."""
    return [
        Fault(placed.path, _nothing_leads_to(placed.window), f"It runs, but gives nothing. {_FEED}")
        for placed in seen.windows
        if is_idle(placed.window, len(placed.edges))
    ]


def _nothing_leads_to(window: Window) -> str:
    article = "an" if window.kind == "aggregate" else "a"
    return f"It is {article} {window.kind} window, but no edge leads to it."


def sources_of_inserts(seen: Survey) -> dict[int, str]:
    """Sources that can take inserts only, by their place, with the path of a window that is the reason.

    Aggregates and joins must be told what an update replaces; behind a source without an index nobody knows.
    """
    found: dict[int, str] = {}
    by_index = {other.index: other for other in seen.windows}
    for placed in seen.windows:
        for parent in placed.parents if isinstance(placed.window, AggregateWindow | JoinWindow) else ():
            for origin in _unresolved_origins(by_index[parent], by_index, seen):
                found.setdefault(origin, placed.path)
    return found


def _unresolved_origins(placed: Placed, by_index: dict[int, Placed], seen: Survey) -> set[int]:
    """The source windows whose unresolved opcodes come out of this window."""
    window = placed.window
    if window.output_insert_only:
        return set()
    if isinstance(window, SourceWindow):
        return set() if window.insert_only or has_index(placed, seen) else {placed.index}
    passes = window.kind in ("filter", "compute") or (window.kind in ("copy", "union") and not has_index(placed, seen))
    if not passes:
        return set()
    return {found for parent in placed.parents for found in _unresolved_origins(by_index[parent], by_index, seen)}


def has_index(placed: Placed, seen: Survey) -> bool:
    """Whether a window keeps its rows by key: its own index, else its query's, else the project's."""
    return (placed.window.index or placed.query.index or seen.project.index) != "pi_EMPTY"
