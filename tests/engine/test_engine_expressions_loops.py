"""Loops in expressions: while and for, against the same loops in Python; none runs for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.engine.errors import BadExpression
from lockstep.engine.events.schema import Schema
from lockstep.engine.language.compiler import Environment, Scope, compile_expression
from lockstep.engine.language.programs import MAX_ROUNDS

SCOPE = Scope.of(Schema.parse("id*:int64,s:string,n:int32,while:int32"))


def value(text: str, row=(1, "17", 5, 2)):
    return compile_expression(text, SCOPE).evaluate(row, Environment())


@given(st.integers(-40, 40), st.integers(-40, 40), st.integers(-5, 5).filter(bool))
def test_a_for_loop_counts_as_in_python(first, last, step):
    rounds = f"for i = {first} to {last} step {step} begin t = t * 3 + i t = t % 1000003 end"
    words = f"integer i integer t t = 0 {rounds} return t"
    total = 0
    for i in range(first, last + (1 if step > 0 else -1), step):
        total = total * 3 + i
        total = abs(total) % 1000003 * (1 if total >= 0 else -1)
    assert value(words) == total


def test_loops_in_loops_with_conditions_and_a_return_from_the_middle():
    assert (
        value("integer i integer j integer t t = 0 for i = 1 to n for j = 1 to i if j % 2 then t = t + 1 return t") == 9
    )
    assert value("integer i for i = 1 to 100 if i * i > 50 then return i return 0") == 8
    assert value("integer i i = 0 while i < 7 do i = i + 2 return i") == 8
    assert value("integer i i = 0; while (i < n) begin i = i + 1; end; return i") == 5
    assert value("string t integer i t = '' for i = len(s) to 1 step -1 t = t & mid(s, i, 1) return t") == "71"
    assert value("integer i for i = 5 to 1 i = i return i") == 5, "no round at all"


def test_a_loop_that_never_ends_gives_null_and_the_next_event_has_all_rounds_again():
    text = "integer i i = 0 while {} i = i + 1 return i"
    assert value(text.format("1 == 1")) is None
    assert value(text.format(f"i < {MAX_ROUNDS}")) == MAX_ROUNDS
    assert value(text.format(f"i <= {MAX_ROUNDS}")) is None
    expression, env = compile_expression(text.format(f"i < {MAX_ROUNDS}"), SCOPE), Environment()
    assert [expression.evaluate((1, "", 1, 1), env) for _ in range(3)] == [MAX_ROUNDS] * 3


def test_a_field_may_be_called_while():
    assert value("`while` + 1") == 3
    assert value("while == 2") == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("for i = 1 to 3 i = 2", "not declared"),
        ("integer i for i = 1 i = 2", "'to' is missing"),
        ("integer i for i = 1 to 3 step n i = 2", "step of a loop must be a number"),
        ("integer i while s i = 1", "not a condition"),
        ("integer i while i < 3 i + 1", "nothing is done with this value"),
        ("integer i while i < 3", "missing before the end"),
        ("goto x", "there is no goto"),
        ("integer i " + "while 1 " * 300 + "i = 1", "nested deeper"),
    ],
)
def test_faults_are_told_with_their_place(text, why):
    with pytest.raises(BadExpression, match=why):
        compile_expression(text, SCOPE)


@pytest.mark.parametrize(
    ("text", "found"), [("s == 17", 1), ("17.5 > s", 1), ("s != 17", 0), ("'x' < 3", None), ("'' = 0", None)]
)
def test_a_text_beside_a_number_is_read_as_one(text, found):
    assert value(text) == found
