"""Values of the function language, which have no declared types; its times and regular expressions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from lockstep.engine.events.schema import INT_RANGE, MONEY_SCALE, FieldType, Value, fits

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


MAX_GROUP = 9
_MARKS = range(0xF0000, 0x10FFFE)
_SHOWN = 100

Match = tuple[str, ...]
"""The text of a match, and then of its groups."""


class BadRegex(Exception):
    """A text that is not a regular expression."""


@dataclass(frozen=True, slots=True)
class Regex:
    """A regular expression; `groups` can be asked for, at most nine."""

    pattern: str
    groups: int

    @classmethod
    def read(cls, pattern: str) -> Regex:
        """Raises BadRegex."""
        try:
            pc.match_substring_regex(pa.scalar(""), pattern=pattern)
        except (pa.ArrowInvalid, UnicodeEncodeError) as error:
            raise BadRegex(str(error)[:_SHOWN]) from None
        return cls(pattern, next(count for count in range(MAX_GROUP, -1, -1) if _has_group(pattern, count)))

    def is_in(self, text: str) -> bool:
        """Whether it matches somewhere."""
        return bool(pc.match_substring_regex(pa.scalar(text, pa.string()), pattern=self.pattern).as_py())

    def first(self, text: str) -> Match | None:
        """The first match."""
        return next(iter(self._parts(text, 1)[1]), None)

    def all(self, text: str) -> list[Match]:
        """Every match, in the order of the text."""
        return self._parts(text, None)[1]

    def replaced(self, text: str, new: Callable[[Match], str], count: int | None = None) -> str:
        """The text with its matches, or the first ones, replaced."""
        between, matches = self._parts(text, count)
        made = [part + new(match) for part, match in zip(between, matches, strict=False)]
        return "".join(made) + between[-1]

    def _parts(self, text: str, count: int | None) -> tuple[list[str], list[Match]]:
        """What stands between the matches, and the matches."""
        mark = next(letter for code in _MARKS if (letter := chr(code)) not in text)
        marked = mark + mark.join(f"\\{group}" for group in range(self.groups + 1)) + mark
        found = pc.replace_substring_regex(
            pa.scalar(text, pa.string()), pattern=self.pattern, replacement=marked, max_replacements=count
        )
        pieces = found.as_py().split(mark)
        step = self.groups + 2
        places = range(0, len(pieces) - 1, step)
        return pieces[::step], [tuple(pieces[place + 1 : place + step]) for place in places]


def _has_group(pattern: str, group: int) -> bool:
    try:
        pc.replace_substring_regex(pa.scalar(""), pattern=pattern, replacement=f"\\{group}")
    except pa.ArrowInvalid:
        return False
    return True
