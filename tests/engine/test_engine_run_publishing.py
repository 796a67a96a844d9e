"""What workers computed reaches the out streams in order, each block once, whatever dies in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from local_engine import LocalEngine
from run_worlds import TRADES, output_log, put, recent_graph, run_all, sums_graph, told, trade

from lockstep.engine.errors import OutputBroken
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.frames import cut_frames, decode_frame, read_head
from lockstep.engine.run import beats, publishing, worker
from lockstep.engine.run.beats import Beat, last_beat, trim_beats
from lockstep.engine.run.feeding import OutFold
from lockstep.engine.run.publishing import last_block, merge_counts
from lockstep.engine.run.reading import values_between
from lockstep.engine.windows.counts import WindowCounts
from lockstep.log.port import Bus, Log

WANTED = frozenset({"q/in", "q/sums"})


class Died(Exception):
    """The process is gone."""


@pytest.fixture
def engine(tmp_path):
    return LocalEngine(sums_graph(), WANTED, tmp_path)


def send(engine: LocalEngine, *ids: int) -> None:
    for one in ids:
        engine.publishers["q/in"].publish([trade(one)])
        engine.settle()


def heads(engine: LocalEngine, path: str = "q/in") -> list[tuple[int | None, int, int]]:
    log = output_log(engine, path)
    found = [read_head(value) for _, value in values_between(log, log.bounds().first, log.bounds().next)]
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
    before = {path: output_log(engine, path).bounds() for path in WANTED}
    engine.restart()
    engine.run_batch(3)
    assert engine.publisher.step() is False
    assert {path: output_log(engine, path).bounds() for path in WANTED} == before


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
    assert last_block(log) == 0
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
    first, second = (worker.ShardWorker(engine.setup, at, engine.bus, engine.runtime, {}) for at in (0, 1))
    # Given one shard that is ahead, in other steps than the other
    first.run(0, 2)
    first.run(2, 4)
    assert engine.publisher.step() is False
    second.run(0, 3)
    assert engine.publisher.step()
    assert engine.published() == 2
    assert engine.publisher.step()
    assert engine.published() == 3
    assert engine.publisher.step() is False
    second.run(3, 4)
    assert engine.publisher.step()
    assert [event.values[0] for _, events in engine.out("q/sums") for event in events][:4] == ["A", "B", "C", "D"]


# Dying between two parts of a publication


class Watched:
    """A bus whose process dies at the n-th append."""

    def __init__(self, bus: Bus, dies_at: int, *, atomic: bool) -> None:
        self._bus, self._left = bus, dies_at
        self.promises = replace(bus.promises, atomic=atomic)

    def __getattr__(self, name: str) -> object:
        return getattr(self._bus, name)

    def open(self, name: str) -> Log:
        log = self._bus.open(name)
        return Watching(log, self._count)  # type: ignore[return-value]

    def atomic(self, work: Callable[[object], object]) -> object:
        return self._bus.atomic(lambda changes: work(Watching(changes, self._count)))

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


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("dies_at", [1, 2, 3, 4])
def test_dying_anywhere_in_a_publication_loses_and_doubles_nothing(engine, tmp_path, dies_at, atomic):
    # Given blocks for two out streams, bad records and a beat: four appends
    send(engine, *IDS)
    engine.publisher._bus = Watched(engine.bus, dies_at, atomic=atomic)
    before = engine.bus.open(engine.streams.bad).bounds()
    with pytest.raises(Died):
        engine.run_batch(6, commit=False)
    # Then nothing says that it is out, and where the bus can do it in one step there is nothing at all
    assert engine.published() == 0
    if atomic:
        assert answer(engine) == {path: [] for path in WANTED}
        assert engine.bus.open(engine.streams.bad).bounds() == before
    # And the next process brings everything, each block once
    engine.restart()
    engine.run_batch(6)
    assert answer(engine) == expected(tmp_path, *IDS)
    if atomic:
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


def test_of_two_engines_that_publish_at_once_each_block_comes_from_one(engine, tmp_path):
    # Given two engines with folders of their own that compute the same
    send(engine, *IDS)
    one, first = engine.publisher, worker.ShardWorker(engine.setup, 0, engine.bus, engine.runtime, {})
    engine.restart()
    two, second = engine.publisher, worker.ShardWorker(engine.setup, 0, engine.bus, engine.runtime, {})
    first.run(0, 3)
    second.run(0, 5)
    # When one has published
    assert one.step()
    # Then the other one looks what is out, and goes on behind that
    while two.step():
        pass
    first.run(3, 6)
    while one.step():
        pass
    assert answer(engine) == expected(tmp_path, *IDS)


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
    for module in (worker, publishing):
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
    ((_, value),) = values_between(log, 0, log.bounds().next)
    assert decode_frame(value, TRADES).head.client is None
