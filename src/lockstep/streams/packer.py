"""From pending records to batches: how many go into one append, compression, and the sequence."""

from __future__ import annotations

import sys
from collections import deque

from lockstep.log.batch import NO_PRODUCER, Batch, Headers, codec_by_name, pack
from lockstep.log.config import StreamConfig
from lockstep.log.port import Limits
from lockstep.streams.receipt import Draft
from lockstep.streams.serializers import Serializer


class Packer:
    """Packs what one producer sends to one log."""

    def __init__(self, producer: bytes, config: StreamConfig, value: Serializer, key: Serializer) -> None:
        self._producer, self._limit = producer, config.max_record_bytes
        self._codec = codec_by_name(config.compression)
        self._value, self._key = value, key
        self._next_sequence = 0

    def pack(self, draft: Draft, *, is_encoded: bool) -> Batch | None:
        """The next batch in sequence; None if not one of the records can be serialized."""
        if not is_encoded:
            draft.encode(self._value, self._key, self._limit)
        if not draft.values:
            return None
        batch = pack(
            draft.values, producer=self._producer, sequence=self._next_sequence, created_ns=draft.created,
            keys=draft.keys, headers=draft.headers, codec=self._codec,
        )  # fmt: skip
        self._next_sequence += batch.count
        return batch

    def pack_single(self, value: bytes, key: bytes | None, headers: Headers, created_ns: int) -> Batch:
        """A batch of one record outside the sequence: it is sent once."""
        return pack(
            [value], producer=NO_PRODUCER, sequence=0, created_ns=created_ns, codec=self._codec,
            keys=None if key is None else [key], headers=[headers] if headers else None,
        )  # fmt: skip


APPEND_BYTES_MAX = 8 << 20
_BATCH_OVERHEAD, _RECORD_OVERHEAD, _MESSAGE_OVERHEAD = 80, 16, 4096


class Load:
    """What one append to a log may hold."""

    def __init__(self, limits: Limits) -> None:
        self._bytes = min(APPEND_BYTES_MAX, (limits.append_bytes or APPEND_BYTES_MAX) - _MESSAGE_OVERHEAD)
        self._records = limits.append_records or sys.maxsize

    def take(self, queue: deque[Draft]) -> list[Draft]:
        """As many drafts as fit; what is joined goes together, and is refused by the log if it is too much."""
        taken: list[Draft] = []
        size = count = 0
        while queue:
            draft = queue[0]
            size += draft.size + draft.count * _RECORD_OVERHEAD + _BATCH_OVERHEAD
            count += draft.count
            if taken and not taken[-1].joined and (size > self._bytes or count > self._records):
                break
            taken.append(queue.popleft())
        return taken
