"""Checks of windows whose fields are expressions: aggregate, compute and filter."""

from __future__ import annotations

import re

from lockstep.engine.errors import BadExpression
from lockstep.engine.events.schema import Field, Schema
from lockstep.engine.events.types import FieldType
from lockstep.engine.model.checks_survey import Placed
from lockstep.engine.model.checks_windows import report_expression
from lockstep.engine.model.faults import Fault, Findings, did_you_mean
from lockstep.engine.model.inference import Names, compiled, compiled_aggregate, names_of, takes
from lockstep.engine.model.windows import AggregateWindow, ComputeWindow, FieldPlug, FilterWindow, Initializer

_PYTHON_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def check_aggregate(placed: Placed, findings: Findings) -> None:
    """The group is the key; each other field has an expression or a plug."""
    window = placed.window
    assert isinstance(window, AggregateWindow)
    made = _pairs(placed, window.schema, len(window.fields), findings)
    if placed.input is not None:
        _check_copied(placed, window.schema, placed.input, "group by", findings)
    for field, content in zip(made, window.fields, strict=False):
        place = f"{placed.path} field {field.name}"
        if isinstance(content, FieldPlug):
            check_plug(content.module, content.function, place, "function", findings)
            _check_plug_fields(content, place, placed.input, findings)
        elif placed.input is not None:
            _check_aggregate_field(content, field, place, placed.input, window.initialize, findings)


def _check_aggregate_field(
    text: str, field: Field, place: str, parent: Schema, initialize: Initializer | None, findings: Findings
) -> None:
    try:
        kind = compiled_aggregate(text, names_of(parent), initialize, field.type).type
    except BadExpression as error:
        report_expression(error, place, findings)
    else:
        check_fits(field.type, kind, text, place, findings)


def _check_plug_fields(plug: FieldPlug, place: str, schema: Schema | None, findings: Findings) -> None:
    for name in plug.fields:
        if schema is not None and name not in schema:
            problem = f"Its function takes the field {name!r}, which does not exist in the input."
            findings.add(place, problem, did_you_mean(name, schema.names, "field"))


def check_plug(module: str, name: str, place: str, what: str, findings: Findings) -> None:
    """What names a Python function must look like it; whether it can be imported is seen when the engine starts."""
    if not (_PYTHON_NAME.fullmatch(module) and _PYTHON_NAME.fullmatch(name)):
        remedy = "Write it as module and name, for example pricing.rules and spread."
        findings.add(place, f"Its {what} {module}:{name} is no name of a Python function.", remedy)


def check_compute(placed: Placed, findings: Findings) -> None:
    """Key fields are copied; each other field has an expression."""
    window = placed.window
    assert isinstance(window, ComputeWindow)
    made = _pairs(placed, window.schema, len(window.fields), findings)
    if placed.input is None:
        return
    _check_copied(placed, window.schema, placed.input, "key", findings)
    for field, text in zip(made, window.fields, strict=False):
        place = f"{placed.path} field {field.name}"
        check_expression(text, field.type, place, names_of(placed.input), window.initialize, findings)


def check_filter(placed: Placed, findings: Findings) -> None:
    """The expression must say yes or no."""
    window = placed.window
    assert isinstance(window, FilterWindow)
    if placed.input is None:
        return
    try:
        kind = compiled(window.expression, names_of(placed.input), window.initialize).type
    except BadExpression as error:
        report_expression(error, f"{placed.path} expression", findings)
        return
    if not kind.is_numeric:
        problem = f"The expression {window.expression!r} gives a {kind.value}, which is neither true nor false."
        findings.add(f"{placed.path} expression", problem, "Compare it with something, as in symbol == 'A'.")


def _pairs(placed: Placed, schema: Schema, count: int, findings: Findings) -> list[Field]:
    """The fields that are not copied; there must be as many expressions."""
    made = [field for field in schema if not field.key]
    if len(made) != count:
        names = ", ".join(field.name for field in made) or "none"
        problem = f"It has {count} expression(s) for {len(made)} field(s) besides the key ({names})."
        findings.add(placed.path, problem, "Give one for each field that is not a key, in order.")
    return made


def _check_copied(placed: Placed, schema: Schema, parent: Schema, what: str, findings: Findings) -> None:
    for field in schema:
        if not field.key:
            continue
        place = f"{placed.path} field {field.name}"
        if field.name not in parent:
            remedy = did_you_mean(field.name, parent.names, "field")
            findings.add(place, f"The {what} field {field.name!r} does not exist in the input.", remedy)
        elif parent[field.name].type is not field.type:
            theirs = parent[field.name].type.value
            problem = f"The {what} field {field.name!r} is a {field.type.value} here, but a {theirs} in the input."
            findings.add(place, problem, f"Make it a {theirs}.")


def lost_keys(placed: Placed) -> list[Fault]:
    """A compute window without key fields of its input runs, but two rows of the input may have one key there."""
    window, parent = placed.window, placed.input
    if not isinstance(window, ComputeWindow) or parent is None:
        return []
    own = {window.schema.names[place] for place in window.schema.keys}
    lost = [name for name in (parent.names[place] for place in parent.keys) if name not in own]
    if not lost:
        return []
    problem = f"The input's key field(s) {', '.join(lost)} are not in its key, so that rows may collide."
    return [Fault(placed.path, problem, "Make them key fields here too, or know that the first row with a key stays.")]


def check_expression(
    text: str, declared: FieldType, place: str, names: Names, initialize: Initializer | None, findings: Findings
) -> None:
    """An expression must be sound, and fit the type of its field."""
    try:
        kind = compiled(text, names, initialize, declared).type
    except BadExpression as error:
        report_expression(error, place, findings)
    else:
        check_fits(declared, kind, text, place, findings)


def check_fits(declared: FieldType, made: FieldType, text: str, place: str, findings: Findings) -> None:
    """A field must be able to hold what its expression gives."""
    if not takes(declared, made):
        problem = f"The expression {text!r} gives a {made.value}, which does not fit into a {declared.value}."
        findings.add(place, problem, f"Make the field a {made.value}, or convert the value in the expression.")
