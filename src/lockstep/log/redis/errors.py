"""What a server's refusal means: one of our errors, and whether it may pass if we wait a little."""

from __future__ import annotations

import redis

from lockstep.errors import LockstepError, ServerRefused, ServerUnfit, ServerUnreachable, StoreFull

_TRANSIENT = ("LOADING", "READONLY", "ASK", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN", "BUSY")
"""The server is starting, changing its role or its slots, or busy: the command was not run, and may be sent again."""
_OUT_OF_MEMORY = "the server has no memory left; its setting maxmemory decides about that"
_CAN_NOT_SAVE = "the server can't write to its disk (see its log, and its setting dir): {text}"
_FEW_REPLICAS = "too few replicas follow the server"


class NotNow(Exception):
    """The server did not run the command, and might do so later; `error` is raised to callers that do not wait."""

    def __init__(self, error: LockstepError) -> None:
        super().__init__(str(error))
        self.error = error


class Unanswered(Exception):
    """The command was sent, and the answer did not come: it may have been run or not."""


def code_of(error: redis.RedisError) -> str:
    """The code that an error begins with, as OOM or NOPERM."""
    given = getattr(error, "status_code", None)
    return given or str(error).partition(" ")[0]


def is_transient(error: redis.RedisError) -> bool:
    """Whether the command was not run, and may be sent again after a while."""
    return code_of(error) in _TRANSIENT


def translate(error: redis.RedisError, server: str, what: str) -> LockstepError:
    """Our error for one of the server's; `what` is the name of the stream, or the bus."""
    code, text = code_of(error), str(error)
    if code in ("NOAUTH", "WRONGPASS", "NOPERM", "DENIED") or isinstance(error, redis.AuthenticationError):
        return ServerRefused(server=server, reason=_sentence(text))
    if code == "OOM":
        return StoreFull(stream=what, reason=f"{server}: {_OUT_OF_MEMORY}")
    if code == "MISCONF":
        return StoreFull(stream=what, reason=f"{server}: {_CAN_NOT_SAVE.format(text=_sentence(text))}")
    if code == "NOREPLICAS":
        return ServerUnfit(server=server, reason=_FEW_REPLICAS, setting="its min-replicas-to-write, or its replicas")
    if code == "READONLY":
        reason = "it is a replica, and takes no writes"
        return ServerUnfit(server=server, reason=reason, setting="the address to that of the primary")
    if is_transient(error) or isinstance(error, redis.ConnectionError):
        return ServerUnreachable(server=server, reason=_sentence(text))
    return ServerUnfit(server=server, reason=_sentence(text), setting="the server or the prefix of its URL")


def _sentence(text: str) -> str:
    """The first sentence of an error, without the position in the script."""
    return text.splitlines()[0].partition(" script: ")[0].rstrip(".,") if text else "it gave no reason"
