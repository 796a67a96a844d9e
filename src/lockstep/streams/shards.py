"""Streams with shards: several logs under one name, chosen by key; and what a record in them may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lockstep.errors import BadArgument, BadName, BadRecord, RecordTooLarge
from lockstep.log.batch import Headers
from lockstep.log.config import PARTITIONERS, check_name
from lockstep.log.port import Bus, Log

HeaderPairs = Iterable[tuple[str, bytes]] | Mapping[str, bytes]
SEPARATOR = "/"
"""Shard 3 of orders is called orders/3. No stream can be called so itself."""
_HEADER_BYTES = 6


def shard_of(key: bytes, shards: int, partitioner: str = "crc32") -> int:
    """The shard a key belongs to, by the partitioner of the stream: the same in every process and version."""
    return PARTITIONERS[partitioner](key, shards)


def shard_name(stream: str, shard: int) -> str:
    """The name of a shard's log."""
    return f"{stream}{SEPARATOR}{shard}"


def stream_name(log: str) -> str:
    """The stream that a log belongs to: itself, or the one it is a shard of."""
    return log.split(SEPARATOR)[0]


def split_log(log: str) -> tuple[str, int | None]:
    """The stream that a log carries, and which of its shards."""
    if SEPARATOR not in log:
        return log, None
    return stream_name(log), int(log.partition(SEPARATOR)[2])


def check_stream(name: str) -> str:
    """The name itself, if it can be a stream's or a shard's."""
    stream, separator, shard = name.partition(SEPARATOR) if isinstance(name, str) else (name, "", "")
    if separator and not shard.isdecimal():
        raise BadName(what="Stream", name=name)
    check_name("Stream", stream)
    return name


def only_log(bus: Bus, stream: str) -> Log:
    """The log of a stream that has one; of several shards one must be named."""
    logs = logs_of(bus, stream)
    if len(logs) > 1:
        reason = f"it has {len(logs)} shards; name one of them, for example {logs[0].name}"
        raise BadArgument(name="stream", value=stream, reason=reason)
    return logs[0]


def logs_of(bus: Bus, stream: str) -> list[Log]:
    """The logs of a stream: one, or one for each shard. A shard's own name stands for that shard."""
    log = bus.open(stream)
    if log.config.shards == 1 or SEPARATOR in stream:
        return [log]
    return [bus.open(shard_name(stream, shard)) for shard in range(log.config.shards)]


def check_size(value: bytes, key: bytes | None, headers: Headers, limit: int, stream: str) -> int:
    """The bytes a record counts for; RecordTooLarge above the limit."""
    size = len(value)
    if key is not None:
        size += len(key)
    for name, item in headers:
        size += len(name) + len(item) + _HEADER_BYTES
    if size > limit:
        raise RecordTooLarge(size=size, stream=stream, limit=limit)
    return size


def checked_bytes(part: str, item: Any, stream: str) -> bytes:
    """A value or key as bytes, or BadRecord."""
    if isinstance(item, (bytes, bytearray, memoryview)):
        return bytes(item)
    serializer = "TEXT" if isinstance(item, str) else "JSON"
    way = f"open the publisher with {part}=lockstep.{serializer}, or another serializer"
    raise BadRecord(stream=stream, reason=f"its {part} is {type(item).__name__}, not bytes; {way}")


def checked_headers(headers: HeaderPairs, stream: str) -> Headers:
    """Headers, given as pairs or as a mapping, as they are stored; or BadRecord."""
    try:
        checked = tuple((name, value) for name, value in (headers.items() if isinstance(headers, Mapping) else headers))
    except (TypeError, ValueError) as error:
        raise BadRecord(stream=stream, reason="its headers are not pairs of a name and bytes") from error
    for name, value in checked:
        if not isinstance(name, str) or not isinstance(value, bytes) or len(name.encode()) > 0xFFFF:
            raise BadRecord(stream=stream, reason=f"header {name!r} must be a short text with a value of bytes")
    return checked
