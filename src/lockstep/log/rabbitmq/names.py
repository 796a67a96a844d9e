"""What streams are called on the server: prefix, name and the beginning of the identity, as in `orders~3f2a9c01be77`.

The identity keeps a stream that is made anew apart from the one of that name before it, so nobody who still holds the
old one can write into the new one.
"""

from __future__ import annotations

from lockstep.errors import UnsupportedByBackend

CATALOGUE = "_lockstep.catalogue"
BYTES_MAX = 255
_IDENTITY = 12
_MARK = "~"


def server_name(prefix: str, name: str, identity: str, bus: str) -> str:
    """The name on the server."""
    full = f"{prefix}{name}{_MARK}{identity[:_IDENTITY]}"
    if len(full) > BYTES_MAX:
        raise UnsupportedByBackend(bus=bus, feature=f"carry a name of {len(full)} bytes; {BYTES_MAX} are the most")
    return full


def stream_name(prefix: str, full: str) -> str | None:
    """The name that a stream has here, from its name on the server; None if it is none of ours."""
    name, mark, _ = full.removeprefix(prefix).rpartition(_MARK)
    return name if mark and full.startswith(prefix) else None
