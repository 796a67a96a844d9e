"""A view of the last hours is a whole one: what does not tell itself is told again every six hours."""

from __future__ import annotations

import json
import random

import pytest
from monitor_worlds import START_S, World

from lockstep.monitor.core import repeats

KINDS = {"client", "event", "settings", "silence", "stash", "aggregate"}
DAY_S, STEP_S = 86_400, 10


def changed(world, chance):
    """Something that people and machines do, and then leave alone."""
    name = f"c{chance.randrange(12)}"
    match chance.randrange(7):
        case 0:
            world.keepalive(name, subscriptions=[chance.choice("ab")])
        case 1:
            world.result(name, "disk", chance.choice([0, 1, 2]), aggregate=chance.choice(["site", "other"]))
        case 2:
            expire = chance.choice([None, 5 * 3600, 90_000])
            world.order("silence", entry={"check": f"k{chance.randrange(5)}", **({"expire": expire} if expire else {})})
        case 3:
            world.order("silence-clear", entry={"check": f"k{chance.randrange(5)}"})
        case 4:
            world.order("stash", path=f"p{chance.randrange(5)}", content={"n": chance.randrange(9)})
        case 5:
            world.order("stash-delete", path=f"p{chance.randrange(5)}")
        case 6:
            world.order("client-delete", client=name)


def folded(rows):
    table = {}
    for row in rows:
        if row.kind not in KINDS:
            continue
        if row.body is None:
            table.pop(row.id, None)
        else:
            table[row.id] = without_age(row.kind, json.loads(row.body))
    return table


def without_age(kind, body):
    """An event that is told again has the definition that its client has now; when a client was heard is shown only."""
    if kind == "client":
        body.pop("_heard")
    elif kind == "event":
        body["client"] = body["client"]["name"]
    return body


def a_day_after(seed):
    """A fleet in which much happened, and then for a day only time went by; its rows, and those of that day."""
    chance, world = random.Random(seed), World({"checks": {}, "handlers": {"default": {"type": "pipe"}}})
    for _ in range(150):
        changed(world, chance)
        if chance.random() < 0.3:
            world.tick(chance.choice([1, 1, 30, 400]))
    world.tick()
    before = len(world.rows)
    for _ in range(DAY_S // STEP_S // 3):
        world.tick(STEP_S)
    return world, before


@pytest.mark.parametrize("seed", [1, 2])
def test_the_rows_of_eight_hours_are_those_of_all_time(seed):
    world, before = a_day_after(seed)
    whole = folded(world.rows)
    assert {row.kind for row in world.rows if row.id in whole} >= KINDS - {"aggregate"}
    assert folded(world.rows[before:]) == whole


def test_each_row_is_told_once_in_six_hours_whatever_the_ticks_are():
    world = World({"checks": {}})
    for number in range(20):
        world.order("client", client={"name": f"c{number}", "address": "unknown", "subscriptions": []})
    world.order("stash", path="p", content={})
    before = len(world.rows)
    chance = random.Random(3)
    end = world.now + 2 * repeats.PERIOD_S
    while world.now < end:
        world.tick(min(chance.choice([1, 7, 29, 30]), end - world.now))
    told = [row.id for row in world.rows[before:] if row.kind in ("client", "stash", "settings")]
    assert {id_: told.count(id_) for id_ in set(told)} == dict.fromkeys(
        [*(f"client/c{number}" for number in range(20)), "stash/p", "settings"], 2
    )


def test_a_tick_tells_few_rows_of_many():
    world = World({"checks": {}})
    for number in range(2000):
        world.order("client", client={"name": f"c{number}", "address": "unknown", "subscriptions": []})
    most = max(sum(row.kind == "client" for row in world.tick(30).rows) for _ in range(50))
    assert 0 < most < 20


def test_a_client_that_is_told_again_was_heard_when_it_was():
    world = World({"checks": {}})
    world.keepalive("c1")
    heard = world.now
    for _ in range(repeats.PERIOD_S):
        world.tick()
    assert world.now == START_S + repeats.PERIOD_S
    found = [json.loads(row.body)["_heard"] for row in world.rows if row.id == "client/c1"]
    assert len(found) == 2
    assert found[1] == heard
