"""Models as YAML: the document of a project, with the place of everything in it kept for complaints.

Only what a model needs is read: mappings, lists, texts, whole numbers, true, false and null. Anchors, aliases and tags
are refused, so that a small file can't become a large one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from lockstep.engine.errors import ModelUnreadable
from lockstep.engine.model.document import from_document, to_document
from lockstep.engine.model.document_codecs import Mark, Path, Plain, Where
from lockstep.engine.model.project import Project

SIZE_MAX = 16 * 1024 * 1024
DEPTH_MAX = 64

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,30})")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_TAG = "tag:yaml.org,2002:"
_IN_ONE_LINE = frozenset({"retention", "smtp"})
"""Keys whose mappings are short enough for one line."""


def parse_yaml(text: str, source: str = "model.yaml", lines: dict[str, int] | None = None) -> Project:
    """The project of a YAML text; raises ModelUnreadable with line and column of what is wrong.

    `lines` is filled with the lines of the model's parts, by the places that faults name.
    """
    reader = _Reader(source)
    document = reader.read(text)
    project = from_document(document, Where(source, reader.values, reader.keys))
    if lines is not None:
        lines.update(_lines(project, reader.values))
    return project


def _lines(project: Project, marks: Mapping[Path, Mark]) -> Iterator[tuple[str, int]]:
    yield f"project {project.name}", 1
    for at, query in enumerate(project.queries):
        path: Path = ("queries", at)
        yield f"query {query.name}", marks.get(path, (1, 1))[0]
        for number, window in enumerate(query.windows):
            yield f"{query.name}/{window.name}", marks.get((*path, "windows", number), (1, 1))[0]


def to_yaml(project: Project) -> str:
    """The project as YAML; parse_yaml gives it back."""
    node = _node(to_document(project), "")
    return str(yaml.serialize(node, Dumper=_dumper(), width=110, indent=2, allow_unicode=True))


class _Reader:
    """Plain values out of YAML's events, with their places."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.values: dict[Path, Mark] = {}
        self.keys: dict[Path, Mark] = {}

    def read(self, text: str) -> Plain:
        if len(text) > SIZE_MAX:
            self._refuse((1, 1), f"it is larger than {SIZE_MAX} characters", "Split the model.")
        try:
            return self._document(iter(yaml.parse(text, Loader=_loader())))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            self._refuse(place, str(error.problem or "it is not YAML"), "Fix the YAML there.")
        except yaml.YAMLError as error:
            self._refuse((1, 1), str(error).splitlines()[0], "Fix the YAML there.")

    def _document(self, events: Iterator[Event]) -> Plain:
        starts = [event for event in _until_document(events) if isinstance(event, DocumentStartEvent)]
        if not starts:
            self._refuse((1, 1), "it is empty", "Write at least name and queries.")
        value = self._value(next(events), events, ())
        next(events)
        for event in events:
            if isinstance(event, DocumentStartEvent):
                self._refuse(_mark(event), "a second document begins", "Keep one model in a file.")
        return value

    def _value(self, event: Event, events: Iterator[Event], path: Path) -> Plain:
        mark = _mark(event)
        self.values[path] = mark
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None) or getattr(event, "tag", None):
            self._refuse(mark, "anchors, aliases and tags are not allowed", "Write the value out.")
        if len(path) > DEPTH_MAX:
            self._refuse(mark, f"it is nested deeper than {DEPTH_MAX}", "Make the model flatter.")
        if isinstance(event, ScalarEvent):
            return _scalar(event)
        if isinstance(event, SequenceStartEvent):
            return self._list(events, path)
        return self._mapping(events, path)

    def _list(self, events: Iterator[Event], path: Path) -> list[Plain]:
        items: list[Plain] = []
        while not isinstance(event := next(events), SequenceEndEvent):
            items.append(self._value(event, events, (*path, len(items))))
        return items

    def _mapping(self, events: Iterator[Event], path: Path) -> dict[str, Plain]:
        items: dict[str, Plain] = {}
        while not isinstance(event := next(events), MappingEndEvent):
            mark = _mark(event)
            if not isinstance(event, ScalarEvent) or event.anchor or event.tag:
                self._refuse(mark, "a key must be a plain name", "Write NAME: VALUE.")
            if event.value in items:
                self._refuse(mark, f"the key {event.value!r} occurs twice", "Keep one of them.")
            self.keys[*path, event.value] = mark
            items[event.value] = self._value(next(events), events, (*path, event.value))
        return items

    def _refuse(self, mark: Mark, reason: str, remedy: str) -> NoReturn:
        raise ModelUnreadable(source=self.source, line=mark[0], column=mark[1], reason=reason, remedy=remedy) from None


def _loader() -> Any:
    """The parser in C where there is one: it is ten times as fast."""
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _dumper() -> Any:
    """The emitter in C where there is one."""
    return getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def _until_document(events: Iterator[Event]) -> Iterator[Event]:
    for event in events:
        yield event
        if isinstance(event, DocumentStartEvent):
            return


def _mark(event: Event) -> Mark:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _scalar(event: ScalarEvent) -> Plain:
    """A quoted scalar is a text; a plain one may be a number or a word that stands for a value."""
    if not event.implicit[0]:
        return event.value
    if event.value in _WORDS:
        return _WORDS[event.value]
    return int(event.value) if _INTEGER.fullmatch(event.value) else event.value


def _node(value: Plain, key: str) -> Node:
    if isinstance(value, dict):
        pairs = [(_node(name, ""), _node(item, name)) for name, item in value.items()]
        return MappingNode(_TAG + "map", pairs, flow_style=key in _IN_ONE_LINE or _is_edge(value))
    if isinstance(value, list):
        return SequenceNode(_TAG + "seq", [_node(item, "") for item in value], flow_style=_is_short(value))
    if isinstance(value, bool):
        return ScalarNode(_TAG + "bool", "true" if value else "false")
    if isinstance(value, int):
        return ScalarNode(_TAG + "int", str(value))
    return ScalarNode(_TAG + "str", value, style="|" if "\n" in value else None)


def _is_edge(value: dict[str, Plain]) -> bool:
    return {"source", "target"} <= value.keys()


def _is_short(items: list[Plain]) -> bool:
    plain = all(isinstance(item, str) and "\n" not in item and "->" not in item for item in items)
    return plain and sum(len(item) + 2 for item in items) < 80
