"""What the plan and the guard say about random models is what happens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_strategies import models, scripts, shardable_models

from lockstep.engine.columns.copy import CopyColumns, LoggedMembers
from lockstep.engine.columns.evaluator import Builder, duty_of
from lockstep.engine.columns.rows import RowOperator
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.model.guard import clock_dependence
from lockstep.engine.model.plan import make_plan
from lockstep.engine.reference.interpreter import Interpreter

pytestmark = pytest.mark.slow
calm = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


class NoLog:
    """A log that is there, but never asked."""

    def read(self, source: str, first_block: int, last_block: int) -> EventBatch:
        raise AssertionError


@calm
@given(models())
def test_the_plan_says_what_the_fast_path_does(graph):
    # Given the operators that the fast path chooses for itself
    operators, _ = Builder(graph, duty_of(graph, 0, 1), NoLog()).build(frozenset())
    plan = make_plan(graph)
    # Then the plan has said which go row by row, and which read their rows from the log
    rows = {index for index, operator in operators.items() if isinstance(operator, RowOperator)}
    assert {step.node for step in plan.steps if step.form == "rows"} == rows
    logged = {
        index
        for index, operator in operators.items()
        if isinstance(operator, CopyColumns) and isinstance(operator._members, LoggedMembers)
    }
    assert {step.node for step in plan.steps if step.members == "log"} == logged


def outputs(graph, blocks):
    """All output blocks of all windows, comparable although NaN is not."""
    interpreter = Interpreter(graph)
    return [{path: repr(events) for path, events in interpreter.evaluate(block).items()} for block in blocks]


@calm
@given(models().flatmap(lambda graph: st.tuples(st.just(graph), scripts(graph))), st.integers(2, 9))
def test_windows_that_the_guard_does_not_name_do_not_notice_the_clock(case, haste):
    # Given the same events twice, once with a clock that goes faster
    graph, blocks = case
    hasty = [block if block.tick_us is None else replace(block, tick_us=block.tick_us * haste) for block in blocks]
    # Then only windows that the guard names may answer differently
    named = {use.path for use in clock_dependence(graph)}
    for one, other in zip(outputs(graph, blocks), outputs(graph, hasty), strict=True):
        assert {path for path in one if one[path] != other[path]} <= named


@calm
@given(models().flatmap(lambda graph: st.tuples(st.just(graph), scripts(graph))))
def test_windows_that_the_guard_does_not_name_say_nothing_on_a_tick(case):
    graph, blocks = case
    named = {use.path for use in clock_dependence(graph)}
    for block, made in zip(blocks, outputs(graph, blocks), strict=True):
        if block.tick_us is not None:
            assert all(path in named for path, events in made.items() if events != "[]")


@calm
@given(shardable_models())
def test_models_that_can_be_divided_are(graph):
    plan = make_plan(graph)
    assert len(plan.splits) == 1
    assert plan.splits[0].fields == ("s",)
    assert plan.max_shards is None
    whole = {step.node for step in plan.steps if step.mode == "whole"}
    assert whole == {plan.splits[0].source}
