"""Events as XML: <events><event><opcode>i</opcode><ID key="true">17</ID><price>101.5</price></event></events>.

<transaction> and <block> around events are taken and mean nothing. Opcode and flags may be missing in input: an insert,
normal. An element that is missing is null; in a file, several <events> may follow each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO
from xml.parsers import expat
from xml.sax.saxutils import escape

from lockstep.engine.events.csv_reader import BadLine, shorten
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import FieldType, Schema, Value
from lockstep.engine.events.text import UNPARSABLE, BadText, formatter, parse_flags, parse_opcode, parser

_CHUNK = 1 << 16
_EVENT_MAX = 1 << 24
"""Characters of one event."""
_AROUND = ("events", "transaction", "block")
_DECLARED = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*<\?xml[^>]*\?>")
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read_xml_events(
    file: BinaryIO, schema: Schema, on_bad: Callable[[BadLine], None], date_format: str | None = None
) -> Iterator[Event]:
    """The events of a file; what is no event goes to `on_bad`, and after XML that can't be read nothing more comes."""
    reader = _Reader(schema, on_bad, date_format)
    first = True
    while data := file.read(_CHUNK):
        reader.feed(_DECLARED.sub(b"", data) if first else data)
        first = False
        yield from reader.taken()
        if reader.is_broken:
            return
    reader.end()
    yield from reader.taken()


class _Reader:
    """Puts events together as the parser meets them."""

    def __init__(self, schema: Schema, on_bad: Callable[[BadLine], None], date_format: str | None) -> None:
        self._schema, self._on_bad = schema, on_bad
        self._parsers = {field.name: parser(field.type, date_format) for field in schema}
        self._texts: dict[str, str] = {}
        self._parts: list[str] = []
        self._size, self._depth, self._line = 0, 0, 0
        self._reason = ""
        self._events: list[Event] = []
        self.is_broken = False
        self._parser = made = expat.ParserCreate()
        made.buffer_text = True
        made.StartElementHandler, made.EndElementHandler = self._start, self._end
        made.CharacterDataHandler, made.StartDoctypeDeclHandler = self._data, self._doctype
        made.Parse(b"<_>", False)

    def feed(self, data: bytes) -> None:
        """The next bytes of the file."""
        self._run(data, is_end=False)

    def end(self) -> None:
        """There are no more."""
        self._run(b"</_>", is_end=True)

    def taken(self) -> list[Event]:
        """The events that are whole by now."""
        found, self._events = self._events, []
        return found

    def _run(self, data: bytes, *, is_end: bool) -> None:
        try:
            self._parser.Parse(data, is_end)
        except expat.ExpatError as error:
            self._break(f"not XML: {expat.ErrorString(error.code)}")
        except BadText as error:
            self._break(error.detail)

    def _break(self, detail: str) -> None:
        self.is_broken = True
        self._on_bad(BadLine(self._parser.CurrentLineNumber, UNPARSABLE, f"{detail}; nothing after it is read", ""))

    def _start(self, name: str, _attributes: dict[str, str]) -> None:
        if self._depth:
            self._depth += 1
            self._parts = []
            if self._depth > 2:
                self._reason = self._reason or f"the element {name!r} stands inside of a field"
        elif name == "event":
            self._depth, self._texts, self._reason, self._size = 1, {}, "", 0
            self._line = self._parser.CurrentLineNumber
        elif name not in (*_AROUND, "_"):
            raise BadText(UNPARSABLE, f"the element {name!r} is no event")

    def _end(self, name: str) -> None:
        if self._depth == 2:
            self._field(name, "".join(self._parts))
        self._depth -= self._depth > 0
        if not self._depth and name == "event":
            self._event()

    def _field(self, name: str, text: str) -> None:
        if name in self._texts:
            self._reason = self._reason or f"{name} occurs twice"
        self._texts[name] = text

    def _data(self, text: str) -> None:
        self._size += len(text)
        if self._size > _EVENT_MAX:
            raise BadText(UNPARSABLE, f"an event has more than {_EVENT_MAX} characters")
        if self._depth == 2:
            self._parts.append(text)

    def _doctype(self, *_: object) -> None:
        raise BadText(UNPARSABLE, "a document type is not allowed")

    def _event(self) -> None:
        try:
            if self._reason:
                raise BadText(UNPARSABLE, self._reason)
            self._events.append(self._made())
        except BadText as error:
            self._on_bad(BadLine(self._line, error.reason, error.detail, shorten(str(self._texts))))

    def _made(self) -> Event:
        texts = self._texts
        opcode = parse_opcode(texts.pop("opcode", "")) if "opcode" not in self._parsers else Opcode.INSERT
        flags = Flag.NORMAL
        if "flags" in texts and "flags" not in self._parsers:
            flags = parse_flags(texts.pop("flags"))
        unknown = [name for name in texts if name not in self._parsers]
        if unknown:
            raise BadText(UNPARSABLE, f"there is no field {unknown[0]!r}")
        return Event(opcode, flags, tuple([self._value(name) for name in self._schema.names]))

    def _value(self, name: str) -> Value:
        text = self._texts.get(name)
        if text is None or (text == "" and self._schema[name].type is not FieldType.STRING):
            return None
        try:
            return self._parsers[name](text)
        except BadText as error:
            raise BadText(error.reason, f"field {name}: {error.detail}") from None


def format_xml(events: Iterable[Event], schema: Schema, date_format: str | None = None) -> str:
    """Events as one <events> element; characters that XML has no place for become question marks."""
    written = [(field.name, formatter(field.type, date_format), field.key) for field in schema]
    lines = ["<events>"]
    for event in events:
        lines.append(f"<event><opcode>{event.opcode.letter.lower()}</opcode><flags>{event.flags.letters}</flags>")
        for (name, write, is_key), value in zip(written, event.values, strict=True):
            if value is not None:
                mark = ' key="true"' if is_key else ""
                lines.append(f"<{name}{mark}>{escape(_ILLEGAL.sub('?', write(value)))}</{name}>")
        lines.append("</event>")
    return "\n".join([*lines, "</events>", ""])
