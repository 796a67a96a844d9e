"""Join windows: four types, both sides, regeneration."""

from __future__ import annotations

from collections import Counter

import pytest
from engine_models import SECOND, Run, graph
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.windows import CopyWindow, JoinField, JoinWindow, Retention, SourceWindow

TRADES = SourceWindow(name="trades", schema=Schema.parse("id*:int32,symbol:string,n:int32"))
NAMES = SourceWindow(name="names", schema=Schema.parse("symbol*:string,title:string"))


def field(name: str, source: str | None = None, **parts: object) -> JoinField:
    return JoinField(name=name, source=source, **parts)


FIELDS = (field("id", "l_id"), field("n", "l_n"), field("title", "r_title"))


def join(kind: str = "leftouter", fields: tuple[JoinField, ...] = FIELDS, **parts: object) -> Run:
    window = JoinWindow(name="j", type=kind, conditions=(("symbol", "symbol"),), fields=fields, **parts)
    return Run(graph(TRADES, NAMES, window, edges="trades:j names:j"), "j")


def test_left_outer_gives_every_fact_with_its_dimension_or_nulls():
    run = join()
    assert run.send("names", "i,a,Alpha") == [], "a dimension alone says nothing"
    assert run.send("trades", "i,1,a,5") == ["I,N,1,5,Alpha"]
    assert run.send("trades", "i,2,b,6") == ["I,N,2,6,"]
    assert run.send("trades", "u,2,a,7") == ["UB,N,2,7,Alpha", "D,N,2,6,"], "the fact's condition changed"
    assert run.send("trades", "p,1,,8") == ["UB,N,1,8,", "D,N,1,5,Alpha"], "null matches nothing"
    assert run.send("trades", "d,2") == ["D,N,2,7,Alpha"]
    assert run.rows == 1


def test_a_dimension_regenerates_the_facts_that_meet_it_in_the_order_they_came():
    run = join()
    run.each("trades", "i,3,a,3", "i,1,a,1", "i,9,b,9", "i,2,a,2", "u,3,a,4")
    assert run.send("names", "i,a,Alpha") == [
        "UB,N,1,1,Alpha",
        "D,N,1,1,",
        "UB,N,2,2,Alpha",
        "D,N,2,2,",
        "UB,N,3,4,Alpha",
        "D,N,3,4,",
    ], "an update comes in at the end"
    run.each("trades", "d,2", "d,3")
    assert run.send("names", "u,a,Aleph") == ["UB,N,1,1,Aleph", "D,N,1,1,Alpha"]
    assert run.send("names", "d,a") == ["UB,N,1,1,", "D,N,1,1,Aleph"]


def test_without_regeneration_facts_keep_what_they_met():
    run = join(no_regenerates=True)
    run.send("trades", "i,1,a,1")
    assert run.send("names", "i,a,Alpha") == []
    assert run.send("trades", "i,2,a,2") == ["I,N,2,2,Alpha"]
    assert run.send("names", "u,a,Aleph") == []
    assert run.send("trades", "d,2") == ["D,N,2,2,Alpha"], "what was said before"
    assert run.send("trades", "u,1,a,5") == ["UB,N,1,5,Aleph", "D,N,1,1,"]


def test_inner_gives_facts_that_have_a_dimension():
    run = join("inner")
    assert run.send("trades", "i,1,a,1", "i,2,b,2") == []
    assert run.send("names", "i,a,Alpha") == ["I,N,1,1,Alpha"]
    assert run.send("trades", "u,1,b,1") == ["D,N,1,1,Alpha"]
    assert run.send("trades", "u,1,a,3") == ["I,N,1,3,Alpha"]
    assert run.send("names", "d,a") == ["D,N,1,3,Alpha"]
    assert run.rows == 0


def test_an_inner_join_finds_its_fact_side():
    window = JoinWindow(
        name="j",
        type="inner",
        conditions=(("symbol", "symbol"),),
        fields=(field("id", "r_id"), field("title", "l_title")),
    )
    run = Run(graph(TRADES, NAMES, window, edges="names:j trades:j"), "j")
    run.send("trades", "i,1,a,1")
    assert run.send("names", "i,a,Alpha") == ["I,N,1,Alpha"]


def test_right_outer_is_left_outer_seen_in_a_mirror():
    window = JoinWindow(
        name="j",
        type="rightouter",
        conditions=(("symbol", "symbol"),),
        fields=(field("id", "r_id"), field("title", "l_title")),
    )
    run = Run(graph(TRADES, NAMES, window, edges="names:j trades:j"), "j")
    assert run.send("names", "i,a,Alpha", "i,b,Beta") == []
    assert run.send("trades", "i,1,a,1", "i,2,c,2") == ["I,N,1,Alpha", "I,N,2,"]
    assert run.send("names", "u,a,Aleph") == ["UB,N,1,Aleph", "D,N,1,Alpha"]


def full() -> Run:
    other = SourceWindow(name="other", schema=Schema.parse("symbol*:string,price:double"))
    fields = (field("left", "l_symbol"), field("right", "r_symbol"), field("t", "l_title"), field("p", "r_price"))
    window = JoinWindow(name="j", type="fullouter", conditions=(("symbol", "symbol"),), fields=fields)
    return Run(graph(NAMES, other, window, edges="names:j other:j"), "j")


def test_full_outer_gives_every_row_of_both_sides():
    run = full()
    assert run.send("names", "i,a,Alpha") == ["I,N,a,,Alpha,"]
    assert run.send("other", "i,a,1") == ["UB,N,a,a,Alpha,1.0", "D,N,a,,Alpha,"], "both sides have its key"
    assert run.send("other", "u,a,2") == ["UB,N,a,a,Alpha,2.0", "D,N,a,a,Alpha,1.0"]
    assert run.send("names", "d,a") == ["UB,N,a,a,,2.0", "D,N,a,a,Alpha,2.0"]
    assert run.send("other", "d,a") == ["D,N,a,a,,2.0"]
    assert run.send("other", "i,b,3") == ["I,N,b,b,,3.0"]
    assert run.rows == 1


def test_the_facts_key_comes_first_if_it_is_not_listed():
    # Given a join that lists neither its key nor the fields of its condition
    run = join(fields=(field("title", "r_title"), field("n", "l_n")))
    # Then rows are told apart by the key all the same
    assert run.send("trades", "i,1,a,5", "i,2,a,6") == ["I,N,1,,5", "I,N,2,,6"]
    assert run.send("names", "i,a,Alpha") == ["UB,N,1,Alpha,5", "D,N,1,,5", "UB,N,2,Alpha,6", "D,N,2,,6"]
    assert run.send("trades", "d,1") == ["D,N,1,Alpha,5"]
    assert run.rows == 1


def test_a_full_outer_join_adds_the_key_that_both_sides_have():
    other = SourceWindow(name="other", schema=Schema.parse("symbol*:string,price:double"))
    fields = (field("t", "l_title"), field("p", "r_price"))
    window = JoinWindow(name="j", type="fullouter", conditions=(("symbol", "symbol"),), fields=fields)
    run = Run(graph(NAMES, other, window, edges="names:j other:j"), "j")
    assert run.graph.nodes[-1].schema.names == ("symbol", "t", "p")
    assert run.send("names", "i,a,Alpha") == ["I,N,a,Alpha,"]
    assert run.send("other", "i,a,1", "i,b,2") == ["UB,N,a,Alpha,1.0", "D,N,a,Alpha,", "I,N,b,,2.0"]


def test_fields_can_be_expressions_over_both_sides():
    fields = (field("id", "l_id"), field("both", expression="l_n * 2"), field("is", expression="r_title == 'Alpha'"))
    run = join(fields=fields)
    run.send("names", "i,a,Alpha")
    assert run.send("trades", "i,1,a,5", "i,2,b,6") == ["I,N,1,10,1", "I,N,2,12,"]


def test_retention_late_rows_empty_and_transactional_blocks():
    trades = SourceWindow(name="trades", schema=Schema.parse("id*:int32,symbol:string,time:date"))
    copy = CopyWindow(name="c", retention=Retention(kind="bytime_sliding", limit=10 * SECOND, field="time"))
    fields = (field("id", "l_id"), field("title", "r_title"))
    window = JoinWindow(name="j", conditions=(("symbol", "symbol"),), fields=fields)
    run = Run(graph(trades, NAMES, copy, window, edges="trades:c c:j names:j"), "j")
    run.send("names", "i,a,Alpha")
    assert run.each("trades", "i,1,a,100", "i,2,a,50", "i,3,b,110") == [
        "I,N,1,Alpha",
        "I,N,2,Alpha",
        "I,N,3,",
        "D,R,1,Alpha",
        "D,R,2,Alpha",
    ]
    assert run.send("trades") == []
    assert run.send("trades", "i,5,a,111", "i,5,a,111", transactional=True) == []
    assert run.send("names", "u,a,Aleph") == [], "the rows that left are not made anew"


def test_a_dimension_may_move_from_one_condition_to_another():
    # Given a condition with more than the dimension's key, a change of the other field unmatches and matches facts.
    left = SourceWindow(name="l", schema=Schema.parse("id*:int32,k:int32,z:int32"))
    right = SourceWindow(name="r", schema=Schema.parse("k*:int32,z:int32,v:string"))
    window = JoinWindow(name="j", conditions=(("k", "k"), ("z", "z")), fields=(field("id", "l_id"), field("v", "r_v")))
    run = Run(graph(left, right, window, edges="l:j r:j"), "j")
    run.each("l", "i,1,1,1", "i,2,1,2")
    assert run.send("r", "i,1,1,x") == ["UB,N,1,x", "D,N,1,"]
    assert run.send("r", "u,1,2,y") == ["UB,N,1,", "D,N,1,x", "UB,N,2,y", "D,N,2,"]
    assert run.send("l", "i,3,1") == ["I,N,3,"]
    assert run.send("r", "u,1,,w") == ["UB,N,2,", "D,N,2,y"], "a null equals nothing, not even another null"


def expected(kind: str, facts: dict[int, tuple[str, int]], names: dict[str, str]) -> set[tuple[str, str, str]]:
    return {
        (str(key), str(n), names.get(symbol, ""))
        for key, (symbol, n) in facts.items()
        if kind == "leftouter" or symbol in names
    }


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(["leftouter", "inner"]),
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc"), st.integers(0, 5)), max_size=40),
)
def test_the_rows_are_always_those_of_a_join_over_what_is_there(kind, steps):
    run = join(kind)
    facts: dict[int, tuple[str, int]] = {}
    names: dict[str, str] = {}
    rows: Counter[tuple[str, ...]] = Counter()
    for key, symbol, n in steps:
        if key < 2:
            names.pop(symbol, None)
            lines = run.send("names", f"s,{symbol}")
        elif key < 5:
            names[symbol] = f"t{n}"
            lines = run.send("names", f"p,{symbol},t{n}")
        elif n == 0:
            facts.pop(key, None)
            lines = run.send("trades", f"s,{key}")
        else:
            facts[key] = (symbol, n)
            lines = run.send("trades", f"p,{key},{symbol},{n}")
        for line in lines:
            opcode, _, *values = line.split(",")
            rows[tuple(values)] += -1 if opcode == "D" else 1
        assert +rows == Counter(expected(kind, facts, names))
        assert min(rows.values(), default=0) >= 0


@pytest.mark.parametrize("side", ["trades", "names"])
def test_bad_events_do_not_reach_the_join(side):
    run = join()
    assert run.send(side, "d,7" if side == "trades" else "d,q") == []
    assert run.interpreter.counts["q/j"].events_in == 0
