"""What the server's answers mean here."""

from __future__ import annotations

from typing import NoReturn

from lockstep.errors import LockstepError, ServerRefused, ServerUnfit
from lockstep.log.network.driver import TopicGone

OK, NO_STREAM, EXISTS, NOT_AVAILABLE, REFUSED, PRECONDITION = 1, 2, 5, 6, 16, 17
_BAD_LOGIN, _LOOPBACK_ONLY, _NO_VHOST = 8, 11, 12
_WORDS = {
    3: "the subscription exists",
    4: "there is no such subscription",
    7: "it does not know this way to log in",
    9: "the log-in failed",
    13: "it does not know this command",
    14: "the frame is too large",
    15: "it failed inside",
    18: "there is no such publisher",
}


class NotReady(Exception):
    """The stream has no leader at the moment; try again soon."""


def check(code: int, *, server: str, user: str, action: str, stream: str = "") -> None:
    """Raise the error for a response code, unless it is OK; `action` says what was asked, as in 'read'."""
    if code != OK:
        _raise(code, server, user, action, stream)


def _raise(code: int, server: str, user: str, action: str, stream: str) -> NoReturn:
    if code == NO_STREAM:
        raise TopicGone
    if code == NOT_AVAILABLE:
        raise NotReady
    raise _fault(code, server, user, action, stream)


def _fault(code: int, server: str, user: str, action: str, stream: str) -> LockstepError:
    if code == REFUSED:
        return ServerRefused(server=server, reason=f"user {user!r} has no right to {action} {stream!r}")
    if code == _BAD_LOGIN:
        return ServerRefused(server=server, reason=f"user {user!r} is not known with this password")
    if code == _LOOPBACK_ONLY:
        return ServerRefused(server=server, reason=f"user {user!r} may log in from the server's own machine only")
    if code == _NO_VHOST:
        return ServerRefused(server=server, reason=f"user {user!r} has no virtual host {stream!r}")
    words = _WORDS.get(code, f"code {code}")
    return ServerUnfit(
        server=server, reason=f"asked to {action} {stream!r}, it answered: {words}", setting="the server"
    )
