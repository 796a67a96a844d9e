"""The limits of connections: how many at a time, and how long a request may take to arrive."""

from __future__ import annotations

import asyncio
import resource
import socket
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0
"""How long the headers of a request may take to arrive, counted from the connection or from the last answer."""
_MOST, _SHARE = 256, 8
UNREAD_S = 30.0
"""How long a client may leave unread what was sent to it; then the system ends its connection."""


def connections_max(most: int | None = None, share: int = _SHARE) -> int:
    """How many connections may be open: never more than a part of the files that this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST if most is None else most
    return most if soft == resource.RLIM_INFINITY else max(4, min(most, soft // share))


class Connection(H11Protocol):
    """A connection of uvicorn that can't be kept open without asking for something.

    Without this, clients that connect and stay silent use up the files that the engine needs for its own work. Where
    there are too many, the one that has been silent for longest is closed, so that a new one is always answered.
    """

    request_s, unread_s = REQUEST_S, UNREAD_S
    most: int | None = None
    """Connections that there may be; None: as many as for an engine."""
    share = _SHARE
    """They are one of so many of the files that this process may open, at most."""
    _silent_since: float
    _giving_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for it, and wait for a request."""
        super().connection_made(transport)
        self.access_log = False  # addresses may hold what is secret; a program may have its own log of uvicorn
        self._limit_unread(transport)
        self._await_request()
        if len(self.connections) <= connections_max(self.most, self.share):
            return
        known = [each for each in self.connections if isinstance(each, Connection) and not each.transport.is_closing()]
        silent = [each for each in known if each.is_silent()]  # itself at the least
        if len(known) > connections_max(self.most, self.share):
            min(silent, key=lambda each: each._silent_since).transport.abort()

    def _limit_unread(self, transport: asyncio.Transport) -> None:
        known = transport.get_extra_info("socket")
        if known is not None and hasattr(socket, "TCP_USER_TIMEOUT"):  # of Linux; elsewhere keep-alive must do
            with suppress(OSError):  # not TCP
                known.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(self.unread_s * 1000))

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        super().connection_lost(exc)
        if self._giving_up is not None:
            self._giving_up.cancel()

    def on_response_complete(self) -> None:
        """The next request has its time, too."""
        self._await_request()
        super().on_response_complete()

    def is_silent(self) -> bool:
        """Whether no request is at work: none has come whole, or all are answered."""
        return self.cycle is None or self.cycle.response_complete

    def _await_request(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
        self._silent_since = self.loop.time()
        self._giving_up = self.loop.call_later(self.request_s, self._give_up, self.cycle)

    def _give_up(self, last: Any) -> None:
        if self.cycle is last:  # no other request has begun
            self.transport.abort()
