"""Events as messages and files have them: csv, json, xml or binary. Pure but for the sources that are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from typing import BinaryIO

import numpy as np

from lockstep.connectors.properties import BINARY, CSV, JSON, OPAQUE, XML, Properties
from lockstep.engine.errors import FrameDamaged
from lockstep.engine.events.columns import EventBatch, concat
from lockstep.engine.events.csv_format import CsvOptions, CsvOutput, header_line, read_csv, write_csv
from lockstep.engine.events.csv_reader import BadLine
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.frames import decode_frame, encode_frame, read_head
from lockstep.engine.events.json_format import read_json, write_json
from lockstep.engine.events.schema import FieldType, Schema, Value
from lockstep.engine.events.text import WRONG_TYPE, BadText
from lockstep.engine.events.xml_format import format_xml, read_xml_events
from lockstep.errors import FormatTooNew
from lockstep.events.rows import JsonForm, event_blocks, frame_with_length, read_frames
from lockstep.events.subscriber import Block

OnBad = Callable[[BadLine], None]
_HEADERS = {"true": "names", "1": "names", "full": "full"}
_WHOLE = 1 << 30
"""Events of a block that is a whole message."""


@dataclass(frozen=True, slots=True)
class ReadForm:
    """The format in which a publisher connector reads its input."""

    form: str
    schema: Schema
    csv: CsvOptions
    place: str
    """The name of the source in errors."""

    @classmethod
    def of(cls, properties: Properties, schema: Schema, place: str, *, makes_keys: bool = True) -> ReadForm:
        """As the properties say. Only lines for a window that makes its keys itself can be without them."""
        csv = CsvOptions(
            header=properties.number("header", 0) if properties.text("header").isdecimal() else 0,
            add_opcode=properties.flag("addcsvopcode"),
            add_flags=properties.flag("addcsvflags"),
            upsert=properties.flag("publishwithupsert") or properties.text("addcsvopcode").lower() == "upsert",
            no_autogen_field=properties.flag("noautogenfield") and makes_keys,
            delimiter=properties.text("csvfielddelimiter", ","),
            date_format=properties.text("dateformat") or None,
            ignore_errors=properties.flag("ignorecsvparseerrors"),
            block_size=properties.number("blocksize", 1, 1),
            transactional=properties.flag("transactional"),
        )
        return cls(properties.form, schema, csv, place)

    def blocks(self, file: BinaryIO, on_bad: OnBad, chunk: int) -> Iterator[EventBatch]:
        """The blocks of a file or a connection, about `chunk` events at a time."""
        if self.form == BINARY:
            return read_frames(file, self.schema, self.place)
        if self.form in (JSON, XML):
            form = JsonForm(self.csv.block_size, self.csv.transactional, self.csv.date_format)
            read = read_json if self.form == JSON else read_xml_events
            return event_blocks(read, file, self.schema, form, on_bad)
        return read_csv(file, self.schema, self.csv, on_bad, chunk=chunk)

    def message(self, value: bytes, number: int, on_bad: OnBad) -> tuple[EventBatch, bool]:
        """Return a message as the block of that number, and whether it is transactional; bad events go to `on_bad`."""
        if self.form == BINARY:
            return self._frame(value, number, on_bad)
        if self.form == OPAQUE:
            return self._opaque(value, number, on_bad)
        whole = replace(self, csv=replace(self.csv, block_size=_WHOLE))
        found = list(whole.blocks(BytesIO(value), on_bad, _WHOLE))
        return _numbered(concat([EventBatch.empty(self.schema), *found]), number), self.csv.transactional

    def _opaque(self, value: bytes, number: int, on_bad: OnBad) -> tuple[EventBatch, bool]:
        """A text that is taken as it is: the number of the message is the key, if that is a whole number."""
        texts = [field.name for field in self.schema if field.type is FieldType.STRING and not field.key]
        numbers = [field.name for field in self.schema if field.key and field.type is FieldType.INT64]
        name = "message" if "message" in texts else texts[0] if len(texts) == 1 else None
        try:
            if name is None:
                raise BadText(WRONG_TYPE, "the window has no field 'message' of type string")
            found: dict[str, Value] = {name: value.decode(), **dict.fromkeys(numbers, number)}
        except (UnicodeDecodeError, BadText) as error:
            on_bad(BadLine(number, WRONG_TYPE, str(error), ""))
            return EventBatch.empty(self.schema), False
        row = tuple([found.get(field.name) for field in self.schema])
        opcode = Opcode.UPSERT if self.csv.upsert else Opcode.INSERT
        return EventBatch.of(self.schema, [(number, [Event(opcode, Flag.NORMAL, row)])]), self.csv.transactional

    def _frame(self, value: bytes, number: int, on_bad: OnBad) -> tuple[EventBatch, bool]:
        try:
            frame = decode_frame(value, self.schema, place=self.place)
        except (FrameDamaged, FormatTooNew) as error:
            on_bad(BadLine(number, "FRAME", str(error), ""))
            return EventBatch.empty(self.schema), False
        return _numbered(frame.batch, number), bool(len(frame.transactional))


@dataclass(frozen=True, slots=True)
class WriteForm:
    """How a subscriber connector writes blocks."""

    form: str
    schema: Schema
    date_format: str | None = None
    header: str = "none"

    @classmethod
    def of(cls, properties: Properties, schema: Schema) -> WriteForm:
        """As the properties say."""
        header = _HEADERS.get(properties.text("header").lower(), "none")
        return cls(properties.form, schema, properties.text("dateformat") or None, header)

    def message(self, block: Block) -> bytes:
        """A block as one message."""
        if self.form == BINARY:
            return encode_frame(block.batch, numbers=np.array([block.number], np.int64))
        lines = BytesIO()
        if self.form == CSV:
            write_csv(block.batch, lines, CsvOutput(date_format=self.date_format))
        elif self.form == XML:
            return format_xml(block.events(), self.schema, self.date_format).encode()
        else:
            write_json(block.events(), self.schema, lines, self.date_format)
        return lines.getvalue()

    def part(self, block: Block) -> bytes:
        """A block as part of a file or a connection."""
        return frame_with_length(block.batch) if self.form == BINARY else self.message(block)

    def first(self) -> bytes:
        """Return the header of a file."""
        if self.form != CSV or self.header == "none":
            return b""
        return header_line(self.schema, CsvOutput(header="full" if self.header == "full" else "names"))


def block_of(value: bytes) -> int | None:
    """The number of the block in a binary message; None if it is none."""
    try:
        return read_head(value).last
    except (FrameDamaged, FormatTooNew):
        return None


def _numbered(batch: EventBatch, number: int) -> EventBatch:
    block = np.full(len(batch), number, np.int64)
    return EventBatch(batch.schema, block, batch.opcode, batch.flags, batch.columns)
