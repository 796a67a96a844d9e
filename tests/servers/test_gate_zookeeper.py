"""The gate by ZooKeeper, against a real one: processes killed, paused and cut off."""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from kazoo.client import KazooClient

from lockstep.dev.recipe import Plan, Recipe, Site
from lockstep.dev.zookeeper import zookeeper
from lockstep.engine.gates.port import Gate
from lockstep.engine.gates.urls import open_gate
from lockstep.errors import ServerUnfit, ServerUnreachable
from lockstep.runtime import ThreadRuntime
from servers.gate_process import GateProcess, until
from servers.server_fixtures import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.acceptance]

SESSION_S = 2.0
"""Twice the usual: this machine may be busy."""


def talkative(tick_ms: int = 500) -> Recipe:
    """A ZooKeeper that answers every four-letter word."""

    def plan(site: Site) -> Plan:
        made = zookeeper().plan(site)
        text = re.sub(r"whitelist=.*", "whitelist=*", made.files["zoo.cfg"])
        return replace(made, files={**made.files, "zoo.cfg": text.replace("tickTime=500", f"tickTime={tick_ms}")})

    return replace(zookeeper(), plan=plan)


def words(port: int, word: str) -> str:
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(word.encode())
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode()


def numbers(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"server-n_(\d{10})", text)]


@pytest.fixture
def processes() -> Iterator[list[GateProcess]]:
    made: list[GateProcess] = []
    yield made
    for process in made:
        if process._process.poll() is None:
            process.end()


def stand(processes: list[GateProcess], url: str, count: int) -> list[GateProcess]:
    """So many, one after the other."""
    for number in range(count):
        processes.append(GateProcess(url))
        processes[-1].until("standby as" if number or len(processes) > 1 else "active as")
    return processes


@pytest.fixture
def gates() -> Iterator[list[Gate]]:
    made: list[Gate] = []
    yield made
    for gate in made:
        gate.close()


def opened(gates: list[Gate], url: str, group: str = "c.p") -> Gate:
    gate = open_gate(url, ThreadRuntime(), {}, group=group)
    assert gate is not None
    gates.append(gate)
    return gate


def test_when_the_active_one_is_killed_the_next_in_order_is_active_soon(zookeeper_server, processes):
    first, second, third = stand(processes, f"zookeeper://{zookeeper_server.url}/ESP/killed", 3)
    first.kill()
    took = second.until("active as")
    print(f"active {took:.2f} s after kill -9")
    assert took < 10
    assert "standby" in third.state
    second.kill()
    third.until("active as")


def test_the_default_is_the_root_and_the_names_of_the_document(start_server, processes):
    server = start_server("zookeeper")
    (only,) = stand(processes, f"zookeeper://{server.url}", 1)
    assert re.search(r"True zookeeper://\S+: active as server-n_0000000000$", only.state)
    client = KazooClient(server.url)
    client.start(30)
    assert client.get_children("/ESP") == ["server-n_0000000000"]
    client.stop()
    client.close()


def test_each_watches_only_the_one_below_it(start_server, processes):
    server = start_server(talkative())
    first, second, third = stand(processes, f"zookeeper://{server.url}", 3)
    assert first.is_active
    for process in (second, third):
        mine, below = numbers(process.state)
        assert below == mine - 1
    until(lambda: "2 connections watching 2 paths\nTotal watches:2" in words(server.port, "wchs"), "two watches")
    # When the one in the middle goes, the last watches the first, and nobody else is told
    second.kill()
    until(lambda: numbers(third.state)[1:] == numbers(first.state), "it watches the first")
    until(lambda: "Total watches:1" in words(server.port, "wchs"), "one watch")
    assert first.is_active


def test_one_that_slept_longer_than_its_session_comes_back_as_a_standby(zookeeper_server, processes):
    url = f"zookeeper://{zookeeper_server.url}/ESP/slept?timeout_s={SESSION_S}"
    sleeper, second = stand(processes, url, 2)
    (before,) = numbers(sleeper.state)
    said = len(sleeper.said)
    sleeper.pause()
    second.until("active as")
    sleeper.resume()
    sleeper.until("standby as")
    assert numbers(sleeper.state)[0] > before
    assert not any(line.startswith("True") for line in sleeper.said[said:])
    assert second.is_active


def test_one_that_leaves_goes_to_the_end_of_the_line(zookeeper_server, gates):
    url = f"zookeeper://{zookeeper_server.url}/ESP/left"
    first, second = opened(gates, url), opened(gates, url)
    first.enter()
    until(first.may_lead, "the first is active")
    second.enter()
    until(lambda: "standby as" in second.state(), "the second is a standby")
    first.leave()
    first.enter()  # at once: it must not keep its place
    until(second.may_lead, "the second is active")
    until(lambda: "standby as" in first.state(), "the first is a standby")
    assert not first.may_lead()


def test_groups_that_share_a_root_have_lines_of_their_own(zookeeper_server, gates):
    # Given two projects on one root, whose engines came one after the other in turn
    url = f"zookeeper://{zookeeper_server.url}/ESP/shared"
    line = [opened(gates, url, group) for group in ("c.one", "c.two", "c.one", "c.two")]
    for number, gate in enumerate(line):
        gate.enter()
        until(gate.may_lead if number < 2 else lambda gate=gate: "standby as" in gate.state(), "it stands in line")
    # Then both have an active one, and each standby waits for the one of its own group
    assert [gate.may_lead() for gate in line] == [True, True, False, False]
    assert [numbers(gate.state()) for gate in line] == [[0], [1], [2, 0], [3, 1]]
    # When one active goes, its own standby takes over, and the other group stays as it is
    line[0].leave()
    until(line[2].may_lead, "the next of its group is active")
    assert [gate.may_lead() for gate in line[1:]] == [True, True, False]


def test_a_connection_that_is_lost_closes_the_gate_and_a_session_that_lives_opens_it_again(
    zookeeper_server, proxy, gates
):
    proxy.target = zookeeper_server.port
    gate = opened(gates, f"zookeeper://{proxy.address}/ESP/cut?timeout_s=10")
    gate.enter()
    until(gate.may_lead, "it is active")
    node = numbers(gate.state())
    proxy.refuse()
    until(lambda: not gate.may_lead(), "it is unsure")
    assert "suspended" in gate.state()
    proxy.resume()
    until(gate.may_lead, "it is active again")
    assert numbers(gate.state()) == node


def test_a_server_that_stands_still_closes_the_gate_within_a_session(start_server, gates):
    server = start_server("zookeeper")
    gate = opened(gates, f"zookeeper://{server.url}?timeout_s={SESSION_S}")
    gate.enter()
    until(gate.may_lead, "it is active")
    server.pause()
    took = until(lambda: not gate.may_lead(), "it is unsure")
    server.resume()
    assert took < 2 * SESSION_S
    until(gate.may_lead, "it is active again")


def test_a_server_that_is_killed_and_restarted_has_one_active_engine_again(start_server, gates):
    server = start_server("zookeeper")
    both = [opened(gates, f"zookeeper://{server.url}") for _ in range(2)]
    for gate in both:
        gate.enter()
    until(lambda: sum(gate.may_lead() for gate in both) == 1, "one is active")
    server.kill()
    until(lambda: not any(gate.may_lead() for gate in both), "none is")
    server.restart()
    until(lambda: sum(gate.may_lead() for gate in both) == 1, "one is active again")


def test_a_node_or_a_root_that_somebody_removes_is_made_again(zookeeper_server, gates):
    root = "/ESP/removed"
    gate = opened(gates, f"zookeeper://{zookeeper_server.url}{root}")
    gate.enter()
    until(gate.may_lead, "it is active")
    client = KazooClient(zookeeper_server.url)
    client.start(30)
    client.delete(f"{root}/server-n_0000000000")
    until(lambda: gate.may_lead() and numbers(gate.state()) == [1], "it has another node")
    client.delete(root, recursive=True)
    until(lambda: client.exists(f"{root}/server-n_0000000000") is not None, "the line begins anew")
    until(gate.may_lead, "it is active")
    client.stop()
    client.close()


def test_changes_are_told(zookeeper_server, gates, caplog):
    with caplog.at_level(logging.INFO, "lockstep"):
        gate = opened(gates, f"zookeeper://{zookeeper_server.url}/ESP/told")
        gate.enter()
        until(gate.may_lead, "it is active")
    told = [record.getMessage() for record in caplog.records if getattr(record, "action", "") == "gate"]
    assert told == ["ZooKeeper node server-n_0000000000 is made", "ZooKeeper node server-n_0000000000 is active"]


@pytest.mark.parametrize(
    ("tells", "problem"), [(True, "its tickTime is 2000 ms"), (False, "a session there lasts 4000")]
)
def test_a_slow_clock_is_a_warning_or_with_strict_an_error(start_server, gates, caplog, tells, problem):
    recipe = talkative(2000)

    def silent(site: Site) -> Plan:
        made = recipe.plan(site)
        return replace(made, files={"zoo.cfg": made.files["zoo.cfg"].replace("whitelist=*", "whitelist=srvr")})

    server = start_server(recipe if tells else replace(recipe, plan=silent))
    with caplog.at_level(logging.WARNING, "lockstep"):
        opened(gates, f"zookeeper://{server.url}")
    assert any(problem in record.getMessage() for record in caplog.records)
    with pytest.raises(ServerUnfit, match=problem):
        open_gate(f"zookeeper://{server.url}?strict=true", ThreadRuntime(), {}, group="c.p")


def test_no_server_is_an_error_within_a_bound(monkeypatch):
    monkeypatch.setattr("lockstep.engine.gates.zookeeper._OPEN_S", 1.0)
    (port,) = free_ports(1)
    began = time.monotonic()
    with pytest.raises(ServerUnreachable, match=f"zookeeper://app@127.0.0.1:{port}") as unreachable:
        open_gate(f"zookeeper://app:hush@127.0.0.1:{port}", ThreadRuntime(), {}, group="c.p")
    assert time.monotonic() - began < 20
    assert "hush" not in str(unreachable.value)
