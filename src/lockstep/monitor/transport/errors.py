"""Errors of transports, in the tree of lockstep.errors.

UsageError                                         exit 2
  BadBroker
Conflict                                           exit 4
  PipeMismatch
Unavailable                                        exit 6
  TransportDown
"""

from __future__ import annotations

from lockstep.errors import Conflict, Unavailable, UsageError


class BadBroker(UsageError):
    """Options of a broker that can't be understood."""

    code = "BAD_BROKER"
    template = "The broker {broker} can't be used: {reason}."
    advice = "Write it as amqp://USER:PASSWORD@HOST:5672/VHOST, or as Sensu's hash with host, port, vhost, user."


class PipeMismatch(Conflict):
    """An exchange or queue is there already, with other properties."""

    code = "PIPE_MISMATCH"
    template = "{what} {name!r} can't be declared: {reason}."
    advice = "Let all processes use the same kind and durability, or delete it on the broker."


class TransportDown(Unavailable):
    """The transport has no connection now; it is tried again in the background."""

    code = "TRANSPORT_DOWN"
    template = "The transport {transport} is not connected: {reason}."
    advice = "It goes on by itself as soon as the other side answers."
