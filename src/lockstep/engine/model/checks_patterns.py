"""Checks of patterns: their events, how the logic combines them, and the rows that a match makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from lockstep.engine.errors import BadExpression
from lockstep.engine.events.schema import Field, Schema
from lockstep.engine.model.checks_fields import check_expression, check_fits
from lockstep.engine.model.checks_survey import Placed, Survey
from lockstep.engine.model.checks_windows import report_expression
from lockstep.engine.model.faults import Findings, did_you_mean, duplicates
from lockstep.engine.model.inference import Names, names_of
from lockstep.engine.model.windows import Pattern, PatternOutput, PatternWindow

if TYPE_CHECKING:
    from lockstep.engine.windows.pattern_events import PatternEvents

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
    from lockstep.engine.windows.pattern_events import compile_events

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
            _check_conditions(found, pattern, place, findings)
            return found


def _check_conditions(found: PatternEvents, pattern: Pattern, place: str, findings: Findings) -> None:
    texts = {event.name: event.expression for event in pattern.events}
    for name, test in found.tests.items():
        for condition in test.conditions:
            if not condition.type.is_numeric:
                kind = condition.type.value
                problem = f"The expression {texts[name]!r} gives a {kind}, which is neither true nor false."
                findings.add(f"{place} event {name}", problem, "Compare it with something, as in symbol == 'A'.")


def _check_logic(pattern: Pattern, place: str, findings: Findings) -> None:
    from lockstep.engine.windows.pattern_logic import leaves, parse_logic

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
    from lockstep.engine.windows.pattern import output_fields

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
