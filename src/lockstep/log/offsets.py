"""Counting records between offsets: a subtraction where offsets have no gaps, else a walk over batches."""

from __future__ import annotations

from lockstep.log.batch import peek
from lockstep.log.port import Log

COUNTED_BYTES = 4 << 20
_CHUNK_MESSAGES, _CHUNK_GROWS = 64, 8


def records_between(log: Log, start: int, stop: int) -> int:
    """How many records lie between two offsets; with gaps, and beyond some MB, an estimate from the first part."""
    stride = log.limits.stride
    if stride == 1 or stop <= start:
        return max(stop - start, 0)
    counted, at, size = 0, start, 0
    while at < stop and size < COUNTED_BYTES and (batches := _batches(log, at, stop)):
        counted += sum(end - max(base, start) for base, end, _ in batches)
        size += sum(stored for _, _, stored in batches)
        at = batches[-1][1]
    seen = max((at - 1) // stride - start // stride + 1, 1)
    left = max((stop - 1) // stride - (at - 1) // stride, 0) if size >= COUNTED_BYTES else 0
    return counted + left * counted // seen


def step_back(log: Log, offset: int, records: int, first: int) -> int:
    """Return the offset `records` before `offset`, at least `first`."""
    stride = log.limits.stride
    if stride == 1:
        return max(offset - records, first)
    chunk = _CHUNK_MESSAGES
    while True:
        start = max(first, (offset // stride - chunk) * stride)
        found = _all_batches(log, start, offset)
        missing = sum(end - base for base, end in found) - records
        if missing >= 0 or start == first:
            return _skip(found, max(missing, 0), offset) if found else first
        chunk *= _CHUNK_GROWS


def step_forward(log: Log, offset: int, records: int, end: int) -> int:
    """Return the offset `records` after `offset`, at most `end`."""
    if log.limits.stride == 1:
        return min(offset + records, end)
    while offset < end and (batches := _batches(log, offset, end)):
        for base, after, _ in batches:
            base = max(base, offset)
            if after - base > records:
                return base + records
            records -= after - base
        offset = batches[-1][1]
    return end


def _skip(found: list[tuple[int, int]], records: int, otherwise: int) -> int:
    for base, end in found:
        if end - base > records:
            return base + records
        records -= end - base
    return otherwise


def _all_batches(log: Log, start: int, stop: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while start < stop and (batches := _batches(log, start, stop)):
        found += [(max(base, start), end) for base, end, _ in batches]
        start = batches[-1][1]
    return found


def _batches(log: Log, start: int, stop: int) -> list[tuple[int, int, int]]:
    """First offset, offset after the last record, and size of stored batches; cut off at the stop."""
    found = []
    for entry in log.read(start):
        if entry.base >= stop:
            break
        found.append((entry.base, min(entry.base + peek(entry.data)[0], stop), len(entry.data)))
    return found
