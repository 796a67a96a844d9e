"""Times and durations too far away to count move no clock, in rows and in columns, and no model may ask for them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from kernel_worlds import Collected, ListedHistory, interpret, spans

from lockstep.engine.columns import loops
from lockstep.engine.columns.evaluator import Evaluator
from lockstep.engine.errors import ModelInvalid
from lockstep.engine.events.event import Event, Flag, InputBlock, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.values import MAX_US
from lockstep.engine.model.windows import CopyWindow, Retention, SourceWindow
from lockstep.engine.reference.aggregate_sums import DoubleDouble, TwoSums
from lockstep.engine.reference.interpreter import Interpreter

SECOND = 1_000_000
FAR = {"date": MAX_US // SECOND + 1, "stamp": MAX_US + 1}
KINDS = ("bytime_sliding", "bytime_jumping", "bytime_jumping_lookback")


def model(kind, *, type_="stamp", limit=5 * SECOND, unit=SECOND, field="t"):
    steps = unit if kind.endswith("lookback") else None
    source = SourceWindow(name="in", schema=Schema.parse(f"id*:int64,t:{type_}"), insert_only=True)
    copy = CopyWindow(name="c", retention=Retention(kind=kind, limit=limit, field=field, unit_us=steps))
    query = ContinuousQuery(name="q", windows=(source, copy), edges=(Edge(source="in", target="c"),))
    return compile_project(Project(name="p", queries=(query,)))


def blocks_of(*times):
    return [
        InputBlock(number, "q/in", (Event(Opcode.INSERT, Flag.NORMAL, (number, time)),))
        for number, time in enumerate(times, 1)
    ]


def answers(graph, blocks):
    """What rows say, and what columns say in one go and block by block, with the log and without."""
    expected = interpret(graph, blocks).answer
    for ends in ([len(blocks)], list(range(1, len(blocks) + 1))):
        for history in (None, ListedHistory(graph, blocks)):
            evaluator, found = Evaluator(graph, wanted=frozenset({"q/in", "q/c"}), history=history), Collected()
            for span in spans(graph, blocks, ends):
                found.add(evaluator.evaluate(span))
            assert {path: found.answer.get(path, []) for path in expected} == expected
    return [text for _, text in expected["q/c"]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("type_", ["date", "stamp"])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("edge", [False, True])
def test_a_time_beyond_the_range_is_as_good_as_none(kind, type_, sign, edge):
    unit = SECOND if type_ == "stamp" else 1
    far = sign * (FAR[type_] if edge else 2**63 - 1)
    # Given rows of which one has a time too far away, at the beginning or later
    for times in ([far, 100, 101, 109], [100, far, 101, 109], [100, 101, 109, far]):
        graph = model(kind, type_=type_)
        scaled = [time if time == far else time * unit for time in times]
        nulls = [None if time == far else time for time in scaled]
        # Then what leaves is what would leave if it had none
        shown = [text.split(",")[0] for text in answers(graph, blocks_of(*scaled))]
        assert shown == [text.split(",")[0] for text in answers(graph, blocks_of(*nulls))]


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_times_that_count_do(kind):
    graph = model(kind, limit=MAX_US, unit=MAX_US)
    assert len(answers(graph, blocks_of(-MAX_US, 0, MAX_US))) > 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tick", [-(2**63), -SECOND, 0, MAX_US + 1, 2**63 - 1])
def test_ticks_beyond_the_range_leave_the_clock(kind, tick):
    graph = model(kind, field=None)
    (row,) = blocks_of(1)
    ticks = [tick, 100 * SECOND, tick, 104 * SECOND, 105 * SECOND]
    blocks = [row, *(InputBlock(number, tick_us=time) for number, time in enumerate(ticks, 2))]
    # Then the row leaves five seconds after the first tick that counts
    interpreter = Interpreter(graph)
    sizes = [len(interpreter.evaluate(block)["q/c"]) for block in blocks]
    assert sizes == [1, 0, 0, 0, 0, 1]
    assert interpreter.clock_us == 105 * SECOND
    assert len(answers(graph, blocks)) == 2


@pytest.mark.parametrize("parts", [{"limit": MAX_US + 1}, {"unit": MAX_US + 1}, {"limit": 2**80}])
def test_durations_beyond_the_range_are_refused(parts):
    with pytest.raises(ModelInvalid, match=f"q/c retention.*is too much. Give at most {MAX_US}"):
        model("bytime_jumping_lookback", **parts)
    with pytest.raises(ModelInvalid, match=r"q/c retention.*too much"):
        model("bycount_sliding", limit=MAX_US + 1, field=None)


@pytest.mark.parametrize("values", [[math.inf, 1.0], [1.7e308, 1.7e308, -1.0], [-math.inf, 2.0], [1e308, math.inf]])
def test_a_sum_that_became_infinite_stays_infinite(values):
    both, one, hi, lo = TwoSums(), DoubleDouble(), 0.0, 0.0
    for value in values:
        one.add(value)
        both.add(value, -value)
        hi, lo = loops.dd_add(hi, lo, value)
    infinite = math.copysign(math.inf, values[0])
    assert one.hi == both.first == hi == infinite
    assert both.second == -infinite
    # And taking an infinity away leaves nothing that could be known
    one.add(-infinite)
    hi, lo = loops.dd_add(hi, lo, -infinite)
    assert math.isnan(one.hi)
    assert math.isnan(hi)
    assert one.lo == lo == 0.0


def test_weaving_fills_every_place_whatever_the_positions():
    left, came = np.arange(3), np.arange(10, 12)
    block, rows = np.full(5, -1, np.int64), np.full(5, -1, np.int64)
    opcode, flags = np.zeros(5, np.uint8), np.zeros(5, np.uint8)
    before, came_flags = np.array([1, 0, 9]), np.ones(2, np.uint8)
    none, order = np.zeros(0, np.int64), np.full(5, -1, np.int64)
    loops.weave(before, left, left, left, none, came, came_flags, came, block, opcode, flags, rows, order)
    assert sorted(rows) == [0, 1, 2, 10, 11]
    assert sorted(order) == [0, 0, 1, 2, 3]
