"""Plain Kafka messages as records: one message for each, readable by everybody.

What only lockstep knows of a record travels in the header `lockstep`: producer 16 bytes, sequence u64, append time and
create time i64 in nanoseconds since 1970, little endian. A message without it was sent by somebody else: its time is
the message's, and it has no producer. A message without a value reads as an empty one.
"""

from __future__ import annotations

import struct
from typing import cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE
from confluent_kafka import Message as KafkaMessage

from lockstep.errors import BadArgument
from lockstep.log.batch import NO_PRODUCER, BatchView, Headers, pack
from lockstep.log.kafka.sender import Outgoing
from lockstep.log.network.driver import Message

HEADER = "lockstep"
_ORIGIN = struct.Struct("<16sQqq")
_NS_PER_MS = 1_000_000


def to_kafka(sealed: bytes, stream: str) -> Outgoing:
    """The message for a sealed batch of one record."""
    view = BatchView(0, sealed, stream)
    if view.count != 1:
        raise BadArgument(name="batches", value=f"{view.count} records", reason="one record makes one message here")
    origin = _ORIGIN.pack(view.producer, view.sequence, view.append_ns, view.created()[0])
    return Outgoing(view.values()[0], view.keys()[0], (*view.headers()[0], (HEADER, origin)))


def from_kafka(message: KafkaMessage) -> Message:
    """A message as a sealed batch of one record."""
    kind, stamp_ms = message.timestamp()
    producer, sequence = NO_PRODUCER, 0
    append_ns = created_ns = 0 if kind == TIMESTAMP_NOT_AVAILABLE else stamp_ms * _NS_PER_MS
    headers: list[tuple[str, bytes]] = []
    for name, value in cast("list[tuple[str, bytes | str | None]]", message.headers() or []):
        data = value.encode() if isinstance(value, str) else value or b""
        if name == HEADER and len(data) == _ORIGIN.size:
            producer, sequence, append_ns, created_ns = _ORIGIN.unpack(data)
        else:
            headers.append((name, data))
    sealed = _sealed(message, producer, sequence, created_ns, append_ns, tuple(headers))
    return Message(message.offset() or 0, sealed, stored_ns(message))


def stored_ns(message: KafkaMessage) -> int | None:
    """When the broker stored a message; None if the topic keeps the time of the client that sent it."""
    kind, stamp_ms = message.timestamp()
    return stamp_ms * _NS_PER_MS if kind == TIMESTAMP_LOG_APPEND_TIME else None


def _sealed(
    message: KafkaMessage, producer: bytes, sequence: int, created_ns: int, append_ns: int, headers: Headers
) -> bytes:
    key = message.key()
    batch = pack(
        [message.value() or b""], producer=producer, sequence=sequence, created_ns=created_ns,
        keys=None if key is None else [key], headers=[headers] if headers else None,
    )  # fmt: skip
    return batch.seal(append_ns)
