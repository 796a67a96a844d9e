"""Scripts: the exact order in which blocks reach a model's sources, and ticks of its clock between them.

# a comment
Trades,I,N,1,IBM,101.5
Trades,I,N,2,IBM,101.6        one block of two events: a blank line, another window or a tick ends it

transactional
Trades,D,N,1                  a block that is taken whole or not at all

tick,5000000                  the clock of the model, in microseconds since 1970
tick,2024-01-02T14:30:00      or as ISO text, in UTC
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lockstep.engine.errors import BadEventText
from lockstep.engine.events.csv_options import CsvOptions
from lockstep.engine.events.csv_rows import BadLine, RowReader, shorten
from lockstep.engine.events.event import Event
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.text import BLANK, UNPARSABLE, BadText

_MICROSECONDS = re.compile("-?[0-9]{1,18}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

SchemaOf = Callable[[str], Schema]
"""The schema of a source window by its name in the script; raises an error for one that is none."""


@dataclass(frozen=True, slots=True)
class ScriptBlock:
    """Events for one window, or a tick; `line` is where it begins."""

    line: int
    window: str = ""
    events: tuple[Event, ...] = ()
    transactional: bool = False
    tick_us: int | None = None


def read_script(
    lines: Iterable[str],
    schema_of: SchemaOf,
    on_bad: Callable[[BadLine], None] | None = None,
    *,
    source: str = "script",
    date_format: str | None = None,
) -> Iterator[ScriptBlock]:
    """The blocks of a script in order; a line that is no event goes to `on_bad`, without that it is an error."""
    reader = _Reader(schema_of, on_bad, source, CsvOptions(date_format=date_format))
    for number, line in enumerate(lines, 1):
        yield from reader.take(number, line.rstrip("\r\n"))
    yield from reader.end()


class _Reader:
    def __init__(
        self, schema_of: SchemaOf, on_bad: Callable[[BadLine], None] | None, source: str, options: CsvOptions
    ) -> None:
        self.schema_of, self.on_bad, self.source, self.options = schema_of, on_bad, source, options
        self.rows: dict[str, RowReader] = {}
        self.begin()

    def begin(self) -> None:
        self.line, self.window, self.transactional = 0, "", False
        self.events: list[Event] = []

    def end(self) -> Iterator[ScriptBlock]:
        """What was collected is a block; one without a single line is none."""
        if self.window:
            yield ScriptBlock(self.line, self.window, tuple(self.events), self.transactional)
        self.begin()

    def take(self, number: int, text: str) -> Iterator[ScriptBlock]:
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
                yield ScriptBlock(number, tick_us=parse_tick(rest))
            else:
                yield from self._event(number, text)
        except BadText as fault:
            self._bad(number, text, fault)

    def _event(self, number: int, text: str) -> Iterator[ScriptBlock]:
        name, _, rest = text.partition(",")
        window = name.strip(BLANK)
        rows = self.rows.get(window) or RowReader(self.schema_of(window), self.options)
        self.rows[window] = rows
        if self.window and window != self.window:
            yield from self.end()
        self.window, self.line = window, self.line or number
        self.events.append(rows.event_of(rows.fields(rest)))

    def _bad(self, number: int, text: str, fault: BadText) -> None:
        if self.on_bad is None:
            raise BadEventText(source=self.source, line=number, reason=fault.detail) from None
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
