"""Engines that stand still, and a bus that loses, delays and doubles: nothing of it shows."""

from __future__ import annotations

import pytest
from failover_worlds import WANTED, finish, pair, send
from local_cluster import LEASE_S, LocalCluster
from run_worlds import sums_graph

from lockstep.core.sequence import Entry
from lockstep.engine.runtime.control.leadership import ACTIVE, STANDBY
from lockstep.engine.runtime.sequence.entries import Decision, records

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path):
    return LocalCluster(sums_graph(), WANTED, tmp_path)


@pytest.mark.parametrize("stream", ["between two steps", ".S", ".C", "q.in.O", "q.sums.O", ".engines"])
@pytest.mark.parametrize("after", [False, True])
def test_an_active_engine_that_slept_becomes_a_standby_and_nothing_it_writes_counts(cluster, stream, after):
    sleeper, standby = pair(cluster)

    def meanwhile() -> None:
        cluster.until_active("b")
        send(cluster, *range(10, 14))
        cluster.until(lambda: standby.control.publisher.published == 13)
        cluster.advance(1.0)

    # Given an engine that stands still beyond its lease, between two steps or in the middle of one
    if stream == "between two steps":
        send(cluster, *range(6, 10))
        sleeper.machine.stand_still(meanwhile)
    else:
        sleeper.stall_at(stream, meanwhile, after=after)
        send(cluster, *range(6, 10))
    # When it wakes it finds out by itself
    cluster.until(lambda: standby.is_active and not sleeper.is_active)
    cluster.settle()
    assert [change.role for change in sleeper.roles] == [ACTIVE, STANDBY]
    finish(cluster, *range(14, 18))
    assert cluster.active is standby
    # And it can take over again
    standby.kill()
    cluster.until_active("a")
    finish(cluster, 18)


def test_a_decision_of_a_leader_that_slept_does_not_count_although_it_would_fit(cluster):
    # Given an engine that falls asleep while it writes a tick, and a next leader that has nothing to decide
    sleeper, standby = pair(cluster)
    decided = standby.control.sequencer.position.number
    sleeper.stall_at(".S", lambda: cluster.until_active("b"))
    sleeper.ask_for(Decision({}, 0, 0, tick_us=1_000_000))
    cluster.until(lambda: standby.is_active and not sleeper.is_active)
    # Then it stands on the log, and is nothing
    assert [entry.body for entry in entries(cluster) if Decision.of(entry).tick_us is not None]
    for node in (sleeper, standby):
        assert node.control.sequencer.position.number == decided
    finish(cluster, 6)
    assert cluster.oracle().blocks == 6


def entries(cluster: LocalCluster) -> list[Entry]:
    """All that stand on the sequence log, whether they count or not."""
    found = records(cluster.bus.open(cluster.streams.sequence), 0)
    return [record for _, record in found if isinstance(record, Entry)]


def test_a_pause_shorter_than_the_lease_costs_nothing(cluster):
    active, standby = pair(cluster)
    active.pause()
    cluster.advance(LEASE_S / 3)
    active.wake()
    finish(cluster, 6, 7)
    assert active.is_active
    assert standby.roles == []


def test_a_late_word_of_a_leader_that_slept_does_not_keep_others_from_starting(cluster):
    # Given an engine that fell asleep just before it said what is published, and said it long after others went on
    sleeper, standby = pair(cluster)

    def meanwhile() -> None:
        cluster.until_active("b")
        send(cluster, *range(7, 14))
        cluster.until(lambda: standby.control.publisher.published == 13)
        send(cluster, 14)  # so that everything up to 13 is in the standby's state
        cluster.until(lambda: standby.control.publisher.published == 14)
        cluster.advance(1.0)

    sleeper.stall_at(".C", meanwhile)
    send(cluster, 6)
    cluster.until(lambda: standby.is_active and not sleeper.is_active)
    # Then everybody still knows what is out, and an engine that starts goes on
    cluster.advance(0.5)
    assert sleeper.control.publisher.published == 14
    assert sleeper.buffer().files == 0
    standby.kill()
    standby.start()
    finish(cluster, 15)
    assert standby.failure is None


def test_a_standby_may_sleep_as_long_as_it_likes(cluster):
    active, standby = pair(cluster)
    standby.pause()
    for one in range(6, 26):
        send(cluster, one)
        cluster.advance(0.2)
    standby.wake()
    finish(cluster, 26)
    assert active.is_active
    active.kill()
    cluster.until_active("b")
    finish(cluster, 27)
    assert standby.computed().block == 27


# A bus that is unsure


@pytest.mark.parametrize("kind", ["drop", "lose_ack", "late", "duplicate"])
def test_appends_that_are_lost_late_or_doubled_do_not_show(cluster, kind):
    active, standby = pair(cluster)
    streams = cluster.streams
    logs = [
        streams.sequence, streams.control, streams.reports, f"_group.{streams.group}",
        cluster.output("q/in").name, cluster.output("q/sums").name,
    ]  # fmt: skip
    for node in (active, standby):
        for log in logs:
            getattr(node.bus.plan, kind)(2, log=log)
    for one in range(6, 16):
        send(cluster, one)
        cluster.advance(0.2)
    cluster.settle()
    cluster.check()
    assert [active.failure, standby.failure] == [None, None]
    assert active.bus.plan.counts[kind] >= 8
    cluster.active.kill()
    finish(cluster, 16)


def test_an_out_stream_that_is_trimmed_before_a_frame_was_read_back_goes_on(cluster):
    active, standby = pair(cluster)
    log = cluster.output("q/in")

    def trim() -> None:
        cluster.subscribers["q/in"].step()
        log.trim(log.bounds().next)

    active.bus.trap("q.in.O", trim, after=True)
    finish(cluster, 6, 7)
    assert active.is_active
    # Also if it is a barrier
    standby.bus.trap("q.in.O", trim, after=True)
    active.kill()
    finish(cluster, 8)
