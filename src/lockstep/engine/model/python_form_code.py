"""Python code for the values and the windows of a model."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from lockstep.engine.events.schema import FieldType, Schema
from lockstep.engine.model import windows as w
from lockstep.engine.model.values import duration_text

WIDTH = 110
_PUBLIC = "lockstep.models"
"""Where users import from: what is written stays readable when modules move."""


def call(function: str, arguments: Sequence[str], named: Sequence[str] = ()) -> str:
    """A call, on one line if it is short."""
    parts = [*arguments, *named]
    inside = ", ".join(parts)
    last = f"{function}({inside})".rpartition("\n")[2]
    return f"{function}({inside})" if len(last) <= WIDTH and "\n" not in inside else broken(function, parts)


def broken(function: str, parts: Sequence[str]) -> str:
    """A call or a tuple with one part on a line."""
    lines = (part.replace("\n", "\n    ") for part in parts)
    return f"{function}(\n" + "".join(f"    {line},\n" for line in lines) + ")"


def quoted(text: str) -> str:
    """A text as code, in double quotes where they need no escape."""
    code = repr(text)
    return f'"{code[1:-1]}"' if code[0] == "'" and '"' not in code else code


def text_block(text: str) -> str:
    """A docstring."""
    clean = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"""' + "".join(letter if letter.isprintable() else " " for letter in clean) + '"""'


def is_word(name: str) -> bool:
    """May be the name of an argument."""
    return name.isidentifier() and name.isascii() and not keyword.iskeyword(name)


class Code:
    """Writes values as code, and knows what must be imported for it."""

    def __init__(self) -> None:
        self._needed: dict[str, set[str]] = {}

    def needs(self, module: str, name: str) -> str:
        """A name from a module of the model."""
        place = _PUBLIC if module in ("", "builder") else f"lockstep.engine.model.{module}"
        self._needed.setdefault(place, set()).add(name)
        return name

    def imports(self) -> list[str]:
        """The import lines for what was written."""
        return [
            call_import(module, sorted(names, key=lambda name: (not name.isupper(), name)))
            for module, names in sorted(self._needed.items())
        ]

    def literal(self, value: Any) -> str:
        """A value as an expression."""
        if isinstance(value, FieldType):
            return f"{self.needs('', 'FieldType')}.{value.name}"
        if isinstance(value, Schema):
            return f"{self.needs('', 'Schema')}.parse({quoted(str(value))})"
        if isinstance(value, tuple):
            return self._tuple([self.literal(item) for item in value])
        if is_dataclass(value):
            module = type(value).__module__.rpartition(".")[2]
            name = self.needs("windows" if module == "parts" else module, type(value).__name__)
            return call(name, [], self._given(value))
        return quoted(value) if isinstance(value, str) else repr(value)

    def _tuple(self, items: list[str]) -> str:
        line = f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        if len(line) <= WIDTH and "\n" not in line:
            return line
        return broken("", items)

    def _given(self, value: Any) -> list[str]:
        """The fields of a record that differ from their defaults."""
        given = ((field, getattr(value, field.name)) for field in fields(value))
        return [f"{field.name}={self.literal(item)}" for field, item in given if item != field.default]

    def options(self, value: Any, names: Iterable[str]) -> list[str]:
        """Arguments for the fields that differ from their defaults; NAME_us is given as NAME, as a duration."""
        defaults = {field.name: field.default for field in fields(value)}
        given = ((name, getattr(value, name)) for name in names)
        return [self._option(name, item) for name, item in given if item != defaults[name]]

    def _option(self, name: str, item: Any) -> str:
        if name.endswith("_us"):
            return f"{name.removesuffix('_us')}={quoted(duration_text(item))}"
        return f"{name}={self.literal(item)}"


def call_import(module: str, names: Sequence[str]) -> str:
    """An import line, broken if it is long."""
    line = f"from {module} import {', '.join(names)}"
    return line if len(line) <= WIDTH else broken(f"from {module} import ", names)


def variable(name: str, taken: set[str]) -> str:
    """A name for a variable, not taken yet."""
    divided = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    clean = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in divided).lower()
    clean = clean if is_word(clean) else f"w_{clean}"
    clean = f"{clean}_" if hasattr(builtins, clean) else clean
    number, found = 1, clean
    while found in taken:
        number += 1
        found = f"{clean}_{number}"
    taken.add(found)
    return found


_COMMON = (
    "pubsub",
    "index",
    "pubsub_index",
    "output_insert_only",
    "collapse_updates",
    "pulse_us",
    "splitter",
    "connectors",
    "description",
)
_TAKEN = frozenset({"by", "schema", "fields", "initialize"})

Short = Callable[[Any, list[str], Code], tuple[list[str], list[str]] | None]


def window_code(window: w.Window, query: str, inputs: list[str], code: Code) -> str:
    """The expression that adds a window to a query, after its inputs."""
    short = _SHORT.get(type(window))
    found = None if short is None else short(window, inputs, code)
    if found is None:
        return call(f"{query}.add", [code.literal(window), *inputs])
    arguments, named = found
    owner = query if isinstance(window, w.SourceWindow) else inputs[0]
    made = call(f"{owner}.{window.kind.replace('-', '_')}", [quoted(window.name), *arguments], named)
    options = code.options(window, _COMMON)
    return call(f"{made}.options", [], options) if options else made


def _retain(retention: w.Retention | None, code: Code) -> list[str]:
    if retention is None:
        return []
    names = {"bytime_sliding": "sliding", "bytime_jumping": "jumping", "bytime_jumping_lookback": "lookback"}
    counts = {"bycount_sliding": "sliding_rows", "bycount_jumping": "jumping_rows"}
    stepped = retention.kind == "bytime_jumping_lookback"
    if retention.kind in counts and retention.field is None and retention.unit_us is None:
        return [f"retain={code.needs('builder', counts[retention.kind])}({retention.limit})"]
    if retention.kind not in names or (retention.unit_us is None) == stepped:
        return [f"retain={code.literal(retention)}"]
    unit = [f"unit={quoted(duration_text(retention.unit_us))}"] if retention.unit_us is not None else []
    field = [f"field={quoted(retention.field)}"] if retention.field is not None else []
    limit = quoted(duration_text(retention.limit))
    return ["retain=" + call(code.needs("builder", names[retention.kind]), [limit], [*unit, *field])]


def _source(window: w.SourceWindow, inputs: list[str], code: Code) -> tuple[list[str], list[str]] | None:
    if inputs or window.form != (w.EVENTS if window.stream is None else w.RECORDS):
        return None
    if window.takes_records:
        wanted = ("stream", "decode", "avro_schema", "date_format", "upsert", "insert_only", "autogen_key")
        retained = _retain(window.retention, code)
        return [quoted(str(window.schema))], [*code.options(window, wanted), *retained]
    flags = code.options(window, ("insert_only", "autogen_key"))
    return [quoted(str(window.schema))], [*flags, *_retain(window.retention, code)]


def _copy(window: w.CopyWindow, inputs: list[str], code: Code) -> tuple[list[str], list[str]] | None:
    return ([], _retain(window.retention, code)) if len(inputs) == 1 else None


def _filter(window: w.FilterWindow, inputs: list[str], code: Code) -> tuple[list[str], list[str]] | None:
    return ([quoted(window.expression)], code.options(window, ("initialize",))) if len(inputs) == 1 else None


def _computed(
    window: w.AggregateWindow | w.ComputeWindow, inputs: list[str], code: Code
) -> tuple[list[str], list[str]] | None:
    if len(inputs) != 1:
        return None
    names = [field.name for field in window.schema if not field.key]
    named = [f"schema={quoted(str(window.schema))}", *code.options(window, ("initialize",))]
    if len(names) == len(window.fields) and all(is_word(name) and name not in _TAKEN for name in names):
        makers = [f"{name}={code.literal(maker)}" for name, maker in zip(names, window.fields, strict=True)]
        return [], [*named, *makers]
    return [], [*named, f"fields={code.literal(window.fields)}"]


def _join(window: w.JoinWindow, inputs: list[str], code: Code) -> tuple[list[str], list[str]] | None:
    if len(inputs) != 2:
        return None
    options = code.options(window, ("type", "no_regenerates", "left_index", "right_index"))
    on = f"on={code.literal(window.conditions)}"
    return [inputs[1]], [on, *options, f"fields={code.literal(window.fields)}"]


def _union(window: w.UnionWindow, inputs: list[str], code: Code) -> tuple[list[str], list[str]] | None:
    return (inputs[1:], code.options(window, ("strict",))) if inputs else None


def _counter(window: w.CounterWindow, inputs: list[str], _: Code) -> tuple[list[str], list[str]] | None:
    times = (("every", window.count_us), ("clear", window.clear_us))
    named = [f"{name}={quoted(duration_text(time))}" for name, time in times if time is not None]
    return (inputs[1:], named) if inputs else None


def _remove_state(window: w.RemoveStateWindow, inputs: list[str], code: Code) -> tuple[list[str], list[str]] | None:
    flags = ["log_fields=True"] if window.add_log_fields else []
    return ([], [*code.options(window, ("remove",)), *flags]) if len(inputs) == 1 else None


def _transpose(window: w.TransposeWindow, inputs: list[str], code: Code) -> tuple[list[str], list[str]] | None:
    if len(inputs) != 1:
        return None
    tags = [f"tags={code.literal(window.tags_included)}"] if window.tags_included else []
    named = [
        f"mode={quoted(window.mode)}",
        f"tag={quoted(window.tag_name)}",
        f"values={code.literal(window.tag_values)}",
        *tags,
    ]
    return [], [*named, *code.options(window, ("group_by", "clear_us"))]


def _procedural(window: w.ProceduralWindow, inputs: list[str], _: Code) -> tuple[list[str], list[str]] | None:
    if not inputs or ":" in window.module:
        return None
    return [quoted(str(window.schema)), quoted(f"{window.module}:{window.handler}"), *inputs[1:]], []


def _custom(window: w.CustomWindow, inputs: list[str], code: Code) -> tuple[list[str], list[str]] | None:
    if not inputs or ":" in window.module:
        return None
    place = quoted(f"{window.module}:{window.class_}")
    tick = [f"tick={quoted(duration_text(window.tick_us))}"] if window.tick_us is not None else []
    named = [f"version={quoted(window.version)}", *tick, *code.options(window, ("properties",))]
    return [quoted(str(window.schema)), place, *inputs[1:]], named


def _pattern(window: w.PatternWindow, inputs: list[str], code: Code) -> tuple[list[str], list[str]] | None:
    if not inputs:
        return None
    patterns = [code.literal(pattern) for pattern in window.patterns]
    also = [f"also=[{', '.join(inputs[1:])}]"] if inputs[1:] else []
    return [quoted(str(window.schema)), *patterns], also


_SHORT: dict[type[w.Window], Short] = {
    w.SourceWindow: _source,
    w.CopyWindow: _copy,
    w.FilterWindow: _filter,
    w.AggregateWindow: _computed,
    w.ComputeWindow: _computed,
    w.JoinWindow: _join,
    w.UnionWindow: _union,
    w.CounterWindow: _counter,
    w.RemoveStateWindow: _remove_state,
    w.TransposeWindow: _transpose,
    w.ProceduralWindow: _procedural,
    w.PatternWindow: _pattern,
    w.CustomWindow: _custom,
}
