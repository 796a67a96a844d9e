"""The fleet in an engine: its model is sound, and cuts, restarts and kills change nothing."""

from __future__ import annotations

import random

import pytest
from monitor_worlds import START_S, compact, keepalive, result

from lockstep.engine.events.event import Event, Flag, InputBlock, Opcode
from lockstep.engine.model.validation import compile_project
from lockstep.monitor.window import monitor_model
from lockstep.testing import check_window

SETTINGS = {
    "handlers": {
        "default": {"type": "pipe", "filter": "occurrences"},
        "keepalive": {"type": "pipe"},
        "registration": {"type": "pipe"},
    },
    "checks": {
        "disk": {"command": "df", "subscribers": ["linux", "roundrobin:db"], "interval": 3},
        "ping": {
            "command": "ping :::address:::",
            "subscribers": ["linux"],
            "interval": 5,
            "proxy_requests": {"client_attributes": {"keepalives": False}, "splay": True},
        },
    },
    "aggregates": {"disks": {"critical": ">= 50%", "interval": 2}},
}


def record(number, key, value):
    event = Event(Opcode.INSERT, Flag.NORMAL, (number, key, value, 1_767_225_600_000_000))
    return InputBlock(number, "Input", (event,))


def fleet_blocks(seed, count):
    """Keepalives, results of all kinds, orders and ticks."""
    chance = random.Random(seed)
    blocks, now, numbers = [], START_S, {}
    order = {"order": "settings", "id": "s", "settings": SETTINGS, "digest": "d", "by": "test"}
    blocks.append(record(1, b"o:", compact(order)))
    for number in range(2, count):
        what = chance.random()
        name = chance.choice(("web-1", "web-2", "db-1"))
        if what < 0.2:
            now += chance.choice((1, 1, 1, 2, 40))
            blocks.append(InputBlock(number, tick_us=now * 1_000_000, lagging=chance.random() < 0.2))
            continue
        numbers[name] = numbers.get(name, 0) + chance.choice((1, 1, 1, 0))
        head = {"_agent": f"a-{name}", "_n": numbers[name]} if chance.random() < 0.8 else {}
        if what < 0.3:
            value = keepalive(name, subscriptions=["linux", "roundrobin:db"], **head)
            blocks.append(record(number, f"k:{name}".encode(), value))
        elif what < 0.33:
            entry = {"subscription": chance.choice(("linux", "client:web-*")), "expire": 3, "check": None}
            blocks.append(record(number, b"o:", compact({"order": "silence", "id": f"{number}", "entry": entry})))
        elif what < 0.35:
            made = {"order": "client-delete", "id": f"{number}", "client": name}
            blocks.append(record(number, b"o:", compact(made)))
        elif what < 0.37:
            blocks.append(record(number, b"r:web-1", b"{" * chance.randint(1, 3)))
        else:
            more = chance.choice(
                ({}, {}, {}, {"ttl": 4}, {"aggregate": "disks"}, {"source": "switch-1"}, {"type": "metric"})
            )
            check = chance.choice(("disk", "cpu", "mem"))
            status = chance.choice((0, 0, 0, 1, 2))
            value = result(name, check, status, head=head, executed=now, output=f"ü {number}", **more)
            blocks.append(record(number, f"r:{name}".encode(), value))
    return blocks


def test_the_model_is_sound():
    graph = compile_project(monitor_model("monitor", "monitor.input"))
    assert [node.path for node in graph.nodes] == ["monitor/Input", "monitor/Fleet"]
    assert not any(node.is_indexed for node in graph.nodes)


@pytest.mark.parametrize("seed", [1, 2])
def test_cuts_restarts_kills_and_another_process_give_the_same_rows_and_notices(seed):
    blocks = fleet_blocks(seed, 250)
    report = check_window(monitor_model("monitor", "in"), blocks, runs=6, second_process=seed == 1)
    kinds = {line.split("'")[3] for answer in report.answers for line in answer.get("window monitor/Fleet", ())}
    assert kinds >= {"client", "results", "event", "transition", "why", "aggregate", "answer", "refused", "counters"}
    assert sum(len(answer.get("notices of monitor/Fleet", ())) for answer in report.answers) > 30
    assert report.restarts > 2
