"""The parts of the simulator that watch engines: if these lie, a clean run means nothing."""

from __future__ import annotations

import random

import pytest

from lockstep.core.outputs import OutState
from lockstep.core.sequence import Entry, Mark, SequenceState
from lockstep.simulation import checks
from lockstep.simulation.delivery_checks import Published
from lockstep.simulation.engine_checks import EngineBook, Oracle
from lockstep.simulation.engine_model import Decision, Fold, Windows, checksum, frame_of
from lockstep.simulation.engine_process import Counted
from lockstep.simulation.engine_sim import EngineSim
from lockstep.simulation.engine_store import Store, heads, save
from lockstep.simulation.logs import Cursor, ForeignCursor, LogShorter, LogTrimmed, SimLog
from lockstep.simulation.trace import Trace
from lockstep.simulation.variants import VARIANTS
from lockstep.simulation.world import World

pytestmark = pytest.mark.sim


@pytest.fixture
def log() -> SimLog[str]:
    log: SimLog[str] = SimLog("log")
    for text in "abcd":
        log.land(text, 0)
    return log


def test_a_cursor_knows_a_log_that_was_trimmed_and_one_that_became_shorter(log) -> None:
    cursor = Cursor(log)
    log.trim(2)
    with pytest.raises(LogTrimmed):
        cursor.read(0.0)
    cursor.next = log.first
    assert cursor.read(0.0) == [(2, "c"), (3, "d")]
    assert log.lose(1) == 1
    with pytest.raises(LogShorter):
        cursor.read(0.0)


def test_a_log_that_lost_its_end_uses_the_offsets_again_and_a_cursor_may_not_see_it(log) -> None:
    cursor = Cursor(log, log.end)
    log.lose(2)
    for text in "xyz":
        log.land(text, 0)
    assert cursor.read(0.0) == [(4, "z")]
    assert log.between(0, log.end) == [(0, "a"), (1, "b"), (2, "x"), (3, "y"), (4, "z")]


def test_what_is_trimmed_is_not_lost_again(log) -> None:
    log.trim(log.end)
    assert (log.lose(9), log.end, log.land("e", 0)) == (0, 4, 4)


def test_a_stalled_cursor_sees_no_end_and_a_slow_one_knows_that_there_is_more(log) -> None:
    cursor = Cursor(log, 2)
    cursor.stall(5.0)
    log.land("e", 0)
    assert [text for _, text in cursor.read(1.0)] == ["c", "d"]
    assert cursor.read(5.0) == [(4, "e")]
    slow = Cursor(log, slow_until=9.0)
    assert (slow.read(1.0), slow.at_end) == ([(0, "a")], False)


def test_a_place_on_a_stream_of_somebody_else_stops_before_a_gap_and_reads_what_was_decided_on(log) -> None:
    decided = [2]
    cursor = ForeignCursor(log, lambda: decided[0], 0)
    log.trim(3)
    assert cursor.read(0.0) == [(0, "a"), (1, "b")]
    assert (cursor.read(0.0), cursor.next) == ([], 2)
    decided[0] = 9
    assert (cursor.read(0.0), cursor.next) == ([(2, "c")], 3)
    assert cursor.read(0.0) == [(3, "d")]


def test_what_is_gone_is_one_block_and_its_messages_count_for_nobody(log) -> None:
    fold = Fold.first(["in"], ["out"])
    taken = [Published("x1", number, number) for number in (4, 4, 7, 6)]
    assert fold.apply(Decision((9,), gaps=(5,)), taken)[0] == [4, 7]
    assert (fold.windows.block, fold.refused) == (3, 0)
    assert Decision((9, 9), gaps=(0, 5)).begin((2, 3)) == (2, 5)


def messages(*values: int) -> list[Published]:
    return [Published("w", number, value) for number, value in enumerate(values)]


def test_the_model_depends_on_the_order_the_time_and_the_model() -> None:
    def state(values: list[int], tick: float, model: int) -> int:
        windows = Windows({"out": (0, 0)}, model=model)
        for value in values:
            windows.take(value)
        windows.tick(tick)
        return windows.state

    assert len({state([1, 2], 1.0, 1), state([2, 1], 1.0, 1), state([1, 2], 2.0, 1), state([1, 2], 1.0, 2)}) == 4


def test_a_long_block_has_pieces_and_chains_to_the_block_before() -> None:
    windows = Windows({"out": (0, 0)})
    pieces = [piece for value in (1, 5, 2) for _, piece in windows.take(value)]
    assert [(piece.block, piece.part, piece.previous) for piece in pieces] == [
        (1, 0, 0), (2, 0, 1), (2, 1, 1), (2, 2, 1), (3, 0, 2)
    ]  # fmt: skip
    assert [piece.state for piece in pieces] == [OutState(1), OutState(2, 1), OutState(2, 2), OutState(2), OutState(3)]
    assert frame_of(pieces[:2]).cut.more
    assert frame_of(pieces[3:]).cut.part == 2


def test_copies_are_dropped_and_gaps_are_refused() -> None:
    fold = Fold.first(["in"], ["out"])
    first, second, third = messages(7, 8, 9)
    assert fold.apply(Decision((9,)), [first, first, third, second])[0] == [7, 8]
    assert fold.refused == 1


def test_a_request_counts_once() -> None:
    fold = Fold.first(["in"], ["out"])
    for model, request in ((2, "r1"), (3, "r2"), (2, "r1")):
        fold.apply(Decision((0,), model=model, request=request), [])
    assert fold.windows.model == 3


def test_a_decision_comes_back_from_its_body() -> None:
    decision = Decision((3, 4), checksum(messages(1)), 1.5, 2, "r", "e1", (1, 2, 3))
    assert Decision.of(decision.body()) == decision


class Book:
    """An observer with one input, one out stream, and three entries: two that count around a mark, one orphan."""

    def __init__(self, *, lossy: bool = False) -> None:
        self.names: list[str] = []
        self.input: SimLog[Published] = SimLog("in")
        for message in messages(1, 2, 3):
            self.input.land(message, 0)
        self.input.land(messages(1)[0], 0)
        oracle = Oracle.of({"in": self.input}, ["out"])
        self.book = EngineBook(oracle, lambda name, _: self.names.append(name), Decision.of, lossy)
        self.first, self.orphan, self.second = (
            self.entry(1, "e1", 1, 2),
            self.entry(1, "e1", 2, 3),
            self.entry(2, "e2", 2, 4),
        )
        for at, record in enumerate([Mark(1, "e1"), self.first, Mark(2, "e2"), self.orphan, self.second]):
            self.book.landed(at, record)

    def entry(self, epoch: int, owner: str, number: int, end: int) -> Entry:
        return Entry(epoch, owner, number, "", Decision((end,)).body())

    def applied(self, at: int, entry: Entry, fold: Fold, accepted: list[int]) -> None:
        self.book.applied("e3", Counted(at, entry, SequenceState()), accepted, fold)


@pytest.fixture
def observer() -> Book:
    return Book()


def fold_of(*values: int, number: int) -> Fold:
    fold = Fold.first(["in"], ["out"])
    for value in values:
        fold.windows.take(value)
    fold.number = number
    return fold


def test_the_observer_folds_what_counts(observer) -> None:
    assert observer.book.oracle.entries[0][0] == [1, 2]
    assert observer.book.oracle.entries[1][0] == [3]
    observer.applied(1, observer.first, fold_of(1, 2, number=1), [1, 2])
    observer.applied(4, observer.second, fold_of(1, 2, 3, number=2), [3])
    observer.book.passed("e3", 3)
    assert observer.names == []


def test_the_observer_knows_an_engine_that_went_wrong(observer) -> None:
    observer.applied(3, observer.orphan, fold_of(1, 2, 3, number=2), [3])
    assert observer.names == [checks.STALE_ENTRY]
    observer.applied(1, observer.first, fold_of(2, 1, number=1), [2, 1])
    assert observer.names[1:] == [checks.INPUT_NOT_ONCE]
    observer.applied(1, observer.first, fold_of(1, 1, number=1), [1, 2])
    assert observer.names[2:] == [checks.DIVERGED]
    observer.applied(1, observer.first, fold_of(1, 2, number=2), [1, 2])
    observer.book.passed("e3", 4)
    assert observer.names[3:] == [checks.MISCOUNTED, checks.MISCOUNTED]


def test_the_observer_follows_an_out_stream(observer) -> None:
    pieces = observer.book.oracle.pieces["out"]
    for frame in (frame_of(pieces[:2]), frame_of(pieces[:1]), frame_of(pieces[1:])):
        observer.book.published("out", 0, frame)
    assert observer.names == []
    observer.book.published("out", 0, frame_of([pieces[0]._replace(content=0)]))
    observer.book.delivered("s1", "out", pieces[0]._replace(block=9))
    assert observer.names == [checks.WRONG_OUTPUT, checks.WRONG_OUTPUT]


def test_the_observer_knows_a_block_that_was_passed_over(observer) -> None:
    observer.book.published("out", 0, frame_of(observer.book.oracle.pieces["out"][1:]))
    assert observer.names == [checks.SKIP]


def test_the_observer_knows_a_gap_where_there_is_none(observer) -> None:
    observer.input.land(Published("w", 3, 77), 0)
    observer.input.trim(4)
    observer.book.landed(5, Entry(2, "e2", 3, "", Decision((5,), gaps=(5,)).body()))
    assert observer.names == [checks.NEEDLESS_GAP]
    assert observer.book.oracle.gone == {77}


def test_acknowledged_input_must_count_once_and_in_order(observer) -> None:
    observer.book.acknowledged += [("w", 1), ("w", 2), ("w", 3)]
    observer.book.after_healing()
    assert observer.names == []
    observer.book.acknowledged += [("w", 2), ("w", 77)]
    observer.book.after_healing()
    assert observer.names == [checks.INPUT_NOT_ONCE] * 2


def test_a_stop_is_an_error_on_a_bus_that_loses_something_and_an_anomaly_elsewhere(observer) -> None:
    observer.book.visible("e1", "why")
    assert observer.names == [checks.NEEDLESS_STOP]
    lossy = Book(lossy=True)
    lossy.book.visible("e1", "why")
    lossy.book.can_not_publish("e1", "why")
    assert (lossy.names, lossy.book.errors) == ([], ["e1: why"])


def test_the_store_keeps_two_and_says_what_may_go() -> None:
    store, fold = Store(), Fold.first(["in"], ["out"])
    for number in (1, 2, 3):
        fold.apply(Decision((number * 10,)), [])
        store.put(save(f"s{number}", SequenceState(number=number, upto=number * 5), fold, ["in"]), {})
    assert [saved.snapshot.name for saved in store.saved] == ["s2", "s3"]
    below = store.trimmable([])
    assert (below.sequence, below.inputs) == (11, {"in": 20})
    sequence, inputs = SimLog[str]("S", first=16), {"in": SimLog[str]("in", first=30)}
    newest = store.newest(heads(sequence, inputs))
    assert newest is not None
    assert newest.snapshot.name == "s3"


def quiet_world(variant: str = "correct") -> tuple[World, EngineSim]:
    """A project in which nothing goes wrong."""
    world = World(random.Random(3), VARIANTS[variant], Trace())
    sim = EngineSim(world)
    world.faults.append_odds, world.faults.process_odds, sim.lossy = {}, {}, False
    sim.book.lossy = False
    return world, sim


@pytest.mark.slow
def test_without_faults_there_is_one_leader_and_everything_is_delivered() -> None:
    world, sim = quiet_world()
    for _ in range(60):
        world.tick()
        sim.after_tick()
    world.heal()
    sim.heal()
    for _ in range(60):
        world.tick()
        sim.after_tick()
    assert (world.findings.anomalies, sim.unfinished()) == ([], None)
    sim.finish()
    assert world.findings.anomalies == []
    assert world.seen["takeovers"] == 0
    assert sum(len(pieces) for pieces in sim.book.oracle.pieces.values()) > 20
    delivered = {name: [piece.key for piece in got] for name, got in sim.subscribers[0].delivered.items()}
    wanted = {name: [piece.key for piece in pieces] for name, pieces in sim.book.oracle.pieces.items()}
    assert delivered == wanted


@pytest.mark.slow
def test_a_standby_with_a_full_buffer_goes_on_when_its_leader_dies() -> None:
    # Given a leader whose output nobody can read back, until every buffer is full
    world, sim = quiet_world()
    for _ in range(25):
        world.tick()
    leading = next(engine for engine in sim.engines if engine.host.alive and engine.leader.epoch)
    for engine in (engine for engine in sim.engines if engine.host.alive):
        for each in engine.outlets.all.values():
            each.cursor.stall(world.now + 6.0)
    for _ in range(40):
        world.tick()
    standby = next(engine for engine in sim.engines if engine.host.alive and engine is not leading)
    assert standby.outlets.is_full
    assert standby.counted
    stopped_at = standby.fold.number
    # When the leader dies
    leading.host.alive, leading.host.starts_at = False, 1000.0
    for _ in range(60):
        world.tick()
    # Then the standby computes again: somebody publishes
    assert standby.fold.number > stopped_at + 5
    assert world.findings.anomalies == []
