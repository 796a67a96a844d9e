"""The ledger of deliveries, and a shard at work, step by step."""

from __future__ import annotations

from lockstep.core.delivery import (
    AGAIN,
    DEAD,
    DONE,
    DOUBTS_KEPT,
    FAILED,
    REFUSED,
    SKIP,
    SKIPPED,
    Barrier,
    Begun,
    Ended,
    Ledger,
    Order,
)
from lockstep.core.dispatch import Dispatcher, Job, Rules


class Log:
    """A ledger's log: what is appended can be read, when the test says so."""

    def __init__(self):
        self.entries = []

    def append(self, *entries):
        self.entries += entries

    def read_by(self, dispatcher, now=0.0):
        for at, entry in enumerate(self.entries):
            if at > dispatcher.ledger.upto:
                dispatcher.observe(at, entry, now)


def opened(log, owner="x", group_epoch=1, **rules):
    dispatcher = Dispatcher(Ledger(), owner, group_epoch, Rules(**rules))
    log.read_by(dispatcher)
    log.append(*dispatcher.wants(0.0, 9))
    log.read_by(dispatcher)
    assert dispatcher.is_open
    return dispatcher


def turn(dispatcher, log, now=0.0, room=9):
    """Append what is wanted, read it back, take what is to be done."""
    log.append(*dispatcher.wants(now, room))
    log.read_by(dispatcher, now)
    return dispatcher.take()


def finish(dispatcher, log, job, outcome=DONE, now=0.0):
    dispatcher.finished(job, outcome, "why", now)
    log.append(*dispatcher.wants(now, 0))
    log.read_by(dispatcher, now)


def test_nothing_is_done_before_it_was_read_back():
    log = Log()
    dispatcher = opened(log)
    dispatcher.add(5, "a", b"k")
    [begun] = dispatcher.wants(0.0, 9)
    assert (begun, dispatcher.take()) == (Begun(1, "x", "a", 5, 1), [])
    # It was lost, and is sent again after a while
    assert dispatcher.wants(0.1, 9) == []
    assert dispatcher.wants(0.6, 9) == [begun]
    log.append(begun)
    log.read_by(dispatcher)
    assert dispatcher.take() == [Job(5, "a", 1)]


def test_an_item_is_finished_with_when_its_end_was_read_back():
    log = Log()
    dispatcher = opened(log)
    dispatcher.add(5, "a", b"k")
    [job] = turn(dispatcher, log)
    dispatcher.finished(job, DONE, "", 0.0)
    assert dispatcher.confirmable() is None
    log.append(*dispatcher.wants(0.0, 9))
    log.read_by(dispatcher)
    assert (dispatcher.confirmable(), dispatcher.confirmable(), dispatcher.is_at_work) == (5, None, False)


def test_a_key_has_one_item_at_a_time_and_others_go_on():
    log = Log()
    dispatcher = opened(log)
    for offset, (item, key) in enumerate([("a1", b"a"), ("a2", b"a"), ("b1", b"b"), ("c", None), ("d", None)]):
        dispatcher.add(offset, item, key)
    jobs = {job.id: job for job in turn(dispatcher, log)}
    assert jobs.keys() == {"a1", "b1", "c", "d"}
    finish(dispatcher, log, jobs["b1"])
    assert (turn(dispatcher, log), dispatcher.confirmable()) == ([], None)
    finish(dispatcher, log, jobs["a1"])
    assert [job.id for job in turn(dispatcher, log)] == ["a2"]
    assert dispatcher.confirmable() == 0


def test_no_more_is_begun_than_there_is_room_for():
    log = Log()
    dispatcher = opened(log)
    for offset in range(5):
        dispatcher.add(offset, f"i{offset}", None)
    assert len(turn(dispatcher, log, room=2)) == 2
    assert turn(dispatcher, log, room=2) == []


def test_a_failed_item_waits_longer_each_time_then_is_given_up():
    log = Log()
    dispatcher = opened(log, retries=2, backoff_s=1.0)
    dispatcher.add(0, "a", b"k")
    now, pauses = 0.0, []
    for _ in range(3):
        [job] = turn(dispatcher, log, now)
        assert not job.gives_up
        finish(dispatcher, log, job, FAILED, now)
        pauses.append(dispatcher.next_due() - now)
        now = max(now, dispatcher.next_due()) if pauses[-1] < 1e9 else now
    assert pauses[:2] == [1.0, 2.0]
    [job] = turn(dispatcher, log, now)
    assert job == Job(0, "a", 3, gives_up=True, reason="why")
    # A letter that can't be written is tried again
    dispatcher.finished(job, FAILED, "full", now)
    assert turn(dispatcher, log, now) == []
    [job] = turn(dispatcher, log, now + 1.0)
    finish(dispatcher, log, job, DEAD, now + 1.0)
    assert (dispatcher.confirmable(), dispatcher.ledger.settled["a"].outcome) == (0, DEAD)


def test_a_refused_item_is_given_up_at_once():
    log = Log()
    dispatcher = opened(log)
    dispatcher.add(0, "a", b"k")
    [job] = turn(dispatcher, log)
    finish(dispatcher, log, job, REFUSED)
    [job] = turn(dispatcher, log)
    assert job.gives_up


def test_a_new_owner_skips_what_is_done_and_doubts_what_was_begun():
    log = Log()
    former = opened(log)
    for offset, item in enumerate("abc"):
        former.add(offset, item, None)
    [a, b, _] = turn(former, log)
    finish(former, log, a)
    later = opened(log, "y", 2)
    for offset, item in enumerate("abcd"):
        later.add(offset, item, None)
    assert [(job.id, job.in_doubt, job.attempt) for job in turn(later, log)] == [
        ("b", True, 2), ("c", True, 2), ("d", False, 1),
    ]  # fmt: skip
    # What the former owner says late counts, as it is a fact
    log.read_by(former)
    assert former.is_fenced
    former.add(9, "z", None)
    assert former.wants(9.0, 9) == []
    former.finished(b, DONE, "", 0.0)
    log.append(*former.wants(0.0, 9))
    log.read_by(later)
    assert later.ledger.settled["b"].outcome == DONE
    assert {doubt.id: doubt.fate for doubt in later.ledger.doubts.values()} == {
        "b": "done and tried again", "c": "tried again",
    }  # fmt: skip


def test_a_new_owner_may_skip_what_is_in_doubt():
    log = Log()
    former = opened(log)
    former.add(0, "a", None)
    turn(former, log)
    later = opened(log, "y", 2, on_doubt=SKIP)
    later.add(0, "a", None)
    assert turn(later, log) == []
    assert (later.ledger.settled["a"].outcome, later.confirmable()) == (SKIPPED, 0)
    assert [doubt.fate for doubt in later.ledger.doubts.values()] == [SKIPPED]


def test_what_a_former_owner_begins_after_the_barrier_does_not_count():
    log = Log()
    former = opened(log)
    former.add(0, "a", None)
    late = former.wants(0.0, 9)
    later = opened(log, "y", 2)
    log.append(*late)
    log.read_by(former), log.read_by(later)
    assert (former.take(), later.ledger.pending) == ([], {})


def test_a_barrier_takes_a_higher_number_than_any_that_is_there():
    log = Log()
    log.append(Barrier(7, "old"))
    dispatcher = opened(log, "x", 1)
    assert dispatcher.epoch == 8
    # And of two with one number the first has it
    first, second = (Dispatcher(Ledger(), owner, 1, Rules()) for owner in "yz")
    for one in (first, second):
        log.read_by(one)
    log.append(*first.wants(0.0, 1), *second.wants(0.0, 1))
    log.read_by(first), log.read_by(second)
    assert (first.is_open, second.is_open) == (True, False)
    assert second.wants(0.0, 1) == [Barrier(10, "z")]


def test_what_is_begun_is_finished_before_a_shard_is_handed_over():
    log = Log()
    dispatcher = opened(log)
    dispatcher.add(0, "a", None)
    log.append(*dispatcher.wants(0.0, 9))
    dispatcher.is_leaving = True
    dispatcher.add(1, "b", None)
    [job] = turn(dispatcher, log)
    assert (job.id, dispatcher.is_at_work) == ("a", True)
    finish(dispatcher, log, job)
    assert not dispatcher.is_at_work


def test_a_copy_of_a_dead_item_that_stands_later_is_tried_anew():
    ledger = Ledger()
    ledger.apply(0, Begun(1, "x", "a", 5, 1))
    ledger.apply(1, Ended(1, "x", "a", 5, 1, DEAD))
    assert (ledger.is_over("a", 5), ledger.is_over("a", 6)) == (True, False)
    assert ledger.apply(2, Begun(1, "x", "a", 6, 1))
    assert not ledger.apply(3, Begun(1, "x", "a", 5, 2))  # a copy of what was begun before
    assert not ledger.apply(4, Ended(1, "x", "a", 5, 1, DEAD))
    assert ledger.pending["a"].open == {(1, "x", 6, 1)}
    ledger.apply(5, Ended(1, "x", "a", 6, 1, DONE))
    assert ledger.settled["a"].outcome == DONE


def test_what_is_sent_back_is_in_doubt_as_long_as_nobody_knows_how_an_attempt_before_ended():
    # Given an attempt whose owner was lost, another one that is refused, and an item that is given up and sent back
    log = Log()
    former = opened(log)
    former.add(5, "a", b"k")
    [lost] = turn(former, log)
    later = opened(log, "y", 2)
    later.add(5, "a", b"k"), later.add(6, "a", b"k")
    for outcome in (REFUSED, DEAD):
        [job] = turn(later, log)
        finish(later, log, job, outcome)
    [job] = turn(later, log)
    assert (job.offset, job.attempt, job.in_doubt) == (6, 1, True)
    # When it is known that the first attempt failed, then the next one is not in doubt
    finish(former, log, lost, FAILED)
    finish(later, log, job, FAILED)
    [job] = turn(later, log, 10.0)
    assert (job.offset, job.attempt, job.in_doubt) == (6, 2, False)


def test_a_new_owner_passes_by_what_was_given_up_though_it_was_sent_back_and_is_under_way():
    log = Log()
    former = opened(log)
    former.add(5, "a", b"k")
    [job] = turn(former, log)
    finish(former, log, job, REFUSED)
    [job] = turn(former, log)
    finish(former, log, job, DEAD)
    former.add(6, "a", b"k")
    turn(former, log)
    later = opened(log, "y", 2)
    later.add(5, "a", b"k"), later.add(6, "a", b"k")
    assert [(job.offset, job.in_doubt) for job in turn(later, log)] == [(6, True)]
    assert later.confirmable() == 5


def test_orders_count_once():
    ledger = Ledger()
    ledger.apply(0, Order("a", SKIP, "r1"))
    ledger.apply(1, Order("a", AGAIN, "r2"))
    ledger.apply(2, Begun(1, "x", "a", 5, 1))
    ledger.apply(3, Ended(1, "x", "a", 5, 1, DONE))
    assert not ledger.apply(4, Order("a", AGAIN, "r2"))
    assert not ledger.apply(5, Order("a", SKIP, "r1"))
    assert ledger.is_over("a", 5)


def test_an_operator_skips_what_was_given_up_and_sent_back():
    ledger = Ledger()
    ledger.apply(0, Begun(1, "x", "a", 5, 1))
    ledger.apply(1, Ended(1, "x", "a", 5, 1, DEAD))
    assert not ledger.is_over("a", 6)
    assert ledger.apply(2, Order("a", SKIP, "r1"))
    assert ledger.is_over("a", 6)
    assert ledger.settled["a"].outcome == SKIPPED


def test_ends_and_doubts_are_bounded_and_a_memo_keeps_doubts_over_a_trim():
    ledger = Ledger(remember=3)
    for number in range(DOUBTS_KEPT + 10):
        ledger.apply(3 * number, Begun(2 * number + 1, "x", f"i{number}", number, 1))
        ledger.apply(3 * number + 1, Barrier(2 * number + 2, "y"))
        ledger.apply(3 * number + 2, Ended(2 * number + 1, "x", f"i{number}", number, 1, DONE))
    assert (len(ledger.settled), len(ledger.doubts)) == (3, DOUBTS_KEPT)
    assert {doubt.fate for doubt in ledger.doubts.values()} == {"done"}
    later = Ledger()
    later.apply(10_000, ledger.memo())
    assert later.doubts == ledger.doubts


def test_unfinished_items_below_the_position_are_forgotten():
    ledger = Ledger()
    ledger.apply(0, Begun(1, "x", "a", 5, 1))
    ledger.forget_before(5)
    assert "a" in ledger.pending
    ledger.forget_before(6)
    assert not ledger.pending


def test_what_is_not_for_the_group_only_moves_the_position():
    log = Log()
    dispatcher = opened(log)
    dispatcher.pass_over(3)
    dispatcher.add(4, "a", None)
    assert (dispatcher.confirmable(), dispatcher.newly_over(), dispatcher.size) == (3, [3], 1)


def test_a_carrier_that_lost_its_shard_begins_nothing_and_still_says_how_a_job_ended():
    log = Log()
    dispatcher = opened(log)
    for offset, item in enumerate("ab"):
        dispatcher.add(offset, item, None)
    log.append(*dispatcher.wants(0.0, 1))
    log.read_by(dispatcher)
    [job] = dispatcher.take()
    dispatcher.lose()
    assert (dispatcher.is_open, dispatcher.is_fenced, dispatcher.is_at_work, dispatcher.running) == (
        False,
        True,
        True,
        1,
    )
    dispatcher.finished(job, DONE, "", 0.0)
    assert [type(entry) for entry in dispatcher.wants(0.0, 9)] == [Ended]
    assert (dispatcher.take(), dispatcher.has_jobs) == ([], False)


def test_a_shard_that_was_lost_before_it_was_opened_wants_nothing():
    dispatcher = Dispatcher(Ledger(), "x", 1, Rules())
    dispatcher.lose()
    assert dispatcher.wants(0.0, 9) == []


def test_a_copy_of_an_item_in_another_lane_waits_and_is_finished_with_it():
    log = Log()
    dispatcher = opened(log)
    dispatcher.add(0, "a", b"one")
    dispatcher.add(1, "a", b"other")
    [job] = turn(dispatcher, log)
    assert (job.offset, turn(dispatcher, log), dispatcher.begun) == (0, [], 1)
    finish(dispatcher, log, job)
    assert (turn(dispatcher, log), dispatcher.confirmable()) == ([], 1)


def test_what_the_owner_before_says_late_to_be_done_is_not_begun_again():
    log = Log()
    former = opened(log)
    for offset, item in enumerate("ab"):
        former.add(offset, item, None)
    [a, b] = turn(former, log)
    # Given a new owner whose records of both items are on their way
    later = opened(log, "y", 2)
    for offset, item in enumerate("ab"):
        later.add(offset, item, None)
    first, second = later.wants(0.0, 9)
    # When the former owner's ends are stored before one of them and after the other
    former.finished(a, DONE, "", 0.0)
    former.finished(b, DONE, "", 0.0)
    done_a, done_b = former.wants(0.0, 9)
    log.append(done_a, first, second, done_b)
    log.read_by(later)
    # Then neither is carried out
    assert (later.take(), later.confirmable(), later.begun) == ([], 1, 0)


def test_an_item_that_waits_for_its_next_try_is_finished_with_when_another_owner_says_that_it_was_done():
    log = Log()
    former = opened(log)
    former.add(0, "a", None)
    [job] = turn(former, log)
    later = opened(log, "y", 2, backoff_s=60.0)
    later.add(0, "a", None)
    [again] = turn(later, log)
    finish(later, log, again, FAILED)
    assert (later.retries_open(), turn(later, log)) == (1, [])
    # When the former owner's success comes to stand on the ledger
    former.finished(job, DONE, "", 0.0)
    log.append(*former.wants(0.0, 0))
    log.read_by(later)
    assert (turn(later, log), later.confirmable()) == ([], 0)


def test_a_barrier_that_was_not_read_back_is_sent_again_after_a_while():
    dispatcher = Dispatcher(Ledger(), "x", 1, Rules())
    [barrier] = dispatcher.wants(0.0, 9)
    assert (barrier, dispatcher.wants(0.1, 9), dispatcher.wants(0.6, 9)) == (Barrier(1, "x"), [], [barrier])
