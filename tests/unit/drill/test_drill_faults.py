"""What the drill does to engines, where it takes no engine to see it."""

from __future__ import annotations

import pytest

from lockstep.drill.faults import _hands_over
from lockstep.engine.errors import NoStandby
from lockstep.errors import TimedOut


class Engine:
    """Answers a hand-over with what it is told to."""

    def __init__(self, error):
        self._error = error

    def ask(self, kind, fields, timeout_s):
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize(("error", "done"), [(None, True), (NoStandby(project="trades", engine="e2"), False)])
def test_a_hand_over_that_is_refused_for_want_of_a_standby_can_be_asked_for_again(error, done):
    assert _hands_over(Engine(error)) is done


def test_a_hand_over_that_fails_otherwise_ends_the_drill():
    with pytest.raises(TimedOut):
        _hands_over(Engine(TimedOut(what="Asking", seconds=1.0)))
