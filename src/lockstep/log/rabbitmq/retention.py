"""What a stream is made with on the server, so that room comes back; which records count is decided above.

The server drops whole segments, oldest first, and never the last one. It is given twice what the stream keeps, so that
it never drops what still counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from lockstep.log.config import StreamConfig
from lockstep.log.network.address import Address

OPTIONS = ("max_bytes", "max_age_s", "segment_bytes")
SEGMENT_LEAST, SEGMENT_MOST = 4 << 20, 500_000_000
_SEGMENT_BY_AGE = 64 << 20
_SLACK = 2


def arguments(config: StreamConfig, address: Address) -> Mapping[str, str]:
    """The settings of a new stream; those of the URL go before those that follow from the configuration."""
    wanted = {name: address.whole(name, 0) for name in OPTIONS}
    by_bytes, by_age = config.retain_bytes, config.retain_age_s
    segment = wanted["segment_bytes"] or _segment(by_bytes, by_age)
    most = wanted["max_bytes"] or (max(_SLACK * by_bytes, _SLACK * segment) if by_bytes else 0)
    age = wanted["max_age_s"] or (math.ceil(_SLACK * by_age) if by_age else 0)
    found = {"max-length-bytes": str(most), "max-age": f"{age}s", "stream-max-segment-size-bytes": str(segment)}
    given = {"max-length-bytes": most, "max-age": age, "stream-max-segment-size-bytes": segment}
    return {name: text for name, text in found.items() if given[name]}


def gives_room_back(config: StreamConfig, address: Address) -> bool:
    """Whether the server ever drops anything of a stream."""
    found = arguments(config, address)
    return "max-length-bytes" in found or "max-age" in found


def _segment(by_bytes: int | None, by_age: float | None) -> int:
    if by_bytes is not None:
        return min(max(by_bytes, SEGMENT_LEAST), SEGMENT_MOST)
    return _SEGMENT_BY_AGE if by_age is not None else 0
