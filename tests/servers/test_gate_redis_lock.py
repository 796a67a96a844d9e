"""The gate by Sensu's lock, against a real Redis: what is in its keys, and who follows whom."""

from __future__ import annotations

import time
from uuid import UUID

import pytest
import redis

from lockstep.engine.gates import redis_lock
from lockstep.engine.gates.urls import open_gate
from lockstep.errors import ServerRefused, ServerUnreachable
from lockstep.runtime import ThreadRuntime
from servers.gate_process import until
from servers.server_fixtures import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.acceptance]
DATABASE = 7


@pytest.fixture
def keys(redis_server):
    with redis.Redis(port=redis_server.ports[0], db=DATABASE, decode_responses=True) as client:
        client.flushdb()
        yield client


@pytest.fixture
def gates(redis_server):
    made = []

    def opened():
        made.append(
            open_gate(f"redis-lock://127.0.0.1:{redis_server.ports[0]}/{DATABASE}", ThreadRuntime(), {}, group="c.p")
        )
        return made[-1]

    yield opened
    for gate in made:
        gate.close()


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(redis_lock, "FIRST_S", 0.05)
    monkeypatch.setattr(redis_lock, "EVERY_S", 0.1)
    monkeypatch.setattr(redis_lock, "STALE_MS", 1_000)


def test_the_keys_are_those_of_sensu_and_stay_when_the_leader_leaves(keys, gates):
    first, second = gates(), gates()
    assert not first.may_lead()
    first.enter()
    until(first.may_lead, "it leads")
    second.enter()
    assert sorted(keys.keys()) == ["leader", "lock:leader"]
    assert str(UUID(keys.get("leader"))) in first.state()
    assert abs(int(keys.get("lock:leader")) - time.time() * 1000) < 60_000
    before = keys.get("lock:leader")
    until(lambda: keys.get("lock:leader") != before, "it refreshes the lock")
    assert not second.may_lead()
    first.leave()
    assert not first.may_lead()
    assert keys.exists("leader", "lock:leader") == 2
    until(second.may_lead, "the next one takes the lock that grew old")
    assert keys.get("leader") in second.state()
    assert "not standing" in first.state()


def test_a_leader_that_another_one_replaced_steps_back(keys, gates):
    gate = gates()
    gate.enter()
    until(gate.may_lead, "it leads")
    keys.set("leader", "a-sensu-server")
    keys.set("lock:leader", str(int(time.time() * 1000) + 3_600_000))
    until(lambda: not gate.may_lead(), "it resigns")
    assert keys.get("leader") == "a-sensu-server"
    gate.check()


def test_a_server_that_can_not_be_used_is_an_error(redis_server):
    with pytest.raises(ServerUnreachable):
        open_gate(f"redis-lock://127.0.0.1:{free_ports(1)[0]}/0", ThreadRuntime(), {}, group="c.p")
    with pytest.raises(ServerRefused):
        open_gate(f"redis-lock://127.0.0.1:{redis_server.ports[0]}/9999", ThreadRuntime(), {}, group="c.p")
