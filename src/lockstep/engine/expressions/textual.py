"""Kernels for texts. Places count from 1; a text that would grow beyond MAX_TEXT_RESULT characters is null."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from lockstep.engine.events.types import MONEY_SCALE, FieldType, Value
from lockstep.engine.expressions.code import Code, Kernel, constant, strict
from lockstep.engine.expressions.faults import Misfit
from lockstep.engine.expressions.numeric import fitting, truncated
from lockstep.engine.expressions.timely import as_text
from lockstep.engine.expressions.vectors import Vector

MAX_TEXT_RESULT = 2**20

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_LONGEST_NUMBER = 400
_SHOWN = 80


def bounded(text: str) -> str | None:
    """The text, unless it is too long."""
    return text if len(text) <= MAX_TEXT_RESULT else None


def joined(left: str, right: str) -> str | None:
    """One text behind the other."""
    return left + right if len(left) + len(right) <= MAX_TEXT_RESULT else None


def _money(value: int) -> str:
    whole, rest = divmod(abs(value), MONEY_SCALE)
    return f"{'-' if value < 0 else ''}{whole}.{rest:04d}"


_TEXT: dict[FieldType, Callable[..., Value]] = {
    FieldType.INT32: str,
    FieldType.INT64: str,
    FieldType.DOUBLE: repr,
    FieldType.MONEY: _money,
    FieldType.DATE: as_text(FieldType.DATE),
    FieldType.STAMP: as_text(FieldType.STAMP),
}


def to_text(code: Code, argument: int = 0) -> Code:
    """The value as text; doubles as short as they can be without loss."""
    if code.type is FieldType.STRING:
        return code
    if code.type is None:
        return constant(FieldType.STRING, None)
    if code.type not in _TEXT:
        raise Misfit(
            argument, f"a value of type {code.type.value} has no text", "Use its elements, or a field of another type."
        )
    return strict(Kernel(_TEXT[code.type]), FieldType.STRING, code)


def parsed_double(text: str) -> float | None:
    """The number that a text is."""
    plain = text.strip(" \t\r\n")
    if len(plain) > _LONGEST_NUMBER or not _NUMBER.fullmatch(plain):
        return None
    return float(plain)


def parsed_integer(text: str) -> int | None:
    """The whole number that a text is; of another number the whole part."""
    plain = text.strip(" \t\r\n")
    if _INTEGER.fullmatch(plain):
        return fitting(int(plain))
    number = parsed_double(plain)
    return None if number is None else truncated(number)


def left(text: str, count: int) -> str:
    """The first characters."""
    return text[: max(count, 0)]


def right(text: str, count: int) -> str:
    """The last characters."""
    return text[-count:] if count > 0 else ""


def middle(text: str, start: int, count: int = MAX_TEXT_RESULT) -> str:
    """So many characters from a place on."""
    first = max(start, 1) - 1
    return text[first : first + max(count, 0)]


def place_of(text: str, part: str, start: int = 1) -> int:
    """Where a part begins for the first time, 0 if it is not there."""
    return text.find(part, max(start, 1) - 1) + 1


def replaced(text: str, part: str, by: str) -> str | None:
    """Every occurrence of a part replaced; an empty part occurs nowhere."""
    if not part:
        return text
    length = len(text) + text.count(part) * (len(by) - len(part))
    return text.replace(part, by) if length <= MAX_TEXT_RESULT else None


def order(first: str, second: str) -> int:
    """-1, 0 or 1: which comes first."""
    return (first > second) - (first < second)


def upper(text: str) -> str | None:
    """In capitals."""
    return bounded(text.upper())


def lower(text: str) -> str | None:
    """In small letters."""
    return bounded(text.lower())


LENGTH = Kernel(len, arrow=lambda texts: pc.utf8_length(texts.arrow()))


def matching(pattern: str) -> Kernel:
    """Whether a text matches a regular expression somewhere.

    Arrow's engine (RE2) takes time in proportion to the text whatever the pattern; Python's own may take forever.
    """
    try:
        pc.match_substring_regex(pa.array([""]), pattern=pattern)
    except pa.ArrowInvalid as error:
        raise Misfit(
            1,
            f"{pattern[:_SHOWN]!r} is not a pattern: {str(error)[:_SHOWN]}",
            "Use the syntax of RE2 regular expressions.",
        ) from None

    def one(text: str) -> int:
        return int(pc.match_substring_regex(pa.scalar(text, pa.string()), pattern=pattern).as_py())

    def many(texts: Vector) -> pa.Array:
        return pc.match_substring_regex(texts.arrow(), pattern=pattern).cast(pa.int32())

    return Kernel(one, arrow=many)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Callable[..., Value] | None:
    try:
        return matching(pattern).scalar
    except (Misfit, UnicodeEncodeError):
        return None


def found_first(text: str, pattern: str) -> int:
    """Whether the pattern of a regex object is found in a text; what is no pattern is found nowhere."""
    finds = _compiled(pattern)
    return int(finds is not None and bool(finds(text)))


def wildcards(pattern: str) -> str:
    """The regular expression for a whole text with * for any characters and ? for one."""
    written = {"*": ".*", "?": "."}
    parts = (
        written.get(letter) or (letter if letter.isascii() and letter.isalnum() else f"\\x{{{ord(letter):x}}}")
        for letter in pattern
    )
    return f"(?s)\\A{''.join(parts)}\\z"
