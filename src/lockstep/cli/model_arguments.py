"""Kinds of argument values that commands of the engine have."""

from __future__ import annotations

import argparse

from lockstep.errors import UsageError

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
