"""Texts of messages: $field stands for a value, $$ for a dollar sign."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lockstep.engine.events.types import Value
from lockstep.engine.expressions.faults import fault, suggestion
from lockstep.engine.windows.function_values import text

MAX_MESSAGE = 100_000

_MARK = re.compile(r"\$(?:\$|([A-Za-z_]\w*))", re.ASCII)


@dataclass(frozen=True, slots=True)
class Message:
    """A text with places for values; what has no value is `unresolved`."""

    written: str
    unresolved: str = ""

    def render(self, values: Mapping[str, Value]) -> str:
        """The text with the values in their places, cut off where it gets too long."""
        return _MARK.sub(lambda found: self._value(found, values), self.written)[:MAX_MESSAGE]

    def _value(self, found: re.Match[str], values: Mapping[str, Value]) -> str:
        if found[1] is None:
            return "$"
        value = values.get(found[1])
        return self.unresolved if value is None and found[1] not in values else text(value)


def compile_message(written: str, names: Collection[str], unresolved: str | None = None) -> Message:
    """A message; raises BadExpression for a name that is not known, unless `unresolved` stands in for it."""
    for found in _MARK.finditer(written):
        if found[1] is not None and found[1] not in names and unresolved is None:
            remedy = suggestion(found[1], names, "Write $$ for a dollar sign.")
            raise fault(written, found.start(), f"there is no field {found[1]!r}", remedy)
    return Message(written, unresolved or "")
