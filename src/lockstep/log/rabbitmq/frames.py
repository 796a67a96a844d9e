"""Frames of the stream protocol: rstream's for everything that is rare, by hand for what carries messages."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from rstream import schema
from rstream.encoding import decode_frame, encode_frame

from lockstep.errors import BatchDamaged
from lockstep.log.network.driver import Message

Build = Callable[[int], schema.Frame]
"""Makes a request from its correlation id."""

PUBLISH_OVERHEAD = 64
"""What a frame adds to the one message in it, and some room to spare."""
PUBLISH, CONFIRM, REFUSED, DELIVER, CREDIT, HEARTBEAT = 2, 3, 4, 8, 9, 23
_LENGTH = struct.Struct(">I")
_KEY = struct.Struct(">HH")
_PUBLISH = struct.Struct(">IHHBIQI")
_CREDIT = struct.Struct(">IHHBH")
_REFUSED = struct.Struct(">QH")
_CHUNK = struct.Struct(">HHBbbHIqQQIIII")
_NS_PER_MS = 1_000_000
_IS_BATCH = 0x80000000
_STREAM = "the server's stream"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Messages as the server stored them together; `first` is the number of the first one."""

    subscription: int
    first: int
    count: int
    entries: int
    data: bytes
    time_ns: int | None = None
    """When the server stored it."""

    @property
    def end(self) -> int:
        """The number after the last message."""
        return self.first + self.count

    def messages(self, start: int = 0) -> list[Message]:
        """The messages from a number on; a chunk may begin earlier than what was asked for."""
        found, at = [], _CHUNK.size
        for number in range(self.first, self.first + self.entries):
            begin, at = self._entry(number, at)
            if number >= start:
                found.append(Message(number, self.data[begin:at], self.time_ns))
        return found

    def _entry(self, number: int, at: int) -> tuple[int, int]:
        """Where the message after a position begins and ends."""
        begin = at + _LENGTH.size
        size = int.from_bytes(self.data[at:begin], "big")
        if size & _IS_BATCH:
            raise BatchDamaged(offset=number, stream=_STREAM, reason="another client has written it")
        if begin + size > len(self.data):
            raise BatchDamaged(offset=number, stream=_STREAM, reason="it is cut off")
        return begin, begin + size


def encode(frame: schema.Frame) -> bytes:
    """The bytes of any frame."""
    return encode_frame(frame)


def decode(payload: bytes) -> schema.Frame:
    """Any frame from its bytes after the length; ValueError or KeyError if it is none."""
    return decode_frame(payload)


def key_of(payload: bytes) -> int:
    """Which command a frame is, for requests and answers alike."""
    key, _ = _KEY.unpack_from(payload)
    return int(key) & 0x7FFF


def publish(publisher: int, publishing_id: int, data: bytes) -> bytes:
    """One message on its way."""
    length = _PUBLISH.size - _LENGTH.size + len(data)
    return _PUBLISH.pack(length, PUBLISH, 1, publisher, 1, publishing_id, len(data)) + data


def credit(subscription: int, chunks: int) -> bytes:
    """Leave for the server to send some more chunks."""
    return _CREDIT.pack(_CREDIT.size - _LENGTH.size, CREDIT, 1, subscription, chunks)


def read_chunk(payload: bytes) -> Chunk:
    """What a delivery holds."""
    found = _CHUNK.unpack_from(payload)
    time_ns = found[7] * _NS_PER_MS
    return Chunk(subscription=found[2], first=found[9], count=found[6], entries=found[5], data=payload, time_ns=time_ns)


def read_refusals(payload: bytes) -> tuple[int, list[tuple[int, int]]]:
    """The publisher whose messages were refused, and publishing id and code of each."""
    (number,) = _LENGTH.unpack_from(payload, 5)
    return payload[4], [_REFUSED.unpack_from(payload, 9 + at * _REFUSED.size) for at in range(number)]


def split(buffer: bytearray) -> list[bytes]:
    """Take all whole frames out of a buffer."""
    found, at = [], 0
    while len(buffer) - at >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(buffer, at)
        end = at + _LENGTH.size + length
        if len(buffer) < end:
            break
        found.append(bytes(memoryview(buffer)[at + _LENGTH.size : end]))
        at = end
    if at:
        del buffer[:at]
    return found
