"""What the client's errors mean, in the words of lockstep.errors."""

from __future__ import annotations

from hazelcast import errors as hz

from lockstep.errors import DataError, LockstepError, ServerRefused, ServerUnfit, ServerUnreachable, StoreFull

_LONGEST = 200
_REFUSED = (
    hz.AuthenticationError, hz.LoginError, hz.AccessControlError, hz.SecurityError, hz.ClientNotAllowedInClusterError,
)  # fmt: skip
_FULL = (hz.NativeOutOfMemoryError, hz.ReachedMaxSizeError)
NOT_SENT = (hz.ClientOfflineError,)
"""The client had no connection: nothing was sent."""
NOT_DONE = (*_REFUSED, *_FULL, hz.SplitBrainProtectionError)
"""The members refused before they did anything."""


def first_line(error: BaseException) -> str:
    """The first line of an error, without the stack traces of the members."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:_LONGEST]


def translated(error: BaseException, server: str, what: str) -> LockstepError:
    """Our error for one of the client's; `what` is the stream or map that was used."""
    if isinstance(error, _REFUSED):
        return ServerRefused(server=server, reason=first_line(error))
    if isinstance(error, _FULL):
        return StoreFull(stream=what, reason=f"the members of {server} have no memory left ({first_line(error)})")
    if isinstance(error, hz.SplitBrainProtectionError):
        reason = f"too few members are left for its split-brain protection ({first_line(error)})"
        return ServerUnfit(server=server, reason=reason, setting="split-brain-protection, or start the missing members")
    if isinstance(error, hz.HazelcastSerializationError):
        return DataError(reason=f"{what} on {server} holds something that lockstep did not write: {first_line(error)}.")
    return ServerUnreachable(server=server, reason=first_line(error))
