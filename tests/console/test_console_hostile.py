"""Every page and every act with names, queries and fields that can't be: each is answered, and nothing is a defect."""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

sys.path.append(str(Path(__file__).parent))

from console_worlds import ConsoleWorld

import lockstep
from lockstep.console.assembly import opened_parts
from lockstep.console.limits import RateLimits
from lockstep.server.access import Role

NAMES = ("orders", "default", "e1", "c1", "x", "-1", "0", "../../etc/passwd", "\0", "😀", "a" * 5000, "a b", "<b>", "*")
VALUES = (
    *NAMES,
    "",
    "9" * 21,
    "1e9",
    "true",
    "[]",
    "null",
    "nan",
    "2026-13-45T99:99Z",
    "\r\nX: 1",
    "0/10 * * * * ?",
    "(a|a)*b",
)
FIELDS = (None, 1, -1, 10**30, 1.5, True, "", "x" * 3000, "\0", [], {}, [[]], {"a": None}, "orders", "earliest")


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(RateLimits, "take", lambda *_: None)
    with lockstep.connect("memory:") as client:
        client.create("orders")
        with client.scheduler("default") as scheduler, opened_parts(client, "local", tmp_path) as parts:
            scheduler.after("1h", {"a": 1}, id="e1")
            scheduler.every("0 9 * * *", "x", id="c1")
            pillars = [pillar for pillar in parts.pillars if pillar.name != "streams"]
            world = ConsoleWorld(client, pillars=pillars, mounts=parts.mounts)
            yield world
            world.close()


def filled(path: str, draw: random.Random) -> str:
    return re.sub(r"\{\w+\}", lambda _: quote(draw.choice(NAMES[: draw.choice((4, None))]), safe=""), path)


@pytest.mark.slow
def test_whatever_is_looked_at_is_answered(world):
    draw, token, statuses = random.Random(7), world.token(Role.ADMIN), Counter()
    for view in world.app._views.values():
        for _ in range(25):
            names = [parameter.name for parameter in view.parameters]
            query = urlencode({name: draw.choice(VALUES) for name in names if draw.random() < 0.3})
            target = f"{draw.choice(('/api/v1', ''))}{filled(view.path, draw)}?{query}"
            status = world.get(target, token, accept="text/html").status
            assert status < 500 or status in (503, 504), target
            statuses[status] += 1
    assert {200, 404, 422} <= statuses.keys()


@pytest.mark.slow
def test_whatever_is_asked_for_is_answered(world):
    draw, token, statuses = random.Random(8), world.token(Role.ADMIN), Counter()
    for act in world.app._acts.values():
        for _ in range(15):
            likely = draw.random() < 0.4
            body = {field.name: (field.default or "1") if likely else draw.choice(FIELDS) for field in act.fields}
            body["dry_run"] = draw.choice([True, True, False, "perhaps"])
            target = f"/api/v1{filled(act.path, draw)}"
            status = world.post(target, body, token).status
            assert status < 500 or status in (503, 504), (target, body)
            statuses[status] += 1
    assert {200, 422} <= statuses.keys()
