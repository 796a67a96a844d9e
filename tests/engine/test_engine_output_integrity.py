"""What an engine publishes is what it computed, whole, and in its place: or it says why not, and publishes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from failover_worlds import WANTED, finish, leader, pair, send
from hypothesis import given, settings
from hypothesis import strategies as st
from local_cluster import LocalCluster, LocalNode
from local_engine import LocalEngine
from local_spark import files_up_to
from run_worlds import TRADES, output_log, put, run_all, sums_graph, trade

from lockstep.core.outputs import digest_of
from lockstep.engine.errors import (
    BufferDamaged,
    FrameDamaged,
    NameTaken,
    OutputBroken,
    OutputDiffers,
    OutputWithoutStream,
)
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.frames import cut_frames, decode_frame, read_head
from lockstep.engine.runtime.output import publisher
from lockstep.engine.runtime.output.spool import Spool, SpoolPart
from lockstep.engine.runtime.sequence.beats import last_beat
from lockstep.engine.runtime.worker import shard_worker

SOME = tuple((block, f"{block:02x}" * 8) for block in (2, 3, 7, 30))


@pytest.fixture
def engine(tmp_path):
    return LocalEngine(sums_graph(), WANTED, tmp_path)


@pytest.fixture
def cluster(tmp_path):
    return LocalCluster(sums_graph(), WANTED, tmp_path)


def publish(engine: LocalEngine, *ids: int) -> None:
    for one in ids:
        engine.publishers["q/in"].publish([trade(one)])
        engine.settle()


# Frames and digests


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 40)), min_size=1), st.sampled_from([300, 600, 5000]))
def test_wherever_frames_are_cut_each_block_has_the_digest_of_its_entry(sizes, max_bytes):
    blocks = dict(sizes)
    batch = EventBatch.of(TRADES, [(block, [trade(one) for one in range(blocks[block])]) for block in sorted(blocks)])
    frames = [decode_frame(frame, TRADES) for frame in cut_frames(batch, max_bytes, previous=0, lineage=SOME)]
    assert np.array_equal(np.concatenate([frame.batch.block for frame in frames]), batch.block)
    before = ""
    for frame in frames:
        head = frame.head
        assert head.before == before
        before = digest_of(SOME, head.last)
        assert {block: digest_of(head.lineage, block) for block in frame.numbers.tolist()} == {
            block: digest_of(SOME, block) for block in frame.numbers.tolist()
        }


def test_a_lineage_that_does_not_fit_its_frame_is_damage():
    rows = EventBatch.of(TRADES, [(2, [trade(1)]), (3, [trade(2)])])
    (frame,) = cut_frames(rows, 5000, previous=0, lineage=SOME)
    assert read_head(frame).lineage == SOME[:2]
    at = frame.index(bytes.fromhex(SOME[0][1]))
    for cut in (
        frame[: at + 4],
        frame[: at - 8] + b"\xff\xff" + frame[at - 6 :],
        frame[: at + 20] + bytes(8) + frame[at + 28 :],
    ):
        with pytest.raises(FrameDamaged):
            read_head(cut)


# The spool


def part(frames: list[bytes], **more) -> SpoolPart:
    return SpoolPart(first=1, last=2, position={"block": 2}, frames={"q/in": frames}, **more)


@pytest.mark.parametrize("missing", [1, 2, 5000, 9500])
def test_a_disk_that_takes_only_some_bytes_leaves_no_part(tmp_path, missing):
    spool = Spool(tmp_path)
    spool.write(part([b"a" * 600, b"b" * 9000]))
    size = spool.fill().size
    spool.remove_before(3)
    with files_up_to(size - missing), pytest.raises(OSError, match="too large"):
        spool.write(part([b"a" * 600, b"b" * 9000]))
    assert spool.part_with(1) is None
    assert list(tmp_path.iterdir()) == []
    spool.write(part([b"a" * 600, b"b" * 9000], lineage=((2, "aa"),), before={"q/in": (0, "")}))
    found = spool.part_with(1)
    assert [bytes(frame) for frame in found.frames["q/in"]] == [b"a" * 600, b"b" * 9000]
    assert (found.lineage, found.before) == (((2, "aa"),), {"q/in": (0, "")})


@pytest.mark.parametrize("at", [0, 9, 200, -700, -2])
@pytest.mark.parametrize("how", ["flip", "cut", "grow"])
def test_a_spool_file_that_was_changed_is_not_read(tmp_path, at, how):
    spool = Spool(tmp_path)
    spool.write(part([b"a" * 600, b"b" * 900]))
    (path,) = tmp_path.glob("*.spool")
    data = bytearray(path.read_bytes())
    if how == "flip":
        data[at] ^= 0x10
    elif how == "cut":
        del data[at:]
    else:
        data += b"\0" * (abs(at) + 1)
    path.write_bytes(data)
    with pytest.raises(BufferDamaged, match="checksum"):
        spool.part_with(1)


def test_a_damaged_buffer_is_computed_again_and_nothing_of_it_is_published(cluster):
    # Given an active engine that dies before block 6 is out, and a standby whose copy of it is damaged
    active, standby = pair(cluster)
    active.kill_at(".O")
    send(cluster, 6, 7, 8)
    cluster.until(lambda: not active.is_alive and standby.computed().block >= 6)
    started = standby.computing.setup.incarnation
    (spool,) = standby.computing.spools
    for path in spool.folder.glob("*.spool"):
        path.write_bytes(path.read_bytes()[:-20])
    # Then it computes it again, and the interpreter's answer comes out
    cluster.settle()
    cluster.check()
    assert standby.is_alive
    assert standby.computing.setup.incarnation != started
    finish(cluster, 9, 10)


@pytest.mark.parametrize("room", [0, 300])
def test_a_full_disk_of_the_active_engine_costs_the_lead_and_nothing_else(cluster, room):
    # Given an active engine whose disk takes no part of the spool, or only its beginning
    active, standby = pair(cluster)
    active.disk.room = room
    send(cluster, 6, 7, 8)
    # Then the standby leads and publishes
    cluster.until(lambda: standby.is_active and standby.control.publisher.published == 8)
    assert active.is_alive
    # And when there is room again it computes what it missed
    active.disk.room = None
    finish(cluster, 9, 10)


# The place of a block


def test_a_block_that_does_not_follow_the_last_one_is_never_published(engine):
    # Given a stream that ends with a block that this engine has not computed
    publish(engine, 1, 2)
    run_all(engine)
    publish(engine, 3, 4)
    engine.run_batch(4, publish=False)
    log = output_log(engine, "q/in")
    engine.publisher._outlets["q/in"]._state = changed_end(engine, 1)
    before = log.bounds()
    # Then it publishes nothing after it
    with pytest.raises(OutputBroken, match="names 2 before it, but the last one is 1"):
        engine.publish()
    assert log.bounds() == before


def changed_end(engine: LocalEngine, last: int):
    state = engine.publisher._outlets["q/in"]._state
    return replace(state, out=replace(state.out, last=last, digest=""))


def test_after_blocks_of_another_sequence_nothing_is_published(engine):
    # Given a stream on which somebody published block 3 of another sequence
    publish(engine, 1, 2)
    run_all(engine)
    log = output_log(engine, "q/in")
    rows = EventBatch.of(TRADES, [(3, [trade(33)])])
    put(log, *cut_frames(rows, 5000, previous=2, before=last_beat(control(engine)).digests["q/in"],
                         lineage=((3, "0123456789abcdef"),)))  # fmt: skip
    publish(engine, 3, 4)
    # Then the engine that takes over sees that it is not its own
    engine.publisher = engine.new_publisher(engine.bus)
    with pytest.raises(
        OutputDiffers, match=r"Block 3 of test\.p\.q\.in\.O was computed from another sequence .0123456789abcdef"
    ):
        engine.run_batch(4)


def control(engine: LocalEngine):
    return engine.bus.open(engine.streams.control)


def test_a_beat_of_another_sequence_stops_a_worker_that_replays_it(engine):
    publish(engine, 1, 2, 3)
    run_all(engine)
    beat = last_beat(control(engine))
    control(engine).append([replace(beat, digests={**beat.digests, "q/in": "0123456789abcdef"}).batch(0)])
    fresh = shard_worker.ShardWorker(replace(engine.setup, incarnation="fresh"), 0, engine.bus, engine.runtime, {})
    with pytest.raises(OutputDiffers, match="Block 3 of"):
        fresh.run(0, 3, dict)


# Pieces of long blocks


@pytest.fixture
def tiny_frames(monkeypatch):
    for module in (publisher, shard_worker):
        monkeypatch.setattr(module, "FRAME_BYTES", 600)


def test_a_beat_says_that_the_last_block_is_not_whole(engine, tiny_frames):
    """L1 wakes and reads piece 0 of a block that L2 wrote before it died: its beat must not call the block whole."""
    publish(engine, 1)
    run_all(engine)
    # Given L2, which appends piece 0 of block 2 and dies
    engine.publishers["q/in"].publish([trade(one) for one in range(10, 60)])
    engine.settle()
    engine.run_batch(2, publish=False)
    found = engine.publisher._spools[0].part_with(2)
    assert len(found.frames["q/in"]) > 2
    put(output_log(engine, "q/in"), bytes(found.frames["q/in"][0]))
    # When L1 reads it and beats
    outlet = engine.publisher._outlets["q/in"]
    outlet._read()
    engine.publisher._beat()
    beat = last_beat(control(engine))
    assert (beat.last["q/in"], beat.parts["q/in"]) == (2, 1)
    # Then L3, which learns that, publishes the rest of it
    engine.publisher = engine.new_publisher(engine.bus)
    assert engine.publisher._outlets["q/in"].out.part == 1
    while not engine.publisher.is_open:
        engine.publisher.step()
    publish(engine, 70)
    engine.run_batch(3)
    assert [number for number, events in engine.out("q/in")] == [1, 2, 3]
    assert len(dict(engine.out("q/in"))[2]) == 50


def test_pieces_that_this_engine_does_not_have_are_not_taken_for_its_own(engine, tiny_frames):
    # Given a stream that ends with piece 3 of block 2, which is a short block here
    publish(engine, 1)
    run_all(engine)
    publish(engine, 2, 3)
    engine.run_batch(3, publish=False)
    outlet = engine.publisher._outlets["q/in"]
    outlet._state = replace(outlet._state, out=replace(outlet._state.out, last=2, part=3, digest=""))
    with pytest.raises(OutputBroken):
        engine.publish()


# Windows and names


def test_output_of_a_window_that_is_not_published_is_an_error_and_is_not_dropped(engine, monkeypatch):
    publish(engine, 1)
    engine.run_batch(1, publish=False)
    (spool,) = engine.publisher._spools
    part = spool.part_with(1)
    spool.write(replace(part, frames={**part.frames, "q/unknown": part.frames["q/in"]}))
    # For a while it waits: the entry that states the model may not have been read by everybody yet
    assert engine.publisher.step() is False
    assert engine.published() == 0
    monkeypatch.setattr(publisher, "_UNKNOWN_S", 0.0)
    with pytest.raises(OutputWithoutStream, match="output of window q/unknown"):
        engine.publisher.step()
    assert engine.published() == 0


def namesake(cluster: LocalCluster) -> LocalNode:
    """Another engine, on a disk of its own, that is called a too."""
    node = cluster.node("b")
    node.options = replace(node.options, name="a")
    return node


def test_of_two_engines_with_one_name_the_later_one_is_refused(cluster):
    first, second = leader(cluster), namesake(cluster).start()
    cluster.until(lambda: second.failure is not None, timeout=5)
    assert isinstance(second.failure, NameTaken)
    assert "called 'a'" in str(second.failure)
    finish(cluster, 1, 2, 3)
    assert first.is_active


def test_an_engine_that_was_killed_may_start_again_with_its_name(cluster):
    first = leader(cluster)
    for _ in range(3):
        cluster.advance(1.5)
        first.kill()
        first.start()
        cluster.advance(5.0)
        assert first.failure is None
    finish(cluster, 1)


def test_of_two_engines_that_start_at_once_with_one_name_one_stays(cluster):
    nodes = [cluster.node("a"), namesake(cluster)]
    for node in nodes:
        node.start()
    cluster.advance(8.0)
    assert [type(node.failure) for node in nodes].count(NameTaken) == 1
    finish(cluster, 1)
