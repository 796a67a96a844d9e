"""JSON and XML inside fields: read with limits, without entities, and asked by short paths.

JSON  a.b[0].c or $.a.b        XML  ./a/b/text(), //a/b, a/@name, a[2], */b, text()
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from lockstep.engine.events.schema import Value

MAX_DOCUMENT = 1_000_000
MAX_DEPTH = 64
MAX_NODES = 100_000

_JSON_STEP = re.compile(r"\.?(?:([^.\[\]]+)|\[(\d{1,9})\])")
_XML_STEP = re.compile(r"(//|/|)(?:(text\(\))|@([\w:.-]+)|(\.)|([\w:.-]+|\*)(?:\[(\d{1,9})\])?)", re.ASCII)
_NESTING = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


class Unreadable(ValueError):
    """A document that is broken or beyond the limits, or a path that means nothing."""


@dataclass(slots=True)
class Element:
    """An XML element; what it holds is texts and elements in order."""

    name: str
    attributes: dict[str, str]
    parts: list[str | Element] = field(default_factory=list)

    @property
    def elements(self) -> list[Element]:
        """The elements right inside it."""
        return [part for part in self.parts if isinstance(part, Element)]

    @property
    def text(self) -> str:
        """The text right inside it."""
        return "".join(part for part in self.parts if isinstance(part, str))

    def __str__(self) -> str:
        attributes = "".join(f" {name}={quoteattr(value)}" for name, value in self.attributes.items())
        inside = "".join(escape(part) if isinstance(part, str) else str(part) for part in self.parts)
        return f"<{self.name}{attributes}>{inside}</{self.name}>" if inside else f"<{self.name}{attributes}/>"


def read_json(text: str) -> Any:
    """A JSON text; raises Unreadable."""
    _check_size(text)
    depth = deepest = 0
    for found in _NESTING.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found.group(), 0)
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH:
        msg = f"the JSON is nested deeper than {MAX_DEPTH}"
        raise Unreadable(msg)
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        msg = f"the JSON can't be read: {error}"
        raise Unreadable(msg) from None


def json_steps(path: str) -> tuple[str | int, ...]:
    """The steps of a path in JSON; raises Unreadable."""
    rest = path.strip().removeprefix("$")
    steps: list[str | int] = []
    place = 0
    while place < len(rest):
        found = _JSON_STEP.match(rest, place)
        if found is None:
            msg = f"the path {path!r} is not like a.b[0].c"
            raise Unreadable(msg)
        steps.append(found[1] if found[1] is not None else int(found[2]))
        place = found.end()
    return tuple(steps)


def json_at(document: Any, steps: tuple[str | int, ...]) -> Any:
    """What is found at a path; None if there is nothing."""
    for step in steps:
        if isinstance(document, dict):
            document = document.get(str(step))
        elif isinstance(document, list) and isinstance(step, int):
            document = document[step] if step < len(document) else None
        else:
            return None
    return document


def json_value(found: Any) -> Value:
    """A piece of JSON as a value: lists and objects stay JSON text."""
    if isinstance(found, dict | list):
        return json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    if isinstance(found, bool):
        return int(found)
    assert found is None or isinstance(found, int | float | str), "JSON has nothing else"
    return found


def read_xml(text: str) -> Element:
    """An XML text; raises Unreadable. Document types, and with them entities, are refused."""
    _check_size(text)
    builder = _Builder()
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = builder.doctype
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        msg = f"the XML can't be read: {error}"
        raise Unreadable(msg) from None
    assert builder.root is not None, "expat refuses a document without an element"
    return builder.root


class _Builder:
    """Makes the tree."""

    def __init__(self) -> None:
        self.root: Element | None = None
        self._open: list[Element] = []
        self._count = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        self._count += 1
        if len(self._open) >= MAX_DEPTH or self._count > MAX_NODES:
            msg = f"the XML is nested deeper than {MAX_DEPTH} or has more than {MAX_NODES} elements"
            raise Unreadable(msg)
        element = Element(name, attributes)
        if self._open:
            self._open[-1].parts.append(element)
        else:
            self.root = element
        self._open.append(element)

    def end(self, _name: str) -> None:
        """An element ends."""
        self._open.pop()

    def data(self, text: str) -> None:
        """Text inside the element that is open."""
        self._open[-1].parts.append(text)

    def doctype(self, *_: object) -> None:
        """A document type could declare entities."""
        msg = "the XML has a document type, which is refused"
        raise Unreadable(msg)


Step = tuple[str, str, str, int]
"""Axis (child, or any depth), what (text, attribute, self or element), its name, and which of them (0: all)."""


def xml_steps(path: str) -> tuple[Step, ...]:
    """The steps of a path in XML; raises Unreadable."""
    plain = path.strip()
    steps: list[Step] = []
    place = 0
    while place < len(plain):
        found = _XML_STEP.match(plain, place)
        if found is None or found.end() == place or (place and not found[1]):
            break
        steps.append(_xml_step(found))
        place = found.end()
    if not steps or place < len(plain):
        msg = f"the path {path!r} is not like ./a/b/text() or //a/b"
        raise Unreadable(msg)
    return tuple(steps)


def _xml_step(found: re.Match[str]) -> Step:
    if found[2]:
        return found[1], "text", "", 0
    if found[3]:
        return found[1], "attribute", found[3], 0
    if found[4]:
        return found[1], "self", "", 0
    return found[1], "element", found[5], int(found[6] or 0)


def xml_at(root: Element, steps: tuple[Step, ...]) -> list[str]:
    """All that a path finds, in the order of the document: texts, attributes, or elements as XML text."""
    current: list[Element] = [Element("", {}, [root])] if steps[0][0] else [root]
    for axis, what, name, which in steps:
        reached = [each for element in current for each in _reach(element)] if axis == "//" else current
        if what == "text":
            return [element.text for element in reached if element.text]
        if what == "attribute":
            return [element.attributes[name] for element in reached if name in element.attributes]
        if what == "element":
            picked = [_named(element, name) for element in reached]
            current = [each for some in picked for each in (some[which - 1 : which] if which else some)]
    return [str(element) for element in current]


def _named(element: Element, name: str) -> list[Element]:
    return [child for child in element.elements if name in (child.name, "*")]


def _reach(element: Element) -> list[Element]:
    """The element and all below it, parents first."""
    return [element, *(each for child in element.elements for each in _reach(child))]


def _check_size(text: str) -> None:
    if len(text) > MAX_DOCUMENT:
        msg = f"the document is longer than {MAX_DOCUMENT} characters"
        raise Unreadable(msg)


def _no_constant(name: str) -> None:
    msg = f"{name} is not JSON"
    raise Unreadable(msg)
