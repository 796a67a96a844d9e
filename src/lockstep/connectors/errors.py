"""Errors of connectors, in the tree of lockstep.errors.

UsageError                                         exit 2
  ConnectorRefused
Conflict                                           exit 4
  TargetAhead
Unavailable                                        exit 6
  ConnectorDown SourceForgot OutputForgot
"""

from __future__ import annotations

from lockstep.errors import Conflict, Unavailable, UsageError


class ConnectorRefused(UsageError):
    """A connector that can't be run as the model describes it."""

    code = "CONNECTOR_REFUSED"
    template = "Connector {connector} can't be run: {reason}."
    advice = "{remedy}"


class TargetAhead(Conflict):
    """The target of a connector has blocks that the project has not published: its numbers began anew."""

    code = "TARGET_AHEAD"
    template = "Connector {connector} found block {sent} at its target, when {stream} ended with block {last}."
    advice = "Give it a target that is empty, and a name that it did not have before; or bring the old bus back."


class ConnectorDown(Unavailable):
    """The other side of a connector does not answer, or not as it should; it is tried again."""

    code = "CONNECTOR_DOWN"
    template = "Connector {connector} has no use of {server}: {reason}."
    advice = "It goes on where it was as soon as that is mended."


class SourceForgot(Unavailable):
    """A source no longer holds what comes next."""

    code = "SOURCE_FORGOT"
    template = "Connector {connector} needs {source} from {needed} on, and it begins at {first}."
    advice = "Let the source keep its messages longer; a connector of another name begins where the source begins."


class OutputForgot(Unavailable):
    """A window's stream no longer holds what a connector has to send next."""

    code = "OUTPUT_FORGOT"
    template = "Connector {connector} has sent up to block {sent}; blocks {first} to {before} are gone from {stream}."
    advice = "Keep the stream longer. To go on without them, give the connector another name."
