"""Events that functions make of texts: what url and websocket connectors get. Pure.

The functions are those of functional windows. #_content is the text; a loop's functions see its item as #_context.

    <url-connector><url-publishers><url-publisher name="news">
      <requests><request name="front"><url>https://example.org/news.json</url></request></requests>
      <generate>0</generate><opcode>upsert</opcode>
      <event-loops><event-loop-json name="each"><use-json>#_content</use-json><json>$.items</json>
        <function-context><functions><function name="id">json(#_context,'id')</function></functions></function-context>
      </event-loop-json></event-loops>
    </url-publisher></url-publishers></url-connector>
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn
from urllib.parse import quote

from lockstep.connectors.errors import ConnectorRefused
from lockstep.engine.errors import BadExpression, ModelUnreadable
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Node, Parent
from lockstep.engine.model.variables import expanded, remedy_for, unreplaced
from lockstep.engine.model.windows import ContextProperty, EventLoop, FunctionalWindow
from lockstep.engine.model.xml_cursor import Cursor
from lockstep.engine.model.xml_elements import Element, parse_element
from lockstep.engine.model.xml_reader_windows import FUNCTIONS, read_functions
from lockstep.engine.reference.functional import OPCODE_WORDS, RowMaker
from lockstep.engine.reference.operator import Moment

_CONTENT = ContextProperty(name="_content", kind="string", text="$_content")
_HEADER, _CONTROL = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"), re.compile(r"[\x00-\x1f\x7f]")
_INPUT = Schema.parse("_content*:string")
_PUBLISHER = ("requests", *FUNCTIONS)

Complain = Callable[[str, str], None]
"""Takes a reason and a detail."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to send; its URL may hold secrets, so it is left out of the repr."""

    name: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Publisher:
    """Requests, and what makes events of each answer."""

    name: str
    requests: tuple[Request, ...]
    maker: EventMaker


class EventMaker:
    """Converts texts to events; not thread-safe."""

    def __init__(self, name: str, schema: Schema, windows: Sequence[FunctionalWindow]) -> None:
        parent = Parent(node=0, name=name)
        self._schema = schema
        self._makers = [
            RowMaker(Node(0, name, window, schema, (parent,), (_INPUT,), is_indexed=False)) for window in windows
        ]

    def events(self, content: str, now_us: int, complain: Complain) -> list[Event]:
        """The events of a text that came at a time, in order."""
        moment = Moment(now_us, now_us, False, False, lambda _: None, lambda _: None)
        given, found = Event(Opcode.INSERT, Flag.NORMAL, (content,)), []
        for maker in self._makers:
            rows, written = maker.make(0, given, moment, complain)
            opcode = OPCODE_WORDS.get((written.strip() or "insert").lower())
            if opcode is None:
                complain("bad-opcode", f"the opcode function gave {written[:40]!r}")
            else:
                found += [Event(opcode, Flag.NORMAL, row) for row in rows]
        return found


@dataclass(frozen=True, slots=True)
class Config:
    """The text of a configuration, where it stands, and the values of names between @ signs in it."""

    connector: str
    text: str = field(repr=False)
    place: str
    values: Mapping[str, str] = field(repr=False)

    def publishers(self, kind: str, schema: Schema) -> tuple[Publisher, ...]:
        """What a configuration of a `url` or `websocket` connector says; ConnectorRefused tells what is wrong."""
        try:
            cursor = Cursor(parse_element(self.text, self.place), self.place)
            found = tuple(self._publisher(each, schema, kind) for each in _parts(cursor, kind))
            if cursor.notes.unread:
                raise cursor.notes.unread[0]
        except ModelUnreadable as error:
            params = error.params
            self._refuse(f"line {params['line']}: {params['reason']}", str(params["remedy"]))
        except BadExpression as error:
            self._refuse(str(error).rstrip("."), error.advice)
        if not found:
            self._refuse(f"it has no {kind}-publisher", f"Put one into <{kind}-publishers>.")
        return found

    def _publisher(self, cursor: Cursor, schema: Schema, kind: str) -> Publisher:
        self._expand(cursor)
        name = cursor.element.attributes.get("name", kind)
        cursor.expect(("name",), _PUBLISHER if kind == "url" else _PUBLISHER[1:])
        requests = tuple(_request(item, number) for number, item in enumerate(cursor.inside("requests", "request"), 1))
        if kind == "url" and not requests:
            cursor.refuse("url-publisher has no request", "Add <requests><request><url>...</url></request></requests>.")
        return Publisher(name, requests, EventMaker(name, schema, _windows(cursor, name, schema)))

    def _expand(self, cursor: Cursor) -> None:
        """Put values into texts that are read already: no value can become an element."""
        for element in _all(cursor.element):
            for text in (element.text, *element.attributes.values()):
                for variable in unreplaced(text):
                    if variable not in self.values:
                        remedy = f"{remedy_for(variable)} Or name it in the property 'properties': {variable}=..."
                        cursor.at(element).refuse(f"@{variable}@ has no value", remedy)
            element.text = expanded(element.text, self.values)
            element.attributes = {name: expanded(text, self.values) for name, text in element.attributes.items()}

    def _refuse(self, reason: str, remedy: str) -> NoReturn:
        raise ConnectorRefused(connector=self.connector, reason=f"in {self.place}, {reason}", remedy=remedy) from None


def _parts(cursor: Cursor, kind: str) -> list[Cursor]:
    """The publishers; a websocket has one server, so its only one may stand there alone."""
    root = f"{kind}-connector"
    if kind == "websocket" and cursor.all(*FUNCTIONS):
        return [cursor]
    if cursor.element.tag != root:
        cursor.refuse(f"the root element {cursor.element.tag!r} is not known", f"Begin with <{root}>.")
    cursor.expect(("name",), (f"{kind}-publishers",))
    return cursor.inside(f"{kind}-publishers", f"{kind}-publisher")


def _request(cursor: Cursor, number: int) -> Request:
    cursor.expect(("name",), ("url", "headers"))
    url = cursor.child_text("url")
    if not url:
        cursor.refuse("request has no url", "Add <url>https://...</url>.")
    headers = dict(cursor.pairs("header", "headers", "name"))
    for name, text in headers.items():
        if not _HEADER.fullmatch(name) or _CONTROL.search(text) or not text.isascii():
            cursor.refuse(f"the header {name[:40]!r} can't be sent", "Write ASCII letters, without control characters.")
    return Request(cursor.element.attributes.get("name") or str(number), asciied(url), headers)


def asciied(url: str) -> str:
    """Return the URL with blanks and non-ASCII characters escaped."""
    return quote(url, safe="!#$%&'()*+,/:;=?@[]~")


def _windows(cursor: Cursor, name: str, schema: Schema) -> list[FunctionalWindow]:
    """One for all, but where loops have opcodes of their own, one for the publisher itself and one for each loop."""
    own = {id(item): item.child_text("opcode") for item in _loop_cursors(cursor)}
    for item in _loop_cursors(cursor):
        item.element.children = [child for child in item.element.children if child.tag != "opcode"]
    made = read_functions(cursor)
    properties = (_CONTENT, *made.pop("properties", ()))
    whole = FunctionalWindow(name=name, schema=schema, properties=properties, **made)
    if not any(own.values()):
        return [whole]
    loops: tuple[EventLoop, ...] = whole.loops
    divided = [replace(whole, loops=())]
    for loop, opcode in zip(loops, own.values(), strict=True):
        divided.append(replace(whole, generate="0", loops=(loop,), opcode=opcode or whole.opcode))
    return divided


def _loop_cursors(cursor: Cursor) -> list[Cursor]:
    found = cursor.child("event-loops")
    return [] if found is None else [found.at(child) for child in found.element.children]


def _all(element: Element) -> Iterator[Element]:
    yield element
    for child in element.children:
        yield from _all(child)
