"""Everything that keeps a model's file from running, in one list; and what changes nothing here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lockstep.engine.errors import ModelUnreadable
from lockstep.engine.model.checks import sources_of_inserts
from lockstep.engine.model.faults import Fault
from lockstep.engine.model.graph import survey
from lockstep.engine.model.project import Project
from lockstep.engine.model.validation import cautions, faults
from lockstep.engine.model.xml_cursor import Unused
from lockstep.engine.model.xml_reader import Reading

WINDOW, ELEMENT, VARIABLE, EXPRESSION, CONNECTOR, SYNTAX, MODEL = (
    "window", "element", "variable", "expression", "connector", "syntax", "model",
)  # fmt: skip
"""What is in the way: a kind of window, an element or attribute, a name between @ signs, and so on."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """One thing to change before the model runs; `line` is None where the file has no lines, as in Python."""

    line: int | None
    kind: str
    place: str
    message: str
    fix: str


def blockers(reading: Reading) -> list[Blocker]:
    """All of them, in the order of their lines."""
    lines = reading.notes.lines
    found = [_unread(error, reading.project is None) for error in reading.notes.unread]
    if reading.project is not None:
        found += [blocker_of(fault, lines) for fault in faults(reading.project)]
    return in_order(found)


def warnings(reading: Reading) -> list[Blocker]:
    """What does not keep the model from running, but gives nothing; each with its line and what to do."""
    if reading.project is None:
        return []
    return in_order([blocker_of(fault, reading.notes.lines) for fault in cautions(reading.project)])


def in_order(found: list[Blocker]) -> list[Blocker]:
    """By line; what has none comes last, and what is equal stays as it is."""
    return sorted(dict.fromkeys(found), key=lambda one: (one.line is None, one.line or 0))


def blocker_of(fault: Fault, lines: Mapping[str, int], kind: str | None = None) -> Blocker:
    """A fault with the line of the nearest part of the model that has one."""
    line = line_of(fault.place, lines, fault.problem)
    return Blocker(line, kind or _kind_of(fault), fault.place, fault.problem, fault.remedy)


def line_of(place: str, lines: Mapping[str, int], problem: str = "") -> int | None:
    """The line of a place, or of the smallest part that it lies in."""
    edge = re.search(r"The edge (\S+ -> \S+) ", problem)
    if edge is not None and f"{place} edge {edge[1]}" in lines:
        return lines[f"{place} edge {edge[1]}"]
    words = place
    while words:
        if words in lines:
            return lines[words]
        words = words.rpartition(" ")[0]
    return None


def _unread(error: ModelUnreadable, nothing_read: bool) -> Blocker:
    params = error.params
    reason, remedy = str(params["reason"]), str(params["remedy"])
    kind = ELEMENT
    if "element 'window-" in reason:
        kind = WINDOW
    elif "which has no value" in reason:
        kind = VARIABLE
    elif nothing_read:
        kind = SYNTAX
    return Blocker(int(str(params["line"])), kind, f"column {params['column']}", f"{reason}.", remedy)


def _kind_of(fault: Fault) -> str:
    if " connector" in fault.place:
        return CONNECTOR
    return EXPRESSION if fault.problem.startswith("The expression") else MODEL


def without_effect(reading: Reading) -> list[Unused]:
    """Elements and names without an effect, in the order of their lines."""
    project = reading.project
    found = [] if project is None else [
        Unused(line_of(place, reading.notes.lines) or 0, what, why) for place, what, why in _of(project)
    ]  # fmt: skip
    return sorted([*reading.notes.unused, *found], key=lambda item: item.line)


def _of(project: Project) -> Iterator[tuple[str, str, str]]:
    seen = survey(project)
    paths = {placed.index: placed.path for placed in seen.windows}
    for index, reader in sources_of_inserts(seen).items():
        why = f"{paths[index]} has no index (pi_EMPTY) to say what they replace, and {reader} must know"
        yield paths[index], f"an event that is no insert, to {paths[index]},", f"it is refused, as {why}"
    for query in project.queries:
        names = {window.name for window in query.windows}
        for name in query.trace:
            if name not in names:
                yield f"query {query.name}", f"the trace of {name!r}", "there is no such window"
