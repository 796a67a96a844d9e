"""Checks of windows: what all have; sources, copies and unions; fields that are expressions; shapes."""

from __future__ import annotations

import re

from lockstep.engine.errors import BadExpression
from lockstep.engine.events.avro_format import AvroForm, BadAvroSchema
from lockstep.engine.events.record_format import AVRO, DECODERS, RecordOptions, part_of, problems
from lockstep.engine.events.schema import Field, FieldType, Schema
from lockstep.engine.events.text import time_formats
from lockstep.engine.model.checks import check_index, check_positive, has_index, is_publisher
from lockstep.engine.model.faults import Fault, Findings, did_you_mean, duplicates
from lockstep.engine.model.graph import Placed, Survey
from lockstep.engine.model.schemas import (
    DECLARED,
    EVENT_NUMBER,
    LOG_FIELDS,
    TAG_NUMBER,
    Names,
    compiled,
    compiled_aggregate,
    names_of,
    takes,
)
from lockstep.engine.model.values import MAX_US
from lockstep.engine.model.windows import (
    REMOVABLE,
    RETENTION_KINDS,
    SOURCE_FORMS,
    AggregateWindow,
    ComputeWindow,
    CopyWindow,
    CounterWindow,
    FieldPlug,
    FilterWindow,
    Initializer,
    RemoveStateWindow,
    Retention,
    SourceWindow,
    TransposeWindow,
    UnionWindow,
)
from lockstep.errors import BadArgument, BadName
from lockstep.log.config import check_name


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
    """Check that the schema has fields and a key: rows are identified by their key."""
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


_OF_RECORDS = ("stream", "decode", "avro_schema", "date_format", "upsert")


def check_records(window: SourceWindow, place: str, findings: Findings) -> None:
    """What only one form of source has, and that it is whole."""
    if window.form not in SOURCE_FORMS:
        findings.add(place, f"{window.form!r} is no form of a source.", did_you_mean(window.form, SOURCE_FORMS, "form"))
    elif window.takes_records:
        _check_stream(window, place, findings)
        _check_decoding(window, place, findings)
    else:
        for name in _OF_RECORDS:
            if getattr(window, name):
                findings.add(place, f"It has {name}, which is for form records.", "Say form: records, or leave it out.")


def options_of(window: SourceWindow) -> RecordOptions:
    """How a source decodes values."""
    return RecordOptions(window.decode, window.avro_schema, window.date_format, window.upsert)


def _check_stream(window: SourceWindow, place: str, findings: Findings) -> None:
    try:
        check_name("Stream", window.stream or "")
    except BadName:
        problem = f"It takes the records of stream {window.stream!r}, which is no name of a stream."
        findings.add(place, problem, "Name a stream of the project's bus, as in stream: orders.")
    if window.upsert and window.insert_only:
        findings.add(place, "It is insert-only and makes upserts of records.", "Leave one of them out.")
    for connector in window.connectors:
        if is_publisher(window, connector):
            problem = f"Connector {connector.name!r} brings events in, but the window takes the records of a stream."
            findings.add(place, problem, "Take the connector away, or make it a window of form events.")


def _check_decoding(window: SourceWindow, place: str, findings: Findings) -> None:
    options = options_of(window)
    if window.decode is not None and window.decode not in DECODERS:
        findings.add(place, f"{window.decode!r} is no way to decode.", did_you_mean(window.decode, DECODERS, "decoder"))
        return
    for problem, remedy in problems(window.schema, options):
        findings.add(place, problem, remedy)
    if window.avro_schema is not None and window.decode != AVRO:
        findings.add(place, "It has an avro_schema, but does not decode avro.", "Say decode: avro, or leave it out.")
    if window.date_format is not None:
        _check_dates(window.date_format, window.decode, place, findings)
    if window.decode == AVRO:
        _check_avro(window, place, findings)


def _check_dates(date_format: str, decode: str | None, place: str, findings: Findings) -> None:
    if decode in (None, AVRO):
        findings.add(place, "It has a date_format, which is for json and csv.", "Leave it out.")
    try:
        time_formats(date_format)
    except BadArgument as error:
        findings.add(
            place, f"Its date_format is {date_format!r}: {error.params['reason']}.", "Write it as strptime has it."
        )


def _check_avro(window: SourceWindow, place: str, findings: Findings) -> None:
    if window.avro_schema is None:
        findings.add(place, "It decodes avro without an avro_schema.", "Give the schema that values are written with.")
        return
    fields = tuple(field for field in window.schema if part_of(field.name, AVRO) is None)
    try:
        AvroForm(window.avro_schema, Schema(fields))
    except BadAvroSchema as error:
        findings.add(place, f"Its avro_schema can't be used: {error}.", "Correct it, or the fields of the window.")


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
