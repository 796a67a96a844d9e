"""What can go wrong with a server on this machine.

Unavailable                                        exit 6
  ServerNotAvailable ServerDidNotStart
"""

from __future__ import annotations

from lockstep.errors import Unavailable


class ServerNotAvailable(Unavailable):
    """A server, or something it needs, is not on this machine and can't be fetched."""

    code = "SERVER_NOT_AVAILABLE"
    template = "{name} can't be started here: {reason}."
    advice = "{remedy}"


class ServerDidNotStart(Unavailable):
    """A server ended, or did not answer in time."""

    code = "SERVER_DID_NOT_START"
    template = "{name} did not start: {reason}. The end of its log, {log}:\n{tail}\n"
    advice = "Fix what the log names, then start it again; the data in its folder is as it was."
