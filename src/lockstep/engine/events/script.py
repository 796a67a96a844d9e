"""Scripts: the exact order in which blocks reach a model's sources, and ticks of its clock between them.

# a comment
Trades,I,N,1,IBM,101.5
Trades,I,N,2,IBM,101.6        one block of two events: a blank line, another window or a tick ends it

transactional
Trades,D,N,1                  a block that is taken whole or not at all

tick,5000000                  the clock of the model, in microseconds since 1970
tick,2024-01-02T14:30:00      or as ISO text, in UTC
tick,6000000,lagging          a tick at which input is behind: custom windows can see that
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lockstep.engine.errors import BadEventText
from lockstep.engine.events.csv_reader import REFUSED_WHOLE, TRANSACTION, BadLine, CsvOptions, RowReader, shorten
from lockstep.engine.events.event import Event
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.text import BLANK, UNPARSABLE, BadText
from lockstep.errors import LockstepError

LAGGING = "lagging"
_MICROSECONDS = re.compile("-?[0-9]{1,18}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

SchemaOf = Callable[[str], Schema]
"""The schema of a source window by its name in the script; raises an error for one that is none."""


@dataclass(frozen=True, slots=True)
class ScriptBlock:
    """Events for one window, or a tick, which may be a lagging one; `line` is where it begins."""

    line: int
    window: str = ""
    events: tuple[Event, ...] = ()
    transactional: bool = False
    tick_us: int | None = None
    lagging: bool = False


def read_script(
    lines: Iterable[str | bytes],
    schema_of: SchemaOf,
    on_bad: Callable[[BadLine], None] | None = None,
    *,
    source: str = "script",
    date_format: str | None = None,
) -> Iterator[ScriptBlock]:
    """The blocks of a script in order; a line that is no event goes to `on_bad`, without that it is an error.

    A transactional block with such a line is left out, and its events go to `on_bad` too.
    """
    reader = _Reader(schema_of, on_bad, source, CsvOptions(date_format=date_format))
    for number, line in enumerate(lines, 1):
        yield from reader.take(number, *_decoded(line))
    yield from reader.end()


def _decoded(line: str | bytes) -> tuple[str, str | None]:
    """The text of a line, and what is wrong with it if that is not all of it."""
    if isinstance(line, str):
        return line.rstrip("\r\n"), None
    try:
        return line.decode("utf-8").rstrip("\r\n"), None
    except UnicodeDecodeError as fault:
        return line.decode("utf-8", "replace").rstrip("\r\n"), f"not UTF-8 at byte {fault.start}"


class _Reader:
    def __init__(
        self, schema_of: SchemaOf, on_bad: Callable[[BadLine], None] | None, source: str, options: CsvOptions
    ) -> None:
        self.schema_of, self.on_bad, self.source, self.options = schema_of, on_bad, source, options
        self.rows: dict[str, RowReader] = {}
        self.begin()

    def begin(self) -> None:
        self.line, self.window, self.transactional, self.is_broken = 0, "", False, False
        self.events: list[Event] = []
        self.lines: list[tuple[int, str]] = []

    def end(self) -> Iterator[ScriptBlock]:
        """What was collected is a block; one without a single line is none."""
        if self.transactional and self.is_broken and self.on_bad is not None:
            for number, text in self.lines:
                self.on_bad(BadLine(number, TRANSACTION, REFUSED_WHOLE, shorten(text)))
        elif self.window:
            yield ScriptBlock(self.line, self.window, tuple(self.events), self.transactional)
        self.begin()

    def take(self, number: int, text: str, damage: str | None) -> Iterator[ScriptBlock]:
        word = text.strip(BLANK)
        if word.startswith("#"):
            return
        if not word:
            yield from self.end()
            return
        name, _, rest = word.partition(",")
        try:
            if word.lower() == "transactional":
                yield from self.end()
                self.transactional = True
            elif name.strip(BLANK).lower() == "tick":
                yield from self.end()
                time, comma, more = rest.partition(",")
                if comma and more.strip(BLANK).lower() != LAGGING:
                    raise BadText(UNPARSABLE, f"{more.strip(BLANK)!r} stands after a tick's time; write {LAGGING}")
                yield ScriptBlock(number, tick_us=parse_tick(time), lagging=bool(comma))
            else:
                yield from self._event(number, text, damage)
        except BadText as fault:
            self._bad(number, text, fault)

    def _event(self, number: int, text: str, damage: str | None) -> Iterator[ScriptBlock]:
        name, _, rest = text.partition(",")
        window = name.strip(BLANK)
        if damage is not None and "\ufffd" in name:
            raise BadText(UNPARSABLE, damage)
        rows = self._rows(window, number)
        if self.window and window != self.window:
            yield from self.end()
        self.window, self.line = window, self.line or number
        if damage is not None:
            raise BadText(UNPARSABLE, damage)
        self.events.append(rows.event_of(rows.fields(rest)))
        self.lines.append((number, text))

    def _rows(self, window: str, number: int) -> RowReader:
        if window not in self.rows:
            try:
                self.rows[window] = RowReader(self.schema_of(window), self.options)
            except LockstepError as error:
                error.add_note(f"{self.source}, line {number}, names it.")
                raise
        return self.rows[window]

    def _bad(self, number: int, text: str, fault: BadText) -> None:
        if self.on_bad is None:
            raise BadEventText(source=self.source, line=number, reason=fault.detail) from None
        self.is_broken = True
        self.on_bad(BadLine(number, fault.reason, fault.detail, shorten(text)))


def parse_tick(text: str) -> int:
    """A time of the clock: whole microseconds since 1970, or ISO text, in UTC if it names no zone."""
    text = text.strip(BLANK)
    if _MICROSECONDS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadText(UNPARSABLE, f"{text!r} is not a time") from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return (moment - _EPOCH) // timedelta(microseconds=1)
