"""What the errors of Hazelcast's client become, what the checks find, and what is promised."""

from __future__ import annotations

import pytest

from lockstep.errors import ServerRefused, ServerUnfit, ServerUnreachable, StoreFull
from lockstep.log.config import StreamConfig
from lockstep.log.hazelcast.driver import cluster_findings, needed_capacity, promises_of, stream_findings
from lockstep.log.hazelcast.errors import NOT_DONE, first_line, hz, translated
from lockstep.log.hazelcast.topic import slack
from lockstep.log.network.driver import StreamEntry


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (hz.AuthenticationError("no"), ServerRefused),
        (hz.AccessControlError("no right to add"), ServerRefused),
        (hz.SecurityError("no"), ServerRefused),
        (hz.ClientNotAllowedInClusterError("no"), ServerRefused),
        (hz.NativeOutOfMemoryError("none left"), StoreFull),
        (hz.SplitBrainProtectionError("1 of 2"), ServerUnfit),
        (hz.TargetDisconnectedError("gone"), ServerUnreachable),
        (hz.OperationTimeoutError("late"), ServerUnreachable),
        (hz.ClientOfflineError(), ServerUnreachable),
        (OSError("broken pipe"), ServerUnreachable),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, Exception) else None,
)
def test_each_error_of_the_client_is_one_of_ours_and_names_the_server(error, expected):
    meant = translated(error, "hazelcast://h1:5701", "orders")
    assert type(meant) is expected
    assert "hazelcast://h1:5701" in str(meant)


def test_only_what_the_members_refused_beforehand_was_surely_not_done():
    for error in (hz.TargetDisconnectedError, hz.OperationTimeoutError, hz.IndeterminateOperationStateError,
                  hz.MemberLeftError, hz.OutOfMemoryError):  # fmt: skip
        assert not issubclass(error, NOT_DONE)
    assert issubclass(hz.AccessControlError, NOT_DONE)


def test_the_traces_of_the_members_are_cut_off():
    assert first_line(hz.HazelcastError("what is wrong\n\tat com.hazelcast.X\n\tat com.hazelcast.Y")) == "what is wrong"
    assert len(first_line(hz.HazelcastError("x" * 5000))) <= 200
    assert first_line(hz.ClientOfflineError())


def test_a_cluster_of_one_and_rings_without_copies_are_found():
    assert len(cluster_findings("s", 1, 0)) == 2
    assert "one member" in cluster_findings("s", 1, 1)[0].problem
    assert "can't keep 2 copies" in cluster_findings("s", 2, 2)[0].problem
    assert cluster_findings("s", 3, 1) == []


def test_a_stream_that_does_not_fit_its_ring_is_found_and_told_what_would_do():
    streams = [
        StreamEntry("orders", "1", StreamConfig(capacity=10_000)),
        StreamEntry("few", "2", StreamConfig(capacity=100)),
        StreamEntry("all", "3", StreamConfig(capacity=None)),
    ]
    [finding] = stream_findings("s", streams, lambda _: 10_000)
    assert "stream orders keeps 10000 records" in finding.problem
    assert f"ringbuffer orders to {needed_capacity(10_000)}" in finding.setting
    assert stream_findings("s", streams, lambda _: needed_capacity(10_000)) == []


@pytest.mark.parametrize("messages", [1, 3, 10, 100, 1000, 10_000, 1_000_000])
def test_what_is_needed_has_room_for_what_is_wanted(messages):
    capacity = needed_capacity(messages)
    assert capacity - slack(capacity) >= messages
    assert capacity <= 1.5 * messages + 200


def test_the_promises_count_only_copies_that_the_members_can_hold():
    assert promises_of(1, 1).sync_replicas == 0
    assert "everything" in promises_of(1, 1).may_lose
    assert promises_of(3, 1).sync_replicas == 1
    assert "two members end" in promises_of(3, 1).may_lose
    assert promises_of(3, 2).sync_replicas == 2
    assert "3 members end" in promises_of(3, 2).may_lose
    assert "split" in promises_of(3, 2).may_lose
    assert promises_of(3, 1).durability == "memory"
