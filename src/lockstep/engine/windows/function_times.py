"""Times in the function language: seconds since 1970, always in UTC, so that a machine's time zone can't matter."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from lockstep.engine.events.types import Value
from lockstep.engine.windows.function_values import text, whole

DAY = 86_400
DEFAULT_FORMAT = "%Y-%m-%d %H:%M:%S"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WIDTHS = {"Y": 4, "m": 2, "d": 2, "H": 2, "M": 2, "S": 2, "j": 3, "y": 2}
_DIRECTIVE = re.compile(r"%(.)")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_WORDS = {"a": r"[A-Za-z]{3}", "b": r"(?P<b>[A-Za-z]{3})", "e": r" ?(?P<d>[0-9]{1,2})"}
"""What is no number of a fixed width: the names of days and months, and a day with a blank before it."""
_SHORT = {"F": "%Y-%m-%d", "T": "%H:%M:%S", "D": "%m/%d/%y", "c": "%a %b %e %H:%M:%S %Y"}
KNOWN_DIRECTIVES = ", ".join(f"%{letter}" for letter in (*_WIDTHS, *_WORDS, *_SHORT, "%"))

_SAME = {"e": "d", "b": "m"}
"""Directives that say the same as another one."""


def expand_format(form: str) -> str | None:
    """A format with short forms written out; None if it uses what is not known, or something twice."""
    full = _DIRECTIVE.sub(lambda found: _SHORT.get(found[1], found[0]), form)
    used = [letter for letter in _DIRECTIVE.findall(full) if letter != "%"]
    is_once = len({_SAME.get(letter, letter) for letter in used}) == len(used)
    known = is_once and all(letter in _WIDTHS or letter in _WORDS for letter in used)
    return full if known and "%" not in _DIRECTIVE.sub("", full) else None


def time_text(seconds: Value, form: str) -> str | None:
    """A time written by a format; null if it is none, or not in the years 1 to 9999."""
    moment = _moment(seconds)
    if moment is None:
        return None
    day = moment.timetuple().tm_yday
    parts = (moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second, day, moment.year % 100)
    written = {letter: str(part).zfill(_WIDTHS[letter]) for letter, part in zip(_WIDTHS, parts, strict=True)}
    words = {"a": _DAYS[moment.weekday()], "b": _MONTHS[moment.month - 1], "e": f"{moment.day:2d}", "%": "%"}
    return _DIRECTIVE.sub(lambda found: {**written, **words}[found[1]], form)


def time_of(value: Value, form: str) -> int | None:
    """The time that a text means by a format; null if it does not have that form."""
    pattern = "".join(_pattern(piece) for piece in re.split(r"(%.)", form))
    found = re.fullmatch(pattern, text(value).strip()[:200], re.ASCII)
    if found is None:
        return None
    words = found.groupdict()
    name = words.pop("b", "Jan").capitalize()
    if name not in _MONTHS:
        return None
    got = {"m": _MONTHS.index(name) + 1} | {letter: int(digits) for letter, digits in words.items()}
    year = got.get("Y", 1900 + got["y"] + (100 if got["y"] < 69 else 0) if "y" in got else 1970)
    try:
        day = datetime(year, got.get("m", 1), got.get("d", 1), tzinfo=UTC) + timedelta(days=got.get("j", 1) - 1)
        moment = day.replace(hour=got.get("H", 0), minute=got.get("M", 0), second=got.get("S", 0))
    except (ValueError, OverflowError):
        return None
    return (moment - _EPOCH) // timedelta(seconds=1)


def _pattern(piece: str) -> str:
    if piece == "%%":
        return "%"
    if piece[1:] in _WORDS and piece.startswith("%"):
        return _WORDS[piece[1]]
    if piece.startswith("%"):
        return rf"(?P<{piece[1]}>[0-9]{{1,{_WIDTHS[piece[1]]}}})"
    return re.escape(piece)


def time_part(part: str, seconds: Value) -> int | None:
    """Something that a time has: its year, the second of its day, and so on."""
    found = whole(seconds)
    if found is None:
        return None
    inside = found % DAY
    quick = {"second": inside % 60, "minute": inside // 60 % 60, "hour": inside // 3600, "daysecond": inside}
    if part in quick:
        return quick[part]
    if part == "dayminute":
        return inside // 60
    if part == "weekday":
        return (found // DAY + 4) % 7
    moment = _moment(seconds)
    if moment is None:
        return None
    return moment.timetuple().tm_yday if part == "yearday" else int(getattr(moment, part))


def _moment(seconds: Value) -> datetime | None:
    found = whole(seconds)
    try:
        return None if found is None else _EPOCH + timedelta(seconds=found)
    except OverflowError:
        return None
