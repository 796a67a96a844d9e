"""Checks of sources that take the records of a stream."""

from __future__ import annotations

from lockstep.engine.events.avroform import AvroForm, BadAvroSchema
from lockstep.engine.events.recordform import AVRO, DECODERS, RecordOptions, part_of, problems
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.text import time_formats
from lockstep.engine.model.checks_connectors import is_publisher
from lockstep.engine.model.faults import Findings, did_you_mean
from lockstep.engine.model.windows import SOURCE_FORMS, SourceWindow
from lockstep.errors import BadArgument, BadName
from lockstep.log.config import check_name

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
