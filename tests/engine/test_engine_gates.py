"""Engines behind gates that do as the test says, lies included: who may try changes, and answers do not."""

from __future__ import annotations

import pytest
from failover_worlds import WANTED, finish, send
from local_cluster import LEASE_S, LocalCluster, LocalNode
from run_worlds import sums_graph

from lockstep.engine.runtime.control import engine_control
from lockstep.engine.runtime.control.leadership import ACTIVE, STANDBY

pytestmark = pytest.mark.slow


class Line:
    """A line outside: the first in it may lead, or whoever the test says."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.open_for: set[str] | None = None

    def may_lead(self, name: str) -> bool:
        if self.open_for is not None:
            return name in self.open_for
        return self.names[:1] == [name]


class ScriptedGate:
    """See Gate."""

    def __init__(self, line: Line, name: str) -> None:
        self.line, self.name = line, name
        self.crash: BaseException | None = None

    def enter(self) -> None:
        if self.name not in self.line.names:
            self.line.names.append(self.name)

    def leave(self) -> None:
        if self.name in self.line.names:
            self.line.names.remove(self.name)

    def may_lead(self) -> bool:
        return self.name in self.line.names and self.line.may_lead(self.name)

    def state(self) -> str:
        return f"scripted: {self.line.names}"

    def check(self) -> None:
        if self.crash is not None:
            raise self.crash

    def close(self) -> None:
        self.leave()


@pytest.fixture
def line():
    return Line()


@pytest.fixture
def cluster(tmp_path, line, monkeypatch):
    monkeypatch.setattr(engine_control, "open_gate", lambda url, runtime, environ, group: ScriptedGate(line, url))
    return LocalCluster(sums_graph(), WANTED, tmp_path)


def start(cluster: LocalCluster, *names: str) -> list[LocalNode]:
    return [cluster.start(name, election=name) for name in names]


def in_line(cluster: LocalCluster, line: Line) -> tuple[LocalNode, LocalNode]:
    """Two engines, the first active, with five blocks out."""
    first, second = start(cluster, "a", "b")
    cluster.until_active("a")
    finish(cluster, *range(1, 6))
    assert line.names == ["a", "b"]
    return first, second


def die(node: LocalNode, line: Line) -> None:
    """As kill -9, and the gate notices."""
    node.kill()
    line.names.remove(node.name)


def test_the_first_in_line_leads_whatever_the_preferences_are(cluster, line):
    cluster.start("a", election="a", preference=9)
    cluster.until_active("a")
    cluster.start("b", election="b", preference=0)
    finish(cluster, 1, 2)
    assert cluster.active.name == "a"


def test_when_the_first_in_line_dies_the_next_takes_over_soon(cluster, line):
    first, _ = in_line(cluster, line)
    killed_at = cluster.clock.monotonic()
    die(first, line)
    cluster.until_active("b")
    assert cluster.clock.monotonic() - killed_at < 3 * LEASE_S
    finish(cluster, 6, 7)


def test_an_engine_that_comes_back_is_a_standby_at_the_end_of_the_line(cluster, line):
    first, second = in_line(cluster, line)
    start(cluster, "c")
    die(first, line)
    cluster.until_active("b")
    first.start()
    finish(cluster, 6, 7)
    assert line.names == ["b", "c", "a"]
    assert second.is_active


def test_of_three_the_next_in_line_takes_over_each_time(cluster, line):
    start(cluster, "a", "b", "c")
    cluster.until_active("a")
    for at, (name, heir) in enumerate([("a", "b"), ("b", "c")], 1):
        die(cluster.nodes[name], line)
        cluster.until_active(heir)
        finish(cluster, at)


def test_a_gate_that_moves_moves_the_lead(cluster, line):
    first, second = in_line(cluster, line)
    for at, name in enumerate("baba", 6):
        line.open_for = {name}
        cluster.until_active(name)
        cluster.until(lambda: first.is_active != second.is_active)
        finish(cluster, at)
    assert [change.role for change in second.roles] == [ACTIVE, STANDBY, ACTIVE, STANDBY]


def test_while_no_gate_is_open_nobody_leads_and_nothing_is_lost(cluster, line):
    first, second = in_line(cluster, line)
    line.open_for = set()
    cluster.until(lambda: not first.is_active and not second.is_active)
    send(cluster, 6, 7, 8)
    cluster.advance(10 * LEASE_S)
    assert not first.is_active
    assert not second.is_active
    line.open_for = {"b"}
    cluster.until_active("b")
    finish(cluster, 9)


def test_a_gate_that_is_open_for_both_makes_one_leader(cluster, line):
    first, second = in_line(cluster, line)
    line.open_for = {"a", "b"}
    for one in range(6, 16):
        send(cluster, one)
        cluster.advance(LEASE_S / 2)
        assert [first.is_active, second.is_active] == [True, False]
    finish(cluster, 16)
    first.kill()
    cluster.until_active("b")
    finish(cluster, 17)


def test_an_active_engine_that_slept_while_the_gate_moved_changes_no_answer(cluster, line):
    sleeper, standby = in_line(cluster, line)

    def meanwhile() -> None:
        line.open_for = {"b"}
        cluster.until_active("b")
        send(cluster, *range(10, 14))
        cluster.until(lambda: standby.control.publisher.published == 13)
        line.open_for = {"a", "b"}  # and it is told that it may still lead

    sleeper.stall_at(".S", meanwhile)
    send(cluster, *range(6, 10))
    cluster.until(lambda: standby.is_active and not sleeper.is_active)
    finish(cluster, 14, 15)
    assert standby.is_active


@pytest.mark.parametrize("seed", range(4))
def test_gates_that_flap_and_lie_change_no_answer(tmp_path, line, monkeypatch, seed):
    monkeypatch.setattr(engine_control, "open_gate", lambda url, runtime, environ, group: ScriptedGate(line, url))
    cluster = LocalCluster(sums_graph(), WANTED, tmp_path, seed=seed)
    start(cluster, "a", "b", "c")
    for one in range(1, 40):
        line.open_for = {name for name in "abc" if cluster.random.random() < 0.4}
        send(cluster, one)
        cluster.advance(cluster.random.random() * LEASE_S)
        node = cluster.nodes[cluster.random.choice("abc")]
        if one % 10 == 0 and node.is_alive:
            die(node, line)
        elif not node.is_alive:
            node.start()
    line.open_for = None
    for node in cluster.nodes.values():
        if not node.is_alive:
            node.start()
    cluster.settle()
    cluster.check()


def test_a_hand_over_goes_to_the_next_in_line(cluster, line):
    first, _ = in_line(cluster, line)
    cluster.ask("handover")
    cluster.until_active("b")
    cluster.until(lambda: line.names == ["b", "a"])
    finish(cluster, 6, 7)
    assert not first.is_active


def test_an_engine_that_is_stopped_in_order_lets_the_next_lead_at_once(cluster, line):
    first, _ = in_line(cluster, line)
    first.stop()
    stopped_at = cluster.clock.monotonic()
    assert line.names == ["b"]
    cluster.until_active("b")
    assert cluster.clock.monotonic() - stopped_at < LEASE_S
    finish(cluster, 6)


def test_an_engine_stands_in_the_line_of_its_own_cluster_and_project(cluster, line, monkeypatch):
    groups = []

    def opened(url, runtime, environ, group):
        groups.append(group)
        return ScriptedGate(line, url)

    monkeypatch.setattr(engine_control, "open_gate", opened)
    start(cluster, "a")
    cluster.until_active("a")
    assert groups == [f"local.{sums_graph().project.name}"]


def test_an_engine_says_what_its_gate_says(cluster, line):
    first, _ = in_line(cluster, line)
    assert first.engine.status().election == "scripted: ['a', 'b']"


def test_a_gate_that_broke_ends_the_engine_with_the_reason(cluster, line):
    first, _ = in_line(cluster, line)
    error = engine_control.LockstepError(reason="broken")
    first.control.election._gate.crash = error
    cluster.until(lambda: not first.is_alive)
    assert first.failure is error
