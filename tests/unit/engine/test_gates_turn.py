"""How the token of a queue goes round, without a broker; and what a ZooKeeper's times mean."""

from __future__ import annotations

import pytest

from lockstep.engine.gates.semaphore import SemaphoreGate, Turn
from lockstep.engine.gates.urls import gate_address
from lockstep.engine.gates.zookeeper import Facts, judge_facts
from lockstep.runtime import ThreadRuntime


def test_the_first_token_proves_nothing_and_is_let_go_at_once():
    turn = Turn(beat_s=1.0, lease_s=4.0)
    turn.got(1, 100.0)
    assert turn.is_served
    assert turn.due == 100.0
    assert turn.sure_until < 100.0


def test_a_token_that_comes_back_is_proof_from_when_the_last_was_let_go():
    turn = Turn(beat_s=1.0, lease_s=4.0)
    turn.got(1, 100.0)
    assert turn.let_go(100.5) == 1
    turn.got(2, 103.0)
    assert (turn.sure_until, turn.due, turn.tag) == (104.5, 101.5, 2)


def test_a_token_that_lay_around_while_the_engine_slept_proves_nothing_now():
    turn = Turn(beat_s=1.0, lease_s=4.0)
    turn.got(1, 100.0)
    turn.let_go(100.5)
    turn.got(2, 200.0)
    assert turn.sure_until < 200.0
    assert turn.due < 200.0


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        (Facts(500, 1000), None),
        (Facts(None, 1000), None),
        (Facts(), None),
        (Facts(2000, 1000), "its tickTime is 2000 ms"),
        (Facts(None, 4000), "a session there lasts 4000 ms, not 1000"),
    ],
)
def test_a_zookeeper_that_notices_too_late_is_a_finding(facts, problem):
    found = judge_facts(gate_address("zookeeper://h", {}), facts)
    assert [problem in item.problem for item in found] == ([] if problem is None else [True])
    assert all("tickTime" in item.setting and not item.fatal for item in found)


class Stand:
    """A place in line; which one it is."""

    def __init__(self, number: int) -> None:
        self.number, self.is_open = number, True

    def close(self) -> None:
        self.is_open = False


class Line:
    """A broker, as far as standing in line goes."""

    heartbeat_s = 4

    def __init__(self) -> None:
        self.stands: list[Stand] = []

    def stand(self, _connection: object, _on_token: object, _on_cancel: object) -> Stand:
        self.stands.append(Stand(len(self.stands)))
        return self.stands[-1]


class Interrupted(SemaphoreGate):
    """Somebody leaves and enters again in the very moment in which the gate looks whether anybody did."""

    is_due = False

    @property
    def _cancelled(self) -> bool:
        if self.is_due:
            self.is_due = False
            self.leave()
            self.enter()
        return False

    @_cancelled.setter
    def _cancelled(self, value: bool) -> None:
        del value


def test_one_that_leaves_while_the_gate_looks_is_heard():
    line = Line()
    gate = Interrupted(line, ThreadRuntime())
    gate.enter()
    gate._work()
    gate.is_due = True
    gate._work()
    gate._work()
    assert [stand.is_open for stand in line.stands] == [False, True]
