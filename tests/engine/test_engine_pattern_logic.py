from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.errors import BadExpression
from lockstep.engine.reference.pattern_logic import And, Fby, Is, Leaf, Not, NotOccur, Or, leaves, parse_logic

A, B, C = Leaf("a"), Leaf("b"), Leaf("c")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a", A),
        ("fby(a,b)", Fby(None, (A, B))),
        ("fby{1 hour}(fby{1 hour}(a,b),c)", Fby(3_600_000_000, (Fby(3_600_000_000, (A, B)), C))),
        ("fby{200 milliseconds}( a, b , c )", Fby(200_000, (A, B, C))),
        ("fby{3600 seconds}(a, and(not(b), c))", Fby(3_600_000_000, (A, And(None, (Not(B), C))))),
        ("and{30 seconds}(a, b)", And(30_000_000, (A, B))),
        ("or(a, fby(b,c))", Or((A, Fby(None, (B, C))))),
        ("fby{5 seconds}(a, is(b))", Fby(5_000_000, (A, Is(1, B)))),
        ("is:3(a)", Is(3, A)),
        ("FBY{10 seconds}(a, NotOccur(b))", Fby(10_000_000, (A, NotOccur(B)))),
        ("fby(a, notoccur(b), c)", Fby(None, (A, NotOccur(B), C))),
        ("fby{1 second}(a, and(b, notoccur(c)))", Fby(1_000_000, (A, And(None, (B, NotOccur(C)))))),
        ("not(or(a, and(b, not(c))))", Not(Or((A, And(None, (B, Not(C))))))),
        ("is", Leaf("is")),
    ],
)
def test_logic_is_read(text, tree):
    assert parse_logic(text) == tree


@pytest.mark.parametrize(
    ("text", "at", "reason"),
    [
        ("", 1, "an event or an operator is missing"),
        ("fby(a,", 7, "an event or an operator is missing"),
        ("fby(a", 1, "the operator that begins here has no end"),
        ("fby(a b)", 7, ", or ) is expected here"),
        ("fby{soon}(a,b)", 4, "'soon' is not a duration"),
        ("fby{-1 second}(a,b)", 4, "a time can't be negative"),
        ("or{1 second}(a,b)", 3, "or takes no time"),
        ("then(a,b)", 1, "'then' is not an operator"),
        ("a b", 3, "nothing may follow the pattern"),
        ("not(a,b)", 1, "not takes one operand, not 2"),
        ("not(fby(a,b))", 1, "what not is about must be decided by a single event"),
        ("is:0(a)", 3, "is:0 is not known"),
        ("fby:2(a)", 4, "fby:2 is not known"),
        ("notoccur(a)", 1, "notoccur has no time after which it holds"),
        ("fby(a, notoccur(b))", 1, "notoccur has no time after which it holds"),
        ("fby{1 second}(and(notoccur(b),c), a)", 19, "notoccur has no time after which it holds"),
        ("fby(a, not(c), notoccur(b))", 1, "notoccur has no time after which it holds"),
        ("and(" * 40 + "a" + ")" * 40, 133, "it is nested deeper than 32"),
    ],
)
def test_a_fault_is_told_with_its_character(text, at, reason):
    with pytest.raises(BadExpression, match=re.escape(reason)) as caught:
        parse_logic(text)
    assert caught.value.params["at"] == at


def test_leaves_come_from_left_to_right():
    assert list(leaves(parse_logic("fby{1 second}(a, and(not(b), c), notoccur(a))"))) == ["a", "b", "c", "a"]


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="fbyandornotis(){},: 19abc", max_size=40))
def test_any_text_is_read_or_refused(text):
    try:
        parse_logic(text)
    except BadExpression as error:
        place = error.params["at"]
    else:
        place = 1
    assert 1 <= place <= len(text) + 1
