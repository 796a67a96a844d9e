"""Everything that keeps a model's file from running, in one list: what can't be read, and what is not sound."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.engine.errors import ModelUnreadable
from lockstep.engine.model.faults import Fault
from lockstep.engine.model.validation import cautions, faults
from lockstep.engine.model.xml_reading import Reading

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
