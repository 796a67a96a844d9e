"""Many frames at once: runs of small frames of the same shape are read as one matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google_crc32c import value as crc32c

from lockstep.engine.errors import FrameDamaged
from lockstep.engine.events.columns import Bytes, EventBatch, Int64s, concat
from lockstep.engine.events.frame_layout import (
    CODES,
    COUNTS,
    HEAD,
    LENGTHS_U8,
    MAGIC,
    NUMBERS,
    PLACES,
    RESIDUE,
    SHAPES,
    TRAILER,
    TRANSACTIONAL,
    WHOLE,
    FrameHead,
    Layout,
    layout_of,
    read_head,
)
from lockstep.engine.events.frame_reading import (
    LONGEST,
    check_head,
    check_values,
    decode_frame,
    is_plain,
    offsets_of,
    split_codes,
)
from lockstep.engine.events.frame_writing import PLAIN
from lockstep.engine.events.schema import Schema

_RUN = 8
_SMALL = 128


@dataclass(frozen=True, slots=True)
class Frames:
    """Several frames as one batch, with the numbers of all their blocks."""

    batch: EventBatch
    numbers: Int64s
    transactional: Int64s


def decode_frames(
    datas: Sequence[bytes],
    schema: Schema,
    *,
    columns: frozenset[str] | None = None,
    number_from: int | Int64s | None = None,
    place: str = "",
) -> Frames:
    """The events of frames in order, as one batch.

    `number_from` numbers the blocks of all frames from there on; an array gives the first number of each frame.
    """
    if not datas:
        return Frames(EventBatch.empty(schema), *_no_numbers())
    heads = _heads(datas, place)
    firsts = _firsts(heads, number_from)
    layout = layout_of(schema)
    parts: list[Frames] = []
    for start, stop in _runs(heads, layout):
        if stop - start >= _RUN:
            parts.append(_Matrix(datas[start:stop], layout, place).read(columns, firsts[start:stop]))
            continue
        for at in range(start, stop):
            first = None if number_from is None else int(firsts[at])
            one = decode_frame(datas[at], schema, columns=columns, number_from=first, place=place)
            parts.append(Frames(one.batch, one.numbers, one.transactional))
    return _join(parts)


def _no_numbers() -> tuple[Int64s, Int64s]:
    return np.array([], np.int64), np.array([], np.int64)


def _join(parts: Sequence[Frames]) -> Frames:
    if len(parts) == 1:
        return parts[0]
    return Frames(
        concat([part.batch for part in parts]),
        np.concatenate([part.numbers for part in parts]),
        np.concatenate([part.transactional for part in parts]),
    )


def _heads(datas: Sequence[bytes], place: str) -> npt.NDArray[Any]:
    """The headers of all frames as one table, those that can't be verified by their first bytes refused."""
    for data in datas:
        if len(data) < HEAD.size + TRAILER or data[:3] != _BEGIN:
            read_head(data, place)
    return np.frombuffer(b"".join([data[: HEAD.size] for data in datas]), _HEAD)


_BEGIN = MAGIC + bytes([WHOLE])
_HEAD = np.dtype(
    [
        ("magic", "V2"),
        ("version", "u1"),
        ("flags", "u1"),
        ("span", "<u4"),
        ("schema", "V8"),
        ("blocks", "<u4"),
        ("events", "<u4"),
        ("first", "<i8"),
    ]
)


def _firsts(heads: npt.NDArray[Any], number_from: int | Int64s | None) -> Int64s:
    """The number of the first block of each frame."""
    if number_from is None:
        return heads["first"].astype(np.int64)
    if not isinstance(number_from, int):
        return number_from
    blocks = heads["blocks"].astype(np.int64)
    return number_from + np.cumsum(blocks) - blocks


def _runs(heads: npt.NDArray[Any], layout: Layout) -> list[tuple[int, int]]:
    """Frames that look alike, small and simple, are one run; each of the others is its own."""
    key = np.stack([heads["flags"], heads["blocks"], heads["events"]]).astype(np.int64)
    simple = (heads["flags"] & (SHAPES | PLACES | NUMBERS) == 0) & (heads["events"] <= _SMALL) & (heads["events"] > 0)
    simple &= (heads["version"] == WHOLE) & (not layout.arrays)
    simple &= heads["first"] <= 2**63 - 1 - heads["span"].astype(np.int64)  # others are refused one by one
    same = np.all(key[:, 1:] == key[:, :-1], axis=0) & simple[1:] & simple[:-1]
    cuts = [0, *(np.flatnonzero(~same) + 1).tolist(), len(heads)]
    return list(pairwise(cuts))


class _Matrix:
    """Frames with the same flags, blocks and events: everything up to the texts stands at the same place in each."""

    def __init__(self, datas: Sequence[bytes], layout: Layout, place: str) -> None:
        self.layout, self.place, self.frames = layout, place, len(datas)
        self.head: FrameHead = read_head(datas[0], place)
        check_head(self.head, layout, len(datas[0]), place)
        sizes = np.fromiter(map(len, datas), np.int64, len(datas))
        for data in datas:
            if crc32c(data) != RESIDUE:
                self.fail("its checksum is wrong")
            if data[8:16] != layout.fingerprint:
                check_head(read_head(data, place), layout, len(data), place)
        self.joined: Bytes = np.frombuffer(b"".join(datas), np.uint8)
        self.starts: Int64s = np.cumsum(sizes) - sizes
        self.sizes = sizes
        self.at = 0

    def fail(self, reason: str) -> NoReturn:
        raise FrameDamaged(place=self.place, reason=reason)

    def read(self, columns: frozenset[str] | None, firsts: Int64s) -> Frames:
        head, layout, events = self.head, self.layout, self.head.events
        prefix = self._prefix_size()
        if int(self.sizes.min()) < prefix + TRAILER:
            self.fail("it ends in the middle")
        self.matrix = np.lib.stride_tricks.sliding_window_view(self.joined, prefix)[self.starts]
        self.at = head.size
        fixed = {at: self._take(8 * events) for at in layout.wide}
        numbers = (firsts[:, None] + np.arange(head.blocks)).ravel()
        block = self._block(numbers)
        fixed |= {at: self._take(4 * events) for at in layout.narrow}
        opcode, flags = self._codes()
        transactional = self._transactional(numbers)
        lengths = {at: self._take(events) for at in layout.texts}
        texts = self._texts(lengths, prefix)
        made = [
            self._column(at, fixed, lengths, texts, is_wanted=columns is None or field.name in columns)
            for at, field in enumerate(layout.columns)
        ]
        return Frames(EventBatch(layout.schema, block, opcode, flags, tuple(made)), numbers, transactional)

    def _prefix_size(self) -> int:
        head = self.head
        parts = (4 * head.blocks, head.events, (head.blocks + 7) // 8)
        size = head.size + head.events * sum(column.width for column in self.layout.columns)
        return size + sum(
            part for flag, part in zip((COUNTS, CODES, TRANSACTIONAL), parts, strict=True) if head.flags & flag
        )

    def _take(self, size: int) -> Bytes:
        start, self.at = self.at, self.at + size
        return np.ascontiguousarray(self.matrix[:, start : self.at])

    def _block(self, numbers: Int64s) -> Int64s:
        counts = None
        if self.head.flags & COUNTS:
            counts = self._take(4 * self.head.blocks).view("<u4").astype(np.int64)
        total = np.full(self.frames, self.head.blocks) if counts is None else counts.sum(axis=1)
        if np.any(total != self.head.events):
            self.fail("its blocks do not have as many events as it says")
        return numbers if counts is None else np.repeat(numbers, counts.ravel())

    def _codes(self) -> tuple[Bytes, Bytes]:
        if self.head.flags & CODES:
            return split_codes(self._take(self.head.events).ravel(), self.fail)
        total = self.frames * self.head.events
        return np.full(total, PLAIN & 15, np.uint8), np.full(total, PLAIN >> 4, np.uint8)

    def _transactional(self, numbers: Int64s) -> Int64s:
        if not self.head.flags & TRANSACTIONAL:
            return numbers[:0]
        packed = self._take((self.head.blocks + 7) // 8)
        bits = np.unpackbits(packed, axis=1, count=self.head.blocks, bitorder="little")
        chosen: Int64s = numbers[bits.ravel().astype(bool)]
        return chosen

    def _texts(self, lengths: dict[int, Bytes], prefix: int) -> dict[int, Bytes]:
        """The bytes of each text column, collected from all frames."""
        at, texts = self.starts + prefix, {}
        for place, sizes in lengths.items():
            total = sizes.sum(axis=1, dtype=np.int64)
            begins = np.cumsum(total) - total
            if int((at + total - self.starts - self.sizes).max()) > -TRAILER:
                self.fail("it ends in the middle")
            texts[place] = self.joined[np.repeat(at - begins, total) + np.arange(int(total.sum()))]
            at = at + total
        if np.any(at + TRAILER != self.starts + self.sizes):
            self.fail("it has more bytes than its header says")
        return texts

    def _column(
        self, at: int, fixed: dict[int, Bytes], lengths: dict[int, Bytes], texts: dict[int, Bytes], *, is_wanted: bool
    ) -> pa.Array | None:
        """A column, or None if nobody wants it; it is checked in both cases."""
        is_checked = at not in texts or is_plain(texts[at].tobytes(), lengths[at].size * LONGEST[LENGTHS_U8])
        if is_checked and not is_wanted:
            return None
        made = self._array(at, fixed, lengths, texts)
        if not is_checked:
            check_values(made, self.layout.columns[at].name, self.fail)
        return made if is_wanted else None

    def _array(self, at: int, fixed: dict[int, Bytes], lengths: dict[int, Bytes], texts: dict[int, Bytes]) -> pa.Array:
        kind, total = self.layout.columns[at], self.frames * self.head.events
        if kind.width > 1:
            return pa.Array.from_buffers(kind.arrow, total, [None, pa.py_buffer(fixed[at])])
        offsets = offsets_of(lengths[at].ravel())
        return pa.Array.from_buffers(kind.arrow, total, [None, pa.py_buffer(offsets), pa.py_buffer(texts[at])])
