"""Reading elements strictly: what is not known is refused, with its place and a remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, NoReturn, TypeVar

from lockstep.engine.errors import BadSchema, ModelUnreadable
from lockstep.engine.events.schema import Field, Schema
from lockstep.engine.model.document_codecs import nearest
from lockstep.engine.model.values import DURATION_REMEDY
from lockstep.engine.model.xml_attributes import DURATION, FLAG, TIMEOUT, TYPE, Attribute, Table
from lockstep.engine.model.xml_elements import Element, dedented, stripped

_ANALYTICS = "Train and score outside, for example in a procedural window with a Python handler."
_TEXTS = "Take texts apart in a procedural window with a Python handler."
_CODE = "Write a procedural window with a Python handler: <plugin name='MODULE' function='HANDLER'/>."
_PLUGS = "Write an expression, or a procedural window with a Python handler."
UNSUPPORTED: dict[str, str] = {
    "window-calculate": _ANALYTICS,
    "window-train": _ANALYTICS,
    "window-score": _ANALYTICS,
    "window-model-reader": _ANALYTICS,
    "window-model-supervisor": _ANALYTICS,
    "window-object-tracker": _ANALYTICS,
    "window-geofence": "Compute distances in a compute window, or in a procedural window with a Python handler.",
    "window-textcategory": _TEXTS,
    "window-textcontext": _TEXTS,
    "window-textsentiment": _TEXTS,
    "window-texttopic": _TEXTS,
    "window-lua": _CODE,
    "window-custom": _CODE,
    "window-python": _CODE,
    "window-statedb-reader": _CODE,
    "window-statedb-writer": _CODE,
    "cxx-plugin": _CODE,
    "cxx-plugin-context": _CODE,
    "ds-external": _CODE,
    "ds2-tableserver": _CODE,
    "mas-map": _CODE,
    "mas-modules": _CODE,
    "lua-modules": _CODE,
    "lua-snippets": _CODE,
    "python-modules": _CODE,
    "python-snippets": _CODE,
    "ds-initialize": _CODE,
    "context-plugin": _PLUGS,
    "splitter-plug": "Write a splitter-expr.",
    "finalized-callback": "Leave it out: there is nothing to call back into.",
    "plugin": _PLUGS,
    "field-plug": _PLUGS,
    "python-events": "Write events with expressions.",
    "lua-events": "Write events with expressions.",
    "use": _PLUGS,
    "code": _PLUGS,
}
"""Elements and attributes that ESP has and this engine has not, with what to do instead."""
_SERVER = "it is set where the engine is started, not in the model"
WITHOUT_EFFECT: dict[str, str] = {
    "http-servers": _SERVER,
    "esp-cluster-managers": _SERVER,
    "mcp": _SERVER,
    "connection-name": "the properties of the connector say where it connects to",
    "exp-max-string": "strings have no limit here",
    "password": "a model is there for all to read: the password is that of the environment, LOCKSTEP_SMTP_PASSWORD",
    "port": _SERVER,
    "queue-height": "blocks wait in the sequence log, not in a queue",
}
"""Elements and attributes that are taken and change nothing, with the reason."""

_SHARED = re.compile(r":\s*rstring\b", re.IGNORECASE)
"""ESP's strings that are shared and not copied: strings."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unused:
    """Something in a model that has no effect here."""

    line: int
    what: str
    why: str


@dataclass(slots=True)
class Notes:
    """What was met while a text was read: faults that do not keep the rest from being read, and where things stand."""

    unread: list[ModelUnreadable] = field(default_factory=list)
    unused: list[Unused] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    """The lines of the model's parts, by the places that faults name."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """An element that is being read."""

    element: Element
    source: str
    notes: Notes = field(default_factory=Notes)

    def at(self, element: Element) -> Cursor:
        """Another element of the same text."""
        return Cursor(element, self.source, self.notes)

    def attempt(self, read: Callable[[Cursor], T], otherwise: T) -> T:
        """What is read of this element; a fault is noted, and something else stands in its place."""
        try:
            return read(self)
        except ModelUnreadable as error:
            self.notes.unread.append(error)
            return otherwise

    def refuse(self, reason: str, remedy: str) -> NoReturn:
        """Complain about this element."""
        line, column = self.element.line, self.element.column
        raise ModelUnreadable(source=self.source, line=line, column=column, reason=reason, remedy=remedy) from None

    def expect(self, attributes: tuple[str, ...] = (), children: tuple[str, ...] = (), *, text: bool = False) -> None:
        """Note every attribute and child but these, and text where none belongs; what is known is read all the same."""
        for name in self.element.attributes:
            if name not in attributes and name != "xml:space":
                self._note(f"the attribute {name!r} of {self.element.tag}", name, attributes)
        for child in self.element.children:
            if child.tag not in children:
                self.at(child)._note(f"the element {child.tag!r}", child.tag, children)
        if not text and stripped(self.element.text):
            self.complain(f"{self.element.tag} has a text that belongs nowhere", "Remove it.")

    def complain(self, reason: str, remedy: str) -> None:
        """Note a fault of this element, and go on."""
        self.attempt(lambda cursor: cursor.refuse(reason, remedy), None)

    def _note(self, what: str, name: str, known: tuple[str, ...]) -> None:
        if name in WITHOUT_EFFECT:
            self.notes.unused.append(Unused(self.element.line, what, WITHOUT_EFFECT[name]))
        else:
            self.attempt(lambda cursor: cursor._unknown(what, name, known), None)

    def _unknown(self, what: str, name: str, known: tuple[str, ...]) -> NoReturn:
        if name in UNSUPPORTED:
            self.refuse(f"{what} is not supported", UNSUPPORTED[name])
        self.refuse(f"{what} is not known here", nearest(name, known) if known else "Remove it.")

    def values(self, table: Table, cls: Any) -> dict[str, Any]:
        """The fields of `cls` that attributes give; those it can't do without must be there."""
        needed = {field.name for field in fields(cls) if field.default is MISSING}
        found: dict[str, Any] = {}
        for attribute in table:
            text = self.element.attributes.get(attribute.name)
            if text is not None:
                found[attribute.field] = self._value(attribute, text)
            elif attribute.field in needed:
                self.refuse(f"{self.element.tag} has no attribute {attribute.name!r}", f"Add {attribute.name}='...'.")
        return found

    def _value(self, attribute: Attribute, text: str) -> Any:
        try:
            return attribute.form.read(text)
        except ValueError as error:
            remedies = {DURATION: DURATION_REMEDY, TIMEOUT: DURATION_REMEDY, FLAG: "Write true or false."}
            remedy = remedies.get(attribute.form, f"Fix {attribute.name}.")
            self.refuse(f"{attribute.name}: {error}", remedy)

    def need(self, name: str) -> str:
        """An attribute that must be there."""
        if name not in self.element.attributes:
            self.refuse(f"{self.element.tag} has no attribute {name!r}", f"Add {name}='...'.")
        return self.element.attributes[name]

    def all(self, *tags: str) -> list[Cursor]:
        """The children with these tags, in their order."""
        return [self.at(child) for child in self.element.children if child.tag in tags]

    def child(self, tag: str) -> Cursor | None:
        """The only child with a tag, if it is there."""
        found = self.all(tag)
        if len(found) > 1:
            found[1].refuse(f"{tag} occurs twice", "Keep one of them.")
        return found[0] if found else None

    def inside(self, container: str, *tags: str) -> list[Cursor]:
        """The children of a child that does nothing but hold them."""
        found = self.child(container)
        if found is None:
            return []
        found.expect(children=tags)
        return found.all(*tags)

    def text(self) -> str:
        """The text."""
        return self.element.trimmed(stripped)

    def child_text(self, tag: str) -> str | None:
        """The text of a child that has nothing else, if it is there."""
        found = self.child(tag)
        if found is None:
            return None
        found.expect(text=True)
        return found.text()

    def description(self) -> str:
        """The prose in the description, if there is one."""
        found = self.child("description")
        if found is None:
            return ""
        found.expect(text=True)
        return found.element.trimmed(dedented)

    def pairs(self, tag: str, container: str, *names: str) -> tuple[tuple[str, str], ...]:
        """Names and texts of the elements in a container, as in <functions><function name='a'>1</function>."""
        found = []
        for item in self.inside(container, tag):
            item.expect(names, text=True)
            name = next((name for name in names if name in item.element.attributes), names[0])
            found.append((item.need(name), item.text()))
        return tuple(found)

    def schema(self) -> Schema | None:
        """The schema, as an element for each field or as a string."""
        string, schema = self.child("schema-string"), self.child("schema")
        if schema is not None and string is not None:
            string.refuse("the schema is given twice", "Keep one of them.")
        found = string or schema
        if found is None:
            return None
        found.expect(("copy-keys", "name"), ("fields",), text=found is string)
        if found.element.attributes.get("copy-keys", "false") != "false":
            found.refuse("keys can't be copied from the input's schema", "Write all fields of the schema out.")
        try:
            return Schema.parse(_SHARED.sub(":string", found.text())) if found is string else Schema(found._fields())
        except BadSchema as error:
            found.refuse(str(error.params["reason"]), BadSchema.advice)

    def _fields(self) -> tuple[Field, ...]:
        return tuple(item._field() for item in self.inside("fields", "field"))

    def _field(self) -> Field:
        self.expect(("name", "type", "key"))
        kind = self._value(Attribute("type", "type", TYPE), self.need("type"))
        key = self._value(Attribute("key", "key", FLAG), self.element.attributes.get("key", "false"))
        return Field(self.need("name"), kind, key)
