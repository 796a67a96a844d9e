"""CSV lines one by one: the readable way, which says what a line means."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lockstep.engine.events.csv_options import CsvOptions
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.text import BLANK, UNPARSABLE, BadText, Parse, parse_flags, parse_opcode, parser
from lockstep.engine.events.types import Value

_SHOWN = 200
MAX_RECORD = 1 << 20
"""A quoted field that is still open after so many bytes was never meant to be one."""


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no event: counted by its reason, shown shortened."""

    line: int
    reason: str
    detail: str
    text: str


def shorten(data: bytes | str) -> str:
    """A line as it can be shown."""
    text = data if isinstance(data, str) else data[: 4 * _SHOWN].decode("utf-8", "replace")
    text = text.rstrip("\r\n")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def well_formed(delimiter: str) -> re.Pattern[bytes]:
    """As many whole records as possible in which quotes stand around whole fields only."""
    mark = re.escape(delimiter.encode())
    field = rb'(?:"(?:[^"]++|"")*+"|[^"' + mark + rb"\n]*+)"
    return re.compile(rb"(?:(?:" + field + mark + rb")*+" + field + rb"\r?\n)*+")


def one_record(delimiter: str) -> re.Pattern[bytes]:
    """One record; a quote inside a field that does not begin with one is just a character."""
    mark = re.escape(delimiter.encode())
    field = rb'(?:"(?:[^"]++|"")*+"|(?!")[^' + mark + rb"\n]*+)"
    return re.compile(rb"(?:" + field + mark + rb")*+" + field + rb"\r?\n")


class RowReader:
    """Events out of single lines."""

    def __init__(self, schema: Schema, options: CsvOptions) -> None:
        self.options, self.schema = options, schema
        self.places = tuple(at for at, field in enumerate(schema) if not (options.no_autogen_field and field.key))
        self.parsers = tuple(parser(schema.fields[at].type, options.date_format) for at in self.places)
        self.leading = (not options.add_opcode) + (not options.add_flags)
        self._record = one_record(options.delimiter)
        mark = re.escape(options.delimiter)
        self._field = re.compile(rf'"((?:[^"]++|"")*+)"(?={mark}|\Z)|(?!")([^{mark}]*+)')

    def record_end(self, data: bytes, start: int, is_last: bool) -> tuple[int, bool]:
        """Where the record at `start` ends, and whether it is one; 0 if only more data can tell.

        A record whose quotes do not close ends with its line, so that it takes nothing else with it.
        """
        found = self._record.match(data, start)
        if found:
            return found.end(), True
        line_end = data.find(b"\n", start) + 1
        return (0, False) if not is_last and len(data) - start < MAX_RECORD else (line_end or len(data), False)

    def event(self, record: bytes) -> Event | None:
        """The event of a record; None for an empty line."""
        try:
            text = record.decode("utf-8")
        except UnicodeDecodeError as fault:
            raise BadText(UNPARSABLE, f"not UTF-8 at byte {fault.start}") from None
        text = text.removesuffix("\n").removesuffix("\r")
        return self.event_of(self.fields(text)) if text else None

    def fields(self, text: str) -> list[str | None]:
        """The fields of a line; None for one that is empty and not quoted."""
        mark = self.options.delimiter
        if '"' not in text:
            return [part.strip(BLANK) or None for part in text.split(mark)]
        found: list[str | None] = []
        at = 0
        while True:
            match = self._field.match(text, at)
            if match is None:
                raise BadText(UNPARSABLE, f"the quotes of field {len(found) + 1} do not match")
            quoted, plain = match.groups()
            found.append(quoted.replace('""', '"') if quoted is not None else plain.strip(BLANK) or None)
            at = match.end() + 1
            if at > len(text):
                return found

    def event_of(self, fields: list[str | None]) -> Event:
        """The event made of the fields of a line."""
        options, at = self.options, 0
        opcode, flags = Opcode.INSERT, Flag.NORMAL
        if not options.add_opcode:
            opcode, at = parse_opcode(fields[0] or ""), 1
        if not options.add_flags:
            flags, at = parse_flags((fields[at] if at < len(fields) else None) or ""), at + 1
        if options.upsert and opcode is Opcode.INSERT:
            opcode = Opcode.UPSERT
        return Event(opcode, flags, self._values(fields[at:], opcode))

    def _values(self, fields: list[str | None], opcode: Opcode) -> tuple[Value, ...]:
        missing = len(self.places) - len(fields)  # what stands behind the last field is left out
        if missing > 0 and opcode not in (Opcode.DELETE, Opcode.SAFEDELETE):
            raise BadText(UNPARSABLE, f"it has {len(fields)} fields, not {len(self.places)}")
        values: list[Value] = [None] * len(self.schema)
        for place, parse, text in zip(self.places, self.parsers, fields, strict=False):
            if text is not None:
                values[place] = self._value(place, parse, text)
        return tuple(values)

    def _value(self, place: int, parse: Parse, text: str) -> Value:
        try:
            return parse(text)
        except BadText as fault:
            raise BadText(fault.reason, f"field {self.schema.names[place]}: {fault.detail}") from None
