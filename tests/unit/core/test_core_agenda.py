"""The life of an event: every row of the table of transitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockstep.core import agenda
from lockstep.core.agenda import (
    CONFLICT,
    Event,
    Form,
    Option,
    Remove,
    Replay,
    Status,
    Upsert,
    Verdict,
)
from lockstep.core.ladder import Ladder

NOW = 1_700_000_000_000
AT = NOW + 60_000
DAY = 86_400_000
WAITING = Event("t", "e", "id-1", AT, AT, payload=b"one", accepted=NOW - 5)
FIRING = replace(WAITING, status=Status.FIRING, due=AT, attempt=1, triggered=AT, epoch=3)
RETRY = replace(FIRING, status=Status.RETRY, due=AT + 1000, error="it answered 500")
DONE = replace(FIRING, status=Status.DONE, due=AT + 9, ended=AT + 9)
FAILED = replace(FIRING, status=Status.FAILED, due=AT + 9, ended=AT + 9, error="it answered 404")
ALL = (WAITING, FIRING, RETRY, DONE, FAILED)


def by_status(events):
    return pytest.mark.parametrize("event", events, ids=lambda event: event.status.name)


def upsert(at=AT, payload=b"two", option=Option.FULL_EVENT, event_id="id-2", form=Form.TEXT):
    return Upsert("t", "e", at, event_id, payload, form, option)


# requests


def test_a_new_event_for_the_future_waits_and_is_accepted() -> None:
    # When an event that nobody knows is asked for
    step = agenda.apply(None, upsert(), NOW)
    # Then it waits until its time
    assert step.event == Event("t", "e", "id-2", AT, AT, payload=b"two", accepted=NOW)
    assert (step.answer.verdict, step.answer.event, step.answer.code) == (Verdict.ACCEPTED, step.event, None)
    assert step.news is None


def test_a_new_event_for_this_very_moment_is_no_lapsed_one() -> None:
    step = agenda.apply(None, upsert(at=NOW), NOW)
    assert step.answer.verdict is Verdict.ACCEPTED
    assert (step.event.due, step.event.lapsed) == (NOW, False)


def test_a_new_event_whose_time_has_passed_is_stored_and_due_at_once() -> None:
    step = agenda.apply(None, upsert(at=NOW - 1), NOW)
    # Then it waits for a step that fires it, and is not fired by the answer
    assert (step.event.status, step.event.due, step.event.at) == (Status.WAITING, NOW, NOW - 1)
    assert step.event.lapsed
    assert step.event.triggered is None
    # And the answer says when
    assert (step.answer.verdict, step.answer.event.triggered) == (Verdict.TRIGGERED, NOW)


def test_with_a_lapse_offset_near_events_fire_at_once_and_others_wait() -> None:
    assert agenda.apply(None, upsert(at=NOW + 999), NOW, lapse_ms=1000).event.lapsed
    assert not agenda.apply(None, upsert(at=NOW + 1000), NOW, lapse_ms=1000).event.lapsed


@by_status([WAITING, RETRY])
def test_the_same_instant_replaces_payload_and_option_of_an_unfired_event(event) -> None:
    step = agenda.apply(event, upsert(payload=b"{}", option=Option.PAYLOAD_ONLY, form=Form.JSON), NOW)
    # Then all else stays, the event id too
    assert step.event == replace(event, payload=b"{}", option=Option.PAYLOAD_ONLY, form=Form.JSON)
    assert (step.answer.verdict, step.answer.event.event_id) == (Verdict.UPDATED, "id-1")
    assert step.news is None


@by_status([WAITING, RETRY])
def test_a_payload_of_null_keeps_the_one_that_is_there(event) -> None:
    step = agenda.apply(event, upsert(payload=None, form=Form.BYTES), NOW)
    assert (step.event.payload, step.event.form) == (event.payload, event.form)


@by_status([FIRING, DONE, FAILED])
def test_the_same_instant_of_an_event_that_fired_changes_nothing(event) -> None:
    step = agenda.apply(event, upsert(), NOW)
    assert step.event is event
    # Then the answer has the time of the first fire
    assert (step.answer.verdict, step.answer.event.triggered, step.answer.code) == (Verdict.TRIGGERED, AT, None)
    assert step.news is None


@by_status(ALL)
def test_another_instant_makes_another_event_of_it(event) -> None:
    step = agenda.apply(event, upsert(at=AT + 5), NOW)
    # Then nothing of the old one is left, whatever became of it
    assert step.event == Event("t", "e", "id-2", AT + 5, AT + 5, payload=b"two", accepted=NOW)
    assert (step.answer.verdict, step.answer.event.event_id) == (Verdict.UPDATED, "id-2")
    # And the history tells of the old one
    assert step.news == "rescheduled"


def test_another_instant_of_an_event_under_way_says_that_the_old_one_fired() -> None:
    step = agenda.apply(FIRING, upsert(at=AT + 5), NOW)
    assert (step.answer.verdict, step.answer.code) == (Verdict.UPDATED, CONFLICT)
    assert step.answer.message == f"already triggered at {AT}"


@by_status([WAITING, RETRY, DONE, FAILED])
def test_another_instant_of_any_other_event_is_no_conflict(event) -> None:
    assert agenda.apply(event, upsert(at=AT + 5), NOW).answer.code is None


@by_status(ALL)
def test_another_instant_that_has_passed_fires_at_once(event) -> None:
    step = agenda.apply(event, upsert(at=NOW - 5), NOW)
    assert (step.event.status, step.event.due, step.event.lapsed) == (Status.WAITING, NOW, True)
    assert step.answer.verdict is Verdict.TRIGGERED


def test_a_remove_of_an_event_under_way_comes_too_late() -> None:
    step = agenda.apply(FIRING, Remove("t", "e"), NOW)
    assert step.event is FIRING
    assert (step.answer.verdict, step.answer.code) == (Verdict.TRIGGERED, CONFLICT)
    assert step.answer.event.triggered == AT
    assert step.answer.message == f"already triggered at {AT}"


@by_status([WAITING, RETRY, DONE, FAILED])
def test_a_remove_of_any_other_event_wins_and_the_history_keeps_it(event) -> None:
    step = agenda.apply(event, Remove("t", "e"), NOW)
    assert step.event is None
    assert (step.answer.verdict, step.answer.event, step.answer.code) == (Verdict.DELETED, event, None)
    assert step.news == "removed"


@pytest.mark.parametrize("request_", [Remove("t", "e"), Replay("t", "e")], ids=["remove", "replay"])
def test_an_event_that_is_not_there_is_unknown(request_) -> None:
    step = agenda.apply(None, request_, NOW)
    assert (step.event, step.answer.verdict, step.news) == (None, Verdict.UNKNOWN, None)


def test_a_try_that_failed_before_the_events_time_is_repeated_at_that_time() -> None:
    # Given an event that was claimed by a clock that was ahead, and whose delivery failed when it was right again
    early = agenda.claimed(WAITING, AT, 1)
    # Then the next try comes at its time, and after that by the ladder
    assert agenda.failed(early, AT - 60_000, "no answer", Ladder()).due == AT
    assert agenda.failed(early, AT, "no answer", Ladder()).due == AT + 1000


def test_a_failed_event_is_replayed_from_the_first_try() -> None:
    step = agenda.apply(FAILED, Replay("t", "e"), NOW)
    # Then it is due now, under the same id, and a day is left for it
    again = step.event
    assert (again.status, again.due, again.attempt, again.ended) == (Status.WAITING, NOW, 0, None)
    assert again.event_id == "id-1"
    assert not agenda.is_too_old(again, NOW + DAY, Ladder())
    assert (step.answer.verdict, step.news) == (Verdict.UPDATED, "replayed")
    # And the first fire is still the first
    assert again.triggered == AT


@by_status([WAITING, FIRING, RETRY, DONE])
def test_only_a_failed_event_is_replayed(event) -> None:
    step = agenda.apply(event, Replay("t", "e"), NOW)
    assert step.event is event
    assert (step.answer.verdict, step.answer.code) == (Verdict.ERROR, CONFLICT)
    assert event.status.name in step.answer.message


# due times and results


@by_status([WAITING, RETRY])
def test_published_to_a_stream_it_is_done_in_one_step(event) -> None:
    done = agenda.published(event, AT + 7, 4)
    triggered = AT if event is RETRY else AT + 7
    assert done == replace(
        event, status=Status.DONE, due=AT + 7, attempt=event.attempt + 1, triggered=triggered, ended=AT + 7, error=None,
        epoch=4,
    )  # fmt: skip


@by_status([WAITING, RETRY])
def test_claimed_for_a_delivery_it_counts_the_try_and_keeps_the_first_time(event) -> None:
    claimed = agenda.claimed(event, AT + 7, 4)
    triggered = AT if event is RETRY else AT + 7
    assert claimed == replace(
        event, status=Status.FIRING, due=AT + 7, attempt=event.attempt + 1, triggered=triggered, epoch=4
    )


def test_a_receiver_that_took_it_ends_it_and_clears_the_error() -> None:
    again = agenda.claimed(RETRY, AT + 1000, 4)
    assert again.error == RETRY.error
    done = agenda.delivered(again, AT + 1500)
    assert (done.status, done.ended, done.error, done.triggered) == (Status.DONE, AT + 1500, None, AT)


def test_a_receiver_that_will_never_take_it_ends_it_with_the_reason() -> None:
    ended = agenda.refused(FIRING, AT + 9, "it answered 404")
    assert ended == FAILED


def test_any_other_failure_is_tried_again_by_the_ladder() -> None:
    event, now, tries = WAITING, AT, []
    for _ in range(9):
        event = agenda.claimed(event, now, 1)
        tries.append(now - AT)
        event = agenda.failed(event, now, "no answer", Ladder())
        assert (event.status, event.error, event.ended) == (Status.RETRY, "no answer", None)
        now = event.due
    # Then tries come at 0, 1, 3 and 7 seconds of every minute
    assert tries == [0, 1000, 3000, 7000, 60_000, 61_000, 63_000, 67_000, 120_000]


def test_a_failure_whose_next_try_would_be_too_old_is_the_last() -> None:
    # Given an event that can be tried for a day
    last = replace(FIRING, attempt=4)
    assert agenda.failed(last, AT + DAY - 53_000, "no answer", Ladder()).status is Status.RETRY
    # When its next try would come after that
    ended = agenda.failed(last, AT + DAY - 52_999, "no answer", Ladder())
    # Then it has failed, with the receiver's reason
    assert (ended.status, ended.error, ended.ended) == (Status.FAILED, "no answer", AT + DAY - 52_999)


@pytest.mark.parametrize(("attempt", "status"), [(1, Status.RETRY), (3, Status.RETRY), (4, Status.FAILED)])
def test_a_tick_is_tried_for_one_round_only(attempt, status) -> None:
    tick = replace(FIRING, tick=True, attempt=attempt)
    assert agenda.failed(tick, AT, "no answer", Ladder()).status is status


@by_status([WAITING, RETRY])
def test_what_could_not_be_tried_in_time_has_missed_the_backlog_limit(event) -> None:
    assert not agenda.is_too_old(event, AT + DAY, Ladder())
    assert agenda.is_too_old(event, AT + DAY + 1, Ladder())
    ended = agenda.missed(event, AT + DAY + 1)
    assert (ended.status, ended.ended) == (Status.FAILED, AT + DAY + 1)
    assert ended.error.startswith("missed the backlog limit")
    assert (event.error is None) == (ended.error == "missed the backlog limit")
    assert event.error is None or event.error in ended.error


def test_a_lapsed_event_is_not_too_old_before_it_could_be_tried() -> None:
    # Given an event for a time ten days ago
    lapsed = agenda.apply(None, upsert(at=NOW - 10 * DAY), NOW).event
    # Then it has a day from now on, as any other
    assert not agenda.is_too_old(lapsed, NOW, Ladder())
    assert not agenda.is_too_old(lapsed, NOW + DAY, Ladder())
    assert agenda.is_too_old(lapsed, NOW + DAY + 1, Ladder())


def test_the_keep_time_counts_from_the_end() -> None:
    assert agenda.delivered(FIRING, AT + 9).expires_from == AT + 9
    assert WAITING.expires_from == AT
