"""Checks of what all windows have, of source, copy and union windows, and of retention."""

from __future__ import annotations

from lockstep.engine.errors import BadExpression
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.types import FieldType
from lockstep.engine.model.checks_edges import has_index
from lockstep.engine.model.checks_names import check_index, check_positive
from lockstep.engine.model.checks_records import check_records
from lockstep.engine.model.checks_survey import Placed, Survey
from lockstep.engine.model.durations import MAX_US
from lockstep.engine.model.faults import Findings, did_you_mean
from lockstep.engine.model.inference import compiled, names_of
from lockstep.engine.model.schemas import DECLARED
from lockstep.engine.model.windows import (
    RETENTION_KINDS,
    CopyWindow,
    Retention,
    SourceWindow,
    UnionWindow,
)


def check_common(placed: Placed, findings: Findings) -> None:
    """Options that every window has."""
    window = placed.window
    check_index(window.index, placed.path, "index", findings)
    check_index(window.pubsub_index, placed.path, "pubsub-index", findings)
    check_positive(window.pulse_us, placed.path, "pulse-interval", findings)
    if isinstance(window, DECLARED):
        check_keys(window.schema, placed.path, findings)
    if window.splitter is not None and placed.schema is not None:
        _check_splitter(placed, placed.schema, findings)


def check_keys(schema: Schema, place: str, findings: Findings) -> None:
    """Rows are told apart by their key."""
    if not schema.fields:
        findings.add(place, "Its schema has no fields.", "Write NAME:TYPE for each, with a star behind key names.")
    elif not schema.keys:
        remedy = f"Mark the key with a star, as in {schema.names[0]}*:{schema.fields[0].type.value}."
        findings.add(place, "Its schema has no key field.", remedy)


def _check_splitter(placed: Placed, schema: Schema, findings: Findings) -> None:
    splitter = placed.window.splitter
    assert splitter is not None, "checked by the caller"
    place = f"{placed.path} splitter"
    try:
        kind = compiled(splitter.expression, names_of(schema), splitter.initialize).type
    except BadExpression as error:
        report_expression(error, place, findings)
        return
    if kind not in (FieldType.INT32, FieldType.INT64):
        problem = f"The expression {splitter.expression!r} gives a {kind.value}, not a whole number."
        findings.add(place, problem, "Make it give the number of the slot, from 0.")


def report_expression(error: BadExpression, place: str, findings: Findings) -> None:
    """An expression that does not fit, in the words of the one who read it."""
    params = error.params
    problem = f"The expression {params['text']!r} is not valid at character {params['at']}: {params['reason']}."
    findings.add(place, problem, str(params["remedy"]))


def check_source(placed: Placed, seen: Survey, findings: Findings) -> None:
    """A source: keys made by itself, retention."""
    window = placed.window
    assert isinstance(window, SourceWindow)
    if window.autogen_key:
        if not window.insert_only:
            remedy = "Make it insert-only: nobody can know the key of a row in order to change it."
            findings.add(placed.path, "It makes its keys itself (autogen-key), but is not insert-only.", remedy)
        kinds = [window.schema.fields[place].type for place in window.schema.keys]
        if len(kinds) != 1 or kinds[0] not in (FieldType.INT64, FieldType.STRING):
            remedy = "Give it exactly one key field, of type int64 or string."
            found = ", ".join(str(window.schema.fields[place]) for place in window.schema.keys) or "none"
            findings.add(placed.path, f"It makes its keys itself (autogen-key), but its key is: {found}.", remedy)
    check_records(window, placed.path, findings)
    _check_retention(placed, window.retention, window.schema, seen, findings)


def check_copy(placed: Placed, seen: Survey, findings: Findings) -> None:
    """A copy: retention."""
    window = placed.window
    assert isinstance(window, CopyWindow)
    _check_retention(placed, window.retention, placed.schema, seen, findings)


def _check_retention(
    placed: Placed, retention: Retention | None, schema: Schema | None, seen: Survey, findings: Findings
) -> None:
    if retention is None:
        return
    place = f"{placed.path} retention"
    if retention.kind not in RETENTION_KINDS:
        remedy = did_you_mean(retention.kind, RETENTION_KINDS, "kind of retention")
        findings.add(place, f"{retention.kind!r} is no kind of retention.", remedy)
        return
    check_positive(retention.limit, place, "Its limit", findings)
    if not has_index(placed, seen):
        remedy = "Give the window an index, pi_HASH for example."
        findings.add(place, "The window keeps no rows (index pi_EMPTY), so none can leave.", remedy)
    _check_unit(retention, place, findings)
    if retention.field is not None:
        _check_clock(retention, place, schema, findings)


def _check_unit(retention: Retention, place: str, findings: Findings) -> None:
    steps = retention.kind == "bytime_jumping_lookback"
    if steps and retention.unit_us is not None and retention.unit_us > MAX_US:
        check_positive(retention.unit_us, place, "Its unit", findings)
    if steps and (retention.unit_us is None or retention.unit_us <= 0):
        findings.add(place, "bytime_jumping_lookback has no unit.", "Give the step in which it jumps, above 0.")
    if not steps and retention.unit_us is not None:
        findings.add(place, f"{retention.kind} has a unit.", "Only bytime_jumping_lookback has one: take it away.")


def _check_clock(retention: Retention, place: str, schema: Schema | None, findings: Findings) -> None:
    name = retention.field or ""
    if not retention.by_time:
        findings.add(place, f"{retention.kind} counts rows, but has the field {name!r}.", "Take the field away.")
    elif schema is not None and name not in schema:
        remedy = did_you_mean(name, _times(schema) or schema.names, "field")
        findings.add(place, f"Its field {name!r} does not exist.", remedy)
    elif schema is not None and not schema[name].type.is_time:
        times = _times(schema)
        remedy = f"Choose a date or stamp field: {', '.join(times)}." if times else "Add a date or stamp field."
        findings.add(place, f"Its field {name!r} is a {schema[name].type.value}, not a time.", remedy)


def _times(schema: Schema) -> list[str]:
    return [field.name for field in schema if field.type.is_time]


def check_union(placed: Placed, seen: Survey, findings: Findings) -> None:
    """All inputs of a union must look the same."""
    assert isinstance(placed.window, UnionWindow)
    first, by_index = placed.inputs[0] if placed.inputs else None, {other.index: other for other in seen.windows}
    for parent, schema in zip(placed.parents[1:], placed.inputs[1:], strict=True):
        if first is None or schema is None or schema == first:
            continue
        names = by_index[placed.parents[0]].window.name, by_index[parent].window.name
        has = _difference(first, schema), _difference(schema, first)
        problem = f"Its inputs differ: {names[0]} has {has[0]}, {names[1]} has {has[1]}."
        remedy = f"Give both the same fields in the same order, for example with a compute window behind {names[1]}."
        findings.add(placed.path, problem, remedy)


def _difference(schema: Schema, other: Schema) -> str:
    """The fields that the other one has not, or has elsewhere."""
    theirs = dict(enumerate(other.fields))
    own = [str(field) for place, field in enumerate(schema.fields) if theirs.get(place) != field]
    return ", ".join(own) or "nothing more"
