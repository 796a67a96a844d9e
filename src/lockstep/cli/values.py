"""Values of arguments: how they are read, the options that several commands have, times, spans and sizes."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from lockstep.cli.sizes import parse_size
from lockstep.errors import UsageError

SECOND_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": SECOND_NS,
    "m": 60 * SECOND_NS,
    "h": 3_600 * SECOND_NS,
    "d": 86_400 * SECOND_NS,
    "w": 7 * 86_400 * SECOND_NS,
}
_PART = r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h|d|w)"
_SPAN = re.compile(rf"(?:{_PART})+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_FRACTION = re.compile(r"(\d\d:\d\d:\d\d)\.(\d{1,9})")
_DIGITS_OF_UNIT = ((11, SECOND_NS), (14, 1_000_000), (17, 1_000))  # seconds, milliseconds, microseconds, else nano


def parse_span_ns(text: str) -> int:
    """A span such as 90s, 1h30m or 500ms; a plain number means seconds. ValueError otherwise."""
    if _NUMBER.fullmatch(text):
        text += "s"
    if not _SPAN.fullmatch(text):
        message = f"{text!r} is not a span of time; write for example 30s, 5m, 1h30m or 7d"
        raise ValueError(message)
    return sum(_scaled(number, _UNITS_NS[unit]) for number, unit in re.findall(_PART, text))


def parse_time_ns(text: str, now_ns: int) -> int:
    """A moment: ISO 8601 (UTC unless it names a zone), seconds or finer since 1970, a span ago, or now."""
    if text == "now":
        return now_ns
    number = text.removeprefix("@")
    if _NUMBER.fullmatch(number):
        return _since_1970(number)
    if _SPAN.fullmatch(text):
        return max(now_ns - parse_span_ns(text), 0)
    return _from_iso(text)


def iso(time_ns: int) -> str:
    """A moment in ISO 8601, UTC, to the nanosecond; parse_time_ns takes it back."""
    seconds, rest = divmod(time_ns, SECOND_NS)
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return f"@{time_ns}ns"  # a label that was set elsewhere: shown as it is
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def span(seconds: float) -> str:
    """Format a duration: 850ms, 12s, 3m20s, 2h5m, 4d3h."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    whole = int(seconds)
    for large, small, size, part in (("d", "h", 86_400, 3_600), ("h", "m", 3_600, 60), ("m", "s", 60, 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size}{large}{rest}{small}" if rest else f"{whole // size}{large}"
    return f"{whole}s"


def _since_1970(number: str) -> int:
    whole = number.partition(".")[0]
    unit = next((unit for digits, unit in _DIGITS_OF_UNIT if len(whole) <= digits), 1)
    return _scaled(number, unit)


def _scaled(number: str, unit_ns: int) -> int:
    """Exact for any number of digits, which a float would not be."""
    whole, _, fraction = number.partition(".")
    return int(whole) * unit_ns + (int(fraction) * unit_ns // 10 ** len(fraction) if fraction else 0)


def _from_iso(text: str) -> int:
    fraction = _FRACTION.search(text)
    plain = _FRACTION.sub(r"\1", text)
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        message = f"{text!r} is not a time; write for example 2026-01-31T12:00:00Z, 1767225600, or 5m for 5 minutes ago"
        raise ValueError(message) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - _EPOCH
    nanos = int(fraction[2].ljust(9, "0")) if fraction else 0
    return (since.days * 86_400 + since.seconds) * SECOND_NS + nanos


T = TypeVar("T")
CLUSTER = "local"
PORT_MAX = 65_535


def _kind(parse: Callable[[str], T]) -> Callable[[str], T]:
    """A parser for argparse that passes the reason of a ValueError on."""

    def parsed(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parsed


def _whole(text: str, least: int) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        message = f"{text!r} must be {'a positive integer' if least else '0 or a positive integer'}"
        raise ValueError(message)
    return int(text)


def _above_zero(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        message = f"{text!r} must be a number above 0"
        raise ValueError(message)
    return number


def _duration(text: str) -> float:
    found = parse_span_ns(text) / SECOND_NS
    if found <= 0:
        message = f"{text!r} must be a time above 0, as 500ms or 2s"
        raise ValueError(message)
    return found


def _names(text: str) -> list[str]:
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        message = f"{text!r} is not NAME or NAME,NAME"
        raise ValueError(message)
    return found


def _position(text: str) -> str | int:
    """As Groups.target takes it: earliest, latest, an offset, or time:NANOSECONDS."""
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return f"time:{parse_time_ns(text, time.time_ns())}"
    except ValueError:
        message = f"{text!r} is not earliest, latest, an offset, or a time such as 2026-01-31T12:00Z, 5m or @1767225600"
        raise ValueError(message) from None


def _header(text: str) -> tuple[str, bytes]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        message = f"{text!r} is not NAME=VALUE"
        raise ValueError(message)
    return name, value.encode()


def _port(text: str, least: int) -> int:
    if not (text.isascii() and text.isdigit()) or not least <= int(text) <= PORT_MAX:
        message = f"{text!r} must be a port from {least} to {PORT_MAX}"
        raise ValueError(message)
    return int(text)


def _capacity(text: str) -> int | None:
    return None if text == "none" else _whole(text, 1)


positive = _kind(lambda text: _whole(text, 1))
not_negative = _kind(lambda text: _whole(text, 0))
port = _kind(lambda text: _port(text, 1))
port_or_any = _kind(lambda text: _port(text, 0))
above_zero = _kind(_above_zero)
capacity = _kind(_capacity)
size = _kind(parse_size)
span_s = _kind(lambda text: parse_span_ns(text) / SECOND_NS)
duration = _kind(_duration)
names = _kind(_names)
moment_ns = _kind(lambda text: parse_time_ns(text, time.time_ns()))
position = _kind(_position)
header = _kind(_header)


def _or_none(parse: Callable[[str], T]) -> Callable[[str], T | None]:
    """A kind that also takes none, for no limit."""
    return lambda text: None if text.lower() == "none" else parse(text)


moment_or_begin_ns = _kind(lambda text: None if text == "begin" else parse_time_ns(text, time.time_ns()))
size_or_none, span_or_none = _or_none(size), _or_none(span_s)


def add_destructive(parser: argparse.ArgumentParser) -> None:
    """Options of commands that destroy or change what is there."""
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="show what would happen, and change nothing")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Which cluster on the bus; `--url` is an older name of `--bus`."""
    parser.add_argument("--url", dest="bus", metavar="URL", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    parser.add_argument(
        "--cluster", default=CLUSTER, metavar="NAME", help=f"first part of the streams' names ({CLUSTER})"
    )


EVERYTHING = 1 << 40
"""A cut that no input reaches."""


def window_file(text: str) -> tuple[str, str]:
    """WINDOW=FILE."""
    window, separator, file = text.partition("=")
    if not separator or not window or not file:
        message = f"{text!r} is not WINDOW=FILE"
        raise argparse.ArgumentTypeError(message)
    return window, file


def setting(text: str) -> tuple[str, str]:
    """NAME=VALUE of Spark."""
    name, separator, value = text.partition("=")
    if not separator or not name.startswith("spark."):
        message = f"{text!r} is not a setting such as spark.executor.memory=2g"
        raise argparse.ArgumentTypeError(message)
    return name, value


def cut(text: str) -> int:
    """How many events in a micro-batch, or all."""
    if text == "all":
        return EVERYTHING
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        message = f"{text!r} must be a positive integer, or all"
        raise argparse.ArgumentTypeError(message)
    return min(int(text), EVERYTHING)


def add_spark(parser: argparse._ActionsContainer) -> None:
    """Where Spark runs, and its own settings."""
    parser.add_argument("--master", metavar="MASTER", help="of Spark: local[N], spark://HOST:PORT, yarn (all cores)")
    parser.add_argument("--conf", type=setting, action="append", default=[], metavar="NAME=VALUE",
                        help="a setting of Spark; may be repeated")  # fmt: skip


def check_runner(options: argparse.Namespace) -> None:
    """Refuse settings of Spark where Spark does not run."""
    if options.runner != "spark" and (options.master or options.conf):
        raise UsageError(reason=f"--master and --conf are for Spark: leave them out with --runner {options.runner}.")
