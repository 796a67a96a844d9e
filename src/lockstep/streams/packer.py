"""From drafts to batches: serializing what is left to serialize, compression, and the producer's sequence."""

from __future__ import annotations

from lockstep.log.batch import NO_PRODUCER, Batch, Headers, codec_by_name, pack
from lockstep.log.config import StreamConfig
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
