"""Rows of a data frame as events of a source window: frames on its stream, which a batch adds once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.frames import encode_frame
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import SourceWindow
from lockstep.engine.runtime.sequence.streams import FRAME_BYTES, FRAME_LIMIT
from lockstep.engine.spark.rows_columns import Rows
from lockstep.engine.spark.window_columns import EventForm
from lockstep.engine.spark.window_options import WindowWriteOptions, usual_opcode
from lockstep.errors import BadRecord

_FRAME_EVENTS = 4_096


@dataclass(frozen=True, slots=True)
class FrameForm:
    """How rows become records of an input: blocks of `block` events, in frames of a good size."""

    events: EventForm
    block: int

    @classmethod
    def of(cls, frame: StructType, node: Node, options: WindowWriteOptions) -> FrameForm:
        """For the rows of a data frame; BadConfig if the window can't take them."""
        window = node.window
        makes_keys = isinstance(window, SourceWindow) and window.autogen_key
        usual = options.opcode or usual_opcode(node)
        return cls(EventForm.of(frame, node.schema, usual, makes_keys=makes_keys), options.block)

    def __call__(self, batch: pa.RecordBatch, stream: str, now_ns: int) -> Iterator[Rows]:
        """The records of an Arrow batch."""
        events = self.events.events(batch, self.block, stream)
        if not len(events):
            return
        blocks = max(1, self._events_in_frame(events) // self.block)
        cuts = [*range(0, len(events), blocks * self.block), len(events)]
        frames = [
            frame for at in range(len(cuts) - 1) for frame in self._frames(events, cuts[at], cuts[at + 1], stream)
        ]
        yield Rows(frames, [None] * len(frames), [()] * len(frames), [now_ns] * len(frames))

    def _events_in_frame(self, events: EventBatch) -> int:
        size: int = sum(column.nbytes for column in events.columns if column is not None)
        return min(_FRAME_EVENTS, max(1, FRAME_BYTES * len(events) // max(1, size)))

    def _frames(self, events: EventBatch, start: int, stop: int, stream: str) -> Iterator[bytes]:
        """Whole blocks as a frame, or as several if values are that large."""
        piece = events.slice(start, stop)
        blocks = int(piece.block[-1] - piece.block[0]) + 1
        if sum(column.nbytes for column in piece.columns if column is not None) <= FRAME_LIMIT:
            yield encode_frame(piece, first_id=1)
        elif blocks == 1:
            raise BadRecord(stream=stream, reason=f"a block of {stop - start} rows is above {FRAME_LIMIT} bytes")
        else:
            middle = int(np.searchsorted(events.block, piece.block[0] + blocks // 2))
            yield from self._frames(events, start, middle, stream)
            yield from self._frames(events, middle, stop, stream)
