"""A bus that loses the end of its logs after it acknowledged it: readers and engines say so, and nobody diverges."""

from __future__ import annotations

from dataclasses import replace

import pytest
from failover_worlds import WANTED, finish, leader, send
from local_cluster import LocalCluster
from run_worlds import sums_graph

from lockstep.engine.errors import LogShortened, OutputDiffers, SequenceBroken, SnapshotDamaged
from lockstep.engine.runtime.sequence.beats import last_beat
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.events.positions import Position
from lockstep.events.subscriber import OutSource, SubscribeOptions, Subscription
from memory_driver import MemoryServer


@pytest.fixture
def cluster(tmp_path):
    return LocalCluster(sums_graph(), WANTED, tmp_path)


def subscribe(cluster: LocalCluster, after: Position | None = None, path: str = "q/in") -> Subscription:
    node = cluster.graph.find(path)
    assert node is not None
    source = OutSource(cluster.bus, cluster.output(path), cluster.bus.open(cluster.streams.control), node)
    return Subscription(source, cluster.clock, SubscribeOptions(begin="start"), after=after)


def read_all(subscription: Subscription) -> list[int]:
    """The ids of all trades that are there."""
    found = []
    while block := subscription.next_block(timeout=0):
        found += [event.values[0] for event in block.events()]
    return found


def read_for(cluster: LocalCluster, reader: Subscription, seconds: float) -> list[int]:
    """The ids of all trades that come within a time."""
    found, end = read_all(reader), cluster.clock.monotonic() + seconds
    while cluster.clock.monotonic() < end:
        cluster.clock.advance(0.5)
        found += read_all(reader)
    return found


def lose_block_six(cluster: LocalCluster) -> Subscription:
    """Trade 100 is out as block 6, and read; the bus loses it, its engine dies, and another makes block 6 of 777."""
    engine = leader(cluster)
    finish(cluster, *range(1, 6))
    reader, lost = subscribe(cluster), cluster.replica()
    assert read_all(reader) == [1, 2, 3, 4, 5]
    finish(cluster, 100)
    assert read_all(reader) == [100]
    cluster.subscribers.clear()
    engine.kill()
    cluster.promote(lost)
    return reader


def test_a_subscriber_that_read_a_lost_block_gets_an_error_and_not_the_block_after_it(cluster):
    # Given a subscriber that has read block 6, and another block 6 in its place
    reader = lose_block_six(cluster)
    send(cluster, 777)
    cluster.start("b")
    cluster.settle()
    # Then its beat says so before any other block comes
    with pytest.raises(OutputDiffers, match=r"Block 6 of local\.p\.q\.in\.O"):
        read_all(reader)
    # And a newcomer has what is in force
    assert read_all(subscribe(cluster)) == [1, 2, 3, 4, 5, 777]


@pytest.mark.parametrize("is_saved", [False, True])
def test_the_next_block_does_not_follow_a_lost_one(cluster, is_saved):
    # Given the same, where beats say nothing of digests
    reader = lose_block_six(cluster)
    position = Position.loads(reader.position.dumps())
    send(cluster, 777, 778)
    cluster.start("b")
    cluster.settle()
    control = cluster.bus.open(cluster.streams.control)
    control.append([replace(last_beat(control), digests={}).batch(0)])
    again = subscribe(cluster, position) if is_saved else reader
    with pytest.raises(OutputDiffers, match="Block 6 of"):
        read_all(again)


def test_a_stream_that_became_shorter_is_an_error_although_nothing_follows(cluster):
    reader = lose_block_six(cluster)
    assert read_all(reader) == []
    cluster.clock.advance(11.0)
    with pytest.raises(LogShortened, match=r"local\.p\.q\.in\.O ends at offset .* where block 6 ended"):
        read_all(reader)


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_stream_that_became_shorter_and_grew_again_is_an_error_although_nothing_follows(cluster, is_saved):
    """Leaders write barriers: the stream is soon as long as it was, and has something else where block 6 stood."""
    reader = lose_block_six(cluster)
    position = reader.position
    for name in "bcde":
        cluster.start(name)
        cluster.until_active()
        cluster.nodes[name].kill()
    assert cluster.output("q/in").bounds().next >= position.offset
    again = subscribe(cluster, Position.loads(position.dumps())) if is_saved else reader
    with pytest.raises(OutputDiffers, match=r"Block 6 of local\.p\.q\.in\.O .*holds another record"):
        read_for(cluster, again, 25.0)


def test_a_block_that_was_lost_and_published_again_is_no_reason_to_stop(cluster):
    """The bus lost block 6 and not the entry that decided it: another engine writes the same block, after a barrier."""
    engine = leader(cluster)
    finish(cluster, *range(1, 6))
    reader = subscribe(cluster)
    assert read_all(reader) == [1, 2, 3, 4, 5]
    engine.slow(1.0)
    send(cluster, 100)
    cluster.until(lambda: engine.control.sequencer.position.block == 6)
    assert engine.control.publisher.published == 5
    lost = cluster.replica()
    cluster.settle()
    assert read_all(reader) == [100]
    cluster.subscribers.clear()
    engine.kill()
    cluster.remove_disk(engine)
    cluster.promote(lost)
    cluster.start("b")
    cluster.settle()
    assert read_for(cluster, reader, 25.0) == []
    finish(cluster, 101)
    assert read_all(reader) == [101]


def test_a_subscriber_that_had_not_read_what_was_lost_goes_on(cluster):
    leader(cluster)
    finish(cluster, *range(1, 6))
    reader, lost = subscribe(cluster), cluster.replica()
    assert read_all(reader) == [1, 2, 3, 4, 5]
    finish(cluster, 100)
    cluster.subscribers.clear()
    cluster.nodes["a"].kill()
    cluster.promote(lost)
    send(cluster, 777)
    cluster.start("b")
    cluster.settle()
    assert read_all(reader) == [777]


def test_an_engine_that_published_a_lost_block_stops(cluster):
    # Given an engine that sleeps while its bus loses what it published, and another that goes on
    engine = leader(cluster)
    finish(cluster, *range(1, 6))
    lost = cluster.replica()
    finish(cluster, 100)
    cluster.subscribers.clear()
    engine.pause()
    cluster.promote(lost)
    send(cluster, 777, 778, 779)
    cluster.start("b")
    cluster.advance(8.0)
    # When it wakes
    engine.wake()
    cluster.advance(8.0)
    # Then it says that what it had read is gone, and ends; the other one goes on
    assert isinstance(engine.failure, SequenceBroken | LogShortened)
    cluster.settle()
    assert read_all(subscribe(cluster)) == [1, 2, 3, 4, 5, 777, 778, 779]


def test_an_engine_that_starts_with_a_state_that_the_log_lost_is_refused(cluster):
    engine = leader(cluster)
    finish(cluster, *range(1, 6))
    lost = cluster.replica()
    finish(cluster, *range(100, 106))
    cluster.advance(1.0)
    cluster.subscribers.clear()
    engine.kill()
    cluster.promote(lost)
    with pytest.raises((LogShortened, SnapshotDamaged)):  # noqa: PT012 - when it starts, or in its first batch
        engine.start()
        cluster.advance(1.0)
        assert engine.failure is not None
        raise engine.failure


def test_engines_that_cut_frames_elsewhere_write_the_same_digests(cluster):
    # Given two engines with batches of other sizes, one of which is killed in the middle of its work
    one, digests = leader(cluster), {}
    cluster.start("b", batch_events=1000)
    for start in range(1, 31, 6):
        send(cluster, *range(start, start + 6))
        cluster.advance(0.1)
        active = cluster.until_active()
        active.kill()
        cluster.until_active()
        active.start()
        cluster.settle()
        cluster.check()
        # Then whoever reads, whenever it began, has the same digest for the same block
        reader = subscribe(cluster)
        while block := reader.next_block(timeout=0):
            assert digests.setdefault(block.number, block.position.digest) == block.position.digest
    assert one.starts > 1
    assert len(digests) == 30
    assert all(len(digest) == 16 for digest in digests.values())


def test_a_leader_whose_next_entry_takes_the_place_of_a_lost_one_stops(cluster):
    """The log is as long again as it was when somebody looks: where the append went says what was lost."""
    engine = leader(cluster)
    finish(cluster, 1, 2)
    before = cluster.replica()
    finish(cluster, 3)
    cluster.may_lose = True
    cluster.promote(before)
    send(cluster, 4, 5, 6)
    cluster.until(lambda: not engine.is_alive)
    assert isinstance(engine.failure, LogShortened)


@pytest.mark.parametrize("server", [None, MemoryServer], ids=["tables", "server"])
def test_a_standby_does_not_lead_on_a_log_that_lost_what_it_read_and_grew_again(tmp_path, server):
    """The leader notices by its own append, which takes the lost entry's place; the standby by what stands there.

    On a server its handle still has what it fetched: whether the entry is still there only the server can say.
    """
    cluster = LocalCluster(sums_graph(), WANTED, tmp_path, server=server and server())
    engine, standby = leader(cluster), cluster.start("b")
    finish(cluster, 1, 2)
    before = cluster.replica()
    finish(cluster, 3)
    cluster.may_lose = True
    cluster.promote(before)
    send(cluster, 4)
    cluster.until(lambda: not engine.is_alive)
    cluster.until(lambda: not standby.is_alive)
    assert isinstance(standby.failure, LogShortened | SequenceBroken)


@pytest.mark.parametrize("server", [None, MemoryServer], ids=["tables", "server"])
def test_engines_whose_election_was_lost_elect_again(tmp_path, server):
    """One has read who was elected, the elected one has not, and the log has forgotten it: each waits for the other."""
    cluster = LocalCluster(sums_graph(), WANTED, tmp_path, server=server and server())
    engine, standby = leader(cluster), cluster.start("b")
    finish(cluster, 1, 2)
    cluster.may_lose = True
    before = cluster.replica()

    def lose_claim() -> None:
        if b"claim" not in all_of(cluster, f"_group.{cluster.streams.group}")[-1]:
            standby.stall_at(".engines", lose_claim, after=True)
            return
        engine.wake()
        cluster.clock.advance(0.1)
        assert engine.control.election.leader() == standby.control.election.me
        cluster.promote(before)

    engine.pause()
    standby.stall_at(".engines", lose_claim, after=True)
    cluster.until(lambda: not engine.machine.is_paused)
    finish(cluster, 3)
    assert read_all(subscribe(cluster)) == [1, 2, 3]


def all_of(cluster: LocalCluster, stream: str) -> list[bytes]:
    log = cluster.bus.open(stream)
    return [value for _, value in values_between(log, log.bounds().first, log.bounds().next)]
