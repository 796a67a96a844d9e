"""What workers computed reaches the out streams in order, each block once, whatever dies in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from local_engine import LocalEngine
from run_worlds import TRADES, output_log, put, recent_graph, run_all, sums_graph, told, trade

from lockstep.engine.errors import BufferGap, OutputBroken
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.frames import cut_frames, decode_frame, read_head
from lockstep.engine.reference.operator import WindowCounts
from lockstep.engine.runtime.output import publisher
from lockstep.engine.runtime.output.event_streams import OutFold
from lockstep.engine.runtime.output.outlet import is_barrier
from lockstep.engine.runtime.output.publisher import Publisher, merge_counts
from lockstep.engine.runtime.output.spool import Spool
from lockstep.engine.runtime.sequence import beats
from lockstep.engine.runtime.sequence.beats import Beat, last_beat, trim_beats
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.engine.runtime.worker import shard_worker
from lockstep.log.port import Bus, Log

WANTED = frozenset({"q/in", "q/sums"})


class LocalStandby:
    """A second engine of the same project, with a worker and a spool of its own."""

    def __init__(self, engine: LocalEngine) -> None:
        setup = replace(engine.setup, incarnation="standby")
        self.worker = shard_worker.ShardWorker(setup, 0, engine.bus, engine.runtime, {})
        self.spool = Spool(setup.spool(0))
        nodes = [node for node in engine.graph.nodes if node.path in engine.wanted]
        self.publisher = Publisher(engine.bus, engine.streams, nodes, [self.spool], engine.runtime, "standby")

    def run(self, start: int, stop: int) -> None:
        self.worker.run(start, stop, dict)


class Died(Exception):
    """The process is gone."""


@pytest.fixture
def engine(tmp_path):
    return LocalEngine(sums_graph(), WANTED, tmp_path)


def send(engine: LocalEngine, *ids: int) -> None:
    for one in ids:
        engine.publishers["q/in"].publish([trade(one)])
        engine.settle()


def frames_on(log: Log) -> list[bytes]:
    """Everything but barriers."""
    bounds = log.bounds()
    return [value for _, value in values_between(log, bounds.first, bounds.next) if not is_barrier(value)]


def heads(engine: LocalEngine, path: str = "q/in") -> list[tuple[int | None, int, int]]:
    log = output_log(engine, path)
    found = [read_head(value) for value in frames_on(log)]
    return [(head.previous, head.first, head.last) for head in found]


def answer(engine: LocalEngine) -> dict[str, list[tuple[int, list[object]]]]:
    return {path: engine.out(path) for path in WANTED}


def expected(tmp_path, *ids: int) -> dict[str, list[tuple[int, list[object]]]]:
    """The same without any trouble."""
    plain = LocalEngine(sums_graph(), WANTED, tmp_path / "plain")
    send(plain, *ids)
    run_all(plain)
    return answer(plain)


def test_a_restart_in_the_middle_of_a_frame_cuts_anew(engine, tmp_path):
    # Given ten blocks of which four are out, and a worker that makes one frame of all ten
    send(engine, *range(1, 11))
    engine.run_batch(4, commit=False)
    assert engine.published() == 4
    engine.restart()
    engine.run_batch(10)
    # Then the rest goes out as a frame that follows the first
    assert heads(engine) == [(0, 1, 4), (4, 5, 10)]
    assert answer(engine) == expected(tmp_path, *range(1, 11))


def test_what_is_out_already_is_not_published_again(engine):
    send(engine, 1, 2, 3)
    engine.run_batch(3, commit=False)
    before = {path: frames_on(output_log(engine, path)) for path in WANTED}
    engine.restart()
    engine.run_batch(3)
    assert engine.publisher.step() is False
    assert {path: frames_on(output_log(engine, path)) for path in WANTED} == before


def test_blocks_without_events_are_not_written_but_the_chain_goes_over_them(engine):
    for events in ([trade(1)], [], [], [trade(2)], []):
        engine.publishers["q/in"].publish(events)
        engine.settle()
        run_all(engine)
    assert heads(engine) == [(0, 1, 1), (1, 4, 4)]
    assert engine.published() == 5
    assert [number for number, _ in engine.out("q/in")] == [1, 4]


def test_an_out_stream_that_was_trimmed_goes_on_where_it_was(engine):
    # Given an out stream of which nothing is left
    send(engine, 1, 2)
    run_all(engine)
    log = output_log(engine, "q/in")
    log.trim(log.bounds().next)
    assert frames_on(log) == []
    # When the engine starts again
    engine.restart()
    send(engine, 3)
    run_all(engine)
    # Then the chain goes on: a reader that has read everything can read on, and so can one that begins here
    assert heads(engine) == [(2, 3, 3)]
    for last in (2, None):
        assert seen(log, last) == [(3, 3)]


def test_nothing_is_published_before_every_shard_has_it(tmp_path):
    engine = LocalEngine(recent_graph(), frozenset({"q/sums"}), tmp_path, shards=2)
    for one, symbol in enumerate("ABCD"):
        engine.publishers["q/in"].publish([Event(Opcode.INSERT, Flag.NORMAL, (one, symbol, 1.0, one))])
    engine.settle()
    first, second = (shard_worker.ShardWorker(engine.setup, at, engine.bus, engine.runtime, {}) for at in (0, 1))
    # Given one shard that is ahead, in other steps than the other
    first.run(0, 2, dict)
    first.run(2, 4, dict)
    assert engine.publisher.step() is False
    second.run(0, 3, dict)
    assert engine.publisher.step()
    assert engine.published() == 2
    assert engine.publisher.step()
    assert engine.published() == 3
    assert engine.publisher.step() is False
    second.run(3, 4, dict)
    assert engine.publisher.step()
    assert [event.values[0] for _, events in engine.out("q/sums") for event in events][:4] == ["A", "B", "C", "D"]


# Dying between two parts of a publication


class Watched:
    """A bus whose process dies at the n-th append."""

    def __init__(self, bus: Bus, dies_at: int) -> None:
        self._bus, self._left = bus, dies_at

    def __getattr__(self, name: str) -> object:
        return getattr(self._bus, name)

    def open(self, name: str) -> Log:
        return Watching(self._bus.open(name), self._count)  # type: ignore[return-value]

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise Died


class Watching:
    """A log or a transaction that counts."""

    def __init__(self, inner: object, count: Callable[[], None]) -> None:
        self._inner, self._count = inner, count

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def append(self, *args: object, **more: object) -> object:
        self._count()
        return self._inner.append(*args, **more)  # type: ignore[attr-defined]


IDS = (1, 2, 2, 3, 1, 4)


@pytest.mark.parametrize("dies_at", range(1, 7))
def test_dying_anywhere_in_a_publication_loses_and_doubles_nothing(engine, tmp_path, dies_at):
    # Given blocks for two out streams, bad records and a beat: with the barriers six appends
    send(engine, *IDS)
    engine.publisher = engine.new_publisher(Watched(engine.bus, dies_at))
    with pytest.raises(Died):
        engine.run_batch(6, commit=False)
    # Then nothing says that it is out
    assert engine.published() == 0
    # And the next process brings everything, each block once
    engine.restart()
    engine.run_batch(6)
    assert answer(engine) == expected(tmp_path, *IDS)
    assert [one["block"] for one in told(engine, engine.streams.bad)] == [3, 5]


@pytest.mark.parametrize("kill_after", range(1, 7))
def test_bad_records_are_written_once_whenever_it_is_killed(engine, kill_after):
    send(engine, *IDS)
    engine.run_batch(kill_after, commit=False)
    engine.restart()
    engine.run_batch(6)
    assert [one["block"] for one in told(engine, engine.streams.bad)] == [3, 5]
    assert engine.publisher.counts["q/in"].bad == {"duplicate-key": 2}


# Two engines


def test_of_two_engines_that_publish_at_once_readers_see_each_block_once(engine, tmp_path):
    # Given two engines with folders of their own that compute the same, and both take themselves for the leader
    send(engine, *IDS)
    one, first = engine.publisher, shard_worker.ShardWorker(engine.setup, 0, engine.bus, engine.runtime, {})
    while not one.is_open:
        one.step()
    engine.restart()
    two, second = engine.publisher, shard_worker.ShardWorker(engine.setup, 0, engine.bus, engine.runtime, {})
    first.run(0, 3, dict)
    second.run(0, 5, dict)
    # When both publish, the older one late
    engine.publish()
    for _ in range(3):
        one.step()
    second.run(5, 6, dict)
    engine.publish()
    # Then readers drop the copies, and nothing else happened
    assert two.published == 6
    assert answer(engine) == expected(tmp_path, *IDS)


def test_who_follows_publishes_nothing_and_lets_go_of_what_is_out(engine):
    # Given a leader, and a second engine that follows with a spool of its own
    send(engine, *IDS)
    standby = LocalStandby(engine)
    standby.run(0, 6)
    assert standby.publisher.step() is False
    assert standby.spool.fill().blocks == 6
    assert engine.published() == 0
    # When the leader publishes, then the standby needs its copy no more
    engine.run_batch(6)
    standby.publisher.step()
    assert standby.publisher.published == 6
    assert standby.spool.fill().files == 0


def test_a_standby_that_takes_over_goes_on_from_its_buffer(engine, tmp_path):
    # Given a leader that dies when three of six blocks are out
    send(engine, *IDS)
    standby = LocalStandby(engine)
    standby.run(0, 6)
    engine.run_batch(3)
    # When the standby leads
    standby.publisher.lead(7)
    while standby.publisher.step() or not standby.publisher.is_open:
        pass
    # Then nothing is missing and nothing is there twice
    assert standby.publisher.published == 6
    assert answer(engine) == expected(tmp_path, *IDS)
    assert heads(engine) == [(0, 1, 2), (2, 4, 4), (4, 6, 6)] or heads(engine) == [(0, 1, 2), (2, 4, 6)]
    assert [one["block"] for one in told(engine, engine.streams.bad)] == [3, 5]


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_a_standby_that_takes_over_in_the_middle_of_a_long_block_brings_the_rest_of_it(
    engine, tmp_path, monkeypatch, pieces
):
    # Given a block of several frames, of which a leader wrote some before it died
    for module in (shard_worker, publisher):
        monkeypatch.setattr(module, "FRAME_BYTES", 700)
    engine.publishers["q/in"].publish([trade(one) for one in range(60)])
    engine.settle()
    standby = LocalStandby(engine)
    standby.run(0, 1)
    part = standby.spool.part_with(1)
    assert len(part.frames["q/in"]) > 3
    put(output_log(engine, "q/in"), *map(bytes, part.frames["q/in"][:pieces]))
    # When the standby leads, then it goes on with the next piece, and readers get the block once
    standby.publisher.lead(7)
    while standby.publisher.step() or not standby.publisher.is_open:
        pass
    assert [event.values[0] for _, events in engine.out("q/in") for event in events] == list(range(60))
    assert len(frames_on(output_log(engine, "q/in"))) == len(part.frames["q/in"])


def test_a_block_that_is_missing_in_the_buffer_is_an_error_with_the_range(engine):
    send(engine, 1, 2, 3)
    engine.run_batch(1)
    standby = LocalStandby(engine)
    standby.run(0, 2)
    standby.run(2, 3)
    min(standby.spool.folder.glob("*.spool")).unlink()
    standby.publisher.lead(7)
    standby.publisher.step()
    with pytest.raises(BufferGap, match="Blocks 2 to 2"):
        standby.publisher.step()


# Beats and counts


def test_counts_and_position_survive_a_restart(engine):
    send(engine, *IDS)
    run_all(engine)
    counts, position = engine.publisher.counts, engine.publisher.position
    assert position == engine.sequencer.position
    assert counts["q/in"].rows == 4
    engine.restart()
    assert engine.publisher.counts == counts
    assert engine.publisher.position == position
    send(engine, 7)
    run_all(engine)
    assert engine.publisher.counts["q/in"].rows == 5


def test_old_beats_are_let_go_and_the_newest_stays(engine):
    control = engine.bus.open(engine.streams.control)
    for number in range(1, 40 * beats._KEEP):
        control.append([Beat("me", number, {"q/in": number}).batch(0)])
        trim_beats(control)
        assert control.bounds().count <= 16 * beats._KEEP
    assert last_beat(control) == Beat("me", 40 * beats._KEEP - 1, {"q/in": 40 * beats._KEEP - 1})


def test_without_a_beat_nothing_is_published(engine):
    assert last_beat(engine.bus.open(engine.streams.control)) == Beat()
    assert engine.publisher.position is None


def test_counts_of_divided_windows_are_added_and_others_are_taken_once():
    parts = [{"a": WindowCounts(1, 2, 3, {"x": 1}).dump(), "b": WindowCounts(5, 5, 5, {}).dump()}] * 2
    merged = merge_counts(parts, frozenset({"a"}))
    assert merged == {"a": WindowCounts(2, 4, 6, {"x": 2}), "b": WindowCounts(5, 5, 5, {})}


# Reading an out stream


def out_log(engine: LocalEngine, *frames: bytes) -> Log:
    log = output_log(engine, "q/in")
    put(log, *frames)
    return log


def block_frames(blocks: dict[int, list[int]], previous: int, max_bytes: int = 1 << 20) -> list[bytes]:
    batch = EventBatch.of(TRADES, [(number, [trade(one) for one in ids]) for number, ids in blocks.items()])
    return cut_frames(batch, max_bytes=max_bytes, previous=previous)


def seen(log: Log, last: int | None = 0) -> list[tuple[int, int]]:
    """What a reader is given that has seen everything up to block `last`."""
    fold, bounds = OutFold(log.name, TRADES, last), log.bounds()
    batches = [fold.take(offset, value) for offset, value in values_between(log, bounds.first, bounds.next)]
    return [(number, event.values[0]) for batch in batches for number, events in batch.blocks() for event in events]


def test_a_reader_skips_what_it_has_seen(engine):
    one, two = block_frames({1: [1], 2: [2]}, 0), block_frames({4: [4]}, 2)
    log = out_log(engine, *one, *two, *one, *two, *block_frames({7: [7]}, 4))
    assert seen(log) == [(1, 1), (2, 2), (4, 4), (7, 7)]
    assert seen(log, 4) == [(7, 7)]


def test_a_reader_drops_copies_that_were_cut_differently(engine):
    # Given the same blocks twice, in other frames
    log = out_log(engine, *block_frames({1: [1], 3: [3]}, 0), *block_frames({1: [1], 3: [3], 4: [4]}, 0))
    put(log, *block_frames({3: [3]}, 1), *block_frames({4: [4], 6: [6]}, 3))
    assert seen(log) == [(1, 1), (3, 3), (4, 4), (6, 6)]


def test_a_late_reader_begins_with_what_is_there(engine):
    log = out_log(engine, *block_frames({7: [7]}, 4), *block_frames({8: [8]}, 7))
    assert seen(log, None) == [(7, 7), (8, 8)]
    with pytest.raises(OutputBroken):
        seen(log, 3)


def test_a_reader_stops_at_a_gap(engine):
    log = out_log(engine, *block_frames({1: [1]}, 0), *block_frames({5: [5]}, 3))
    with pytest.raises(OutputBroken) as told:
        seen(log)
    assert told.value.params == {"number": 5, "stream": log.name, "previous": 3, "last": 1}


def test_a_block_that_is_too_large_for_a_frame_goes_on_in_the_next(engine):
    frames = block_frames({1: [1], 2: list(range(40)), 3: [3]}, 0, max_bytes=600)
    assert len(frames) > 3
    found = seen(out_log(engine, *frames))
    assert found == [(1, 1), *((2, one) for one in range(40)), (3, 3)]


def test_large_blocks_come_out_whole_though_frames_are_small(engine, tmp_path, monkeypatch):
    for module in (shard_worker, publisher):
        monkeypatch.setattr(module, "FRAME_BYTES", 700)
    for block in range(3):
        engine.publishers["q/in"].publish([trade(100 * block + one) for one in range(60)])
    engine.settle()
    engine.run_batch(1, commit=False)
    engine.restart()
    engine.run_batch(engine.sequencer.position.number)
    # Then a block went on over several frames, and nothing is missing or twice
    assert any(previous == first for previous, first, _ in heads(engine))
    rows = [event.values[0] for _, events in engine.out("q/in") for event in events]
    assert rows == [100 * block + one for block in range(3) for one in range(60)]


def test_frames_on_the_stream_are_those_of_the_window(engine):
    send(engine, 1)
    run_all(engine)
    log = output_log(engine, "q/in")
    (value,) = frames_on(log)
    assert decode_frame(value, TRADES).head.client is None
