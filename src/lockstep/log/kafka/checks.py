"""What is looked at before a start: settings of topics and brokers that would break a promise."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.log.kafka.client import Layout
from lockstep.log.network.checks import Finding

_REPLICAS, _IN_SYNC = 3, 2
_FOR_EVER = "-1"
STAMPED_BY, BROKER = "message.timestamp.type", "LogAppendTime"


def of_copies(server: str, topic: str, layout: Layout, config: Mapping[str, str]) -> list[Finding]:
    """Whether enough brokers have a message before it is acknowledged."""
    found = []
    if layout.brokers == 1:
        problem = "there is one broker: what it had not yet written to disk is lost with its machine, all with its disk"
        found.append(Finding(server, problem, "the cluster: run three brokers"))
    elif layout.replicas < _REPLICAS:
        problem = f"the topic {topic} has {layout.replicas} replicas, where {_REPLICAS} are needed to lose one safely"
        found.append(Finding(server, problem, "the option replication, and reassign the partitions of the topic"))
    elif int(config.get("min.insync.replicas", "1")) < _IN_SYNC:
        problem = f"the topic {topic} acknowledges what one broker alone has"
        found.append(Finding(server, problem, f"min.insync.replicas of the topic {topic} to {_IN_SYNC}"))
    if config.get("unclean.leader.election.enable") == "true":
        problem = f"a broker that missed acknowledged messages may come to lead the topic {topic}"
        found.append(Finding(server, problem, f"unclean.leader.election.enable of the topic {topic} to false"))
    return found


def of_keeping(server: str, topic: str, config: Mapping[str, str]) -> list[Finding]:
    """Whether the server deletes by itself what a stream still keeps."""
    found = []
    if "compact" in config.get("cleanup.policy", "delete"):
        problem = f"the topic {topic} is compacted: older messages of a key vanish"
        found.append(Finding(server, problem, f"cleanup.policy of the topic {topic} to delete"))
    for setting in ("retention.ms", "retention.bytes"):
        value = config.get(setting, _FOR_EVER)
        if value != _FOR_EVER:
            problem = f"the topic {topic} has {setting}={value}: it may delete what the stream still keeps"
            found.append(Finding(server, problem, f"{setting} of the topic {topic} to {_FOR_EVER}"))
    return found


def of_stamps(server: str, topic: str, config: Mapping[str, str]) -> list[Finding]:
    """Whether age is measured by the broker's clock, or by the clocks of those who write and read."""
    if config.get(STAMPED_BY) == BROKER:
        return []
    problem = f"the topic {topic} keeps the times of its writers, so that a writer's clock decides what is too old"
    return [Finding(server, problem, f"{STAMPED_BY} of the topic {topic} to {BROKER}")]


def of_partitions(server: str, topic: str, has: int, wanted: int) -> list[Finding]:
    """Whether a topic has the partitions that its stream has shards."""
    if has == wanted:
        return []
    problem = f"the topic {topic} has {has} partitions, and the stream {wanted}: it would have no one order"
    return [Finding(server, problem, f"the topic: make it anew with {wanted} partitions", fatal=True)]
