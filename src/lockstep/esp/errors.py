"""Errors of the document's commands, in the tree of lockstep.errors.

UsageError                                         exit 2
  ConfigFileWrong ClusterUnclear FailoverIncomplete
"""

from __future__ import annotations

from lockstep.errors import UsageError


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
    advice = "Mend that, or name the servers' bus with LOCKSTEP_BUS; the connector then runs as any other."
