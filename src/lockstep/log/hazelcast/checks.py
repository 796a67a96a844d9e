"""What of a cluster would break the promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lockstep.log.hazelcast.topic import slack
from lockstep.log.network.checks import Finding
from lockstep.log.network.driver import Known

BACKUPS_MAX = 6


def cluster_findings(server: str, members: int, backups: int) -> list[Finding]:
    """What the number of members and of copies means; costs nothing."""
    found = []
    if members < 2:
        found.append(
            Finding(server, "the cluster has one member: if it ends, everything is lost", "the cluster: add members")
        )
    if backups < 1:
        found.append(
            Finding(server, "its rings are kept without a copy (backups=0)", "backup-count of ringbuffer and map")
        )
    elif members > 1 and members <= backups:
        problem = f"{members} members can't keep {backups} copies"
        found.append(Finding(server, problem, "the cluster: add members, or lower backup-count"))
    return found


def stream_findings(server: str, known: Sequence[Known], capacity_of: Callable[[Known], int]) -> list[Finding]:
    """Streams that may need more messages than their rings can hold; asks the members about each."""
    found = []
    for one in known:
        wanted = one.config.capacity
        if wanted is None:
            continue
        capacity = capacity_of(one)
        if wanted > capacity - slack(capacity):
            problem = (
                f"stream {one.name} keeps {wanted} records, and its ring has room for {capacity - slack(capacity)}"
                " messages: published one by one, they don't fit"
            )
            found.append(Finding(server, problem, f"capacity of ringbuffer {one.name} to {needed(wanted)} or more"))
    return found


def needed(messages: int) -> int:
    """The capacity of a ring that so many messages fit into."""
    capacity = messages + slack(messages)
    while capacity - slack(capacity) < messages:
        capacity += max(1, messages - capacity + slack(capacity))
    return capacity
