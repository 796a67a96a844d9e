"""What ticks do: keepalives, TTLs, requests, aggregates, expiry; in listened time, so that a backlog is no silence."""

from __future__ import annotations

import hashlib
import json
import random

import pytest
from monitor_worlds import START_S, World

from lockstep.monitor.core.aggregates import reached
from lockstep.monitor.core.rules import splay_of

EVERY = {"handlers": {"default": {"type": "pipe"}, "keepalive": {"type": "pipe"}}}


@pytest.fixture
def world():
    made = World(EVERY)
    made.keepalive()
    return made


def told(world, check="keepalive"):
    """Statuses that handlers were told of a check."""
    return [(handler, status, action) for handler, name, status, action in world.handled() if name == check]


def test_a_silent_client_is_told_at_its_thresholds_and_resolves_when_it_is_heard(world):
    world.wait(119)
    assert told(world) == []
    world.wait(31)
    assert told(world) == [("keepalive", 1, "create")]
    output = world.event("keepalive")["check"]["output"]
    assert output.startswith("No keepalive sent from client for 1")
    assert output.endswith("seconds (>=120)")
    world.wait(60)
    assert told(world)[-1] == ("keepalive", 2, "create")
    assert world.event("keepalive")["check"]["output"].endswith("seconds (>=180)")
    world.keepalive()
    world.wait(30)
    assert told(world)[-1] == ("keepalive", 0, "resolve")
    assert world.event("keepalive") is None


def test_ok_keepalives_are_results_each_30_seconds(world):
    world.wait(90, heard=["web-1"])
    state = world.fleet.state.clients["web-1"].checks["keepalive"]
    assert state.history == bytes(3)
    assert told(world) == []


def test_thresholds_and_handlers_of_the_client_and_of_the_settings(world):
    world.order("settings", digest="2", settings={**EVERY, "sensu": {"keepalives": {"thresholds": {"warning": 40}}}})
    world.keepalive("a-1", keepalive={"thresholds": {"critical": 60}, "handlers": ["default"], "team": "web"})
    world.wait(70)
    assert world.event("keepalive", "web-1")["check"]["status"] == 1
    world.wait(30)
    event = world.event("keepalive", "a-1")
    assert (event["check"]["status"], event["check"]["team"]) == (2, "web")
    assert {name for name, *_ in told(world)} == {"default", "keepalive"}


def test_a_keepalive_with_a_source_is_a_result_of_that_client(world):
    world.keepalive(keepalive={"source": "rack-1", "thresholds": {"warning": 10}})
    world.keepalive("db-1", keepalive={"source": "no name", "thresholds": {"warning": 10}})
    world.wait(45)
    assert world.event("keepalive") is None
    found = world.event("keepalive", "rack-1")
    assert (found["check"]["status"], found["check"]["origin"], found["client"]["type"]) == (1, "web-1", "proxy")
    assert world.event("keepalive", "db-1")["check"]["status"] == 1


def test_a_client_that_sends_no_keepalives_is_not_expected_to(world):
    world.keepalive("quiet-1", keepalives=False)
    world.wait(400)
    assert world.event("keepalive", "quiet-1") is None


@pytest.mark.parametrize("lagging", [True, False])
def test_lag_outage_and_clock_jumps_raise_no_keepalive_events(world, lagging):
    if lagging:
        world.wait(1000, lagging=True)
    else:
        world.tick(100_000)  # all engines were away, or a clock was set
    world.keepalive()
    world.wait(40)
    assert told(world) == []
    assert world.event("keepalive") is None


def test_a_clock_that_is_set_back_stands_still(world):
    world.now -= 500
    world.wait(30)
    assert world.table["counters"]["listened_s"] == 0
    assert world.table["counters"]["time"] == START_S


def test_a_lagging_monitor_says_so_itself(world):
    world.wait(95, lagging=True)
    event = world.event("lag", "lockstep")
    assert event["check"]["status"] == 2
    world.wait(60)
    assert world.event("lag", "lockstep") is None


def test_a_clock_that_is_ahead_is_told_as_an_event_of_its_own(world):
    world.keepalive("fast-1")
    world.take(b"k:fast-1", json.dumps({"name": "fast-1", "subscriptions": [], "timestamp": world.now + 500}).encode())
    world.wait(31)
    assert "fast-1 by 500 s" in world.event("clock-skew", "lockstep")["check"]["output"]
    world.keepalive("fast-1")
    world.wait(31)
    assert world.event("clock-skew", "lockstep") is None


# TTL


def test_a_check_that_is_silent_for_its_ttl_is_told_until_it_speaks(world):
    world.result(ttl=40, interval=10)
    world.wait(100, heard=["web-1"])
    event = world.event()
    assert event["check"]["status"] == 1
    assert event["check"]["output"].startswith("Last check execution was ")
    assert event["check"]["interval"] == 30
    assert event["occurrences"] >= 2
    assert event["check"]["executed"] == START_S
    world.result(ttl=40, interval=10)
    assert world.event() is None
    world.result(name="own", ttl=10, ttl_status=2)
    world.wait(45, heard=["web-1"])
    assert world.event("own")["check"]["status"] == 2


def test_no_ttl_event_while_the_client_is_silent_as_a_whole_or_after_it_was_resolved_by_hand(world):
    world.result(ttl=150)
    world.wait(240)
    assert world.event("keepalive") is not None
    assert world.event() is None
    world.keepalive()
    world.wait(30)
    assert world.event() is not None
    world.order("resolve", client="web-1", check="disk")
    world.wait(60, heard=["web-1"])
    assert world.event() is None


# Requests

REQUESTED = {
    **EVERY,
    "checks": {"disk": {"command": "df", "interval": 10, "subscribers": ["linux", "all"], "team": "a"}},
}


def test_requests_come_at_the_times_of_the_splay_and_hold_the_definition():
    world = World(REQUESTED)
    world.wait(30)
    found = world.requests()
    assert [key for key, _ in found] == ["linux", "all"] * 3
    first = found[0][1]
    assert first == {"command": "df", "team": "a", "name": "disk", "issued": first["issued"]}
    phase_ms = splay_of("disk") % 10_000
    assert 0 <= (first["issued"] * 1000 - phase_ms) % 10_000 < 1000
    ids = [notice.id for notice in world.notices]
    assert ids[:2] == [f"request.disk.{first['issued']}.linux", f"request.disk.{first['issued']}.all"]
    assert len(set(ids)) == 6
    row = world.table["request/disk"]
    assert (row["count"], row["ids"]) == (2, ids[-2:])


def test_a_gap_gives_one_request_and_lag_gives_them_as_ever():
    world = World(REQUESTED)
    world.tick(3600)
    assert len(world.requests()) == 2
    world.wait(10, lagging=True)
    assert len(world.requests()) == 4


def due_times(check, name, begin_ms, end_ms):
    """All times of a check, restated: from the epoch on, one after the other."""
    if "cron" in check:
        minutes = range(begin_ms // 60_000, end_ms // 60_000 + 1)
        step = int(check["cron"][2:].split()[0])
        return [60_000 * each for each in minutes if each % 60 % step == 0]
    interval = check["interval"] * 1000
    splay = int.from_bytes(hashlib.md5(name.encode()).digest()[:8], "little") % interval
    first = begin_ms - begin_ms % interval - interval + splay
    return range(first, end_ms + 1, interval)


@pytest.mark.parametrize("seed", range(6))
def test_requests_are_those_of_a_restatement_whatever_the_ticks_are(seed):
    """For each tick the checks with a due time since the last one, once each, through gaps, lag, restarts, reloads."""
    chance = random.Random(seed)
    world, checks, told, expected = World(EVERY), {}, [], []
    for number in range(250):
        if number % 50 == 0:
            checks = {
                f"c{each}": {"interval": chance.choice((1, 2, 7, 60, 90))} for each in range(chance.randint(1, 6))
            }
            checks["cron"] = {"cron": f"*/{chance.choice((1, 7, 30))} * * * *"}
            document = {name: {**each, "command": "x", "subscribers": ["linux"]} for name, each in checks.items()}
            more = {"command": "x", "subscribers": ["linux"], "interval": 1}
            document |= {"own": {**more, "standalone": True}, "off": {**more, "publish": False}}
            world.order("settings", settings={"checks": document}, digest=str(number), by="test")
        before = world.now * 1000
        world.tick(chance.choice((0, 1, 1, 1, 1, 2, 61, 4000)), lagging=chance.random() < 0.2)
        now = world.now * 1000
        due = (name for name, check in checks.items() if any(before < each <= now for each in
               due_times(check, name, before, now)))  # fmt: skip
        expected += [(name, world.now) for name in sorted(due)]
        told += [(request["name"], request["issued"]) for _, request in world.requests()]
        world.notices.clear()
        if chance.random() < 0.1:
            world.restart(chance)
    assert sorted(told) == sorted(expected)
    assert len(told) > 100


@pytest.mark.parametrize("flag", [{"publish": False}, {"standalone": True}])
def test_checks_that_are_not_published(flag):
    checks = {"disk": {**REQUESTED["checks"]["disk"], **flag}}
    world = World({**EVERY, "checks": checks})
    world.wait(30)
    assert world.requests() == []
    assert world.order("request", check="disk")["status"] == (404 if "standalone" in flag else 202)


def test_crons_and_subdued_times():
    window = {"days": {"all": [{"begin": "00:00", "end": "00:03"}]}}
    checks = {
        "nightly": {"command": "x", "cron": "*/2 * * * *", "subscribers": ["a"]},
        "late": {"command": "x", "interval": 60, "subscribers": ["b"], "subdue": window},
        "berlin": {"command": "x", "cron": "2 1 * * *", "timezone": "Europe/Berlin", "subscribers": ["c"]},
    }
    world = World({**EVERY, "checks": checks})
    world.wait(300)
    found = [(key, request["issued"] - START_S) for key, request in world.requests()]
    assert [at for key, at in found if key == "a"] == [120, 240]
    assert [at > 180 for key, at in found if key == "b"] == [True] * len([1 for key, _ in found if key == "b"])
    assert len([1 for key, _ in found if key == "b"]) == 2
    assert [at for key, at in found if key == "c"] == [120]


def test_a_shared_subscription_is_asked_member_by_member_and_leaves_the_silent_out():
    checks = {"one": {"command": "x", "interval": 10, "subscribers": ["roundrobin:db"]}}
    world = World({**EVERY, "checks": checks})
    world.wait(10)
    assert [key for key, _ in world.requests()] == ["roundrobin:db"]  # nobody is known
    for name in ("c-1", "a-1", "b-1"):
        world.keepalive(name, subscriptions=["roundrobin:db"])
    world.notices.clear()
    world.wait(40)
    assert [key for key, _ in world.requests()] == ["client:a-1", "client:b-1", "client:c-1", "client:a-1"]
    world.wait(120, heard=["a-1", "c-1"])
    assert world.event("keepalive", "b-1") is not None
    world.notices.clear()
    world.wait(20, heard=["a-1", "c-1"])
    assert sorted(key for key, _ in world.requests()) == ["client:a-1", "client:c-1"]


def test_proxy_requests_fill_tokens_and_may_be_spread():
    proxy = {"client_attributes": {"role": "switch", "rank": "eval: value > 1"}, "splay": True}
    checks = {
        "ping": {"command": "ping :::address:::", "interval": 60, "subscribers": ["net"], "proxy_requests": proxy}
    }
    world = World({**EVERY, "checks": checks})
    for number in range(6):
        world.keepalive(f"sw-{number}", keepalives=False, role="switch", rank=number, address=f"10.1.0.{number}")
    world.wait(60)
    found = world.requests()
    while len(found) < 4:
        world.wait(1)
        found = world.requests()
    assert [request["source"] for _, request in found[:4]] == ["sw-2", "sw-3", "sw-4", "sw-5"]
    assert found[0][1]["command"] == "ping 10.1.0.2"
    times = [request["issued"] for _, request in found[:4]]
    assert times[-1] - times[0] >= 39  # over 90 % of a minute
    assert len({notice.id for notice in world.notices}) == len(world.notices)


@pytest.mark.parametrize("proxy", [{}, {"client_attributes": {}}, {"client_attributes": ["name"]}])
def test_proxy_requests_without_attributes_are_for_no_client(proxy):
    checks = {"ping": {"command": "ping", "interval": 5, "subscribers": ["net"], "proxy_requests": proxy}}
    world = World({**EVERY, "checks": checks})
    world.keepalive()
    world.wait(6)
    assert world.order("request", check="ping")["status"] == 202
    assert world.requests() == []


def test_a_proxy_request_with_a_token_that_has_no_value_is_left_out_and_told():
    proxy = {"client_attributes": {"name": "web-1"}}
    checks = {"ping": {"command": ":::nothing:::", "interval": 5, "subscribers": ["net"], "proxy_requests": proxy}}
    world = World({**EVERY, "checks": checks})
    world.keepalive()
    world.wait(6)
    assert world.requests() == []
    assert world.table["request/ping"]["skipped"] == {"web-1": ["nothing"]}


# Aggregates


@pytest.mark.parametrize(
    ("rule", "bad", "total", "holds"),
    [
        (">= 1", 1, 3, True),
        (">= 1", 0, 3, False),
        (">= 50%", 1, 2, True),
        (">= 50%", 1, 3, False),
        ("> 50%", 1, 2, False),
        ("== 2", 2, 9, True),
        ("< 1", 0, 9, True),
        ("<= 10%", 1, 10, True),
        (">= 1", 0, 0, False),
        ("nonsense", 5, 5, False),
        (None, 5, 5, False),
        (">=", 5, 5, False),
    ],
)
def test_rules_of_aggregates(rule, bad, total, holds):
    assert reached(rule, bad, total) is holds


def test_an_aggregate_alerts_once_it_has_too_many_bad_members():
    rules = {"web": {"warning": ">= 1", "critical": ">= 50%", "handlers": ["default"], "team": "web"}}
    world = World({**EVERY, "aggregates": rules})
    for name in ("a-1", "b-1", "c-1"):
        world.keepalive(name)
        world.result(name, "http", aggregate="web")
    world.wait(10)
    assert world.table["aggregate/web"]["members"] == ["a-1/http", "b-1/http", "c-1/http"]
    assert world.event("aggregate-web", "lockstep") is None
    world.result("a-1", "http", status=2, aggregate="web")
    world.wait(10)
    event = world.event("aggregate-web", "lockstep")
    assert (event["check"]["status"], event["check"]["output"]) == (1, "1 of 3 members: 2 ok, 1 critical")
    world.result("b-1", "http", status=1, aggregate="web")
    world.wait(10)
    assert world.event("aggregate-web", "lockstep")["check"]["status"] == 2
    for name in ("a-1", "b-1"):
        world.result(name, "http", aggregate="web")
    world.wait(10)
    assert world.event("aggregate-web", "lockstep") is None


def test_members_leave_when_they_are_deleted_say_so_or_are_silent_for_too_long():
    world = World({**EVERY, "aggregates": {"web": {"max_age": 100}}})
    for name in ("a-1", "b-1", "c-1"):
        world.keepalive(name, keepalives=False)
        world.result(name, "http", aggregates=["web", "all"])
    world.order("result-delete", client="a-1", check="http")
    world.result("b-1", "http", aggregates=["all"])
    world.wait(1)
    assert world.table["aggregate/web"]["members"] == ["c-1/http"]
    assert world.table["aggregate/all"]["members"] == ["b-1/http", "c-1/http"]
    world.wait(140)
    assert "aggregate/web" not in world.table
    assert world.table["aggregate/all"]["members"] == ["b-1/http", "c-1/http"]
    world.result("c-1", "http", aggregates=["web", "all"])
    assert world.order("aggregate-delete", name="all")["status"] == 204
    assert world.order("aggregate-delete", name="all")["status"] == 404
    world.wait(1)
    assert world.table["aggregate/web"]["members"] == ["c-1/http"]
    assert "aggregate/all" not in world.table


# Before the first tick


def test_what_comes_before_the_first_tick_waits_for_it_also_over_a_restart():
    world = World(start=False)
    for turn in range(3):
        out = world.result(status=1)
        assert out.rows == []
        world.restart()
        assert turn == len(world.fleet.state.early) - 1
    out = world.tick()
    assert world.event()["timestamp"] == START_S + 1
    assert world.event()["occurrences"] == 3
    assert len(world.transitions) == 1


def test_if_too_much_comes_before_the_first_tick_it_is_taken_at_the_time_zero(monkeypatch):
    monkeypatch.setattr("lockstep.monitor.core.fleet.EARLY_MAX", 2)
    world = World(start=False)
    for status in (1, 1, 1, 0):
        world.result(status=status)
        world.restart()
    assert [t["time"] for t in world.transitions] == [0, 0]
    assert world.event() is None
