"""The binary form of event blocks: one stream record's value is one frame of one or many blocks of a window.

frame = encode_frame(batch)
decode_frame(frame, batch.schema).batch       # the same events in the same blocks
read_head(frame).blocks                       # cheap: nothing but the first bytes is looked at

docs/reference/event-format.md describes it byte by byte.
"""

from __future__ import annotations

from lockstep.engine.events.frame_cutting import cut_frames
from lockstep.engine.events.frame_layout import VERSION, FrameHead, layout_of, read_head
from lockstep.engine.events.frame_many import Frames, decode_frames
from lockstep.engine.events.frame_reading import Frame, decode_frame
from lockstep.engine.events.frame_writing import Places, encode_frame
from lockstep.engine.events.schema import Schema

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
