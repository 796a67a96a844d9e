"""XML as a tree of light elements that know where they stand. No DTD, no entities; size and depth are limited."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from xml.parsers import expat

from lockstep.engine.errors import ModelUnreadable, ModelUnwritable

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
