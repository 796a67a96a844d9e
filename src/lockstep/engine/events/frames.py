"""The binary form of event blocks: one frame holds one or many blocks; frames are cut to a limit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.core.outputs import Lineage
from lockstep.engine.events.columns import EventBatch, Int64s
from lockstep.engine.events.frame_layout import HEAD, LINEAGE, PIECE, VERSION, WIDTHS, FrameHead, layout_of, read_head
from lockstep.engine.events.frame_reader import Frame, Frames, decode_frame, decode_frames
from lockstep.engine.events.frame_writer import Places, encode_frame
from lockstep.engine.events.schema import FieldType, Schema
from lockstep.errors import RecordTooLarge

__all__ = [
    "VERSION",
    "Frame",
    "FrameHead",
    "Frames",
    "Places",
    "cut_frames",
    "decode_frame",
    "decode_frames",
    "encode_frame",
    "fingerprint",
    "read_head",
]


def fingerprint(schema: Schema) -> bytes:
    """Eight bytes that tell schemas apart."""
    return layout_of(schema).fingerprint


def cut_frames(
    batch: EventBatch,
    max_bytes: int,
    *,
    first_id: int | None = None,
    previous: int | None = None,
    client: bytes | None = None,
    transactional: Int64s | None = None,
    places: Places | None = None,
    stream: str = "the stream",
    limit: int | None = None,
    part: int = 0,
    before: str = "",
    lineage: Lineage = (),
) -> list[bytes]:
    """The blocks of a batch as frames of up to `max_bytes`, cut where a block ends.

    A block of an out stream that is too large alone goes on in the next frame, which names it as its own previous
    block, and says which piece of it follows; `part` is the number of the first piece if the batch begins within a
    block. Pieces depend on the block and on `max_bytes` only, never on what is around it: cutting it again gives
    the same ones. A client's block can't be cut, and is refused, as is an event that is too large alone; with `limit`
    these may be up to so large. `lineage` has the digests of all blocks of the batch, and `before` that of `previous`.
    """
    frames: list[bytes] = []
    start, bounds, ends = 0, _bounds(batch), _block_ends(batch)
    decided = np.array([block for block, _ in lineage], np.int64)
    while start < len(batch):
        stop = _stop(bounds, ends, start, max_bytes - _overhead(batch), first_id is None)
        piece, more = batch.slice(start, stop), _goes_on(batch, stop)
        cut = None if places is None else (places[0][start:stop], places[1][start:stop])
        traced = _traced(piece, decided, lineage)
        frame = encode_frame(piece, first_id=first_id, previous=previous, client=client, transactional=transactional,
                             places=cut, part=part, more=more, before=before, lineage=traced)  # fmt: skip
        if len(frame) > (limit or max_bytes):
            raise RecordTooLarge(size=len(frame), stream=stream, limit=limit or max_bytes)
        frames.append(frame)
        first_id = None if first_id is None else first_id + len(np.unique(piece.block))
        previous = None if previous is None else int(piece.block[-1])
        start, part, before = stop, part + 1 if more else 0, traced[-1][1] if traced else ""
    return frames


def _traced(piece: EventBatch, decided: Int64s, lineage: Lineage) -> Lineage:
    """The lineage of the blocks of one frame: a pair for each entry that decided one of them."""
    if not lineage:
        return ()
    upto = np.searchsorted(piece.block, decided, "right")
    chosen = np.flatnonzero(np.diff(upto, prepend=0)).tolist()
    return tuple((int(piece.block[upto[at] - 1]), lineage[at][1]) for at in chosen)


def _stop(bounds: Int64s, ends: Int64s, start: int, room: int, may_cut: bool) -> int:
    """How far a frame from `start` on goes: to the last block end in reach, or as far as the events fit."""
    before = int(bounds[start - 1]) if start else 0
    reach = max(int(np.searchsorted(bounds, before + room, "right")), start + 1)
    at = int(np.searchsorted(ends, reach, "right"))
    if at and ends[at - 1] > start:
        return int(ends[at - 1])
    return reach if may_cut else int(ends[at])


def _goes_on(batch: EventBatch, stop: int) -> bool:
    return stop < len(batch) and bool(batch.block[stop] == batch.block[stop - 1])


def _block_ends(batch: EventBatch) -> Int64s:
    return np.append(np.flatnonzero(np.diff(batch.block)) + 1, len(batch)).astype(np.int64)


def _overhead(batch: EventBatch) -> int:
    """More than a frame has beside its events: header, lineage, shapes, ends of offsets and of bitmaps."""
    return HEAD.size + 16 + 8 + PIECE.size + LINEAGE.size + 16 + 4 + 8 + 16 * len(batch.schema)


def _bounds(batch: EventBatch) -> Int64s:
    """At most how many bytes the events up to each one take."""
    each = np.full(len(batch), 1 + 4 + 4 + 1 + 16, np.int64)
    for column, field in zip(batch.columns, batch.schema, strict=True):
        assert column is not None, "a pruned column can't be written"
        each += 1 + _sizes(column, field.type)  # a bit for null in any case: cuts must not depend on other rows
    return np.cumsum(each)


def _sizes(column: pa.Array, kind: FieldType) -> Int64s | int:
    if kind.element is not None:
        lengths = pc.list_value_length(column)
    elif WIDTHS[kind] == 1:
        lengths = pc.binary_length(column)
    else:
        return WIDTHS[kind]
    values: Int64s = lengths.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return 4 + values * (WIDTHS[kind] + (1 if kind.element is not None else 0))
