"""Values of Spark's options: texts by name, whatever their case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from lockstep.errors import BadConfig

T = TypeVar("T")

_OF_SPARK = frozenset(("checkpointlocation", "queryname"))
"""What Spark puts among the options of a streaming write by itself."""
_OF_TABLE = "provider"
"""What Spark puts among the options of a table made with USING."""


def known(options: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """The options by name in lower case; BadConfig if there is one that nobody knows."""
    wanted = {name.lower() for name in names}
    given = {name.lower(): text for name, text in options.items() if name.lower() not in _OF_SPARK}
    if _OF_TABLE in given:
        reason = "Spark does not give a table's options to those who read it; use load().createOrReplaceTempView(NAME)"
        raise BadConfig(field=_OF_TABLE, value=given[_OF_TABLE], reason=reason)
    for name, text in given.items():
        if name not in wanted:
            raise BadConfig(field=name, value=text, reason=f"there is no such option; there are {', '.join(names)}")
    return given


def required(given: Mapping[str, str], name: str) -> str:
    """A text that must be there."""
    text = given.get(name.lower(), "").strip()
    if not text:
        raise BadConfig(field=name, value=text, reason="it is needed")
    return text


def parsed(given: Mapping[str, str], name: str, parse: Callable[[str], T], default: Any) -> T:
    """A value, or the default if it is not given; a ValueError of `parse` says what is wrong with it."""
    if name.lower() not in given:
        return default  # type: ignore[no-any-return]
    text = given[name.lower()].strip()
    try:
        return parse(text)
    except ValueError as error:
        raise BadConfig(field=name, value=text, reason=str(error)) from error


def names(text: str) -> tuple[str, ...]:
    """Names with commas between."""
    found = tuple(name.strip() for name in text.split(","))
    if not all(found) or len(set(found)) < len(found):
        message = "write each name once, with commas between"
        raise ValueError(message)
    return found


def flag(text: str) -> bool:
    """True or false."""
    return one_of("true", "false")(text) == "true"


def one_of(*words: str) -> Callable[[str], str]:
    """One of these words, in any case."""

    def parse(text: str) -> str:
        if text.lower() not in words:
            message = f"write {' or '.join(words)}"
            raise ValueError(message)
        return text.lower()

    return parse


def whole(text: str) -> int:
    """A number from 0 on."""
    if not (text.isascii() and text.isdecimal()):
        message = "it must be a whole number"
        raise ValueError(message)
    return int(text)


def positive(text: str) -> int:
    """A number from 1 on."""
    if not (number := whole(text)):
        message = "it must be at least 1"
        raise ValueError(message)
    return number
