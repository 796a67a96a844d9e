"""Kinds of argument values, and options that several commands have."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

from lockstep.cli.sizes import parse_size
from lockstep.cli.times import SECOND_NS, parse_span_ns, parse_time_ns

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
