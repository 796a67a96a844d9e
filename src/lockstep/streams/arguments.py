"""Checks of the arguments of public calls: one place that says what a number of records, an offset or a time is.

Each check returns the value as a plain Python object, so that a numpy integer is stored as an integer, and raises
BadArgument (or, with `refuse=bad_setting`, BadConfig) with a sentence that says what is wrong.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any

from lockstep.errors import BadArgument, BadConfig, UsageError

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

Refuse = Callable[[str, object, str], UsageError]


def bad_argument(name: str, value: object, reason: str) -> UsageError:
    """The error for an argument of a call."""
    return BadArgument(name=name, value=value, reason=reason)


def bad_setting(name: str, value: object, reason: str) -> UsageError:
    """The error for a setting."""
    return BadConfig(field=name, value=value, reason=reason)


def integer(name: str, value: object, *, least: int = 0, most: int = INT64_MAX, refuse: Refuse = bad_argument) -> int:
    """An integer of any integer type (not a bool, not a float) within a range."""
    if type(value) is int and least <= value <= most:
        return value
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise refuse(name, value, f"it must be an integer, not {type(value).__name__}") from None
    if isinstance(value, bool):
        raise refuse(name, value, "it must be an integer, not bool")
    if number < least:
        raise refuse(name, value, f"it must be at least {least}")
    if number > most:
        raise refuse(name, value, f"it must be at most {most}")
    return number


def offset(name: str, value: object) -> int:
    """An offset: an integer from 0."""
    return integer(name, value)


def time_ns(name: str, value: object) -> int:
    """A time in nanoseconds since 1970 that fits into 64 bits."""
    return integer(name, value, least=INT64_MIN)


def seconds(
    name: str,
    value: object,
    *,
    above_zero: bool = False,
    finite: bool = False,
    refuse: Refuse = bad_argument,
) -> float:
    """A number of seconds, not negative and never NaN; infinity means no limit unless `finite`."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise refuse(name, value, f"it must be a number of seconds, not {type(value).__name__}")
    number = float(value)
    if math.isnan(number):
        raise refuse(name, value, "it must be a number of seconds, not NaN")
    if number < 0 or (above_zero and number == 0):
        raise refuse(name, value, "it must be above 0" if above_zero else "it must not be negative")
    if finite and math.isinf(number):
        raise refuse(name, value, "it must be finite")
    return number


def text(name: str, value: object, *, refuse: Refuse = bad_argument) -> str:
    """A text."""
    if not isinstance(value, str):
        raise refuse(name, value, f"it must be a str, not {type(value).__name__}")
    return value


def function(name: str, value: Any, *, refuse: Refuse = bad_argument) -> Any:
    """Something that can be called."""
    if not callable(value):
        raise refuse(name, value, f"it must be a function, not {type(value).__name__}")
    return value


def instance(name: str, value: Any, kind: type[Any]) -> Any:
    """An object of a class."""
    if not isinstance(value, kind):
        raise bad_argument(name, value, f"it must be a {kind.__name__}, not {type(value).__name__}")
    return value


def several(name: str, value: Any) -> list[Any]:
    """The items of any iterable, a generator included; a single text, bytes or mapping is refused."""
    if isinstance(value, list):
        return value
    if isinstance(value, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(value, Iterable):
        raise bad_argument(name, value, f"it must be a sequence or another iterable, not {type(value).__name__}")
    return list(value)
