"""Python code for the values of a model."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from lockstep.engine.events.schema import Schema
from lockstep.engine.events.types import FieldType
from lockstep.engine.model.durations import duration_text

WIDTH = 110
_MODULES = {"Schema": "lockstep.engine.events.schema", "FieldType": "lockstep.engine.events.types"}


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
        place = _MODULES.get(name, f"lockstep.engine.model.{module}")
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
