"""Nodes in virtual time: events fire at their moment, once, whatever dies."""

from __future__ import annotations

import json

import pytest
from schedule_worlds import World

from lockstep.core.agenda import Replay, Status
from lockstep.core.ladder import Ladder
from lockstep.errors import AppendUncertain
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.schedule.delivery.port import Outcome
from lockstep.schedule.requests import PutCron
from lockstep.schedule.rows import CronRow
from lockstep.schedule.tenants import Paused


@pytest.fixture
def world():
    made = World()
    made.start()
    made.clock.advance(2)
    return made


def test_an_event_fires_at_its_time_and_not_before(world):
    answer = world.schedule("a", 5000, payload="hello")
    assert answer["verdict"] == "ACCEPTED"
    world.clock.advance(4.9)
    assert world.fired() == []
    world.clock.advance(0.2)
    assert world.fired() == ["a"]
    found = world.client.find("s", "a")
    assert found.status is Status.DONE
    assert found.triggered >= found.at
    world.clock.advance(120)
    assert world.fired() == ["a"]


def test_a_cancel_before_the_fire_wins_and_one_after_it_is_told(world):
    world.schedule("a", 5000)
    assert world.remove("a")["verdict"] == "DELETED"
    world.clock.advance(10)
    assert world.fired() == []
    assert world.remove("a")["verdict"] == "UNKNOWN"
    assert [one["what"] for one in world.history()] == ["removed"]

    world.courier.hold = True
    world.schedule("b", 1000, tenant="h")
    world.clock.advance(2)
    answer = world.remove("b", "h")
    assert (answer["verdict"], answer["code"]) == ("TRIGGERED", 409)
    world.courier.let_go()
    world.clock.advance(1)
    assert world.client.find("h", "b").status is Status.DONE


def test_the_same_instant_replaces_the_payload_and_another_instant_the_event(world):
    at = world.now + 5000
    first = world.ask(world.upsert("a", at, payload="1"))[0]
    second = world.ask(world.upsert("a", at, payload="2"))[0]
    assert (second["verdict"], second["event"]["key"]) == ("UPDATED", first["event"]["key"])
    third = world.ask(world.upsert("a", at + 5000, payload="3"))[0]
    assert third["verdict"] == "UPDATED"
    assert third["event"]["key"] != first["event"]["key"]
    world.clock.advance(6)
    assert world.fired() == []
    world.clock.advance(5)
    [record] = world.records("out")
    assert b'"payload":"3"' in record.value
    again = world.ask(world.upsert("a", at + 5000, payload="4"))[0]
    assert again["verdict"] == "TRIGGERED"
    world.clock.advance(5)
    assert world.fired() == ["a"]


def test_a_lapsed_event_is_stored_and_fires_at_once(world):
    answer = world.schedule("a", -3_600_000)
    assert (answer["verdict"], answer["event"]["eventId"]) == ("TRIGGERED", None)
    world.clock.advance(0.1)
    assert world.fired() == ["a"]
    assert world.client.find("s", "a").status is Status.DONE


def test_a_failing_receiver_is_tried_by_the_ladder_and_4xx_once(world):
    world.courier.answers["h"] = [Outcome.FAILED]
    start = world.now
    world.schedule("a", 0, tenant="h")
    world.clock.advance(61)
    tries = [one.event.attempt for one in world.courier.delivered]
    assert tries == [1, 2, 3, 4, 5]
    assert world.client.find("h", "a").status in (Status.RETRY, Status.FIRING)
    world.courier.answers["h"] = [Outcome.TAKEN]
    world.clock.advance(10)
    found = world.client.find("h", "a")
    assert (found.status, found.error) == (Status.DONE, None)
    assert found.triggered - start < 1000

    world.courier.answers["h"] = [Outcome.REFUSED]
    world.courier.delivered.clear()
    world.schedule("b", 0, tenant="h")
    world.clock.advance(120)
    assert len(world.courier.delivered) == 1
    assert world.client.find("h", "b").status is Status.FAILED


def test_after_the_limit_an_event_is_failed_and_can_be_replayed():
    world = World()
    world.start(ladder=Ladder(limit_ms=120_000))
    world.clock.advance(2)
    world.courier.answers["h"] = [Outcome.FAILED]
    world.schedule("a", 0, tenant="h")
    world.clock.advance(130)
    assert world.client.find("h", "a").status is Status.FAILED
    world.courier.answers["h"] = [Outcome.TAKEN]
    assert world.ask(Replay("h", "a"))[0]["verdict"] == "UPDATED"
    world.clock.advance(1)
    assert world.client.find("h", "a").status is Status.DONE


def test_another_node_takes_over_and_fires_what_waits_once(world):
    world.start("n2")
    world.clock.advance(5)
    assert sorted(world.nodes["n1"].shards + world.nodes["n2"].shards) == [0, 1, 2, 3]
    for number in range(20):
        world.schedule(f"e{number}", 4000)
    world.kill("n1")
    world.clock.advance(10)
    assert sorted(world.fired()) == sorted(f"e{number}" for number in range(20))


def test_what_was_claimed_and_has_no_result_is_delivered_again_with_the_same_id(world):
    world.courier.hold = True
    world.schedule("a", 0, tenant="h")
    world.clock.advance(0.5)
    world.kill("n1")
    world.start("n2")
    world.courier.hold = False
    world.clock.advance(5)
    first, second = world.courier.delivered
    assert first.event.event_id == second.event.event_id
    assert world.client.find("h", "a").status is Status.DONE


def test_a_paused_tenant_waits_and_holds_up_nobody(world):
    world.client.control(Paused("s", True))
    world.schedule("a", 1000)
    world.schedule("b", 1000, tenant="h")
    world.clock.advance(5)
    assert world.fired() == []
    assert [one.event.id for one in world.courier.delivered] == ["b"]
    world.client.control(Paused("s", False))
    world.clock.advance(1)
    assert world.fired() == ["a"]


def test_a_clock_that_is_set_back_repeats_nothing_and_is_in_the_history(world):
    world.schedule("a", 1000)
    world.clock.advance(2)
    world.clock.jump_wall(-3600)
    world.clock.advance(5)
    assert world.fired() == ["a"]
    assert "clock jumped" in [one["what"] for one in world.history()]


def test_a_cron_ticks_once_for_each_nominal_second_and_a_unix_one_at_second_zero(world):
    row = CronRow(tenant="s", id="c", type="QUARTZ", expression="*/5 * * * * ? *")
    unix = CronRow(tenant="s", id="u", type="UNIX", expression="* * * * *")
    world.ask(PutCron(row), PutCron(unix))
    world.clock.advance(120)
    ticks = [record for record in world.records("out") if record.key == b"s/c/QUARTZ"]
    assert len(ticks) == 24
    assert len({dict(record.headers)["Idempotency-Key"] for record in ticks}) == 24
    assert len([record for record in world.records("out") if record.key == b"s/u/UNIX"]) == 2
    [stored] = world.client.crons("s", "c")
    assert stored.executed is not None


def test_ticks_that_were_missed_are_each_accounted_for(world):
    world.ask(PutCron(CronRow(tenant="s", id="c", type="UNIX", expression="* * * * *")))
    world.clock.advance(60)
    world.kill("n1")
    world.clock.advance(600)
    world.start("n2")
    world.clock.advance(60)
    outcomes = [one for one in world.history() if one["what"] in ("fired", "skipped")]
    # Then the nine ticks of the pause that do not fire are one record, between ticks that fired
    minutes = [((one["eventTime"] - outcomes[0]["eventTime"]) / 60_000, one["what"]) for one in outcomes]
    assert minutes == [(0, "fired"), (1, "skipped"), (10, "fired"), (11, "fired")]
    [skipped] = [one for one in outcomes if one["what"] == "skipped"]
    assert (skipped["count"], skipped["lastTime"] - skipped["eventTime"]) == (9, 8 * 60_000)
    assert skipped["reason"] == "missed, a later tick fires"


@pytest.mark.parametrize("stored", [True, False])
def test_a_commit_that_may_or_may_not_have_happened_loses_and_repeats_nothing(world, stored):
    commit, failures = world.nodes["n1"]._store.commit, [1, 2]

    def uncertain(changes):
        if changes and failures:
            failures.pop()
            if stored:
                commit(changes)
            raise AppendUncertain(stream="jobs.requests", reason="the answer was lost")
        return commit(changes)

    world.nodes["n1"]._store.commit = uncertain
    world.courier.hold = True
    world.client.send([world.upsert("a", world.now + 1000), world.upsert("b", world.now + 1000, tenant="h")])
    world.clock.advance(5)
    assert failures == []
    assert world.fired() == ["a"]
    assert [one.event.id for one in world.courier.delivered] == ["b"]
    world.courier.let_go()
    world.clock.advance(1)
    assert world.client.find("h", "b").status is Status.DONE
    fired = [one["id"] for one in world.history() if one["what"] == "fired"]
    assert sorted(fired) == ["a", "b"]


def test_a_node_whose_clock_is_ahead_is_warned_of_once(world, caplog):
    cards = world.bus.logs(world.streams.nodes)[0]
    shown = {"member": "m", "host": "h", "port": 1, "shards": [], "master": False, "underWay": 0}
    for ahead_ms in (900, 5000, 5000):
        card = json.dumps({**shown, "node": f"far-{ahead_ms}", "wall": world.now + ahead_ms}).encode()
        cards.append([pack([b"not a card", card], producer=NO_PRODUCER, sequence=0, created_ns=0)])
        world.clock.advance(0.01)
    world.clock.advance(3)
    warned = [record.getMessage() for record in caplog.records if getattr(record, "action", "") == "clock_skew"]
    assert len(warned) == 1
    assert warned[0].startswith("The clock of node far-5000 is ")
