"""Several batches as appends that a log takes: all in one where that fits, else one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lockstep.log.batch import Batch
from lockstep.log.port import Limits

_OVERHEAD = 64
"""What a batch costs a message beside its own bytes, and a message beside its batches."""


def appends(batches: Sequence[Batch], limits: Limits) -> Iterator[Sequence[Batch]]:
    """The batches in parts; one that is too large by itself is a part of its own, for the log to refuse."""
    if limits.append_bytes is None and limits.append_records is None:
        yield batches
        return
    part: list[Batch] = []
    size = records = 0
    for batch in batches:
        size, records = size + batch.size + _OVERHEAD, records + batch.count
        too_large = limits.append_bytes is not None and size + _OVERHEAD > limits.append_bytes
        too_many = limits.append_records is not None and records > limits.append_records
        if part and (too_large or too_many):
            yield part
            part, size, records = [], batch.size + _OVERHEAD, batch.count
        part.append(batch)
    yield part
