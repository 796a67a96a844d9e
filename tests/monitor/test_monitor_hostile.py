"""Whatever comes: nothing raises, what is given can be written, and a new process goes on from it."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_worlds import World, body_of, compact

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from((0, 1, 2, -1, 30, 2**31, 2**70)),
    st.floats(allow_nan=False),
    st.text(max_size=6),
    st.sampled_from(
        (
            "web-1",
            "disk",
            "linux",
            "*",
            "a/b",
            "eval: value",
            "eval: value == (",
            ">= 1",
            ":::x:::",
            "roundrobin:a",
            "* * * * *",
            "\ud800",
            "\u0000",
            "ü" * 300,
        )
    ),
)
NAMES = st.sampled_from(
    (
        "name",
        "client",
        "check",
        "status",
        "output",
        "executed",
        "issued",
        "ttl",
        "ttl_status",
        "interval",
        "cron",
        "timezone",
        "subscribers",
        "subscriptions",
        "signature",
        "handlers",
        "handler",
        "filters",
        "filter",
        "severities",
        "aggregate",
        "aggregates",
        "source",
        "type",
        "occurrences",
        "refresh",
        "low_flap_threshold",
        "high_flap_threshold",
        "dependencies",
        "keepalive",
        "keepalives",
        "thresholds",
        "warning",
        "critical",
        "registration",
        "deregistration",
        "proxy_requests",
        "client_attributes",
        "splay",
        "splay_coverage",
        "subdue",
        "days",
        "all",
        "begin",
        "end",
        "when",
        "match",
        "entry",
        "id",
        "expire",
        "expire_on_resolve",
        "reason",
        "by",
        "settings",
        "checks",
        "attributes",
        "negate",
        "notify",
        "sensu",
        "standalone",
        "publish",
        "truncate_output",
        "truncate_output_length",
        "auto_resolve",
        "force_resolve",
        "handle",
        "path",
        "content",
        "invalidate",
        "_agent",
        "_n",
        "_redelivered",
        "history",
        "max_age",
        "command",
        "disk",
        "default",
        "web-1",
        "a",
        "timestamp",
        "redact",
        "web",
    )
)
TREES = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5), max_leaves=12
)
OBJECTS = st.dictionaries(NAMES, TREES, max_size=8)
ORDERS = st.sampled_from(
    (
        "settings",
        "silence",
        "silence-clear",
        "ack",
        "resolve",
        "client",
        "client-delete",
        "result-delete",
        "check-delete",
        "aggregate-delete",
        "request",
        "stash",
        "stash-delete",
        "health",
    )
)


def over(base, more):
    """A sound document with some members in the place of its own."""
    return st.builds(lambda given_: {**base, **given_}, more)


RESULTS = over(
    {"client": "web-1"},
    st.builds(
        lambda check, more: {**more, "check": check},
        over({"name": "disk", "status": 1, "output": "o", "executed": 5}, OBJECTS),
        OBJECTS,
    )
    | OBJECTS,
)
SETTINGS = st.fixed_dictionaries(
    {
        "checks": st.dictionaries(
            st.sampled_from(("disk", "cpu")), over({"interval": 1, "subscribers": ["roundrobin:a"]}, OBJECTS)
        ),
        "handlers": st.dictionaries(
            st.sampled_from(("default", "keepalive", "registration", "a")), over({"filter": "a"}, OBJECTS)
        ),
        "filters": st.dictionaries(
            st.sampled_from(("a", "occurrences")),
            over({"attributes": {"check": {"status": "eval: value > 0"}}}, OBJECTS),
        ),
        "aggregates": st.dictionaries(st.sampled_from(("web", "disk")), over({"critical": ">= 1"}, OBJECTS)),
        "sensu": OBJECTS,
    }
)
MESSAGES = st.one_of(
    st.tuples(st.just(b"r:web-1"), RESULTS),
    st.tuples(st.just(b"k:web-1"), over({"name": "web-1", "subscriptions": ["linux", "roundrobin:a"]}, OBJECTS)),
    st.tuples(st.just(b"o:"), st.builds(lambda kind, more: {"id": "1", **more, "order": kind}, ORDERS, OBJECTS)),
    st.tuples(
        st.just(b"o:"),
        st.builds(lambda given_, n: {"id": f"s{n}", "order": "settings", "settings": given_}, SETTINGS, st.integers()),
    ),
    st.tuples(
        st.just(b"o:"),
        st.builds(
            lambda given_, n: {"id": f"e{n}", "order": "silence", "entry": given_},
            over({"subscription": "linux"}, OBJECTS),
            st.integers(),
        ),
    ),
    st.tuples(
        st.just(b"o:"),
        st.builds(
            lambda given_, n: {"id": f"h{n}", "order": "health", "check": given_},
            over({"name": "disk", "status": 1}, OBJECTS),
            st.integers(),
        ),
    ),
    st.tuples(st.binary(max_size=8), st.just({})),
)


def written(document) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


@settings(max_examples=200, deadline=None)
@given(st.lists(MESSAGES, max_size=8), st.integers(0, 99))
def test_nothing_that_comes_raises(messages, seed):
    world = World({"handlers": {"default": {"type": "pipe"}}})
    world.keepalive()
    chance = random.Random(seed)
    for key, document in messages:
        world.take(key, written(document))
        if chance.random() < 0.3:
            world.restart(chance)
        for _ in range(chance.choice((0, 1, 3))):
            world.tick(chance.choice((1, 1, 31)))
    world.wait(31)
    world.restart(chance)
    world.tick()
    for row in world.rows:
        assert body_of(row) is not None
        "".join((row.id, row.kind, row.client, row.name, row.body or "")).encode()
    for notice in world.notices:
        assert notice.id.isprintable()
        assert len(notice.id.encode()) <= 512 >= len(notice.key.encode())
        assert len(notice.body) + sum(len(name) + len(text.encode()) for name, text in notice.headers.items()) < 250_000


LARGEST = 10**4300 - 1
"""Python's JSON takes numbers of so many digits, and writes none with one more."""


@pytest.mark.parametrize("number", [LARGEST, -LARGEST, 10**400, 2**63], ids=["largest", "least", "1e400", "2e63"])
def test_numbers_of_any_size_are_taken_and_written_again(number):
    """One that can't be computed with or written would end every engine that reads it."""
    proxy = {"client_attributes": {"name": "eval: value.length > 0"}, "splay": True, "splay_coverage": number}
    timed = {"interval": number, "refresh": number, "occurrences": number, "ttl": number, "ttl_status": number}
    world = World(
        {
            "handlers": {"default": {"type": "pipe", "notify": "change", "filter": "occurrences"}},
            "checks": {
                "disk": {**timed, "command": "x", "low_flap_threshold": number, "high_flap_threshold": number},
                "ping": {"command": "x", "interval": number, "subscribers": ["linux"], "proxy_requests": proxy},
            },
            "aggregates": {"all": {"max_age": number, "interval": number, "critical": ">= 1"}},
            "sensu": {"keepalives": {"thresholds": {"warning": number, "critical": number}}},
        }
    )
    for name in ("web-1", "web-2"):
        world.take(f"k:{name}".encode(), written({"name": name, "timestamp": number}))
    for status in (1, 1, 0, 1):
        more = {"executed": number, "issued": number, "aggregate": "all", "truncate_output_length": number}
        world.result(status=status, truncate_output=True, **more)
    world.order("silence", entry={"subscription": "linux", "expire": number})
    world.order("silence", entry={"subscription": "linux", "begin": number})
    world.order("stash", path="a", content={}, expire=number)
    world.order("client-delete", client="web-2", invalidate=True, expire=number)
    world.order("request", check="ping")
    world.wait(65)
    world.restart()
    world.result(status=2)
    assert world.event()["check"]["status"] == 2


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.sampled_from((b"r:web-1", b"k:web-1", b"o:")))
def test_bytes_that_are_no_document(value, key):
    world = World()
    world.keepalive()
    before = world.fleet.state.counters["refused"]
    world.take(key, value)
    world.take(key, b'{"client":"web-1","check":{' + value)
    world.take(key, b'{"client":"web-1","check":{"name":"disk","status":0,"executed":1,"output":"' + value + b'"}}')
    assert world.fleet.state.counters["refused"] >= before
    world.tick()


def test_the_fast_way_and_the_other_one_say_the_same(monkeypatch):
    """The same results with the fast way taken away: every row, but the order of members in stored results."""
    chance = random.Random(4)
    made = []
    for number in range(400):
        check = {
            "name": chance.choice(("disk", "cpu")),
            "issued": number,
            "executed": number,
            "output": 'ü\n"x"',
            "status": 0,
        }
        check |= chance.choice(
            (
                {},
                {},
                {"standalone": True},
                {"standalone": False},
                {"ttl": 5},
                {"aggregate": "a"},
                {"type": "x"},
                {"history": [1]},
                {"source": "sw-1"},
                {"executed": 1.5},
                {"output": None},
                {"extra": {"a": [1, {}]}},
            )
        )
        check["status"] = chance.choice((0, 0, 0, 0, 0, 1, False, "0"))
        head = chance.choice(
            ({"_agent": "a", "_n": number}, {"_agent": "a", "_n": number - 3}, {}, {"signature": "s"}, {"_agent": 1})
        )
        made.append(compact({"client": "web-1", **head, "check": check}))
    worlds = []
    for is_fast in (True, False):
        if not is_fast:
            monkeypatch.setattr("lockstep.monitor.core.fleet.take_fast", lambda *_: False)
        world = World(
            {"handlers": {"default": {"type": "pipe"}}, "checks": {"disk": {"command": "x"}, "cpu": {"ttl": 9}}}
        )
        world.keepalive()
        for number, value in enumerate(made):
            world.take(b"r:web-1", value)
            if number % 7 == 0:
                world.tick()
        worlds.append([(row.id, body_of(row)) for row in world.rows])
    assert worlds[0] == worlds[1]
