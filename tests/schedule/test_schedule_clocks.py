"""Clocks that are wrong for a while: crons tick again soon after, and no nominal tick fires twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from schedule_worlds import World

from lockstep.core.ticks import Misfire, Overlap, Policy
from lockstep.schedule.requests import PutCron
from lockstep.schedule.rows import CronRow

DAY_S = 86_400
EACH_MINUTE = CronRow(tenant="s", id="c", type="UNIX", expression="* * * * *")
EACH_TEN_SECONDS = CronRow(tenant="s", id="c", type="QUARTZ", expression="0/10 * * * * ?")


@pytest.fixture
def world():
    world = World()
    world.start("n1")
    world.clock.advance(3)
    return world


def fired(world, name="s/c/"):
    """The nominal times of a cron's ticks that fired, in the order in which they did."""
    return [
        one["eventTime"] for one in world.history() if one["what"] == "fired" and one.get("id", "").startswith(name)
    ]


def whats(world):
    return Counter(one["what"] for one in world.history())


@pytest.mark.parametrize(("ahead_s", "misfire"), [
    (240, Misfire.ONCE), (240, Misfire.ALL), (240, Misfire.SKIP), (3 * DAY_S, Misfire.ONCE), (3 * DAY_S, Misfire.ALL),
])  # fmt: skip
def test_after_a_clock_was_ahead_crons_tick_again_and_nothing_fires_twice(world, ahead_s, misfire):
    # Given a cron, and a clock that is far ahead for a while
    world.ask(PutCron(replace(EACH_TEN_SECONDS, policy=Policy(misfire=misfire))))
    world.clock.advance(20)
    world.clock.jump_wall(ahead_s)
    world.clock.advance(60)
    early = fired(world)
    # When it is set right
    world.clock.jump_wall(-ahead_s)
    set_right = world.now
    world.clock.advance(400 if ahead_s == 240 else 120)
    # Then the cron ticks again after a minute or so; with ALL the ticks of the minutes that were left out have fired
    again = fired(world)[len(early) :]
    if (ahead_s, misfire) != (240, Misfire.ALL):
        assert set_right < again[0] <= set_right + 80_000
        assert len(again) >= 4
    # And no tick fired twice, though its time came twice, and each has an outcome
    assert max(Counter(fired(world)).values()) == 1
    assert whats(world)["ticks set back"] == whats(world)["ticks ahead of the clock"] == 1
    assert times_without_outcome(world) == []


def times_without_outcome(world):
    """Times of ticks up to the clock that have none."""
    found = set()
    for one in world.history():
        if one["what"] in ("fired", "skipped"):
            found |= set(range(one["eventTime"], one.get("lastTime", one["eventTime"]) + 1, 10_000))
    return [at for at in range(min(found), world.now - 1000, 10_000) if at not in found]


def test_a_computer_that_slept_for_two_days_goes_on_as_the_policy_says(world):
    world.ask(PutCron(EACH_MINUTE))
    world.clock.advance(120)
    before = len(fired(world))
    world.clock.jump_wall(2 * DAY_S)
    world.clock.advance(60)
    # Then the latest missed tick fires, and the next in time; the others are skipped, a record for each reason
    assert len(fired(world)) - before in (2, 3)
    skipped = [one for one in world.history() if one["what"] == "skipped"]
    assert {one["reason"] for one in skipped} == {"older than catch_up", "missed, a later tick fires"}
    assert len(skipped) <= 4
    assert sum(one["count"] for one in skipped) in (2879, 2880)
    assert whats(world)["ticks set back"] == 0


def test_a_cron_that_is_set_up_while_the_clock_is_ahead_ticks_when_it_is_right(world):
    world.clock.jump_wall(3 * DAY_S)
    world.clock.advance(5)
    world.ask(PutCron(EACH_TEN_SECONDS))
    world.clock.advance(20)
    assert len(fired(world)) == 2
    # When it is set right, and another one is set up the same
    world.clock.jump_wall(-3 * DAY_S)
    world.clock.advance(5)
    world.ask(PutCron(EACH_TEN_SECONDS))
    world.clock.advance(85)
    # Then it ticks
    assert len(fired(world)) >= 4


def test_a_tick_that_waits_for_its_time_keeps_no_other_from_firing(world):
    # Given a cron that must not overlap, of a tenant that waits, and a clock that is ahead
    row = CronRow(
        tenant="h", id="c", type="UNIX", expression="* * * * *", policy=Policy(overlap=Overlap.SKIP), jitter_s=30
    )
    world.ask(PutCron(row))
    world.clock.jump_wall(3 * DAY_S)
    second = (world.now // 1000) % 60
    world.clock.advance(60 - second + 0.5)
    assert world.client.crons("h", "c")[0].running is not None
    # When it is set right before that tick is delivered
    world.clock.jump_wall(-3 * DAY_S)
    world.clock.advance(200)
    # Then others are delivered
    assert len(fired(world, "h/c/")) >= 1


def test_another_node_whose_clock_is_right_goes_on(world):
    world.ask(PutCron(EACH_TEN_SECONDS))
    world.clock.jump_wall(3 * DAY_S)
    world.clock.advance(30)
    world.kill("n1")
    world.clock.jump_wall(-3 * DAY_S)
    before = len(fired(world))
    world.start("n2")
    world.clock.advance(100)
    assert len(fired(world)) - before >= 2
    assert max(Counter(fired(world)).values()) == 1


def test_a_clock_that_is_behind_for_a_moment_changes_nothing(world):
    world.ask(PutCron(EACH_MINUTE))
    world.clock.advance(120)
    world.clock.jump_wall(-3600)
    world.clock.advance(30)
    world.clock.jump_wall(3600)
    world.clock.advance(120)
    assert whats(world)["ticks set back"] == 0
    assert max(Counter(fired(world)).values()) == 1
    # And an hour later it is the same: the earlier time does not count
    world.clock.jump_wall(-3600)
    world.clock.advance(30)
    assert whats(world)["ticks set back"] == 0
