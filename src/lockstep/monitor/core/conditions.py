"""Attributes of filters and of `client_attributes`, and time windows of checks and filters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from lockstep.monitor.core.documents import encode_text
from lockstep.monitor.core.expressions import Scope, holds
from lockstep.monitor.core.methods import ExpressionInvalid, ruby_text

EVAL = "eval:"


def difference(
    wanted: Mapping[str, Any], found: Any, event: Mapping[str, Any], moment: datetime, path: str = ""
) -> str | None:
    """Describe the first attribute that does not match; None if all match.

    A wanted value fits if it is the same, the same as text, an object whose members fit, or an expression that holds.
    """
    held = found if isinstance(found, Mapping) else {}
    for name, value in wanted.items():
        told = _differs(value, held.get(name), event, moment, f"{path}{name}")
        if told is not None:
            return told
    return None


def _differs(wanted: Any, found: Any, event: Mapping[str, Any], moment: datetime, path: str) -> str | None:
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return difference(wanted, found, event, moment, f"{path}.")
    if _is_same(wanted, found) or _as_ruby(wanted) == _as_ruby(found):
        return None
    if not (isinstance(wanted, str) and wanted.startswith(EVAL)):
        return f"{path} is {_shown(found)}, not {_shown(wanted)}"
    text = wanted.removeprefix(EVAL).strip()
    try:
        is_so = holds(text, Scope(found, event, moment))
    except ExpressionInvalid as error:
        return f"{path}: {text!r} has no value: {error}"
    return None if is_so else f"{path} is {_shown(found)}, and {text!r} is false"


def _is_same(wanted: Any, found: Any) -> bool:
    return bool(wanted == found and isinstance(wanted, bool) is isinstance(found, bool))


def _as_ruby(value: Any) -> str:
    return encode_text(value) if isinstance(value, list | dict) else ruby_text(value)


def _shown(value: Any) -> str:
    text = encode_text(value)
    return text if len(text) <= 80 else text[:77] + "..."


DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY_S, _HOUR_S = 86_400, 3_600
_TIME = re.compile(
    r"\s*(\d{1,2})(?::(\d{2})(?::(\d{2}(?:\.\d+)?))?)?\s*([AaPp]\.?[Mm]\.?)?\s*([A-Za-z]{1,3}|[+-]\d{1,2}:?\d{2})?\s*"
)
_ZONES = {"Z": 0, "UTC": 0, "GMT": 0, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8,
          "PDT": -7}  # fmt: skip


class WindowTime:
    """A time of day as it is written in a window: "11:30:00 PM", "23:30", "7 AM", "09:00 +0200", "09:00 EST"."""

    __slots__ = ("offset", "seconds")

    def __init__(self, text: object) -> None:
        found = _TIME.fullmatch(text) if isinstance(text, str) else None
        if found is None or not (found[2] or found[4]):
            reason = f"{text!r} is not a time of day"
            raise ValueError(reason)
        hour, minute, second = int(found[1]), int(found[2] or 0), float(found[3] or 0)
        is_past = hour > 24 or (hour == 24 and minute + second > 0) or minute > 59 or second >= 61
        if (found[4] and not 1 <= hour <= 12) or is_past:
            reason = f"{text!r} is not a time of day"
            raise ValueError(reason)
        if found[4]:
            hour = hour % 12 + (12 if found[4][0] in "Pp" else 0)
        self.seconds = hour * _HOUR_S + minute * 60 + second
        """Since midnight."""
        self.offset = None if found[5] is None else _offset(found[5])
        """Of its zone to UTC, in seconds; None is the zone of the machine that looks."""

    def local(self, utc_offset: float, seconds: float | None = None) -> float:
        """The same time, or another one of its day, in seconds since midnight where the offset to UTC is this."""
        own = utc_offset if self.offset is None else self.offset
        return (self.seconds if seconds is None else seconds) - own + utc_offset


def _offset(text: str) -> int:
    if text.upper() in _ZONES:
        return _ZONES[text.upper()] * _HOUR_S
    digits = text[1:].replace(":", "")
    if not digits.isdigit() or int(digits[:-2]) > 23 or int(digits[-2:]) > 59:
        reason = f"{text!r} is not a time zone"
        raise ValueError(reason)
    return (-1 if text[0] == "-" else 1) * (int(digits[:-2]) * _HOUR_S + int(digits[-2:]) * 60)


def is_window(window: Mapping[str, Any]) -> bool:
    """Whether begin and end can be read."""
    try:
        WindowTime(window.get("begin"))
        WindowTime(window.get("end"))
    except ValueError:
        return False
    return True


def is_time_windows(condition: Any) -> bool:
    """Whether all of it can be read: at least one day, and at least one window for each."""
    days = condition.get("days") if isinstance(condition, Mapping) else None
    return (
        isinstance(days, Mapping)
        and len(days) > 0
        and all(day in ("all", *DAYS) for day in days)
        and all(isinstance(windows, list) and windows for windows in days.values())
        and all(isinstance(each, Mapping) and is_window(each) for windows in days.values() for each in windows)
    )


def in_window(window: Mapping[str, Any], moment: datetime) -> bool:
    """Whether a moment, with its local zone, is in a window; one that ends before it begins goes over midnight."""
    if not is_window(window):
        return False
    first, last = WindowTime(window["begin"]), WindowTime(window["end"])
    offset = (moment.utcoffset() or timedelta()).total_seconds()
    now = moment.hour * _HOUR_S + moment.minute * 60 + moment.second + moment.microsecond / 1e6
    begin, end = first.local(offset), last.local(offset)
    if end < begin:
        if now < end:
            begin = first.local(offset, 0)
        else:
            end = last.local(offset, _DAY_S - 1e-6)
    return begin <= now <= end


def in_time_windows(condition: Any, moment: datetime) -> bool:
    """Whether a moment is in a window of `all` days or of its weekday. What can't be read holds no moment."""
    days = condition.get("days") if isinstance(condition, Mapping) else None
    if not isinstance(days, Mapping):
        return False
    lists = [days.get(day) for day in ("all", DAYS[moment.weekday()])]
    windows = [window for each in lists if isinstance(each, list) for window in each]
    return any(isinstance(window, Mapping) and in_window(window, moment) for window in windows)
