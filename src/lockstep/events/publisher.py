"""Publishing to a source window: rows, blocks, CSV, JSON and Arrow tables, always as binary frames on its stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from types import TracebackType
from typing import Any, BinaryIO

import pyarrow as pa

from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.csv_format import CsvOptions, read_csv
from lockstep.engine.events.event import Event
from lockstep.engine.events.schema import Schema
from lockstep.engine.runtime.files import BadLines
from lockstep.engine.runtime.output.event_streams import EventPublisher
from lockstep.errors import BadArgument
from lockstep.events.rows import Item, JsonForm, batch_of, event_of, read_json_blocks
from lockstep.streams.receipt import Receipt

Lines = str | bytes | Iterable[str] | BinaryIO
"""Text, lines, or a file that is open for reading."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What a call sent, and which lines were no events."""

    events: int
    blocks: int
    bad: BadLines = field(default_factory=BadLines)


class WindowPublisher:
    """Publishes to one source window. Not to be shared between threads.

    with project.publisher("Trades", block=64) as publisher:
        publisher.publish({"ID": 1, "symbol": "IBM", "price": 101.5})

    Single events are collected until a block is full, and sent by `flush` or `close` at the latest.
    """

    def __init__(
        self, sender: EventPublisher, schema: Schema, stream: str, *, block: int = 1, transactional: bool = False
    ) -> None:
        if block < 1:
            raise BadArgument(name="block", value=block, reason="a block has one event or more")
        self.schema, self.stream = schema, stream
        self.events = self.blocks = 0
        """Sent so far."""
        self._sender, self._block, self._transactional = sender, block, transactional
        self._collected: list[Event] = []
        self._is_closed = False

    @property
    def next_id(self) -> int:
        """The number that the next block gets from this client."""
        return self._sender.next_id

    def publish(self, *items: Item) -> None:
        """Publish events: mappings by field name, tuples of values, or Events. They are checked here."""
        for event in [event_of(item, self.schema, self.stream) for item in items]:
            self._collected.append(event)
            if len(self._collected) == self._block:
                self._send_collected()

    def publish_block(self, items: Iterable[Item]) -> Receipt:
        """Publish events as one block; the receipt shows when it is stored."""
        events = [event_of(item, self.schema, self.stream) for item in items]
        self._send_collected()
        return self._send(events)

    def publish_batch(self, batch: EventBatch) -> Sent:
        """Publish columns of events; those with the same block number are a block."""
        return self._send_all([batch], BadLines())

    def publish_csv(self, lines: Lines, options: CsvOptions | None = None) -> Sent:
        """Publish CSV lines `opcode,flag,fields...`; lines that are not events are skipped and listed in the result."""
        bad = BadLines()
        wish = replace(options or CsvOptions(), block_size=self._block, transactional=self._transactional)
        return self._send_all(read_csv(_file(lines), self.schema, wish, partial(bad.add, "csv")), bad)

    def publish_json(self, lines: Lines, date_format: str | None = None) -> Sent:
        """Publish JSON objects, one in each line, or an array of them."""
        bad = BadLines()
        form = JsonForm(self._block, self._transactional, date_format)
        return self._send_all(read_json_blocks(_file(lines), self.schema, form, partial(bad.add, "json")), bad)

    def publish_arrow(self, table: pa.Table | pa.RecordBatch) -> Sent:
        """Publish the rows of a table; columns `opcode` and `flags` may say what they do."""
        made = table if isinstance(table, pa.Table) else pa.Table.from_batches([table])
        return self._send_all([batch_of(made, self.schema, self._block, self.stream)], BadLines())

    def flush(self) -> None:
        """Send what is buffered and wait until all of it is on the stream; raises the error that prevented it."""
        self._send_collected()
        self._sender.flush()

    def close(self) -> None:
        """Flush, and close the publisher."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._send_collected()
        finally:
            self._sender.close()

    def __enter__(self) -> WindowPublisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _send_collected(self) -> None:
        if self._collected:
            events, self._collected = self._collected, []
            self._send(events)

    def _send(self, events: Sequence[Event]) -> Receipt:
        receipt = self._sender.publish(events, transactional=self._transactional)
        self.events, self.blocks = self.events + len(events), self.blocks + 1
        return receipt

    def _send_all(self, batches: Iterable[EventBatch], bad: BadLines) -> Sent:
        self._send_collected()
        events, first = 0, self._sender.next_id
        for batch in batches:
            self._sender.publish_batch(batch, transactional=self._transactional)
            events += len(batch)
        blocks = self._sender.next_id - first
        self.events, self.blocks = self.events + events, self.blocks + blocks
        return Sent(events, blocks, bad)


def _file(lines: Lines) -> BinaryIO:
    if isinstance(lines, str):
        return BytesIO(lines.encode())
    if isinstance(lines, bytes):
        return BytesIO(lines)
    if hasattr(lines, "read"):
        file: Any = lines
        return file  # type: ignore[no-any-return]
    return BytesIO("".join(line if line.endswith("\n") else f"{line}\n" for line in lines).encode())
