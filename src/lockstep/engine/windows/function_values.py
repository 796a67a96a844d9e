"""Values of the function language: they have no declared types, so each function takes what it is given as it can.

A text that looks like a number is one where a number is needed. What is not 0, null, "", "0" or "false" is true.
"""

from __future__ import annotations

import math
import re

from lockstep.engine.events.types import INT_RANGE, MONEY_SCALE, FieldType, Value, fits

Number = int | float

_WHOLE = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_REAL = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,6})?", re.ASCII)


def number(value: Value) -> Number | None:
    """A value as a number; null if it is none."""
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str):
        return None
    plain = value.strip()
    if _WHOLE.fullmatch(plain):
        return int(plain)
    return float(plain) if _REAL.fullmatch(plain) else None


def whole(value: Value) -> int | None:
    """A value as a whole number, cut towards zero; null if it is none."""
    found = number(value)
    if isinstance(found, float):
        return int(found) if math.isfinite(found) else None
    return found


def text(value: Value) -> str:
    """A value as text; null is empty."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, tuple):
        return "[" + ";".join(text(item) for item in value) + "]"
    return repr(value)


def truth(value: Value) -> bool:
    """Whether a condition with this value holds."""
    if isinstance(value, str):
        return value.strip().lower() not in ("", "0", "false")
    return bool(value)


def order(left: Value, right: Value) -> int | None:
    """-1, 0 or 1: as numbers if both are, else as texts; null if one is null or not comparable."""
    if left is None or right is None:
        return None
    first, second = number(left), number(right)
    if first is not None and second is not None:
        return None if first != first or second != second else (first > second) - (first < second)
    one, other = text(left), text(right)
    return (one > other) - (one < other)


def seen(kind: FieldType, value: Value) -> Value:
    """A field's value as functions see it: money as a number of its unit."""
    return value / MONEY_SCALE if kind is FieldType.MONEY and isinstance(value, int) else value


def made(kind: FieldType, value: Value) -> tuple[Value, str | None]:
    """A function's result in a field; money is a number of its unit."""
    if kind is FieldType.MONEY:
        found = number(value)
        scaled = None if found is None else found * MONEY_SCALE
        if scaled is not None:
            return fit(kind, round(scaled)) if not _is_endless(scaled) else (None, "overflow")
    return fit(kind, value)


def fit(kind: FieldType, value: Value) -> tuple[Value, str | None]:
    """A value in a field of a type: null, and the reason, if it can't stand there."""
    if value is None:
        return None, None
    if kind in INT_RANGE:
        return _fit_whole(kind, value)
    if kind is FieldType.DOUBLE:
        return _fit_double(value)
    if kind is FieldType.STRING:
        return clean(text(value)), None
    if kind is FieldType.BLOB and isinstance(value, str):
        return clean(value).encode(), None
    return (value, None) if fits(kind, value) else (None, "wrong-type")


def _fit_whole(kind: FieldType, value: Value) -> tuple[Value, str | None]:
    found = whole(value)
    if found is None:
        return None, None if value == "" else "wrong-type"
    low, high = INT_RANGE[kind]
    return (found, None) if low <= found <= high else (None, "overflow")


def _fit_double(value: Value) -> tuple[Value, str | None]:
    found = number(value)
    if found is None:
        return None, None if value == "" else "wrong-type"
    try:
        return float(found), None
    except OverflowError:
        return None, "overflow"


def _is_endless(value: Number) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def clean(value: str) -> str:
    """Half characters (surrogates), which JSON can smuggle in, become question marks."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
