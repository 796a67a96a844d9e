"""Errors of connectors, in the tree of lockstep.errors.

UsageError                                         exit 2
  ConnectorRefused
Unavailable                                        exit 6
  ConnectorDown SourceForgot
"""

from __future__ import annotations

from lockstep.errors import Unavailable, UsageError


class ConnectorRefused(UsageError):
    """A connector that can't be run as the model describes it."""

    code = "CONNECTOR_REFUSED"
    template = "Connector {connector} can't be run: {reason}."
    advice = "{remedy}"


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
