"""Which topic and partition of a server hold which stream.

The stream `orders` is partition 0 of the topic PREFIXorders; the shard `orders/3` is partition 3 of it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SEPARATOR = "/"
CATALOGUE = "_lockstep.catalogue"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class Place(NamedTuple):
    """One partition."""

    topic: str
    partition: int


def place_of(prefix: str, stream: str) -> Place | None:
    """Where a stream is, or None if no topic can have such a name."""
    name, separator, shard = stream.partition(SEPARATOR)
    topic = prefix + name
    if not name or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        return None
    if separator and not (shard.isascii() and shard.isdigit()):
        return None
    return Place(topic, int(shard or 0))


def stream_of(prefix: str, place: Place, partitions: int) -> str | None:
    """The stream in a partition of a topic that has so many, or None if it is outside the prefix."""
    if not place.topic.startswith(prefix):
        return None
    name = place.topic.removeprefix(prefix)
    return name if partitions == 1 else f"{name}{SEPARATOR}{place.partition}"


def is_shard(stream: str) -> bool:
    """Whether a name is that of one shard."""
    return SEPARATOR in stream
