"""How the token of a queue goes round, without a broker; and what a ZooKeeper's times mean."""

from __future__ import annotations

import pytest

from lockstep.engine.gates.opening import gate_address
from lockstep.engine.gates.semaphore import Turn
from lockstep.engine.gates.zookeeper_facts import Facts, judge_facts


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
