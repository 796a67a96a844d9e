"""The simulator's own parts: if these lie, a clean run means nothing."""

from __future__ import annotations

import random

import pytest

from lockstep.core.group import Beat, Claim, Confirm, GroupState, Release, Reset
from lockstep.core.seats import Seat
from lockstep.core.sequence import Entry, Mark
from lockstep.simulation import checks, faults
from lockstep.simulation.delivery_checks import DeliveryChecks, Published, StreamBook
from lockstep.simulation.group_checks import GroupBook, SeatBook, SeatChecks
from lockstep.simulation.leader_checks import Block, SequenceBook
from lockstep.simulation.logs import Reader, SimLog
from lockstep.simulation.trace import Trace
from lockstep.simulation.variants import VARIANTS
from lockstep.simulation.world import REFUSED, Host, World

pytestmark = pytest.mark.sim


class Found:
    """Collects what an observer reports."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, name: str, _detail: str) -> None:
        self.names.append(name)


@pytest.fixture
def found() -> Found:
    return Found()


def world_with(fate: str | None) -> World:
    world = World(random.Random(1), VARIANTS["correct"], Trace())
    world.faults.append_odds = {} if fate is None else {fate: 1.0}
    return world


@pytest.mark.parametrize(
    ("fate", "lands_now", "lands_later", "told"),
    [
        (None, 1, 0, "offset"),
        (faults.ACK_LOST, 1, 0, "nothing"),
        (faults.APPEND_LOST, 0, 0, "nothing"),
        (faults.APPEND_LATE, 0, 1, "nothing"),
        (faults.APPEND_DOUBLED, 1, 1, "offset"),
        (faults.APPEND_REFUSED, 0, 0, "refused"),
    ],
)
def test_what_becomes_of_an_append_and_what_its_writer_is_told(fate, lands_now, lands_later, told) -> None:
    # Given a log on which every append meets the same fate
    world, log = world_with(fate), SimLog("log")
    # When a record is appended, and long after
    answer = world.append(Host("p1"), log, "record")
    now = len(log.records)
    log.land_due(1000.0)
    # Then it landed that often, and the writer knows no more than it should
    assert (now, len(log.records) - now) == (lands_now, lands_later)
    assert {None: "nothing", REFUSED: "refused"}.get(answer, "offset") == told
    if told == "offset":
        assert answer == log.offsets[0]


def test_a_stalled_reader_believes_that_the_log_ends() -> None:
    # Given a reader at the end of a log
    log: SimLog[str] = SimLog("log")
    log.land("a", 0)
    reader = Reader(log)
    assert reader.read(0.0) == [(0, "a")]
    # When it stalls, and something lands two offsets further on
    reader.stall(5.0)
    log.land("b", 2)
    # Then it sees nothing and believes to be at the end, until the stall is over
    assert (reader.read(4.0), reader.at_end) == ([], True)
    assert (reader.read(5.0), reader.at_end) == ([(3, "b")], True)


def test_a_slow_reader_knows_that_there_is_more() -> None:
    log: SimLog[str] = SimLog("log")
    for text in "abc":
        log.land(text, 0)
    reader = Reader(log, slow_until=5.0)
    assert (reader.read(0.0), reader.at_end) == ([(0, "a")], False)
    assert (reader.read(6.0), reader.at_end) == ([(1, "b"), (2, "c")], True)


def test_late_appends_land_in_the_order_they_are_due() -> None:
    log: SimLog[str] = SimLog("log")
    log.send("second", 2.0, 0)
    log.send("first", 1.0, 0)
    log.land_due(0.5)
    assert log.records == []
    log.land_due(3.0)
    assert log.records == ["first", "second"]


def test_a_wall_clock_jumps_and_a_monotonic_clock_does_not() -> None:
    world = world_with(None)
    host = world.host("p1")
    before = host.monotonic(1.0)
    host.wall_skew -= 3600
    assert host.monotonic(1.0) == before
    assert host.wall(2.0) - host.wall(1.0) == pytest.approx(1.0)


def group_book() -> GroupBook:
    book = GroupBook({"a": SeatBook()})
    for at, record in enumerate([
        Claim("p1", "a", 1, -1),
        Beat("p1", 1, ("a",), {"a": 1}),
        Claim("p2", "a", 2, 0),  # had not read the beat
        Claim("p3", "a", 2, 1),
        Confirm("p1", "a", 1, 7),  # of the old generation
        Confirm("p3", "a", 2, 5),
    ]):  # fmt: skip
        book.landed(at, record)
    return book


def test_the_book_keeps_who_owns_a_seat() -> None:
    book = group_book()
    assert book.seats["a"].facts() == (2, "p3", None, 5)
    assert list(book.outdated_claims) == [2]
    assert list(book.stale_confirms) == [4]
    book.landed(6, Reset("a", 3, "r"))
    book.landed(7, Reset("a", 0, "r"))
    assert book.seats["a"].facts() == (3, None, 3, None)
    book.landed(8, Claim("p1", "a", 4, 7))
    book.landed(9, Release("p1", "a", 4))
    assert book.seats["a"].facts() == (4, None, 3, None)


def test_the_observer_knows_a_claim_that_should_have_lost(found) -> None:
    before, after = GroupState({"a": Seat(1, "p1", 1)}), GroupState({"a": Seat(2, "p2", 2)}, upto=2)
    SeatChecks(group_book(), found).folded("p9", 2, Claim("p2", "a", 2, 0), before, after)
    assert found.names == [checks.NEEDLESS_TAKEOVER]


def test_the_observer_knows_a_confirmation_of_an_old_generation(found) -> None:
    before = GroupState({"a": Seat(2, "p3", 3)})
    after = GroupState({"a": Seat(2, "p3", 3, confirmed=7)}, upto=4)
    SeatChecks(group_book(), found).folded("p9", 4, Confirm("p1", "a", 1, 7), before, after)
    assert found.names == [checks.STALE_CONFIRM]


def test_the_observer_knows_a_position_that_went_back(found) -> None:
    before = GroupState({"a": Seat(2, "p3", 3, confirmed=9)})
    after = GroupState({"a": Seat(2, "p3", 3, confirmed=5)}, upto=5)
    SeatChecks(group_book(), found).folded("p9", 5, Confirm("p3", "a", 2, 5), before, after)
    assert found.names == [checks.CONFIRM_BACK]


def test_the_observer_compares_every_fold_with_its_book(found) -> None:
    seats = SeatChecks(group_book(), found)
    seats.compare("p1", GroupState({"a": Seat(2, "p3", 3, confirmed=5)}, upto=5))
    assert found.names == []
    seats.compare("p2", GroupState({"a": Seat(2, "p2", 2, confirmed=5)}, upto=5))
    assert found.names == [checks.TWO_OWNERS, checks.MISCOUNTED]


def test_two_at_work_are_seen_unless_a_reset_came_between(found) -> None:
    seats = SeatChecks(group_book(), found)
    seats.at_work([("a", "p1", 1), ("b", "p2", 1)])
    seats.book.landed(6, Reset("a", 3, "r"))
    seats.at_work([("a", "p3", 2), ("a", "p1", 4)])
    assert found.names == []
    seats.at_work([("a", "p1", 4), ("a", "p2", 5)])
    assert found.names == [checks.TWO_AT_WORK]


@pytest.fixture
def delivery(found) -> DeliveryChecks:
    stream = StreamBook(SimLog("a"))
    stream.log.landed = stream.landed
    for record in (Published("w1", 0, 0), Published("w1", 1, 1), Published("w1", 1, 1), Published("w1", 2, 2)):
        stream.log.land(record, 0)
    book = GroupBook({"a": SeatBook()})
    book.landed(0, Claim("p1", "a", 1, -1))
    return DeliveryChecks(book, {"a": stream}, found)


@pytest.mark.parametrize(
    ("handed", "names"),
    [
        ([(0, Published("w1", 0, 0)), (1, Published("w1", 1, 1)), (3, Published("w1", 2, 2))], []),
        ([(1, Published("w1", 1, 1))], [checks.SKIP]),
        ([(0, Published("w1", 0, 0)), (0, Published("w1", 0, 0))], [checks.BACKWARDS, checks.REORDER]),
        ([(0, Published("w1", 9, 9))], [checks.INCONSISTENT_OFFSETS]),
        (
            [(0, Published("w1", 0, 0)), (1, Published("w1", 1, 1)), (2, Published("w1", 1, 1))],
            [checks.DUPLICATE, checks.REORDER],
        ),
    ],
)
def test_the_observer_follows_what_is_handed_on(delivery, found, handed, names) -> None:
    for at, record in handed:
        delivery.handed("a", 1, at, record)
    assert found.names == names


def test_the_observer_knows_what_was_refused_lost_unseen_and_never_there(delivery, found) -> None:
    # Given a stream on which value 1 is passed over, and value 2 is not reached
    stream = delivery.streams["a"]
    stream.refused.add(0)
    stream.acknowledged += [0, 1, 2, 77]
    delivery.handed("a", 1, 0, Published("w1", 0, 0))
    assert found.names == [checks.ABORTED_READ]
    # When value 1 is confirmed without having been handed on, and everything ends
    delivery.book.landed(1, Confirm("p1", "a", 1, 1))
    assert found.names == [checks.ABORTED_READ, checks.LOST]
    found.names.clear()
    delivery.after_healing()
    # Then each acknowledged value that is missing is missed
    assert found.names == [checks.UNSEEN, checks.UNSEEN, checks.TOLD_ACKNOWLEDGED]


def test_a_promise_of_confirmation_is_checked_against_the_generation_it_was_made_in(delivery, found) -> None:
    stream = delivery.streams["a"]
    stream.handed.update(stream.first_copies)
    delivery.book.landed(1, Confirm("p1", "a", 1, 1))
    delivery.book.landed(2, Claim("p2", "a", 2, 1))
    delivery.told_confirmed("a", 1, "p1", 1)
    assert found.names == []
    delivery.told_confirmed("a", 1, "p1", 3)
    assert found.names == [checks.TOLD_CONFIRMED]


@pytest.fixture
def sequence(found) -> SequenceBook:
    book = SequenceBook(found)
    for at, record in enumerate([
        Mark(1, "e1"), Entry(1, "e1", 1, "", "x"), Mark(2, "e2"), Entry(1, "e1", 2, "", "y"), Entry(2, "e2", 2, "", "z")
    ]):  # fmt: skip
        book.landed(at, record)
    return book


def test_the_observer_knows_an_entry_behind_a_newer_mark(sequence, found) -> None:
    assert sequence.sequence == ["x", "z"]
    sequence.applied("e3", 1, Entry(1, "e1", 1, "", "x"), 1)
    sequence.passed("e3", 3)
    assert found.names == []
    sequence.applied("e3", 3, Entry(1, "e1", 2, "", "y"), 2)
    assert found.names == [checks.STALE_ENTRY]
    sequence.passed("e3", 4)
    assert found.names[1:] == [checks.MISCOUNTED]


def test_the_observer_knows_engines_and_blocks_that_differ(sequence, found) -> None:
    sequence.compare({"e1": ["x"], "e2": ["x", "z"]})
    sequence.delivered(Block(2, "z"))
    sequence.told_sequenced("z")
    assert found.names == []
    sequence.compare({"e1": ["y"], "e2": ["x", "z"]})
    sequence.delivered(Block(2, "y"))
    sequence.told_sequenced("y")
    assert found.names == [checks.DIVERGED, checks.DIVERGED, checks.TOLD_ACKNOWLEDGED]


def test_a_body_sequenced_twice_is_a_duplicate(sequence, found) -> None:
    sequence.landed(5, Entry(2, "e2", 3, "", "x"))
    assert found.names == [checks.DUPLICATE]
