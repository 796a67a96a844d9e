"""What a value of the settings has to be, and a definition that gathers what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

NAME = re.compile(r"[\w.-]+", re.ASCII)
AGGREGATE = re.compile(r"[\w.:|-]+", re.ASCII)
SOURCE = re.compile(r"[\w.-]*(?::{3}[\w|.-]+:{3}[\w.-]*|[\w.-]+)", re.ASCII)
SEVERITIES = ("ok", "warning", "critical", "unknown")
Rule = tuple[str, Callable[[Any], bool], str]
"""A member, what holds for its value, and the sentence if it does not."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something in the settings that can't be so: a sentence, and the value it is about by its path."""

    sentence: str
    path: tuple[str, ...]
    value: Any = None
    file: str | None = None

    @property
    def name(self) -> str:
        """The path as text."""
        return ".".join(self.path)


class Definition:
    """An object of the settings that is looked at: where it stands, its members, and the faults found so far."""

    def __init__(self, path: tuple[str, ...], members: Mapping[str, Any], faults: list[Fault]) -> None:
        self.path, self._members, self.faults = path, members, faults

    def get(self, member: str) -> Any:
        """The value of a member, None if it is not there."""
        return self._members.get(member)

    def has(self, member: str) -> bool:
        """Whether a member is there and neither null nor false."""
        return is_set(self.get(member))

    def wrong(self, member: str, sentence: str) -> None:
        """Note a fault of a member, or of one inside it as in `days.monday`; "" is the definition itself."""
        parts = [member] if member in self._members else member.split(".") if member else []
        value: Any = self._members
        for part in parts:
            value = value.get(part) if is_object(value) else None
        self.faults.append(Fault(sentence, (*self.path, *parts), value))

    def look(self, rules: Iterable[Rule]) -> None:
        """Note each rule that does not hold."""
        for member, holds, sentence in rules:
            if not holds(self.get(member)):
                self.wrong(member, sentence)

    def inner(self, member: str) -> Definition | None:
        """The definition in a member, if that is an object."""
        value = self.get(member)
        return Definition((*self.path, member), value, self.faults) if is_object(value) else None


def is_set(value: Any) -> bool:
    """Whether Sensu takes a value as true: anything but null and false."""
    return value is not None and value is not False


def is_object(value: Any) -> bool:
    """Whether it is a JSON object."""
    return isinstance(value, Mapping)


def is_list(value: Any) -> bool:
    """Whether it is a JSON list."""
    return isinstance(value, list)


def is_text(value: Any) -> bool:
    """Whether it is a string."""
    return isinstance(value, str)


def is_whole(value: Any) -> bool:
    """Whether it is an integer; true is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether it is a number; true is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_bool(value: Any) -> bool:
    """Whether it is true or false."""
    return isinstance(value, bool)


def is_positive(value: Any) -> bool:
    """Whether it is an integer above 0."""
    return is_whole(value) and value > 0


def is_name(value: Any) -> bool:
    """Whether it may be a name of a check or a client."""
    return is_text(value) and NAME.fullmatch(value) is not None


def are_texts(value: Any) -> bool:
    """Whether it is a list of strings that are not empty."""
    return is_list(value) and all(is_text(item) and item for item in value)


def if_set(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """The same rule for a member that may be absent."""
    return lambda value: value is None or holds(value)


def if_list(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """The same rule for a member that another rule wants to be a list."""
    return lambda value: not is_list(value) or holds(value)


def handler_names(scope: str) -> tuple[Rule, ...]:
    """The rules of `handler` and `handlers`, which several definitions have."""
    return (
        ("handler", if_set(is_text), f"{scope} handler must be a string"),
        ("handlers", if_set(is_list), f"{scope} handlers must be an array"),
        ("handlers", if_list(are_texts), f"{scope} handlers must each be a string"),
    )
