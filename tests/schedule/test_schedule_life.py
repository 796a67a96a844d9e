"""The life of an event, a test for each row of its table in docs/guarantees.md."""

from __future__ import annotations

from dataclasses import replace

import pytest
from schedule_worlds import World

from lockstep.core.agenda import Replay, Status
from lockstep.core.ladder import Ladder
from lockstep.schedule.delivery.port import Outcome
from lockstep.schedule.tenants import Paused

HOUR, DAY_MS = 3600.0, 86_400_000


def made_world(**options):
    world = World()
    world.start(**options)
    world.clock.advance(2)
    return world


@pytest.fixture
def world():
    return made_world()


def status(world, name="a", tenant="s"):
    found = world.client.find(tenant, name)
    return None if found is None else found.status


def put(world, at, name="a", tenant="s", **more):
    [answer] = world.ask(world.upsert(name, at, tenant, **more))
    return answer


def whats(world):
    return [one["what"] for one in world.history()]


def brought_to(world, state, at):
    """The event `a` of tenant h in a state, with its time, and how often its delivery was begun."""
    world.courier.hold = state == "FIRING"
    world.courier.answers["h"] = [{"RETRY": Outcome.FAILED, "FAILED": Outcome.REFUSED}.get(state, Outcome.TAKEN)]
    put(world, at, tenant="h", payload="one")
    if state != "WAITING":
        world.clock.advance((at - world.now) / 1000 + 0.2)
    assert status(world, tenant="h") is Status[state]
    return world.client.find("h", "a")


def test_an_upsert_for_the_future_is_accepted(world):
    answer = put(world, world.now + 5000)
    assert (answer["verdict"], answer["status"], status(world)) == ("ACCEPTED", "WAITING", Status.WAITING)


def test_an_upsert_for_the_past_is_stored_and_due_now_and_shows_no_event_id(world):
    answer = put(world, world.now - 5000, tenant="h")
    assert (answer["verdict"], answer["event"]["eventId"]) == ("TRIGGERED", None)
    world.clock.advance(0.1)
    [delivery] = world.courier.delivered
    assert delivery.event.event_id == answer["event"]["key"]
    assert status(world, tenant="h") is Status.DONE


@pytest.mark.parametrize("state", ["WAITING", "RETRY"])
def test_the_same_instant_replaces_payload_and_option_of_what_has_not_fired(world, state):
    before = brought_to(world, state, world.now + 1000)
    for payload, kept in (("two", b"two"), (None, b"two")):
        answer = put(world, before.at, tenant="h", payload=payload)
        assert (answer["verdict"], answer["event"]["key"]) == ("UPDATED", before.event_id)
        after = world.client.find("h", "a")
        assert after == replace(before, payload=kept)


@pytest.mark.parametrize("state", ["FIRING", "DONE", "FAILED"])
def test_the_same_instant_changes_nothing_of_what_has_fired(world, state):
    before = brought_to(world, state, world.now + 1000)
    answer = put(world, before.at, tenant="h", payload="two")
    assert (answer["verdict"], answer["code"]) == ("TRIGGERED", None)
    assert answer["event"]["triggeredAt"] is not None
    world.clock.advance(60)
    assert world.client.find("h", "a") == before
    assert len(world.courier.delivered) == 1


@pytest.mark.parametrize("state", ["WAITING", "RETRY", "FIRING", "DONE", "FAILED"])
def test_another_instant_makes_another_event_and_the_old_one_never_fires(world, state):
    before = brought_to(world, state, world.now + 1000)
    tries = len(world.courier.delivered)
    world.courier.answers["h"] = [Outcome.TAKEN]
    answer = put(world, world.now + 20_000, tenant="h")
    assert (answer["verdict"], answer["status"]) == ("UPDATED", "WAITING")
    assert answer["event"]["key"] != before.event_id
    assert (answer["code"], answer["message"]) == (
        (409, f"already triggered at {before.triggered}") if state == "FIRING" else (None, None)
    )
    world.courier.hold = False
    world.courier.let_go()
    world.clock.advance(120)
    assert [one.event.event_id for one in world.courier.delivered[tries:]] == [answer["event"]["key"]]
    assert status(world, tenant="h") is Status.DONE


def test_a_removal_while_it_fires_changes_nothing(world):
    before = brought_to(world, "FIRING", world.now + 1000)
    answer = world.remove("a", "h")
    assert (answer["verdict"], answer["code"]) == ("TRIGGERED", 409)
    assert answer["message"] == f"already triggered at {before.triggered}"
    assert world.client.find("h", "a") == before


@pytest.mark.parametrize("state", ["WAITING", "RETRY", "DONE", "FAILED"])
def test_any_other_removal_takes_it_away_and_the_history_keeps_it(world, state):
    before = brought_to(world, state, world.now + 1000)
    tries = len(world.courier.delivered)
    answer = world.remove("a", "h")
    assert (answer["verdict"], answer["status"], answer["event"]["key"]) == ("DELETED", state, before.event_id)
    world.clock.advance(120)
    assert (status(world, tenant="h"), len(world.courier.delivered)) == (None, tries)
    assert [one["eventId"] for one in world.history() if one["what"] == "removed"] == [before.event_id]


def test_due_for_a_stream_its_record_and_its_row_are_one_step(world):
    store, seen = world.nodes["n1"]._store, []
    commit = store.commit

    def noted(changes):
        fires = [change for change in changes if any(record.stream == "out" for record in change.outgoing)]
        seen.extend(after.status for change in fires for _, after in change.events.values())
        return commit(changes)

    store.commit = noted
    put(world, world.now + 1000)
    world.clock.advance(2)
    assert (seen, world.fired(), status(world)) == ([Status.DONE], ["a"], Status.DONE)


def test_due_for_a_receiver_it_is_claimed_and_then_delivered(world):
    stored = []
    world.courier.deliver = lambda delivery, done: stored.append((status(world, tenant="h"), delivery.event.attempt))
    put(world, world.now + 1000, tenant="h")
    world.clock.advance(2)
    assert stored == [(Status.FIRING, 1)]


@pytest.mark.parametrize(
    ("outcome", "state"),
    [(Outcome.TAKEN, Status.DONE), (Outcome.REFUSED, Status.FAILED), (Outcome.FAILED, Status.RETRY)],
)
def test_the_result_of_a_delivery_decides(world, outcome, state):
    world.courier.answers["h"] = [outcome]
    put(world, world.now, tenant="h")
    world.clock.advance(0.5)
    found = world.client.find("h", "a")
    assert (found.status, found.error) == (state, None if state is Status.DONE else "it answered 500")


def test_the_error_is_cleared_when_it_succeeds(world):
    world.courier.answers["h"] = [Outcome.FAILED, Outcome.TAKEN]
    put(world, world.now, tenant="h")
    world.clock.advance(0.5)
    assert world.client.find("h", "a").error == "it answered 500"
    world.clock.advance(2)
    assert (status(world, tenant="h"), world.client.find("h", "a").error) == (Status.DONE, None)


def test_what_an_earlier_owner_claimed_is_delivered_again_with_the_same_key(world):
    before = brought_to(world, "FIRING", world.now + 1000)
    world.kill("n1")
    world.courier.hold = False
    world.start("n2")
    world.clock.advance(10)
    assert [one.event.event_id for one in world.courier.delivered] == [before.event_id] * 2
    assert status(world, tenant="h") is Status.DONE


def test_past_the_backlog_limit_it_has_failed_and_can_be_fired_again():
    world = made_world(ladder=Ladder(limit_ms=60_000))
    brought_to(world, "RETRY", world.now + 1000)
    world.clock.advance(130)
    found = world.client.find("h", "a")
    assert found.status is Status.FAILED
    assert found.error == "it answered 500"
    world.courier.answers["h"] = [Outcome.TAKEN]
    [answer] = world.ask(Replay("h", "a"))
    world.clock.advance(1)
    assert (answer["verdict"], status(world, tenant="h")) == ("UPDATED", Status.DONE)


@pytest.mark.parametrize("state", ["DONE", "FAILED"])
def test_when_the_keep_time_has_passed_it_is_gone(state):
    world = made_world(keep_ms=60_000)
    brought_to(world, state, world.now + 1000)
    world.clock.advance(55)
    assert status(world, tenant="h") is Status[state]
    world.clock.advance(10)
    assert status(world, tenant="h") is None
    assert whats(world)[-1] in ("fired", "failed")


def test_late_is_from_an_events_time_to_its_first_try_however_long_the_delivery_takes(world):
    # Given an event whose receiver takes five seconds
    at = world.now + 1000
    before = brought_to(world, "FIRING", at)
    # When it answers
    world.clock.advance(5)
    world.courier.hold = False
    world.courier.let_go()
    world.clock.advance(1)
    # Then the history and the metrics have the lateness of the fire, as lists have, and when the delivery ended
    [told] = [one for one in world.history() if one["what"] == "fired"]
    assert (told["lateMs"], told["triggeredAt"]) == (before.triggered - at, before.triggered)
    assert told["lateMs"] < 1000 < told["at"] - told["triggeredAt"]
    assert world.nodes["n1"].counts.late_quantile(1.0) < 1


def test_what_was_never_tried_is_late_when_it_is_given_up():
    world = made_world(ladder=Ladder(limit_ms=60_000))
    world.client.control(Paused("s", True))
    put(world, at := world.now + 1000)
    world.clock.advance(90)
    world.client.control(Paused("s", False))
    world.clock.advance(1)
    [told] = [one for one in world.history() if one["what"] == "missed"]
    assert told["lateMs"] == told["at"] - at > 60_000
    assert "triggeredAt" not in told
