"""Columns out of frames, one by one or many at once, without a copy where the bytes allow it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    ELEMENT_NULLS,
    HEAD,
    LENGTHS,
    LENGTHS_U8,
    LENGTHS_U16,
    MAGIC,
    NULLS,
    NUMBERS,
    OFFSETS_U32,
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
    verify,
)
from lockstep.engine.events.frame_writer import PLAIN, Places
from lockstep.engine.events.schema import Schema

_VALID = np.array([1 <= code & 15 <= 6 and 1 <= code >> 4 <= 7 for code in range(256)])
LONGEST = {LENGTHS_U8: 2**8 - 1, LENGTHS_U16: 2**16 - 1}
"""The longest value whose length can be written in each form."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that was read: all its blocks, also those without events, and which are transactional."""

    head: FrameHead
    batch: EventBatch
    numbers: Int64s
    transactional: Int64s
    places: Places | None


def decode_frame(
    data: bytes | memoryview,
    schema: Schema,
    *,
    columns: frozenset[str] | None = None,
    number_from: int | None = None,
    place: str = "",
) -> Frame:
    """The events of a frame; columns that are not in `columns` are validated and left out.

    With `number_from` the blocks get the numbers from there on instead of those written, as when a client's messages
    are sequenced. `place` says in errors where the frame was.
    """
    head = read_head(data, place)
    data = bytes(data)
    verify(data, place)
    layout = layout_of(schema)
    check_head(head, layout, len(data), place)
    return _Reader(data, head, layout, place).read(columns, number_from)


def check_head(head: FrameHead, layout: Layout, size: int, place: str) -> None:
    """Refuse a frame of another schema, or one that says it has more than fits into its bytes."""
    if head.fingerprint != layout.fingerprint:
        found, wanted = head.fingerprint.hex(), layout.fingerprint.hex()
        raise FrameDamaged(place=place, reason=f"it is of another schema ({found}) than {layout.schema} ({wanted})")
    least = 4 * head.blocks if head.flags & COUNTS else head.events * len(layout.columns)
    if least > size or (head.blocks != head.events and not head.flags & COUNTS) or head.last >= 2**63:
        raise FrameDamaged(place=place, reason="its blocks do not have as many events as it says")


def split_codes(codes: Bytes, fail: Callable[[str], NoReturn]) -> tuple[Bytes, Bytes]:
    """Opcodes and flags out of the bytes they share."""
    if not bool(_VALID[codes].all()):
        fail("it has an unknown opcode or flag")
    return codes & np.uint8(15), codes >> np.uint8(4)


class _Reader:
    """Walks through the parts of one frame in order."""

    def __init__(self, data: bytes, head: FrameHead, layout: Layout, place: str) -> None:
        self.data, self.head, self.layout, self.place = data, head, layout, place
        self.buffer = pa.py_buffer(data)
        self.at, self.end = head.size, len(data) - TRAILER
        self.shapes = bytes(len(layout.schema))

    def fail(self, reason: str) -> NoReturn:
        raise FrameDamaged(place=self.place, reason=reason)

    def skip(self, size: int) -> int:
        start, self.at = self.at, self.at + size
        if self.at > self.end or size < 0:
            self.fail("it ends in the middle")
        return start

    def array(self, kind: str, count: int) -> npt.NDArray[Any]:
        return np.frombuffer(self.data, kind, count, self.skip(count * int(kind[-1])))

    def piece(self, size: int) -> pa.Buffer:
        return self.buffer.slice(self.skip(size), size)

    def read(self, columns: frozenset[str] | None, number_from: int | None) -> Frame:
        head, layout, events = self.head, self.layout, self.head.events
        if head.flags & SHAPES:
            self.shapes = self.data[self.skip(layout.shape_bytes) :][: len(layout.schema)]
        totals = self.array("<i8", len(layout.arrays)).tolist()
        counts = dict(zip(layout.arrays, totals, strict=True))
        places = (self.array("<i8", events), self.array("<i8", events)) if head.flags & PLACES else None
        fixed = {at: self.piece(8 * counts.get(at, events)) for at in layout.wide}
        numbers, sizes = self._blocks(number_from)
        fixed |= {at: self.piece(4 * counts.get(at, events)) for at in layout.narrow}
        sizes_of = self._lengths(OFFSETS_U32, "<u4", events + 1) | self._lengths(LENGTHS_U16, "<u2", events)
        opcode, flags = self._codes()
        transactional = numbers[self._bits(head.blocks)] if head.flags & TRANSACTIONAL else numbers[:0]
        nulls = {at: self._nulls(shape, counts.get(at, 0)) for at, shape in enumerate(self.shapes) if shape & ~LENGTHS}
        sizes_of |= self._lengths(LENGTHS_U8, "u1", events)
        if len(sizes_of) != len(layout.sized):
            self.fail("a column has an unknown shape")
        fixed |= {at: self.piece(self._total(sizes_of[at])) for at in layout.texts}
        if self.at != self.end:
            self.fail("it has more bytes than its header says")
        made = [
            self._column(
                at, fixed[at], sizes_of.get(at), nulls.get(at, (None, None)), counts.get(at, 0),
                is_wanted=columns is None or field.name in columns,
            )
            for at, field in enumerate(layout.columns)
        ]  # fmt: skip
        block = numbers if sizes is None else np.repeat(numbers, sizes)
        return Frame(head, EventBatch(layout.schema, block, opcode, flags, tuple(made)), numbers, transactional, places)

    def _blocks(self, number_from: int | None) -> tuple[Int64s, Int64s | None]:
        head = self.head
        first = head.first if number_from is None else number_from
        numbers = np.arange(first, first + head.blocks, dtype=np.int64)
        if head.flags & NUMBERS:
            relative = self.array("<u4", head.blocks).astype(np.int64)
            if np.any(np.diff(relative) <= 0) or head.first + int(relative[-1]) != head.last:
                self.fail("its block numbers do not rise")
            numbers = numbers if number_from is not None else relative + head.first
        sizes = self.array("<u4", head.blocks).astype(np.int64) if head.flags & COUNTS else None
        if head.events != (head.blocks if sizes is None else int(sizes.sum())):
            self.fail("its blocks do not have as many events as it says")
        return numbers, sizes

    def _lengths(self, form: int, kind: str, count: int) -> dict[int, npt.NDArray[Any]]:
        """For each column written in this form where its values begin and end, as int32, or else their lengths."""
        found = {}
        for at in self.layout.sized:
            if self.shapes[at] & LENGTHS == form:
                values = self.array(kind, count)
                found[at] = values.view(np.int32) if form == OFFSETS_U32 else values
        return found

    def _total(self, sizes: npt.NDArray[Any]) -> int:
        """The bytes of all values of a column."""
        return int(sizes[-1]) if sizes.dtype == np.int32 else int(sizes.sum(dtype=np.int64))

    def _codes(self) -> tuple[Bytes, Bytes]:
        events = self.head.events
        if self.head.flags & CODES:
            return split_codes(self.array("u1", events), self.fail)
        return np.full(events, PLAIN & 15, np.uint8), np.full(events, PLAIN >> 4, np.uint8)

    def _bits(self, count: int) -> npt.NDArray[np.bool_]:
        packed = self.array("u1", (count + 7) // 8)
        return np.unpackbits(packed, count=count, bitorder="little").astype(bool)

    def _nulls(self, shape: int, elements: int) -> tuple[pa.Buffer | None, pa.Buffer | None]:
        outer = self.piece((self.head.events + 7) // 8) if shape & NULLS else None
        return outer, self.piece((elements + 7) // 8) if shape & ELEMENT_NULLS else None

    def _column(
        self,
        at: int,
        fixed: pa.Buffer,
        sizes: npt.NDArray[Any] | None,
        nulls: tuple[pa.Buffer | None, pa.Buffer | None],
        elements: int,
        *,
        is_wanted: bool,
    ) -> pa.Array | None:
        """A column, or None if it is not needed.

        It is checked in both cases: whether a frame is damaged must not depend on the columns that a reader needs.
        """
        is_checked = self._is_plain(at, fixed)
        if is_checked and not is_wanted:
            return None
        offsets = sizes if sizes is None or sizes.dtype == np.int32 else offsets_of(sizes)
        made = self._array(at, fixed, offsets, nulls, elements)
        if not is_checked:
            check_values(made, self.layout.columns[at].name, self.fail)
        return made if is_wanted else None

    def _array(
        self,
        at: int,
        fixed: pa.Buffer,
        offsets: npt.NDArray[np.int32] | None,
        nulls: tuple[pa.Buffer | None, pa.Buffer | None],
        elements: int,
    ) -> pa.Array:
        kind, events = self.layout.columns[at], self.head.events
        if offsets is None:
            return pa.Array.from_buffers(kind.arrow, events, [nulls[0], fixed])
        if kind.element is None:
            return pa.Array.from_buffers(kind.arrow, events, [nulls[0], pa.py_buffer(offsets), fixed])
        inner = pa.Array.from_buffers(kind.element, elements, [nulls[1], fixed])
        return pa.Array.from_buffers(kind.arrow, events, [nulls[0], pa.py_buffer(offsets)], children=[inner])

    def _is_plain(self, at: int, fixed: pa.Buffer) -> bool:
        """Whether a column needs no look at each of its values."""
        kind, form = self.layout.columns[at], self.shapes[at] & LENGTHS
        if kind.width > 1:
            return kind.element is None
        return form in LONGEST and is_plain(fixed.to_pybytes(), self.head.events * LONGEST[form])


def is_plain(text: bytes, reach: int) -> bool:
    """Whether all values of a text column are valid, however it is cut: it is ASCII, and offsets up to `reach` fit."""
    return reach < 2**31 and text.isascii()


def check_values(column: pa.Array, name: str, fail: Callable[[str], NoReturn]) -> None:
    """Refuse values that overlap, and text that is not UTF-8."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as fault:
        fail(f"field {name}: {fault}")


def offsets_of(lengths: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Where each of the values begins, and the end of the last."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


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
        """A column, or None if it is not needed; it is checked in both cases."""
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
