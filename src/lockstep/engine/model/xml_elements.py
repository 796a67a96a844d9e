"""XML as a tree of light elements that know their place; the attributes of ESP's elements as tables."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from lockstep.engine.errors import ModelUnreadable, ModelUnwritable
from lockstep.engine.events.schema import FieldType
from lockstep.engine.model import windows as w
from lockstep.engine.model.values import duration_text, parse_duration

SIZE_MAX = 16 * 1024 * 1024
DEPTH_MAX = 64
ELEMENTS_MAX = 200_000
BLANKS = " \t\r\n"

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_KEPT = "xml:space"


@dataclass(slots=True)
class Element:
    """An element: line and column, counted from 1, are those of its opening bracket."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Element] = field(default_factory=list)
    text: str = ""
    line: int = 0
    column: int = 0

    def trimmed(self, trim: Callable[[str], str]) -> str:
        """The text without what surrounds it, unless it says that it is to be kept as it is."""
        return self.text if self.attributes.get(_KEPT) == "preserve" else trim(self.text)


def stripped(text: str) -> str:
    """A text without the blanks around it."""
    return text.strip(BLANKS)


def dedented(text: str) -> str:
    """Prose without the blanks around it and the indentation of the file."""
    return textwrap.dedent(text.expandtabs() if "\t" in text else text).strip(BLANKS)


def text_element(
    tag: str, text: str, attributes: Mapping[str, str] | None = None, trim: Callable[[str], str] = stripped
) -> Element:
    """An element with a text; blanks around it are marked as part of it."""
    kept = {} if trim(text) == text else {_KEPT: "preserve"}
    return Element(tag, {**(attributes or {}), **kept}, text=text)


class _Builder:
    """Puts elements together as the parser meets them."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.top = Element("")
        self.open = [self.top]
        self.parts: list[list[str]] = [[]]
        self.parser = expat.ParserCreate()
        self.count = 0

    def read(self, data: bytes) -> Element:
        parser = self.parser
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = self._doctype
        try:
            parser.Parse(data, True)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise self.fault((error.lineno, error.offset + 1), reason, "Fix the XML there.") from None
        return self.top.children[0]

    def fault(self, place: tuple[int, int], reason: str, remedy: str) -> ModelUnreadable:
        """A complaint about a place."""
        line, column = place
        return ModelUnreadable(source=self.source, line=line, column=column, reason=reason, remedy=remedy)

    @property
    def _place(self) -> tuple[int, int]:
        return self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber + 1

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self.open) > DEPTH_MAX:
            reason = f"elements are nested deeper than {DEPTH_MAX}"
            raise self.fault(self._place, reason, "Make the model flatter.")
        self.count += 1
        if self.count > ELEMENTS_MAX:
            reason = f"there are more than {ELEMENTS_MAX} elements"
            raise self.fault(self._place, reason, "Divide the model into several projects.")
        line, column = self._place
        element = Element(tag, attributes, line=line, column=column)
        self.open[-1].children.append(element)
        self.open.append(element)
        self.parts.append([])

    def _end(self, _: str) -> None:
        self.open.pop().text = "".join(self.parts.pop())

    def _text(self, data: str) -> None:
        self.parts[-1].append(data)

    def _doctype(self, *_: object) -> None:
        reason, remedy = "a document type is not allowed", "Leave the DOCTYPE out; entities are not needed."
        raise self.fault(self._place, reason, remedy)


def parse_element(text: str | bytes, source: str) -> Element:
    """The root element of a text; bytes say their encoding themselves."""
    data = text if isinstance(text, bytes) else _without_encoding(text).encode("utf-8", "surrogatepass")
    builder = _Builder(source)
    if len(data) > SIZE_MAX:
        reason = f"it is larger than {SIZE_MAX} bytes"
        raise builder.fault((1, 1), reason, "Split the model.")
    return builder.read(data)


def _without_encoding(text: str) -> str:
    """A text has been decoded: what it says of its encoding no longer holds."""
    return re.sub(r"""\A(<\?xml[^>]*?)\s+encoding\s*=\s*("[^"]*"|'[^']*')""", r"\1", text, count=1)


def render(element: Element) -> str:
    """The element as a file."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    _render(element, 0, lines)
    return "\n".join([*lines, ""])


def _render(element: Element, depth: int, lines: list[str]) -> None:
    indent = "  " * depth
    head = indent + "<" + " ".join([element.tag, *map(_attribute, element.attributes.items())])
    if element.children:
        lines.append(head + ">")
        for child in element.children:
            _render(child, depth + 1, lines)
        lines.append(f"{indent}</{element.tag}>")
    elif element.text:
        lines.append(f"{head}>{_escaped(element.text)}</{element.tag}>")
    else:
        lines.append(head + "/>")


def _attribute(item: tuple[str, str]) -> str:
    name, value = item
    text = _escaped(value).replace('"', "&quot;").replace("\n", "&#10;").replace("\t", "&#9;")
    return f'{name}="{text}"'


def _escaped(text: str) -> str:
    if found := _ILLEGAL.search(text):
        reason = f"XML has no place for the character {found[0]!r}"
        raise ModelUnwritable(form="XML", reason=reason)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")


def joined(names: Sequence[str], separator: str) -> str:
    """Names in one attribute; a name that would fall apart there is refused."""
    for name in names:
        if not name or any(blank in name for blank in (*BLANKS, ",")):
            reason = f"the name {name!r} can't stand in a list of names"
            raise ModelUnwritable(form="XML", reason=reason)
    return separator.join(names)


@dataclass(frozen=True, slots=True)
class Form:
    """How a value is written in an attribute; `read` raises ValueError if it is not."""

    read: Callable[[str], Any]
    write: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute and the field it is."""

    name: str
    field: str
    form: Form


def _read_flag(text: str) -> bool:
    found = {"true": True, "1": True, "false": False, "0": False}.get(text.strip().lower())
    if found is None:
        msg = f"{text!r} is neither true nor false"
        raise ValueError(msg)
    return found


def _read_number(text: str) -> int:
    if not re.fullmatch(r"\s*-?[0-9]{1,30}\s*", text, re.ASCII):
        msg = f"{text!r} is not a whole number"
        raise ValueError(msg)
    return int(text)


def _read_type(text: str) -> FieldType:
    name = text.strip().lower()
    try:
        return FieldType("string" if name == "rstring" else name)  # ESP's strings that are shared, not copied
    except ValueError:
        msg = f"{text!r} is not a type: {', '.join(kind.value for kind in FieldType)}"
        raise ValueError(msg) from None


def _read_timeout(text: str) -> int | None:
    return None if text.strip().lower() == "never" else parse_duration(text)


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[^\s,]+", text))


TEXT = Form(str, str)
FLAG = Form(_read_flag, lambda flag: "true" if flag else "false")
NUMBER = Form(_read_number, str)
DURATION = Form(parse_duration, duration_text)
TIMEOUT = Form(_read_timeout, duration_text)
TYPE = Form(_read_type, lambda kind: str(kind.value))
WORDS = Form(_words, lambda names: joined(names, " "))
COMMAS = Form(_words, lambda names: joined(names, ","))

Table = tuple[Attribute, ...]


def table(*rows: tuple[str, str, Form]) -> Table:
    """A table of attributes."""
    return tuple(Attribute(*row) for row in rows)


WINDOW = table(
    ("name", "name", TEXT),
    ("pubsub", "pubsub", FLAG),
    ("index", "index", TEXT),
    ("pubsub-index", "pubsub_index", TEXT),
    ("output-insert-only", "output_insert_only", FLAG),
    ("collapse-updates", "collapse_updates", FLAG),
    ("pulse-interval", "pulse_us", DURATION),
)
KINDS: Mapping[type[w.Window], Table] = {
    w.SourceWindow: table(
        ("insert-only", "insert_only", FLAG),
        ("autogen-key", "autogen_key", FLAG),
        ("form", "form", TEXT),
        ("stream", "stream", TEXT),
        ("decode", "decode", TEXT),
        ("date-format", "date_format", TEXT),
        ("upsert", "upsert", FLAG),
    ),
    w.UnionWindow: table(("strict", "strict", FLAG)),
    w.FunctionalWindow: table(("produces-only-inserts", "produces_only_inserts", FLAG)),
    w.CounterWindow: table(("count-interval", "count_us", DURATION), ("clear-interval", "clear_us", DURATION)),
    w.TransposeWindow: table(
        ("mode", "mode", TEXT),
        ("tag-name", "tag_name", TEXT),
        ("tag-values", "tag_values", COMMAS),
        ("tags-included", "tags_included", COMMAS),
        ("group-by", "group_by", COMMAS),
        ("clear-timeout", "clear_us", TIMEOUT),
    ),
    w.CustomWindow: table(
        ("module", "module", TEXT),
        ("class", "class_", TEXT),
        ("version", "version", TEXT),
        ("tick", "tick_us", DURATION),
    ),
    w.RemoveStateWindow: table(("remove", "remove", WORDS), ("add-log-fields", "add_log_fields", FLAG)),
}
PROJECT = table(
    ("name", "name", TEXT),
    ("pubsub", "pubsub", TEXT),
    ("threads", "threads", NUMBER),
    ("index", "index", TEXT),
    ("heartbeat-interval", "heartbeat_us", DURATION),
    ("restore", "restore", TEXT),
    ("disk-store-path", "disk_store_path", TEXT),
    ("retention-tracking", "retention_tracking", FLAG),
    ("use-tagged-token", "use_tagged_token", FLAG),
    ("compress-open-patterns", "compress_open_patterns", FLAG),
)
QUERY = table(
    ("name", "name", TEXT),
    ("trace", "trace", WORDS),
    ("index", "index", TEXT),
    ("timing-threshold", "timing_threshold", NUMBER),
    ("include-singletons", "include_singletons", FLAG),
)
EDGE = table(("source", "source", WORDS), ("target", "target", WORDS), ("role", "role", TEXT), ("slot", "slot", NUMBER))
GROUP_EDGE = EDGE[:2]
ENTRY = table(("connector", "connector", TEXT), ("state", "state", TEXT))
CONNECTOR = table(
    ("class", "kind", TEXT), ("name", "name", TEXT), ("type", "direction", TEXT), ("active", "active", FLAG)
)
JOIN = table(
    ("type", "type", TEXT),
    ("no-regenerates", "no_regenerates", FLAG),
    ("left-index", "left_index", TEXT),
    ("right-index", "right_index", TEXT),
)
JOIN_FIELD = table(("name", "name", TEXT), ("source", "source", TEXT), ("type", "type", TYPE))
PLUG = table(
    ("plugin", "module", TEXT),
    ("function", "function", TEXT),
    ("fields", "fields", WORDS),
    ("additive", "additive", FLAG),
    ("additive-insert-only", "additive_insert_only", FLAG),
)
PATTERN = table(("name", "name", TEXT), ("index", "index", COMMAS), ("active", "is_active", FLAG))
PATTERN_EVENT = table(("name", "name", TEXT), ("source", "source", TEXT))
PATTERN_OUTPUT = table(("name", "field", TEXT), ("node", "node", TEXT))
FUNCTION = table(("name", "name", TEXT), ("type", "type", TYPE))
INITIALIZER = table(("type", "type", TYPE))
SMTP = table(
    ("host", "host", TEXT),
    ("port", "port", NUMBER),
    ("user", "user", TEXT),
    ("password-variable", "password_variable", TEXT),
)
CHANNEL = table(
    ("name", "name", TEXT),
    ("throttle-interval", "throttle_us", DURATION),
    ("unresolved-text", "unresolved", TEXT),
    ("test", "test", FLAG),
)
LOOP = table(("name", "name", TEXT), ("data", "data", TEXT))
PROCEDURAL = table(("name", "module", TEXT), ("function", "handler", TEXT))

LOOP_WORDS = {"regex": ("use-text", "regex"), "xml": ("use-xml", "xpath"), "json": ("use-json", "json")}
"""The elements of an event loop: the text to look into, and what to find there."""
PROPERTY_DIVIDERS = {
    "map": ("outer", "inner"),
    "list": ("delimiter", "inner"),
    "set": ("delimiter", "inner"),
    "xml": ("outer", "inner"),
    "json": ("outer", "inner"),
    "string": ("outer", "inner"),
}
"""The kinds of a context's properties, with the attributes that divide their items, the outer one first."""
CHANNELS = ("email", "sms", "mms")
CHANNEL_INFO = (("sender", "sender"), ("subject", "subject"), ("from", "shown_sender"), ("gateway", "gateway"))
CHANNEL_CONTENTS = (("text-content", "body"), ("html-content", "html"), ("image-content", "image"))
