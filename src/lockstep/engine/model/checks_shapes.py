"""Checks of windows that change the shape of rows: counter, transpose and remove-state."""

from __future__ import annotations

from lockstep.engine.events.schema import Schema
from lockstep.engine.events.types import FieldType
from lockstep.engine.model.checks_names import check_positive
from lockstep.engine.model.checks_survey import Placed
from lockstep.engine.model.faults import Findings, did_you_mean, duplicates
from lockstep.engine.model.schemas import EVENT_NUMBER, LOG_FIELDS, TAG_NUMBER
from lockstep.engine.model.windows import REMOVABLE, CounterWindow, RemoveStateWindow, TransposeWindow

_MODES = ("wide", "long")


def check_counter(placed: Placed, findings: Findings) -> None:
    """Its intervals."""
    window = placed.window
    assert isinstance(window, CounterWindow)
    check_positive(window.count_us, placed.path, "count-interval", findings)
    check_positive(window.clear_us, placed.path, "clear-interval", findings)


def check_remove_state(placed: Placed, findings: Findings) -> None:
    """What it leaves out, and that its own fields have their names to themselves."""
    window = placed.window
    assert isinstance(window, RemoveStateWindow)
    for name in window.remove:
        if name not in REMOVABLE:
            remedy = did_you_mean(name, REMOVABLE, "kind of event")
            findings.add(placed.path, f"It removes {name!r}, which is no kind of event.", remedy)
    own = (EVENT_NUMBER, *(LOG_FIELDS if window.add_log_fields else ()))
    for field in own:
        if placed.input is not None and field.name in placed.input:
            problem = f"Its input has a field {field.name!r}, which it makes itself."
            findings.add(placed.path, problem, "Rename the input's field.")


def check_transpose(placed: Placed, findings: Findings) -> None:
    """The fields it turns must be there, and their new names possible."""
    window = placed.window
    assert isinstance(window, TransposeWindow)
    check_positive(window.clear_us, placed.path, "clear-timeout", findings)
    for what, names in (("tag-values", window.tag_values), ("tags-included", window.tags_included)):
        if not names:
            findings.add(placed.path, f"{what} is empty.", "Name at least one.")
        for name in duplicates(names):
            findings.add(placed.path, f"{what} names {name!r} twice.", "Name it once.")
    if window.mode not in _MODES:
        findings.add(placed.path, f"{window.mode!r} is no mode of a transpose.", "Choose wide or long.")
    elif placed.input is not None:
        _check_group(window, placed.input, placed.path, findings)
        _check_new_names(window, placed.input, placed.path, findings)
        (_check_wide if window.mode == "wide" else _check_long)(window, placed.input, placed.path, findings)


def _check_new_names(window: TransposeWindow, parent: Schema, path: str, findings: Findings) -> None:
    """The fields that it makes must not have the names of those that it keeps."""
    names = [TAG_NUMBER.name, window.tag_name, *window.tag_values]
    kept = set(parent.names)
    if window.mode == "wide":
        names = [f"{tag}_{value}" for tag in window.tags_included for value in window.tag_values]
        kept -= {window.tag_name, *window.tag_values}
    else:
        kept = {name for name in kept if not name.endswith(tuple(f"_{value}" for value in window.tag_values))}
    for name in duplicates([*names, *(name for name in names if name in kept)]):
        problem = f"It makes a field {name!r}, and another of its fields has that name."
        findings.add(path, problem, "Rename one of them.")


def _check_group(window: TransposeWindow, parent: Schema, path: str, findings: Findings) -> None:
    for name in window.group_by:
        if name not in parent:
            remedy = did_you_mean(name, parent.names, "field")
            findings.add(path, f"It groups by {name!r}, which does not exist in the input.", remedy)


def _check_wide(window: TransposeWindow, parent: Schema, path: str, findings: Findings) -> None:
    if window.tag_name not in parent:
        remedy = did_you_mean(window.tag_name, parent.names, "field")
        findings.add(path, f"Its tag field {window.tag_name!r} does not exist in the input.", remedy)
    elif parent[window.tag_name].type is not FieldType.STRING:
        problem = f"Its tag field {window.tag_name!r} is a {parent[window.tag_name].type.value}."
        findings.add(path, problem, "Choose a string field.")
    for name in window.tag_values:
        if name not in parent:
            remedy = did_you_mean(name, parent.names, "field")
            findings.add(path, f"Its tag value {name!r} does not exist in the input.", remedy)
    for tag in window.tags_included:
        if not f"{tag}_x".replace("-", "_").isidentifier():
            findings.add(path, f"The tag {tag!r} can't begin a field name.", "Use letters, digits and underscores.")


def _check_long(window: TransposeWindow, parent: Schema, path: str, findings: Findings) -> None:
    for value in window.tag_values:
        names = [f"{tag}_{value}" for tag in window.tags_included]
        for name in names:
            if name not in parent:
                remedy = did_you_mean(name, parent.names, "field")
                findings.add(path, f"The input has no field {name!r}.", remedy)
        kinds = {name: parent[name].type for name in names if name in parent}
        if len(set(kinds.values())) > 1:
            listed = ", ".join(f"{name} is a {kind.value}" for name, kind in kinds.items())
            findings.add(path, f"The fields of value {value!r} differ in type: {listed}.", "Give them the same type.")
