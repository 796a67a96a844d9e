"""What a stream is made with on the server, so that room comes back; which records count is decided above.

The server drops whole segments, oldest first, and never the last one, which may be new and empty. It counts what it
writes around each message too. So it is given several times what the stream keeps, in segments that are small beside
that, and never drops what still counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from lockstep.log.config import StreamConfig
from lockstep.log.network.address import Address

OPTIONS = ("max_bytes", "max_age_s", "segment_bytes")
SEGMENT_LEAST, SEGMENT_MOST = 4 << 20, 500_000_000
_SEGMENT_BY_AGE = 64 << 20
_SLACK_AGE = 2
_SLACK_BYTES = _SEGMENTS = 4


def arguments(config: StreamConfig, address: Address) -> Mapping[str, str]:
    """The settings of a new stream; those of the URL go before those that follow from the configuration."""
    wanted = {name: address.whole(name, 0) for name in OPTIONS}
    by_bytes, by_age = config.retain_bytes, config.retain_age_s
    segment = wanted["segment_bytes"] or _segment(by_bytes, by_age, wanted["max_bytes"])
    most = wanted["max_bytes"] or (max(_SLACK_BYTES * by_bytes, _SEGMENTS * segment) if by_bytes else 0)
    age = wanted["max_age_s"] or (math.ceil(_SLACK_AGE * by_age) if by_age else 0)
    found = {"max-length-bytes": str(most), "max-age": f"{age}s", "stream-max-segment-size-bytes": str(segment)}
    given = {"max-length-bytes": most, "max-age": age, "stream-max-segment-size-bytes": segment}
    return {name: text for name, text in found.items() if given[name]}


def gives_room_back(config: StreamConfig, address: Address) -> bool:
    """Whether the server ever drops anything of a stream."""
    found = arguments(config, address)
    return "max-length-bytes" in found or "max-age" in found


def keeps(made: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether a stream made with some settings never drops what others would keep."""
    limits = [name for name in ("max-length-bytes", "max-age") if name in made]
    return all(name in wanted and _number(wanted[name]) <= _number(made[name]) for name in limits)


def _number(text: str) -> int:
    return int(text.removesuffix("s"))


def _segment(by_bytes: int | None, by_age: float | None, most: int) -> int:
    if most:  # the server's own default may be larger, and then it would keep nothing but the last segment
        return min(max(most // _SEGMENTS, 1), SEGMENT_MOST)
    if by_bytes is not None:
        return min(max(by_bytes // _SEGMENTS, SEGMENT_LEAST), SEGMENT_MOST)
    return _SEGMENT_BY_AGE if by_age is not None else 0
