"""Checks of joins and of patterns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from lockstep.engine.errors import BadExpression
from lockstep.engine.events.schema import Field, FieldType, Schema
from lockstep.engine.model.checks import check_index
from lockstep.engine.model.checks_windows import check_expression, check_fits, report_expression
from lockstep.engine.model.faults import Findings, did_you_mean, duplicates
from lockstep.engine.model.graph import Placed, Survey
from lockstep.engine.model.schemas import (
    Names,
    fact_sides,
    join_fields,
    join_names,
    join_type,
    keys_covered,
    names_of,
    side_of,
    type_of,
)
from lockstep.engine.model.windows import JOIN_TYPES, JoinField, JoinWindow, Pattern, PatternOutput, PatternWindow

if TYPE_CHECKING:
    from lockstep.engine.reference.pattern_logic import PatternEvents

_SIDES = ("left", "right")


def check_join(placed: Placed, findings: Findings) -> None:
    """All of it."""
    window = placed.window
    assert isinstance(window, JoinWindow)
    check_index(window.left_index, placed.path, "left-index", findings)
    check_index(window.right_index, placed.path, "right-index", findings)
    for name in duplicates(field.name for field in window.fields):
        findings.add(placed.path, f"Two of its fields are called {name!r}.", "Give each a name of its own.")
    if window.type not in JOIN_TYPES:
        remedy = did_you_mean(window.type, JOIN_TYPES, "type of join")
        findings.add(placed.path, f"{window.type!r} is no type of join.", remedy)
    if len(placed.inputs) != 2:
        return
    left, right = placed.inputs
    if left is None or right is None:
        return
    sound = _check_join_conditions(window, left, right, placed.path, findings)
    for field in window.fields:
        _check_field(field, left, right, f"{placed.path} field {field.name}", findings)
    if sound and window.type in JOIN_TYPES:
        _check_dimensions(window, left, right, placed.path, findings)
        _check_added_keys(window, left, right, placed.path, findings)
        if window.type == "fullouter" and all(keys_covered(window, left, right)):
            _check_full(window, left, right, placed.path, findings)


def _can_meet(window: JoinWindow, left: FieldType, right: FieldType) -> bool:
    """Whether values of two types can be equal. A full outer join has both in one field: they must be of one type."""
    return left is right or (window.type != "fullouter" and {left, right} == {FieldType.INT32, FieldType.INT64})


def _check_join_conditions(window: JoinWindow, left: Schema, right: Schema, path: str, findings: Findings) -> bool:
    before = len(findings.found)
    place = f"{path} condition"
    if not window.conditions:
        findings.add(place, "It has no condition.", "Name the fields of both sides that must be equal.")
    for names in window.conditions:
        for side, (name, schema) in enumerate(zip(names, (left, right), strict=True)):
            if name not in schema:
                problem = f"The {_SIDES[side]} side has no field {name!r}."
                findings.add(place, problem, did_you_mean(name, schema.names, "field"))
        if names[0] in left and names[1] in right and not _can_meet(window, left[names[0]].type, right[names[1]].type):
            kinds = left[names[0]].type.value, right[names[1]].type.value
            problem = f"{names[0]} is a {kinds[0]} on the left side, {names[1]} a {kinds[1]} on the right."
            findings.add(place, problem, "Compare fields of the same type; a compute window can convert one.")
    return len(findings.found) == before


def _check_dimensions(window: JoinWindow, left: Schema, right: Schema, path: str, findings: Findings) -> None:
    """Each side that is looked up must be found by its whole key."""
    covered = keys_covered(window, left, right)
    if window.type == "inner":
        if not any(covered):
            _check_many(window, left, right, path, findings)
        return
    facts = () if window.type == "fullouter" else fact_sides(window, left, right)
    for side, schema in enumerate((left, right)):
        if side not in facts and not covered[side]:
            used = {names[side] for names in window.conditions}
            missing = [name for name in _key_names(schema) if name not in used]
            problem = f"The {_SIDES[side]} side is a dimension of this {window.type} join, but the condition leaves out"
            remedy = f"Put all of its keys ({_keys(schema)}) into the condition."
            if window.type == "fullouter":
                remedy += " A full outer join is possible between two dimensions only."
            findings.add(f"{path} condition", f"{problem} its key field(s) {', '.join(missing)}.", remedy)


def _check_many(window: JoinWindow, left: Schema, right: Schema, path: str, findings: Findings) -> None:
    """Without a whole key in the condition both sides are kept, and a change of either makes its rows anew."""
    names = f"{_keys(left)} of the left or {_keys(right)} of the right side"
    options = {
        "left-index pi_EMPTY": window.left_index == "pi_EMPTY",
        "right-index pi_EMPTY": window.right_index == "pi_EMPTY",
        "no-regenerates": window.no_regenerates,
    }
    for option in (option for option, is_set in options.items() if is_set):
        problem = f"The condition has the whole key of neither side, so that {option} has no meaning."
        findings.add(f"{path} condition", problem, f"Take {option} away, or put {names} into the condition.")


def _check_full(window: JoinWindow, left: Schema, right: Schema, path: str, findings: Findings) -> None:
    """A row of a full outer join is identified by the key that both sides share."""
    pairs = len(window.conditions)
    if pairs != len(left.keys) or pairs != len(right.keys):
        problem = "The condition of a full outer join has more than the keys of both sides, so that rows would collide."
        remedy = "Compare the keys only; a filter window behind the join can compare the rest."
        findings.add(f"{path} condition", problem, remedy)
    if "pi_EMPTY" in (window.left_index, window.right_index):
        remedy = "Take left-index and right-index away."
        findings.add(path, "A full outer join keeps the rows of both sides, but one has the index pi_EMPTY.", remedy)


def _check_added_keys(window: JoinWindow, left: Schema, right: Schema, path: str, findings: Findings) -> None:
    """A key that the fields leave out is added, for which it needs a name."""
    fields = join_fields(window, left, right)
    names = [field.name for field in fields]
    for field in fields[: len(fields) - len(window.fields)]:
        if names.count(field.name) > 1:
            problem = f"Its key field {field.source} finds no name: {field.name} is another field."
            findings.add(path, problem, f"Add a field with the source {field.source}: rows are told apart by it.")


def _check_field(field: JoinField, left: Schema, right: Schema, place: str, findings: Findings) -> None:
    if (field.source is None) == (field.expression is None):
        findings.add(place, "It needs either a source or an expression.", "Give one of the two.")
    elif field.source is not None:
        _check_source(field, field.source, left, right, place, findings)
    elif field.expression is not None:
        names = join_names(left, right)
        declared = field.type or type_of(field.expression, names)
        check_expression(field.expression, declared or FieldType.DOUBLE, place, names, None, findings)


def _check_source(field: JoinField, source: str, left: Schema, right: Schema, place: str, findings: Findings) -> None:
    names = [name for name, _ in join_names(left, right)]
    if side_of(source) is None or source not in names:
        remedy = did_you_mean(source, names, "field")
        findings.add(place, f"Its source {source!r} is no field of the left (l_) or right (r_) side.", remedy)
        return
    kind = join_type(field, left, right)
    if field.type is not None and kind is not None and field.type is not kind:
        problem = f"It is declared as {field.type.value}, but {source} is a {kind.value}."
        findings.add(place, problem, f"Make it a {kind.value}, or convert it with an expression.")


def _key_names(schema: Schema) -> list[str]:
    return [schema.names[place] for place in schema.keys]


def _keys(schema: Schema) -> str:
    return ", ".join(_key_names(schema))


Inputs = Mapping[str, Schema | None]


def check_pattern(placed: Placed, seen: Survey, findings: Findings) -> None:
    """Every pattern of the window."""
    window = placed.window
    assert isinstance(window, PatternWindow)
    by_index = {other.index: other for other in seen.windows}
    inputs = {by_index[parent].window.name: by_index[parent].schema for parent in placed.parents}
    if not window.patterns:
        findings.add(placed.path, "It has no pattern.", "Add one with its events and its logic.")
    for number, pattern in enumerate(window.patterns, 1):
        place = f"{placed.path} pattern {pattern.name or number}"
        _check_events(pattern, inputs, place, findings)
        _check_logic(pattern, place, findings)
        _check_outputs(pattern, window, inputs, place, findings)
        _check_index(pattern, inputs, place, findings)
        _check_times(pattern, inputs, place, findings)


def _check_events(pattern: Pattern, inputs: Inputs, place: str, findings: Findings) -> None:
    for name in duplicates(event.name for event in pattern.events):
        findings.add(place, f"Two of its events are called {name!r}.", "Give each a name of its own.")
    for event in pattern.events:
        if event.source not in inputs:
            problem = f"It comes from {event.source!r}, from which no edge leads here."
            findings.add(f"{place} event {event.name}", problem, did_you_mean(event.source, inputs, "input window"))
    _compiled_events(pattern, inputs, place, findings)


def _compiled_events(pattern: Pattern, inputs: Inputs, place: str, findings: Findings) -> PatternEvents:
    """The events that are sound; one that is not is reported, and taken as always true from then on."""
    from lockstep.engine.reference.pattern_logic import compile_events

    known = {name: schema for name, schema in inputs.items() if schema is not None}
    ports = {name: port for port, name in enumerate(known)}
    events = tuple(event for event in pattern.events if event.source in known)
    while True:
        try:
            found = compile_events(replace(pattern, events=events), ports, tuple(known.values()))
        except BadExpression as error:
            bad = next(event for event in events if event.expression == error.params["text"])
            report_expression(error, f"{place} event {bad.name}", findings)
            events = tuple(replace(event, expression="") if event is bad else event for event in events)
        else:
            _check_event_conditions(found, pattern, place, findings)
            return found


def _check_event_conditions(found: PatternEvents, pattern: Pattern, place: str, findings: Findings) -> None:
    texts = {event.name: event.expression for event in pattern.events}
    for name, test in found.tests.items():
        for condition in test.conditions:
            if not condition.type.is_numeric:
                kind = condition.type.value
                problem = f"The expression {texts[name]!r} gives a {kind}, which is neither true nor false."
                findings.add(f"{place} event {name}", problem, "Compare it with something, as in symbol == 'A'.")


def _check_logic(pattern: Pattern, place: str, findings: Findings) -> None:
    from lockstep.engine.reference.pattern_logic import leaves, parse_logic

    here = f"{place} logic"
    try:
        used = list(dict.fromkeys(leaves(parse_logic(pattern.logic))))
    except BadExpression as error:
        report_expression(error, here, findings)
        return
    names = [event.name for event in pattern.events]
    for name in used:
        if name not in names:
            problem = f"The logic {pattern.logic!r} names the event {name!r}, which does not exist."
            findings.add(here, problem, did_you_mean(name, names, "event"))
    for name in names:
        if name not in used:
            problem = f"The event {name!r} is not in the logic {pattern.logic!r}."
            findings.add(here, problem, "Use it there, or remove it.")


def _check_outputs(pattern: Pattern, window: PatternWindow, inputs: Inputs, place: str, findings: Findings) -> None:
    from lockstep.engine.reference.pattern import output_fields

    fields = output_fields(window.schema, window.patterns)
    if len(pattern.output) != len(fields):
        problem = f"It fills {len(pattern.output)} field(s), but the schema has {len(window.schema)}."
        remedy = "Give one output for each field, in order; only a single key field of type int64 can be left out."
        findings.add(place, problem, remedy)
    for field, output in zip(fields, pattern.output, strict=False):
        _check_output(pattern, output, field, inputs, place, findings)


def _check_output(
    pattern: Pattern, output: PatternOutput, field: Field, inputs: Inputs, place: str, findings: Findings
) -> None:
    here = f"{place} field {field.name}"
    sources = {event.name: event.source for event in pattern.events}
    schema = inputs.get(sources.get(output.node or "", ""))
    if output.node is not None and output.node not in sources:
        remedy = did_you_mean(output.node, sources, "event")
        findings.add(here, f"It takes a field of event {output.node!r}, which does not exist.", remedy)
    elif output.expression is not None and not output.expression.strip():
        pass  # an empty expression is null
    elif output.expression is not None:
        # Whatever is wrong with the events has been said.
        events = _compiled_events(pattern, inputs, place, Findings())
        if schema is not None or output.node is None:
            names = _output_names(events, schema if output.node is not None else None)
            check_expression(output.expression, field.type, here, names, None, findings)
    elif output.node is None or output.field is None:
        findings.add(here, "It needs the field of an event, or an expression.", "Give node and field.")
    elif schema is not None and output.field not in schema:
        problem = f"Event {output.node!r} has no field {output.field!r}."
        findings.add(here, problem, did_you_mean(output.field, schema.names, "field"))
    elif schema is not None:
        text = f"{output.node}.{output.field}"
        check_fits(field.type, schema[output.field].type, text, here, findings)


def _output_names(events: PatternEvents, schema: Schema | None) -> Names:
    """What an output can name: the pattern's variables, and the fields of its event."""
    own = () if schema is None else names_of(schema)
    taken = {name for name, _ in own}
    return own + tuple(pair for pair in events.variables if pair[0] not in taken)


def _check_index(pattern: Pattern, inputs: Inputs, place: str, findings: Findings) -> None:
    for source in dict.fromkeys(event.source for event in pattern.events):
        schema = inputs.get(source)
        for name in pattern.index:
            if schema is not None and name not in schema:
                problem = f"Its index field {name!r} does not exist in {source}."
                findings.add(place, problem, did_you_mean(name, schema.names, "field"))


def _check_times(pattern: Pattern, inputs: Inputs, place: str, findings: Findings) -> None:
    for name, source in pattern.time_fields:
        schema = inputs.get(source)
        if source not in inputs:
            problem = f"Its time field {name!r} is of {source!r}, from which no edge leads here."
            findings.add(place, problem, did_you_mean(source, inputs, "input window"))
        elif schema is not None and name not in schema:
            problem = f"Its time field {name!r} does not exist in {source}."
            findings.add(place, problem, did_you_mean(name, schema.names, "field"))
        elif schema is not None and not schema[name].type.is_time:
            problem = f"Its time field {name!r} is a {schema[name].type.value}, not a time."
            findings.add(place, problem, "Choose a date or stamp field.")
