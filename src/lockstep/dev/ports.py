"""Ports that nobody uses."""

from __future__ import annotations

import socket
from collections.abc import Callable

from lockstep.dev.recipe import HOST
from lockstep.errors import Unavailable

# Below the range that the system takes for outgoing connections: a port of a killed server must stay free for its
# restart, and a client that knocks at such a port in the meantime could even end up connected to itself.
_LOWEST, _HIGHEST = 10_000, 32_000
_MOST_TRIES = 1_000


def free_ports(count: int, random: Callable[[], float]) -> tuple[int, ...]:
    """So many different ports on loopback that nobody listens on."""
    found: dict[int, None] = {}
    for _ in range(_MOST_TRIES):
        if len(found) == count:
            return tuple(found)
        port = _LOWEST + int(random() * (_HIGHEST - _LOWEST))
        if is_free(port):
            found[port] = None
    raise Unavailable(reason=f"No {count} free ports between {_LOWEST} and {_HIGHEST} on {HOST}.")


def is_free(port: int) -> bool:
    """Whether a server could listen there."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError:
            return False
        return True
