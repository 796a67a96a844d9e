"""What things are called on the cluster.

Stream `orders` with the prefix `app.` is the ring `app.orders@<identity>`. What stands before the @ is the name under
which the members look up their settings, so `app.orders` in their configuration means this stream; what stands behind
it chooses the partition, and makes a stream that is made anew another ring.
"""

from __future__ import annotations

from lockstep.errors import BadUrl

CATALOGUE = "_lockstep.streams"
SEPARATOR = "@"


def ring_name(prefix: str, stream: str, identity: str) -> str:
    """The ring of a stream."""
    return f"{prefix}{stream}{SEPARATOR}{identity}"


def stream_of(prefix: str, ring: str) -> tuple[str, str] | None:
    """Name and identity of the stream that a ring is; None if it is no ring of this prefix."""
    name, separator, identity = ring.partition(SEPARATOR)
    if not separator or not name.startswith(prefix):
        return None
    return name.removeprefix(prefix), identity


def map_name(prefix: str) -> str:
    """The map with all streams."""
    return prefix + CATALOGUE


def check_prefix(prefix: str, url: str) -> str:
    """The prefix itself, if names that begin with it can be told apart."""
    if SEPARATOR in prefix or "*" in prefix:
        raise BadUrl(url=url, reason=f"its option prefix may hold neither @ nor *, which {prefix!r} does")
    return prefix
