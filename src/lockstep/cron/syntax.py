"""Reads the text of cron expressions, field by field, and refuses what cron-utils 7.0.2 refuses, in its words.

`read` gives one node for each field: `*`, `?`, a value, a range, a step, or a list of these. Nodes know no time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from lockstep.cron.dialect import DayChoice, Definition, Field

NOT_GIVEN = -1
NTH_MOST, DAYS_BEFORE_LAST_MOST = 5, 30
_INT_MOST = 2**31 - 1
_FIELDS_KEPT = 1 << 15
_SPACES = " \t\n\x0b\f\r"
_CONTROLS = "".join(map(chr, range(33)))
_WHITE = re.compile(f"[{_SPACES}]+")
_NUMBER = re.compile(r"[+-]?[0-9]+")
_PLAIN = re.compile(r"[#?/*0-9]")
_DROPPED = re.compile(rf"[{_SPACES},-]+")
_LAST, _NEAREST = re.compile(r"[0-9]L"), re.compile(r"[0-9]W")
_RANGE_WORDS = ("LW", "L", "W", "HASH", "QUESTION_MARK", "NONE")
_BOTH_DAYS = "Both, a day-of-week AND a day-of-month parameter, are not supported."


class Refused(Exception):
    """An expression that can't be read; `reason` is the sentence of cron-utils, `place` the field it is about."""

    def __init__(self, *, reason: str, place: str = "") -> None:
        super().__init__(reason)
        self.reason, self.place = reason, place


@dataclass(frozen=True, slots=True)
class Always:
    """`*`: every value."""

    def __str__(self) -> str:
        return "*"


@dataclass(frozen=True, slots=True)
class Open:
    """`?`: the other field of days decides."""

    def __str__(self) -> str:
        return "?"


@dataclass(frozen=True, slots=True)
class On:
    """One value; with `special` one of L, W, LW and #, a rule for a day."""

    value: int
    special: str = ""
    nth: int = NOT_GIVEN

    def __str__(self) -> str:
        if self.special == "#":
            return f"{self.value}#{self.nth}"
        if self.special == "L" and self.value == NOT_GIVEN:
            return "L" if self.nth == NOT_GIVEN else f"L-{self.nth}"
        return self.special if self.special == "LW" else f"{self.value}{self.special}"


@dataclass(frozen=True, slots=True)
class Between:
    """A range, both ends included. An end that is a word is never valid, and kept for the sentence that says so."""

    first: int | str
    last: int | str

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class Every:
    """A step: each `period`-th value of a range, or from a value on."""

    base: Always | On | Between
    period: int

    def __str__(self) -> str:
        return "*" if self.base == Always() and self.period == 1 else f"{self.base}/{self.period}"


@dataclass(frozen=True, slots=True)
class Several:
    """A list."""

    items: tuple[Node, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.items))


Node = Always | Open | On | Between | Every | Several


def split(expression: str, definition: Definition) -> list[str]:
    """The texts of the fields, in capitals; Refused if their number is wrong."""
    text = _WHITE.sub(" ", expression).strip(_CONTROLS)
    if not text:
        raise Refused(reason="Empty expression!")
    if "|" in text:
        raise Refused(reason="Currently not supported for CompositeCron")
    parts = text.upper().split(" ")
    if len(parts) not in definition.lengths:
        raise Refused(reason=f"Cron expression contains {len(parts)} parts but we expect one of {definition.lengths}")
    return parts


def read(parts: Sequence[str], definition: Definition) -> tuple[Node, ...]:
    """The nodes of the fields; Refused with the fault that cron-utils finds first."""
    fields = definition.fields[: len(parts)]
    strict = definition.ranges_are_strict
    try:
        nodes = tuple([valid_field(text, field, strict) for text, field in zip(parts, fields, strict=True)])
    except Refused:
        raise _first_fault(parts, fields, strict) from None
    if definition.days is DayChoice.ONE_IS_OPEN and (nodes[3] == Open()) == (nodes[5] == Open()):
        raise Refused(reason=f"Invalid cron expression: {' '.join(map(str, nodes))}. {_BOTH_DAYS}")
    for text, node, field in zip(parts, nodes, fields, strict=True):
        if field.specials and not text.isdigit():
            _check_possible(node, field)
    return nodes


@lru_cache(maxsize=_FIELDS_KEPT)
def valid_field(text: str, field: Field, strict: bool) -> Node:
    """Read and check one field; kept, because few texts stand in very many expressions."""
    node = _field(text, field)
    _check(node, field, strict)
    return node


def _first_fault(parts: Sequence[str], fields: Sequence[Field], strict: bool) -> Refused:
    """Faults in the order of cron-utils: it reads all fields before it checks the first."""
    for is_checked in (False, True):
        for text, field in zip(parts, fields, strict=True):
            try:
                node = _field(text, field)
                if is_checked:
                    _check(node, field, strict)
            except Refused as fault:
                return Refused(reason=fault.reason, place=_place(field, text))
    message = "a fault that is found must be found again"
    raise AssertionError(message)


# --- reading -----------------------------------------------------------------------------------------------------


def _field(text: str, field: Field) -> Node:
    if not any(sign in text for sign in "/-,"):
        if "?" in text and "?" not in field.specials:
            raise Refused(reason=f"Invalid expression: {text}")
        return _single(text, field)
    items = _parts(text, ",")
    if len(items) > 1:
        return Several(tuple(_field(item, field) for item in items))
    ends = _parts(text, "-")
    if not ends:
        raise Refused(reason=f"Invalid expression: {text}")
    if ends[0] == "L":
        return On(NOT_GIVEN, "L", _number(_second(ends, text), field))
    return _between(ends, text, field) if len(ends) > 1 else _step(text, field)


def _parts(text: str, sign: str) -> list[str]:
    """The parts between the signs, without empty ones at the end, as Java splits."""
    found = text.split(sign)
    while len(found) > 1 and not found[-1]:
        found.pop()
    return [] if found == [""] and text else found


def _second(parts: Sequence[str], text: str) -> str:
    if len(parts) < 2:
        raise Refused(reason=f"Invalid expression: {text}")
    return parts[1]


def _single(text: str, field: Field) -> Node:
    if text == "*":
        return Always()
    return Open() if text == "?" else _on(text, field)


def _on(text: str, field: Field) -> On:
    if "#" in text:
        return _nth(text, field)
    if "LW" in text:
        if rest := text.replace("LW", ""):
            raise Refused(reason=f"Expected: LW, found: {rest}")
        return On(NOT_GIVEN, "LW")
    if text == "L":
        return On(NOT_GIVEN, "L")
    if _LAST.search(text):
        return On(_number(text.replace("L", ""), field), "L")
    if _NEAREST.search(text):
        return On(_number(text.replace("W", ""), field), "W")
    return On(_number(text, field))


def _nth(text: str, field: Field) -> On:
    if "#" not in field.specials:
        raise Refused(reason=f"Invalid expression: {text}")
    parts = _parts(text, "#")
    nth = _number(_second(parts, text), field)
    if not parts[0]:
        raise Refused(reason="Time should be specified!")
    return On(_number(parts[0], field), "#", nth)


def _between(ends: Sequence[str], text: str, field: Field) -> Between | Every:
    """A range, with a step if one follows. What stands after a second dash is ignored, as in cron-utils."""
    first, last = ends[0], ends[1]
    if not first or not last:
        raise Refused(
            reason=f"Invalid expression! Expression: {first}-{last} does not describe a range. "
            "Negative numbers are not allowed."
        )
    if "/" not in last:
        return Between(_end(first, field), _end(last, field))
    start = _end(first, field)
    parts = _parts(last, "/")
    if not parts:
        raise Refused(reason=f"Invalid expression: {text}")
    return Every(Between(start, _end(parts[0], field)), _number(_second(parts, text), field))


def _step(text: str, field: Field) -> Node:
    parts = _parts(text, "/")
    if len(parts) == 1:
        raise Refused(reason=f"Missing steps for expression: {text}")
    if len(parts) != 2:
        raise Refused(reason=f"Invalid expression: {text}")
    start, period = parts
    trimmed = start.strip(_CONTROLS)
    if trimmed == "*" and period == "1":
        return _single(start, field)
    if trimmed in ("", "*"):
        return Every(Always(), _step_number(period))
    return Every(On(_step_number(start)), _step_number(period))


def _end(text: str, field: Field) -> int | str:
    return text if text in _RANGE_WORDS else _named(text, field)


def _number(text: str, field: Field) -> int:
    value = _named(text, field)
    return field.aliases.get(value, value)


def _named(text: str, field: Field) -> int:
    value = field.names.get(text, _integer(text))
    if value is None:
        raise Refused(reason=f"Invalid chars in expression! Expression: {text} Invalid chars: {_foreign(text, field)}")
    return value


def _step_number(text: str) -> int:
    value = _integer(text)
    if value is None:
        raise Refused(reason=f'For input string: "{text}"')
    return value


def _integer(text: str) -> int | None:
    """A number that fits into 32 bits; longer ones are words to cron-utils."""
    if not _NUMBER.fullmatch(text) or len(text) > 400:
        return None
    value = int(text)
    return value if -_INT_MOST - 1 <= value <= _INT_MOST else None


# --- checking ----------------------------------------------------------------------------------------------------


def _check(node: Node, field: Field, strict: bool) -> None:
    if foreign := _foreign(str(node), field):
        raise Refused(reason=f"Invalid chars in expression! Expression: {node} Invalid chars: {foreign}")
    match node:
        case Several(items):
            for item in items:
                _check(item, field, strict)
        case Every(base, period):
            _check_base(base, field, strict)
            if not 0 < period <= field.longest_step:
                raise Refused(reason=f"Period {period} not in range (0, {field.longest_step}]")
        case On() | Between():
            _check_base(node, field, strict)
        case _:
            pass


def _check_base(node: Always | On | Between, field: Field, strict: bool) -> None:
    match node:
        case Between(first, last):
            _check_range(first, last, field, strict)
        case On(value, _, nth):
            for number in (value, nth):
                if number != NOT_GIVEN:
                    _check_value(number, field.low, field.high)
        case _:
            pass


def _check_range(first: int | str, last: int | str, field: Field, strict: bool) -> None:
    ends = (first, last)
    for number in _numbers(ends):
        _check_value(number, field.low, field.high)
    if any(isinstance(end, str) and end != "L" for end in ends):
        raise Refused(reason="No special characters allowed in range, except for 'L'")
    if strict and isinstance(first, int) and isinstance(last, int) and first > last:
        raise Refused(reason=f"Invalid range! [{first},{last}]")


def _numbers(ends: Sequence[int | str]) -> Iterator[int]:
    return (end for end in ends if isinstance(end, int))


def _check_possible(node: Node, field: Field) -> None:
    """Refuse what cron-utils accepts, and then hangs or fails when it is asked for a time."""
    match node:
        case Several(items):
            for item in items:
                _check_possible(item, field)
        case Every(Between() as base, _):
            _check_possible(base, field)
        case Between(first, last) if isinstance(first, str) or isinstance(last, str):
            raise Refused(
                reason="Non integer values at intervals are not fully supported yet.", place=_place(field, str(node))
            )
        case On(_, "#", nth) if nth > NTH_MOST:
            raise Refused(reason=f"Value {nth} not in range [1, {NTH_MOST}]", place=_place(field, str(node)))
        case On(_, "L", nth) if nth > DAYS_BEFORE_LAST_MOST:
            raise Refused(
                reason=f"Value {nth} not in range [1, {DAYS_BEFORE_LAST_MOST}]", place=_place(field, str(node))
            )
        case _:
            pass


def _place(field: Field, text: str) -> str:
    return f" ({field.name} {text!r})"


def _check_value(value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise Refused(reason=f"Value {value} not in range [{low}, {high}]")


def _foreign(text: str, field: Field) -> str:
    """The characters of a text that this field has no use for."""
    names, specials = _words(field)
    left = specials.sub("", names.sub("", _PLAIN.sub("", text.upper())))
    return _DROPPED.sub("", left)


@lru_cache(maxsize=64)
def _words(field: Field) -> tuple[re.Pattern[str], re.Pattern[str]]:
    specials = [word for word in ("L", "LW", "W") if word in field.specials]
    return re.compile(rf"\b({'|'.join(field.names)})\b"), re.compile(rf"\b({'|'.join(specials)})\b")
