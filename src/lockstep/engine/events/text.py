"""Values as text, by the type of their field.

int32, int64      12, -3                        date     seconds since 1970, or as the date format says
double            0.1, 1e+20, inf, -inf, nan    stamp    microseconds since 1970, or as the date format says
money             12.5, up to 4 decimals        blob     base64
string            as it is                      arrays   [1;2;3], an empty place is null

A date format is that of strptime, with %k, %e, %l, %D, %F, %R and %T as in C. Whether or not it has `.%f` after %S, a
fraction of a second in the text is read.

Doubles are written with the fewest digits that read back as the same double.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial

from lockstep.engine.events.event import FLAGS, OPCODES, Flag, Opcode
from lockstep.engine.events.schema import INT_RANGE, MONEY_SCALE, FieldType, Value
from lockstep.errors import BadArgument

UNPARSABLE, OVERFLOW, WRONG_TYPE, BAD_OPCODE = "unparsable", "overflow", "wrong-type", "bad-opcode"
BLANK = " \t"
"""What may stand around a number."""

Parse = Callable[[str], Value]
Format = Callable[[Value], str]

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?")
_DOUBLE = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DIRECTIVE = re.compile("%(.?)", re.DOTALL)
_OF_C = {"k": "%H", "l": "%I", "e": "%d", "D": "%m/%d/%y", "F": "%Y-%m-%d", "R": "%H:%M", "T": "%H:%M:%S"}
"""Directives of C's strptime that Python lacks. Blanks in place of leading zeros are read by Python's own."""
_BEYOND_MICROSECONDS = re.compile(r"(\.[0-9]{6})[0-9]+")
_BEHIND_SECONDS = re.compile(r"([0-9]{1,2}:[0-9]{2}:[0-9]{2}):[0-9]+(\.[0-9]+)?\Z")
"""Whole numbers after the seconds, as in 12:08:10:00, mean nothing to strptime in C, and so to ESP."""
_DIGITS = 400
"""More digits than any number needs: longer ones are refused before time is spent on them."""


class BadText(ValueError):
    """Text that is no value of its type; `reason` is the word it is counted under."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def parser(kind: FieldType, date_format: str | None = None) -> Parse:
    """How the text of a field of this type is read; it raises BadText."""
    if kind in (FieldType.DATE, FieldType.STAMP) and date_format is not None:
        return partial(_parse_time, kind, date_format, time_formats(date_format))
    if kind.element is not None:
        return partial(_parse_array, parser(kind.element))
    if kind in _PARSERS:
        return _PARSERS[kind]
    return partial(_parse_integer, kind)


def formatter(kind: FieldType, date_format: str | None = None) -> Format:
    """How a value of this type, not null, is written."""
    if kind in (FieldType.DATE, FieldType.STAMP) and date_format is not None:
        return partial(_format_time, kind, date_format)
    if kind.element is not None:
        return partial(_format_array, formatter(kind.element))
    return _FORMATS.get(kind, str)


def parse_opcode(text: str) -> Opcode:
    """An opcode by its letter or its name, upper or lower case; an empty one is an insert."""
    found = _OPCODES.get(text.strip(BLANK).upper())
    if found is None:
        raise BadText(BAD_OPCODE, f"{text!r} is not an opcode")
    return found


def parse_flags(text: str) -> Flag:
    """Flags by their letters in any order, upper or lower case."""
    found = FLAGS.get("".join(sorted(text.strip(BLANK).upper())))
    if found is None:
        raise BadText(UNPARSABLE, f"{text!r} is not a flag")
    return found


_OPCODES = OPCODES | {opcode.name: opcode for opcode in Opcode}
_OPCODES |= {"UPDATEBLOCK": Opcode.UPDATE_BLOCK, "SD": Opcode.SAFEDELETE, "": Opcode.INSERT}


def check_range(kind: FieldType, value: int) -> int:
    """The value, if a field of this type can hold it."""
    low, high = INT_RANGE[kind]
    if not low <= value <= high:
        raise BadText(OVERFLOW, f"{value} does not fit {kind.value}")
    return value


def _parse_integer(kind: FieldType, text: str) -> int:
    text = text.strip(BLANK)
    if not _INTEGER.fullmatch(text):
        raise BadText(UNPARSABLE, f"{text!r} is not of type {kind.value}")
    if len(text.lstrip("+-").lstrip("0")) > _DIGITS:
        raise BadText(OVERFLOW, f"{text[:20]}... does not fit {kind.value}")
    return check_range(kind, int(text.lstrip("+")))


def parse_double(text: str) -> float:
    """A double; one that is too large for a double is an overflow, not infinite."""
    text = text.strip(BLANK)
    if not _DOUBLE.fullmatch(text):
        raise BadText(UNPARSABLE, f"{text!r} is not of type double")
    value = float(text)
    if value in (float("inf"), float("-inf")) and text.lstrip("+-")[0] not in "iI":
        raise BadText(OVERFLOW, f"{text!r} does not fit double")
    return value


def parse_money(text: str) -> int:
    """An amount in ten-thousandths."""
    text = text.strip(BLANK)
    found = _DECIMAL.fullmatch(text)
    sign, whole, decimals = found.groups() if found else ("", "", "")
    decimals = (decimals or "").rstrip("0")
    if found is None or not re.search("[0-9]", text):
        raise BadText(UNPARSABLE, f"{text!r} is not of type money")
    if len(decimals) > 4 or len(whole.lstrip("0")) > 20:
        raise BadText(OVERFLOW, f"{text[:40]!r} does not fit money, which has 4 decimals")
    value = int(whole or "0") * MONEY_SCALE + int(decimals.ljust(4, "0"))
    return check_range(FieldType.MONEY, -value if sign == "-" else value)


def parse_blob(text: str) -> bytes:
    """Bytes out of base64."""
    try:
        return base64.b64decode(text.strip(BLANK), validate=True)
    except (binascii.Error, ValueError):
        raise BadText(UNPARSABLE, f"{text[:40]!r} is not base64") from None


def _parse_array(element: Parse, text: str) -> tuple[int | float | None, ...]:
    text = text.strip(BLANK)
    if not (text.startswith("[") and text.endswith("]") and len(text) > 1):
        raise BadText(UNPARSABLE, f"{text[:40]!r} is not an array like [1;2;3]")
    inner = text[1:-1]
    if not inner:
        return ()
    return tuple(_element(element, item) for item in inner.removesuffix(";").split(";"))


def _element(element: Parse, item: str) -> int | float | None:
    value = element(item) if item.strip(BLANK) else None
    assert value is None or isinstance(value, int | float)
    return value


@lru_cache(maxsize=64)
def time_formats(date_format: str) -> tuple[str, str]:
    """The format as Python has it, and the same with a fraction of a second, or without one if it has it.

    BadArgument if it is no format.
    """
    own = _DIRECTIVE.sub(lambda found: _OF_C.get(found[1], found[0]), date_format)
    with_fraction = "%f" in own
    other = re.sub(r"[.,]?%f", "", own) if with_fraction else own.replace("%S", "%S.%f")
    try:
        datetime.strptime("", own)  # noqa: DTZ007 - only to see whether it is a format
    except ValueError as error:
        if "does not match" not in str(error):
            reason = f"{error}; write it as for strptime, for example %Y-%m-%d %H:%M:%S"
            raise BadArgument(name="date format", value=date_format, reason=reason) from None
    return own, other


def _parse_time(kind: FieldType, date_format: str, formats: tuple[str, str], text: str) -> int:
    micros = _micros(formats, text.strip(BLANK))
    if micros is None:
        raise BadText(UNPARSABLE, f"{text[:40]!r} is not a time like {date_format!r}")
    return micros // 1_000_000 if kind is FieldType.DATE else micros


def _micros(formats: tuple[str, str], text: str) -> int | None:
    """Microseconds since 1970 of a time in one of the formats, UTC unless it names a zone; digits beyond are cut."""
    for form, time in _readings(formats, text):
        try:
            moment = datetime.strptime(time, form)  # noqa: DTZ007 - without a zone it is UTC
        except ValueError:
            continue
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        return (moment - _EPOCH) // _MICROSECOND
    return None


def _readings(formats: tuple[str, str], text: str) -> Iterator[tuple[str, str]]:
    """What a time may be read as, the usual form first: most are read by it, and the others cost time."""
    plain, fraction = formats
    yield plain, text
    yield fraction, _BEYOND_MICROSECONDS.sub(r"\1", text)
    cut = _BEHIND_SECONDS.sub(r"\1\2", text)
    if cut != text:
        yield plain, cut
        yield fraction, _BEYOND_MICROSECONDS.sub(r"\1", cut)


def _format_time(kind: FieldType, date_format: str, value: Value) -> str:
    assert isinstance(value, int)
    micros = value * 1_000_000 if kind is FieldType.DATE else value
    try:
        return (_EPOCH + micros * _MICROSECOND).strftime(date_format)
    except OverflowError:
        return str(value)


def format_money(value: Value) -> str:
    """An amount with as many decimals as it needs."""
    assert isinstance(value, int)
    whole, rest = divmod(abs(value), MONEY_SCALE)
    text = f"{whole}.{rest:04d}".rstrip("0").rstrip(".") if rest else str(whole)
    return f"-{text}" if value < 0 else text


def format_blob(value: Value) -> str:
    """Bytes as base64."""
    assert isinstance(value, bytes)
    return base64.b64encode(value).decode("ascii")


def _format_array(element: Format, value: Value) -> str:
    assert isinstance(value, tuple)
    inner = ";".join("" if item is None else element(item) for item in value)
    # A last null would be lost, and one null alone would look like no element: both get a closing mark.
    return f"[{inner};]" if value and value[-1] is None else f"[{inner}]"


_PARSERS: dict[FieldType, Parse] = {
    FieldType.DOUBLE: parse_double,
    FieldType.STRING: str,
    FieldType.MONEY: parse_money,
    FieldType.BLOB: parse_blob,
}
_FORMATS: dict[FieldType, Format] = {
    FieldType.DOUBLE: repr,
    FieldType.MONEY: format_money,
    FieldType.BLOB: format_blob,
}
