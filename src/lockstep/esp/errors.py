"""Errors of the document's commands, in the tree of lockstep.errors.

UsageError                                         exit 2
  ConfigFileWrong ClusterUnclear FailoverIncomplete
Unavailable                                        exit 6
  EngineEnded EngineNotReady
"""

from __future__ import annotations

from lockstep.errors import Unavailable, UsageError


class ConfigFileWrong(UsageError):
    """A client's configuration file that can't be understood, or lacks something."""

    code = "CONFIG_FILE_WRONG"
    template = "{file}{place}: {reason}."
    advice = "Write it as docs/howto/document-commands.md shows."


class ClusterUnclear(UsageError):
    """The connectors of a model do not agree on the failover cluster that they belong to."""

    code = "CLUSTER_UNCLEAR"
    template = "Connector {connector} has {name} = {found!r}, where {other} has {wanted!r}."
    advice = "All connectors of a failover cluster must name the same bus and the same urlhostport."


class FailoverIncomplete(UsageError):
    """A connector asks for failover, and names no cluster by which servers would find each other."""

    code = "FAILOVER_INCOMPLETE"
    template = "Connector {connector} has hotfailover, and {reason}: no bus is named on which servers find each other."
    advice = "Fix that, or name the servers' bus with LOCKSTEP_BUS; the connector then runs as any other."


class EngineEnded(Unavailable):
    """The engine of a project has ended by itself."""

    code = "ENGINE_ENDED"
    template = "The engine of project {project!r} ended with exit code {status}."
    advice = "The server's log says why. Load the project again with PUT, or remove it with DELETE."


class EngineNotReady(Unavailable):
    """The engine of a project is starting."""

    code = "ENGINE_NOT_READY"
    template = "The engine of project {project!r} does not answer yet: {reason}."
    advice = "Ask again in a second."
