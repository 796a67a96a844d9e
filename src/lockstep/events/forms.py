"""Files of events besides CSV as blocks: JSON, and binary frames with their length before them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from lockstep.engine.errors import FrameDamaged
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.csv_rows import BadLine
from lockstep.engine.events.csv_transactions import REFUSED_WHOLE, TRANSACTION
from lockstep.engine.events.event import Event
from lockstep.engine.events.frames import decode_frame, encode_frame
from lockstep.engine.events.jsonform import format_event, read_json
from lockstep.engine.events.schema import Schema

OnBad = Callable[[BadLine], None]
Read = Callable[[BinaryIO, Schema, OnBad, str | None], Iterator[Event]]
"""Reads the events of a file; takes a schema, who is told of what is no event, and how times are written."""
PREFIX = 4
"""Bytes of a frame's length, little endian."""
FRAME_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class JsonForm:
    """How objects become blocks."""

    block: int = 1
    transactional: bool = False
    date_format: str | None = None


@dataclass(slots=True)
class _Blocks:
    """Events on their way to blocks. In a transactional block one that is broken keeps its place."""

    schema: Schema
    form: JsonForm
    on_bad: OnBad
    number: int = 0
    events: list[Event] = field(default_factory=list)
    broken: int = 0

    def bad(self, line: BadLine) -> None:
        self.on_bad(line)
        self.broken += self.form.transactional

    def is_full(self) -> bool:
        return len(self.events) + self.broken >= self.form.block

    def take(self) -> Iterator[EventBatch]:
        """The block at hand, unless it is empty or refused whole."""
        events, broken, self.events, self.broken = self.events, self.broken, [], 0
        if broken:
            for event in events:
                text = format_event(event, self.schema, self.form.date_format)
                self.on_bad(BadLine(0, TRANSACTION, REFUSED_WHOLE, text))
        elif events:
            self.number += 1
            yield EventBatch.of(self.schema, [(self.number, events)])


def read_json_blocks(file: BinaryIO, schema: Schema, form: JsonForm, on_bad: OnBad) -> Iterator[EventBatch]:
    """The events of JSON objects, each batch one block; what is no event goes to `on_bad`."""
    return event_blocks(read_json, file, schema, form, on_bad)


def event_blocks(read: Read, file: BinaryIO, schema: Schema, form: JsonForm, on_bad: OnBad) -> Iterator[EventBatch]:
    """Events that `read` finds in a file, each batch one block."""
    blocks = _Blocks(schema, form, on_bad)
    for event in read(file, schema, blocks.bad, form.date_format):
        while blocks.is_full():  # of broken ones only: they came before this event
            yield from blocks.take()
        blocks.events.append(event)
        if blocks.is_full():
            yield from blocks.take()
    yield from blocks.take()


def frame_with_length(batch: EventBatch) -> bytes:
    """A block as a frame with its length before it."""
    frame = encode_frame(batch)
    return len(frame).to_bytes(PREFIX, "little") + frame


def read_frames(file: BinaryIO, schema: Schema, place: str) -> Iterator[EventBatch]:
    """The blocks of a file of frames with their lengths, each batch one frame."""
    at = 0
    while prefix := _read(file, PREFIX):
        size = int.from_bytes(prefix, "little")
        where = f"byte {at} of {place}"
        if len(prefix) < PREFIX or not size or size > FRAME_MAX:
            raise FrameDamaged(place=where, reason="there is no length of a frame")
        data = _read(file, size)
        if len(data) < size:
            raise FrameDamaged(place=where, reason=f"it ends after {len(data)} of {size} bytes")
        yield decode_frame(data, schema, place=where).batch
        at += PREFIX + size


def _read(file: BinaryIO, size: int) -> bytes:
    """So many bytes, or less at the end; a source may give them in pieces."""
    data = b""
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


def limited(batches: Iterable[EventBatch], most: int | None) -> Iterator[EventBatch]:
    """The first so many events."""
    left = most
    for batch in batches:
        if left is not None and len(batch) >= left:
            yield batch.slice(0, left)
            return
        yield batch
        left = None if left is None else left - len(batch)


def single_blocks(batch: EventBatch) -> Iterator[EventBatch]:
    """The blocks of a batch one by one."""
    cuts = np.flatnonzero(np.r_[True, batch.block[1:] != batch.block[:-1]]).tolist() if len(batch) else []
    for start, stop in zip(cuts, [*cuts[1:], len(batch)], strict=True) if cuts else ():
        yield batch.slice(start, stop)
