"""Errors of the agent, in the tree of lockstep.errors.

Conflict                                           exit 4
  SpoolBusy SocketTaken
"""

from __future__ import annotations

from lockstep.errors import Conflict


class SpoolBusy(Conflict):
    """The folder of a spool belongs to an agent that runs."""

    code = "SPOOL_BUSY"
    template = "The spool {path} is used by another agent."
    advice = "Stop that one, or give this one a folder of its own with --spool."


class SocketTaken(Conflict):
    """A local socket can't be opened."""

    code = "SOCKET_TAKEN"
    template = "The agent's socket {address} can't be opened: {reason}."
    advice = "Set client.{member}.port to another port, or client.{member}.enabled to false."
