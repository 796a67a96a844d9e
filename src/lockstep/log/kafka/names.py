"""Which topic and partition of a server hold which stream.

The stream `orders` is partition 0 of the topic PREFIXorders; the shard `orders/3` is partition 3 of it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SEPARATOR = "/"
CATALOGUE = "_lockstep.catalogue"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class Partition(NamedTuple):
    """One partition."""

    topic: str
    number: int


def partition_of(prefix: str, stream: str) -> Partition | None:
    """Where a stream is, or None if no topic can have such a name."""
    name, separator, shard = stream.partition(SEPARATOR)
    topic = prefix + name
    if not name or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        return None
    if separator and not (shard.isascii() and shard.isdigit()):
        return None
    return Partition(topic, int(shard or 0))


def is_shard(stream: str) -> bool:
    """Whether a name is that of one shard."""
    return SEPARATOR in stream
