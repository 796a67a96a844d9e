"""How much of what is queued goes into one append."""

from __future__ import annotations

import sys
from collections import deque

from lockstep.log.port import Limits
from lockstep.streams.receipt import Draft

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
