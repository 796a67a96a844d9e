"""What commands print and ask, and how they end: data to stdout, messages to stderr, signals noted."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, BinaryIO, TextIO

from lockstep.errors import UsageError

_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_HOME = b"\x1b[H\x1b[J"
_PROGRESS_S = 0.1
Cell = str | int | None


def check_standard_streams() -> None:
    """Have something stand where standard streams are closed; UsageError if that is standard output.

    A file that is opened later would take the number of a closed one, and be written to as if it were that stream.
    """
    missing = [number for number in range(3) if not _is_open(number)]
    for _ in missing:
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # each takes the lowest number that is free
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - for as long as the process runs
    if 1 in missing:
        raise UsageError(reason="Standard output is closed: send it somewhere, for example to /dev/null.")


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


class Output:
    """Where a command writes to. With `json`, stdout holds JSON only and stderr nothing but an error."""

    def __init__(self, *, json: bool = False, quiet: bool = False, out: BinaryIO | None = None) -> None:
        self.json, self.quiet = json, quiet
        self._out = sys.stdout.buffer if out is None else out
        self._err: TextIO = sys.stderr
        self._bold = use_colour(sys.stdout, os.environ)
        self._on_screen = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

    def raw(self, data: bytes) -> None:
        """Bytes to stdout, as they are."""
        self._out.write(data)

    def line(self, text: str) -> None:
        """A line to stdout."""
        self._out.write(text.encode(errors="replace") + b"\n")

    def json_line(self, item: Any) -> None:
        """One line of JSON to stdout."""
        self.line(json.dumps(item, ensure_ascii=False))

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """A table to stdout."""
        for number, line in enumerate(table(headings, rows)):
            self.line(f"{_BOLD}{line}{_PLAIN}" if self._bold and number == 0 else line)

    def facts(self, facts: Mapping[str, object]) -> None:
        """Names and values to stdout, one below the other."""
        width = max(map(len, facts), default=0)
        for name, value in facts.items():
            self.line(f"{name:<{width}}  {clean(str(value))}".rstrip())

    def heading(self, text: str) -> None:
        """A line that begins a part."""
        self.line("")
        self.line(f"{_BOLD}{text}{_PLAIN}" if self._bold else text)

    def note(self, sentence: str) -> None:
        """Print a message on stderr; programs read stdout."""
        if not self.quiet and not self.json:
            self._err.write(clean(sentence) + "\n")
            self._err.flush()

    def warn(self, sentence: str) -> None:
        """A message to stderr that something is not as it might be expected."""
        self.note(f"Warning: {sentence}")

    def progress(self, what: str, total: int | None = None, *, beside_data: bool = False) -> Progress:
        """Progress on stderr, if a person is looking; beside data, only if that goes to another place."""
        wanted = not self.quiet and not self.json and self._err.isatty()
        if beside_data and sys.stdout.isatty():
            wanted = False
        return Progress(self._err if wanted else None, what, total)

    def clear(self) -> None:
        """Clear the screen if the output is a terminal."""
        if not self.json and self._on_screen:
            self._out.write(_HOME)

    def flush(self) -> None:
        """Hand everything over to the system."""
        self._out.flush()


class Progress:
    """A counter that is drawn over itself now and then."""

    def __init__(self, err: TextIO | None, what: str, total: int | None) -> None:
        self._err, self._what, self._total = err, what, total
        self._drawn_at = 0.0
        self._width = 0
        self.count = 0

    def add(self, count: int) -> None:
        """So many more are done."""
        self.count += count
        if self._err is not None and time.monotonic() - self._drawn_at >= _PROGRESS_S:
            self._draw(progress_line(self._what, self.count, self._total))

    def say(self, text: str) -> None:
        """Show a text instead of a count."""
        if self._err is not None:
            self._draw(text)

    def end(self) -> None:
        """Leave the line as if nothing had been there."""
        if self._err is not None and self._width:
            self._draw("")
            self._err.write("\r")
            self._err.flush()

    def _draw(self, line: str) -> None:
        assert self._err is not None
        self._drawn_at = time.monotonic()
        self._err.write(f"\r{line:<{self._width}}")
        self._err.flush()
        self._width = max(self._width, len(line))


def progress_line(what: str, count: int, total: int | None) -> str:
    """How far it is."""
    if not total:
        return f"{count:,} {what}"
    return f"{count:,} of {total:,} {what} ({min(count * 100 // total, 100)} %)"


def table(headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Lines in columns, two blanks between them; numbers to the right, None as a dash."""
    cells = [["-" if cell is None else clean(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    right = [
        any(isinstance(cell, int) for cell in column) and not any(isinstance(cell, str) for cell in column)
        for column in (zip(*rows, strict=True) if rows else [()] * len(headings))
    ]
    lines = []
    for row in [[heading.upper() for heading in headings], *cells]:
        padded = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def clean(text: str) -> str:
    """Text that can't play tricks on a terminal: what is not printable is shown as an escape."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def plural(count: int, what: str) -> str:
    """1 record, 2 records, 10,000 records."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def use_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether to write colours: to a terminal that has them, unless NO_COLOR says otherwise."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def confirm(options: argparse.Namespace, name: str, action: str) -> None:
    """Return if the user wants it: --yes, or the name typed at a terminal. UsageError if not; nothing has happened."""
    if options.yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        reason = f"This would {action}. Nothing was changed: add --yes to do it, or --dry-run to see what it would do."
        raise UsageError(reason=reason)
    sys.stderr.write(f"This will {action}. Type the name {name} to go on: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != name:
        raise UsageError(reason=f"Nothing was changed: what was typed is not {name!r}.")


CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""Exit codes of commands that were asked to end."""


class Stopping:
    """Notes a request to end; `code` is the exit code for it, 0 before."""

    def __init__(self) -> None:
        self.code = 0
        self._asked = threading.Event()

    @contextmanager
    def listening(self) -> Iterator[Stopping]:
        """Take SIGINT and SIGTERM as requests to end."""
        before = {number: signal.getsignal(number) for number in CODES}
        self.listen()
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def listen(self) -> None:
        """Take the signals, also again: Spark sets handlers of its own when it starts."""
        for number in CODES:
            signal.signal(number, self._noted)

    def wait(self, seconds: float) -> bool:
        """Wait, and return whether an end was asked for."""
        return self._asked.wait(seconds)

    def ask(self, code: int) -> None:
        """Ask for the end."""
        self.code = self.code or code
        self._asked.set()

    def _noted(self, number: int, _frame: FrameType | None) -> None:
        self.ask(CODES[signal.Signals(number)])
