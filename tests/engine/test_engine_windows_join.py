"""Join windows: four types, both sides, regeneration."""

from __future__ import annotations

from collections import Counter
from math import nan

import msgpack
import pytest
from engine_models import SECOND, Run, graph
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.errors import ModelInvalid
from lockstep.engine.events.event import Event, Flag, InputBlock, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.plan import make_plan
from lockstep.engine.model.windows import CopyWindow, JoinField, JoinWindow, Retention, SourceWindow
from lockstep.engine.reference.interpreter import Interpreter

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


def test_without_an_index_and_regeneration_facts_may_come_again_under_their_key():
    readings = SourceWindow(name="trades", schema=TRADES.schema, index="pi_EMPTY", insert_only=True)

    def made(**options) -> Run:
        window = JoinWindow(name="j", conditions=(("symbol", "symbol"),), fields=FIELDS, **options)
        return Run(graph(readings, NAMES, window, edges="trades:j names:j"), "j")

    run = made(index="pi_EMPTY", no_regenerates=True)
    assert run.send("names", "i,a,Alpha") == []
    assert run.each("trades", "i,1,a,5", "i,1,a,6", "i,1,b,7") == ["I,N,1,5,Alpha", "I,N,1,6,Alpha", "I,N,1,7,"]
    assert run.send("names", "i,b,Beta") == []
    for options in ({"index": "pi_EMPTY"}, {"no_regenerates": True}):
        kept = made(**options)
        assert kept.send("trades", "i,1,a,5") == ["I,N,1,5,"]
        assert kept.send("trades", "i,1,a,6") == [], "a duplicate, as rows are kept by key"


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


DOUBLES = [
    JoinWindow(name="j", conditions=(("k", "k"), ("z", "z")), fields=(field("id", "l_id"), field("v", "r_v"))),
    JoinWindow(name="j", type="inner", conditions=(("z", "z"),), fields=(field("v", "r_v"),)),
]


@pytest.mark.parametrize("window", DOUBLES, ids=["one", "many"])
def test_a_double_that_is_null_matches_no_other_null(window):
    left = SourceWindow(name="l", schema=Schema.parse("id*:int32,k:int32,z:double"))
    right = SourceWindow(name="r", schema=Schema.parse("k*:int32,z:double,v:string"))
    run = Run(graph(left, right, window, edges="l:j r:j"), "j")
    run.each("r", "i,1,,x", "i,2,0.5,y", "i,3,nan,z")
    # Then neither a null nor a number finds the row with a null; equal numbers and NaN find each other
    found = run.each("l", "i,1,1", "i,2,2,0.5", "i,3,3,nan", "i,4,1,0.5")
    assert [line.rpartition(",")[2] for line in found if line[-1] != ","] == ["y", "z"] + ["y"] * (
        window.type == "inner"
    )


def full_join_on_doubles() -> Interpreter:
    left = SourceWindow(name="l", schema=Schema.parse("x*:double,a:string"))
    right = SourceWindow(name="r", schema=Schema.parse("x*:double,b:string"))
    fields = (field("a", "l_a"), field("b", "r_b"))
    window = JoinWindow(name="j", type="fullouter", conditions=(("x", "x"),), fields=fields)
    return Interpreter(graph(left, right, window, edges="l:j r:j"))


@pytest.mark.parametrize("is_old", [False, True], ids=["new", "of an earlier version"])
def test_a_full_join_on_doubles_goes_on_from_a_kept_state(is_old):
    # Given rows on the left, and the state kept of them; earlier versions kept each double as a tuple of one
    first, again = full_join_on_doubles(), full_join_on_doubles()
    left = tuple(Event(Opcode.INSERT, Flag.NORMAL, (x, "left")) for x in (nan, 0.5))
    first.evaluate(InputBlock(1, window="q/l", events=left))
    state = msgpack.unpackb(msgpack.packb(first.dump()), strict_map_key=False)
    for (slot,), _ in state["windows"]["q/j"]["operator"]["given"] if is_old else ():
        slot[1] = [slot[1]]
    again.load(state)
    # Then a row on the right changes what was given out for the one on the left
    right = tuple(Event(Opcode.INSERT, Flag.NORMAL, (x, "right")) for x in (0.5, nan))
    out = again.evaluate(InputBlock(2, window="q/r", events=right))["q/j"]
    changed = [("UB", "left", "right"), ("D", "left", None)]
    assert [(event.opcode.letter, *event.values[1:]) for event in out] == changed * 2


ORDERS = SourceWindow(name="orders", schema=Schema.parse("id*:int32,city:string,n:int32"))
SHOPS = SourceWindow(name="shops", schema=Schema.parse("id*:int32,city:string,title:string"))


def many() -> Run:
    fields = (field("n", "l_n"), field("title", "r_title"))
    window = JoinWindow(name="j", type="inner", conditions=(("city", "city"),), fields=fields)
    return Run(graph(ORDERS, SHOPS, window, edges="orders:j shops:j"), "j")


def test_an_inner_join_of_many_to_many_has_a_row_for_each_pair_under_both_keys():
    run = many()
    assert [(item.name, item.key) for item in run.graph.nodes[-1].schema] == [
        ("id", True),
        ("r_id", True),
        ("n", False),
        ("title", False),
    ]
    run.each("orders", "i,1,x,5", "i,2,x,6", "i,3,y,7", "i,4,,8")
    assert run.send("shops", "i,1,x,A") == ["I,N,1,1,5,A", "I,N,2,1,6,A"]
    assert run.send("shops", "i,2,x,B", "i,3,,C") == ["I,N,1,2,5,B", "I,N,2,2,6,B"], "a null meets nothing"
    assert run.send("orders", "u,1,x,9") == ["UB,N,1,1,9,A", "D,N,1,1,5,A", "UB,N,1,2,9,B", "D,N,1,2,5,B"]
    assert run.send("shops", "u,1,y,A") == ["D,N,2,1,6,A", "D,N,1,1,9,A", "I,N,3,1,7,A"]
    assert run.send("orders", "d,3") == ["D,N,3,1,7,A"]
    assert run.rows == 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["orders", "shops"]), st.integers(1, 3), st.sampled_from(["x", "y", ""]), st.booleans()
        ),
        max_size=30,
    ),
    st.integers(0, 30),
)
@settings(max_examples=60, deadline=None)
def test_the_pairs_are_always_those_that_fit_also_after_a_restart(steps, restart):
    run = many()
    there: dict[str, dict[int, str]] = {"orders": {}, "shops": {}}
    rows: Counter[tuple[str, ...]] = Counter()
    for at, (window, key, city, leaves) in enumerate(steps):
        if at == restart:
            run = _restarted(run)
        if leaves:
            there[window].pop(key, None)
        else:
            there[window][key] = city
        for line in run.send(window, f"s,{key}" if leaves else f"p,{key},{city},7"):
            opcode, _, *values = line.split(",")
            rows[tuple(values)] += -1 if opcode == "D" else 1
        pairs = [
            (str(order), str(shop), "7", "7")
            for order, first in there["orders"].items()
            for shop, second in there["shops"].items()
            if first and first == second
        ]
        assert +rows == Counter(pairs)
        assert min(rows.values(), default=0) >= 0


def _restarted(run: Run) -> Run:
    """Another run that goes on from the state of this one."""
    other = many()
    other.number = run.number
    other.interpreter.load(run.interpreter.dump())
    return other


def of_two_widths(kind: str) -> JoinWindow:
    return JoinWindow(name="j", type=kind, conditions=(("n", "n"),), fields=FIELDS)


WIDE = SourceWindow(name="names", schema=Schema.parse("n*:int64,title:string"))


def test_whole_numbers_of_both_widths_can_be_equal_row_by_row():
    made = graph(TRADES, WIDE, of_two_widths("leftouter"), edges="trades:j names:j")
    run = Run(made, "j")
    run.each("names", "i,5,Five", "i,4294967301,Five and 2 to the 32")
    assert run.send("trades", "i,1,a,5") == ["I,N,1,5,Five"]
    step = make_plan(made).steps[2]
    assert (step.form, step.form_why) == ("rows", "n and n are of different types")


def test_a_full_outer_join_has_both_in_one_field_so_they_are_of_one_type():
    with pytest.raises(ModelInvalid, match="n is a int32 on the left side, n a int64"):
        graph(TRADES, WIDE, of_two_widths("fullouter"), edges="trades:j names:j")
