"""What patterns mean, row by row of docs/decisions/0016-what-patterns-mean.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from engine_models import Run
from hypothesis import given, settings
from hypothesis import strategies as st
from others_bench import SECOND, Bench, I, N, gone, ins, node_of, run, upd

from lockstep.engine.errors import BadExpression
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.loading import parse_xml
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import Pattern, PatternEvent, PatternOutput, PatternWindow
from lockstep.engine.reference.pattern import PatternOperator

INPUT = "id*:int64,what:string,time:stamp"
OUT = "match*:int64,a:int64,b:int64,c:int64"


def letters_window(logic, *, timed=True, index=(), active=True):
    """Events a, b and c are those whose `what` says so (ab is both); outputs are their ids."""
    events = tuple(
        PatternEvent(name=name, source="source", expression=f"what == '{name}' or what == 'ab' and '{name}' != 'c'")
        for name in "abc"
    )
    pattern = Pattern(
        events=events,
        logic=logic,
        output=tuple(PatternOutput(node=name, field="id") for name in "abc"),
        index=index,
        time_fields=(("time", "source"),) if timed else (),
        is_active=active,
    )
    return PatternWindow(name="pattern", schema=Schema.parse(OUT), patterns=(pattern,))


def make(logic, **options):
    return lambda: PatternOperator(node_of(letters_window(logic, **options), OUT, INPUT))


def timeline(logic, text):
    """Matches for a timeline such as "a1 b3 c5": letter and second; ids count from 1. A match is written a1b2."""
    bench = Bench(make(logic))
    found = []
    for number, word in enumerate(text.split(), 1):
        what, second = word.rstrip("0123456789"), int(word.lstrip("abcx"))
        rows = [event.values[1:] for event in bench.take(ins(number, what, second * SECOND))]
        taken = [[pair for pair in zip("abc", row, strict=True) if pair[1] is not None] for row in rows]
        names = ["".join(f"{name}{which}" for name, which in pairs) for pairs in taken]
        found.extend(f"{name}@{number}" for name in names)
    return " ".join(found)


TRUTH = [
    # fby: one after the other, others in between do not matter, every open pattern takes the event
    ("fby(a,b)", "a1 b2", "a1b2@2"),
    ("fby(a,b)", "b1 a2", ""),
    ("fby(a,b)", "a1 x2 b3", "a1b3@3"),
    ("fby(a,b)", "a1 a2 b3", "a1b3@3 a2b3@3"),
    ("fby(a,b)", "a1 b2 b3", "a1b2@2"),
    ("fby(a,b)", "ab1", ""),
    ("fby(a,b)", "a1 ab2 b3", "a1b2@2 a2b3@3"),
    ("fby(a,b,c)", "a1 c2 b3 c4", "a1b3c4@4"),
    # the time runs from the end of the first operand to the end of the last, both ends included
    ("fby{5 seconds}(a,b)", "a1 b6", "a1b2@2"),
    ("fby{5 seconds}(a,b)", "a1 b7", ""),
    ("fby{5 seconds}(a,b,c)", "a1 b5 c6", "a1b2c3@3"),
    ("fby{5 seconds}(a,b,c)", "a1 b5 c7", "a1b2c3@3"),
    ("fby{5 seconds}(a,b,c)", "a1 b6 c11", "a1b2c3@3"),
    ("fby{5 seconds}(a,b,c)", "a1 b5 c11", ""),
    ("fby{5 seconds}(fby{5 seconds}(a,b),c)", "a1 b5 c10", "a1b2c3@3"),
    ("fby{9 seconds}(a,fby{2 seconds}(b,c))", "a1 b5 c7", "a1b2c3@3"),
    ("fby{9 seconds}(a,fby{2 seconds}(b,c))", "a1 b5 c8", ""),
    ("fby{9 seconds}(a,fby{2 seconds}(b,c))", "a1 b9 c11", ""),
    # and: any order; one event may be several; a taken place opens no second pattern
    ("and(a,b)", "a1 b2", "a1b2@2"),
    ("and(a,b)", "b1 a2", "a2b1@2"),
    ("and(a,b)", "ab1", "a1b1@1"),
    ("and(a,b)", "a1 b2 a3 b4", "a1b2@2 a3b4@4"),
    ("and(a,b)", "a1 a2 b3", "a1b3@3 a2b3@3"),
    ("and{5 seconds}(a,b)", "a1 b6", "a1b2@2"),
    ("and{5 seconds}(a,b)", "a1 b7 a9", "a3b2@3"),
    # or: the first that occurs
    ("or(a,b)", "a1 b2 x3", "a1@1 b2@2"),
    ("or(a,b)", "ab1", "a1@1"),
    ("fby(a,or(b,c))", "a1 x2 c3 b4", "a1c3@3"),
    ("or(fby(a,b),c)", "a1 c2 b3", "a1c2@2"),
    # not: another event is next; while something else is waited for it guards
    ("fby(a,not(b))", "a1 x2", "a1@2"),
    ("fby(a,not(b))", "a1 b2 x3", ""),
    ("fby{2 seconds}(a,not(b))", "a1 x9", "a1@2"),
    ("fby(a,not(b),c)", "a1 x2 c3", "a1c3@3"),
    ("fby(a,not(b),c)", "a1 b2 c3", ""),
    ("fby(a,and(not(b),c))", "a1 x2 c3", "a1c3@3"),
    ("fby(a,and(not(b),c))", "a1 b2 c3", ""),
    ("and(not(a),b)", "a1 b2", "b2@2"),
    ("and(not(a),b)", "ab1", ""),
    ("and(not(a),b,c)", "b1 a2 c3", ""),
    ("and(not(a),b,c)", "b1 x2 c3", "b1c3@3"),
    ("not(a)", "a1 x2 b3", "@2 @3"),
    # notoccur: only when the time is over
    ("fby{5 seconds}(a,notoccur(b))", "a1 x6 x7", "a1@3"),
    ("fby{5 seconds}(a,notoccur(b))", "a1 b6 x7", ""),
    ("fby{5 seconds}(a,notoccur(b))", "a1 x3 b4 x9", ""),
    ("fby{5 seconds}(a,notoccur(b))", "a1 a2 x7 x8", "a1@3 a2@4"),
    ("and{5 seconds}(a,notoccur(b))", "a1 x7", "a1@2"),
    ("and{5 seconds}(a,notoccur(b))", "b1 a2 x8", "a2@3"),
    ("and{5 seconds}(a,notoccur(b))", "a1 b6 x8", ""),
    ("fby{5 seconds}(a,and(c,notoccur(b)))", "a1 c3 x7", "a1c2@3"),
    ("fby{5 seconds}(a,and(c,notoccur(b)))", "a1 c3 b4 x7", ""),
    ("fby{5 seconds}(a,and(c,notoccur(b)))", "a1 x7", ""),
    ("fby(a,notoccur(b),c)", "a1 x2 c3", "a1c3@3"),
    ("fby(a,notoccur(b),c)", "a1 b2 c3", ""),
    ("fby(fby{2 seconds}(a,notoccur(b)),c)", "a1 x9 c10", "a1c3@3"),
    ("fby{4 seconds}(fby{2 seconds}(a,notoccur(b)),c)", "a1 c7", "a1c2@2"),
    ("fby{4 seconds}(fby{2 seconds}(a,notoccur(b)),c)", "a1 c8", ""),
    ("fby{5 seconds}(a,not(c),notoccur(b))", "a1 x3 x7", "a1@3"),
    ("fby{5 seconds}(a,not(c),notoccur(b))", "a1 c3 x7", ""),
    # an operand with a time of its own is not cut short by the one around it
    ("fby{3 seconds}(a,and{5 seconds}(c,notoccur(b)))", "a1 c2 x9", ""),
    # is: the very next events
    ("fby(a,is(b))", "a1 b2", "a1b2@2"),
    ("fby(a,is(b))", "a1 x2 b3", ""),
    ("fby(a,is(b))", "a1 a2 b3", "a2b3@3"),
    ("fby(a,is:2(b),c)", "a1 b2 b3 x4 c5", "a1b3c5@5"),
    ("fby(a,is:2(b),c)", "a1 b2 c3 b4", ""),
    ("is:3(a)", "a1 a2 a3 a4 a5 a6", "a3@3 a6@6"),
    ("is:3(a)", "a1 a2 x3 a4 a5 a6", "a6@6"),
    ("fby(a,is(and(not(a),b)))", "a1 ab2", ""),
    ("fby(a,is(or(b,c)))", "a1 c2", "a1c2@2"),
    # a late event counts as come when the clock stood where it stood
    ("fby{5 seconds}(a,b)", "a9 b1", "a1b2@2"),
    ("fby{5 seconds}(a,b)", "x9 a1 b14", "a2b3@3"),
]


@pytest.mark.parametrize(("logic", "events", "matches"), TRUTH)
def test_truth_table(logic, events, matches):
    assert timeline(logic, events) == matches


def decided():
    """The rows of the tables in the decision: logic, events, matches."""
    text = (Path(__file__).parents[2] / "docs/decisions/0016-what-patterns-mean.md").read_text()
    return re.findall(r"^\| `([^`]+)` \| ([abcx0-9 ]+) \| (.+) \|$", text, re.MULTILINE)


def test_the_decision_has_its_tables():
    assert len(decided()) == 35
    assert {logic.split("(")[0].split("{")[0] for logic, _, _ in decided()} >= {"fby", "and", "or", "is:3"}


@pytest.mark.parametrize(("logic", "events", "matches"), decided())
def test_the_decision_tells_what_is_so(logic, events, matches):
    bench = Bench(make(logic))
    found = []
    for word in events.split():
        what, second = word.rstrip("0123456789"), int(word.lstrip("abcx"))
        for event in bench.take(ins(second, what, second * SECOND)):
            taken = zip("abc", event.values[1:], strict=True)
            found.append("(" + ",".join(f"{name}{which}" for name, which in taken if which is not None) + ")")
    assert found == re.findall(r"\([abc][0-9]+(?:,[abc][0-9]+)*\)", matches)
    assert found or matches.startswith("none")


def test_matches_are_inserts_numbered_from_one():
    bench = Bench(make("fby(a,b)"))
    out = bench.take(ins(1, "a", 0) + ins(2, "b", 0) + ins(3, "a", 0) + ins(4, "b", 0))
    assert out == [Event(I, N, (1, 1, 2, None)), Event(I, N, (2, 3, 4, None))]
    assert bench.take([]) == []


def test_updates_are_events_and_leaving_rows_are_not():
    bench = Bench(make("fby(a,b)"))
    # Given a row that is inserted as something else, then becomes an a
    bench.take(ins(1, "x", 0))
    bench.take(upd((1, "a", 1), (1, "x", 0)))
    # When a b leaves, by hand or by retention, nothing happens, and its time does not count
    assert bench.each(gone(2, "b", 99), gone(2, "b", 99, flags=Flag.RETENTION)) == []
    # Then only a b that comes makes the match; one changed by retention comes too
    assert bench.take(upd((3, "b", 2), (3, "x", 2), flags=Flag.RETENTION)) == [Event(I, N, (1, 1, 3, None))]


def test_without_time_fields_the_clock_of_the_model_decides():
    bench = Bench(make("fby{5 seconds}(a,notoccur(b))", timed=False))
    bench.tick(10 * SECOND)
    assert bench.take(ins(1, "a", 999 * SECOND)) == []
    assert bench.tick(15 * SECOND) == []
    assert bench.tick(16 * SECOND) == [Event(I, N, (1, 1, None, None))]
    assert bench.tick(99 * SECOND) == []


def test_a_tick_does_not_move_the_time_of_events():
    bench = Bench(make("fby{5 seconds}(a,b)"))
    bench.take(ins(1, "a", 1 * SECOND))
    assert bench.tick(99 * SECOND) == []
    assert len(bench.take(ins(2, "b", 6 * SECOND))) == 1


@pytest.mark.parametrize("none", [None, 2**61 + 1, -(2**61) - 1, 2**63 - 1, -(2**63)])
def test_null_times_and_those_too_far_away_do_not_move_the_clock(none):
    bench = Bench(make("fby{5 seconds}(a,b)"))
    bench.take(ins(1, "a", none) + ins(2, "a", 100 * SECOND) + ins(3, "x", none))
    assert [event.values[1] for event in bench.take(ins(4, "b", 105 * SECOND))] == [1, 2]


@pytest.mark.parametrize("timed", [False, True])
def test_before_the_clock_is_known_time_stands_still_and_counts_from_its_first_value(timed):
    # Given an event that came before the first tick, or without a time before the first time
    bench = Bench(make("fby{5 seconds}(a,notoccur(b))", timed=timed))
    assert bench.take(ins(1, "a", None) + ins(2, "x", None)) == []
    bench.restart()

    def move(second):
        return bench.take(ins(9, "x", second * SECOND)) if timed else bench.tick(second * SECOND)

    # Then it is decided five seconds after the first value of the clock, whatever that is
    assert move(1_000_000) == []
    bench.restart()
    assert move(1_000_005) == []
    assert move(1_000_006) == [Event(I, N, (1, 1, None, None))]


def trades(logic, index=(), limit=10):
    events = (
        PatternEvent(name="e1", source="t", expression="((side == 1) and (s == symbol) and (p == price))"),
        PatternEvent(name="e2", source="t", expression="side == 0 and symbol == s and p < price"),
    )
    output = (
        PatternOutput(node="e1", field="symbol"),
        PatternOutput(node="e2", field="price"),
        PatternOutput(node="e2", expression="price - p"),
        PatternOutput(expression="p * 2"),
        PatternOutput(node="e1", expression=" "),
    )
    pattern = Pattern(events=events, logic=logic, output=output, index=index)
    schema = "n*:int64,symbol:string,price:double,gain:double,twice:double,nothing:string"
    window = PatternWindow(name="p", schema=Schema.parse(schema), patterns=(pattern,))
    given = "id*:int64,symbol:string,price:double,side:int32"
    return Bench(lambda: PatternOperator(node_of(window, schema, given, names=("t",)), limit))


@pytest.mark.parametrize("index", [(), ("symbol",)])
def test_a_name_that_is_no_field_is_bound_by_the_first_event(index):
    bench = trades("fby(e1,e2)", index)
    bench.each(ins(1, "X", 10.0, 1), ins(2, "Y", 5.0, 1), ins(3, "X", None, 1))
    assert bench.take(ins(4, "X", 9.0, 0)) == []
    assert bench.take(ins(5, "X", 12.0, 0)) == [Event(I, N, (1, "X", 12.0, 2.0, 20.0, None))]
    assert bench.take(ins(6, "Y", 6.0, 0)) == [Event(I, N, (2, "Y", 6.0, 1.0, 10.0, None))]
    assert bench.take(ins(7, "Z", 6.0, 0)) == []


def same_symbol(time="stamp"):
    events = tuple(PatternEvent(name=name, source="t", expression="s == symbol") for name in ("e1", "e2"))
    output = tuple(PatternOutput(node=name, field="id") for name in ("e1", "e2"))
    pattern = Pattern(
        events=events, logic="fby{10 seconds}(e1, e2)", output=output, time_fields=(("time", "t"),), index=("symbol",)
    )
    window = PatternWindow(name="p", schema=Schema.parse("n*:int64,one:int64,two:int64"), patterns=(pattern,))
    given = f"id*:int64,symbol:string,time:{time}"
    return Bench(lambda: PatternOperator(node_of(window, window.schema, given, names=("t",))))


def test_null_binds_nothing():
    bench = same_symbol()
    assert bench.each(ins(1, None, 0), ins(2, None, 0), ins(3, "X", 0), ins(4, None, 0)) == []
    assert len(bench.take(ins(5, "X", 0))) == 1


@pytest.mark.parametrize(("time", "unit"), [("stamp", SECOND), ("date", 1)])
def test_dates_are_seconds_and_stamps_microseconds(time, unit):
    bench = same_symbol(time)
    assert len(bench.each(ins(1, "X", 100 * unit), ins(2, "X", 110 * unit))) == 1
    assert bench.each(ins(3, "Y", 200 * unit), ins(4, "Y", 211 * unit)) == []


def test_a_time_that_is_running_goes_on_after_a_restart():
    bench = Bench(make("fby{5 seconds}(a,notoccur(b))"))
    bench.take(ins(1, "a", 1 * SECOND))
    bench.restart()
    assert bench.take(ins(2, "x", 7 * SECOND)) == [Event(I, N, (1, 1, None, None))]


def test_beyond_the_limit_the_oldest_open_pattern_is_dropped_and_counted():
    bench = trades("fby(e1,e2)", ("symbol",), limit=2)
    bench.each(*(ins(number, "X", float(number), 1) for number in (1, 2, 3)), ins(4, "Y", 1.0, 1))
    assert bench.reasons() == ["pattern-overflow"]
    assert [event.values[3] for event in bench.take(ins(9, "X", 9.0, 0))] == [7.0, 6.0]


def test_events_may_come_from_several_windows():
    events = (
        PatternEvent(name="order", source="orders", expression="o == id"),
        PatternEvent(name="payment", source="payments", expression="order == o"),
    )
    output = (PatternOutput(node="order", field="id"), PatternOutput(node="payment", field="amount"))
    window = PatternWindow(
        name="paid",
        schema=Schema.parse("id*:int64,amount:int32"),
        patterns=(Pattern(events=events, logic="fby(order, payment)", output=output),),
    )
    schemas = ("id*:int64", "key*:int64,order:int64,amount:int64")
    bench = Bench(lambda: PatternOperator(node_of(window, window.schema, *schemas, names=("orders", "payments"))))
    assert bench.take(ins(7), ins(1, 7, 50)) == [Event(I, N, (7, 50))]
    # A second row of the same key can't be, nor one without a key; a value that does not fit is null
    assert bench.take(ins(7), ins(2, 7, 50)) == []
    assert bench.take(ins(8), ins(3, 8, 2**40)) == [Event(I, N, (8, None))]
    assert bench.reasons() == ["duplicate-key", "overflow"]
    bench.restart()
    assert bench.take(ins(8), ins(4, 8, 1)) == []


def test_a_pattern_that_is_not_active_finds_nothing():
    bench = Bench(make("or(a,b)", active=False))
    assert bench.take(ins(1, "a", 0)) == []


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("v == w", "neither 'v' nor 'w' is a field"),
        ("missing > 3", "missing"),
        ("v == what and v == time", "v is a string, and can't be compared with a stamp"),
        ("what == 'a' and", "operand"),
        ("what == '" + "long" * 100 + "' and v == w", "neither 'v' nor 'w' is a field"),
    ],
)
def test_an_event_that_can_not_be_is_refused_when_the_model_is_loaded(expression, reason):
    event = PatternEvent(name="a", source="source", expression=expression)
    pattern = Pattern(events=(event,), logic="a", output=(PatternOutput(node="a", field="id"),))
    window = PatternWindow(name="p", schema=Schema.parse("n*:int64,id:int64"), patterns=(pattern,))
    with pytest.raises(BadExpression, match=reason) as caught:
        PatternOperator(node_of(window, window.schema, INPUT))
    assert caught.value.params["text"] == expression


LOGICS = sorted({logic for logic, _, _ in TRUTH})
STEPS = st.lists(
    st.one_of(
        st.integers(0, 40).map(lambda second: second * SECOND),
        st.lists(st.tuples(st.sampled_from(["a", "b", "c", "ab", "x"]), st.integers(0, 40)), max_size=4),
    ),
    max_size=14,
)


def numbered(steps):
    number = 0
    for step in steps:
        if isinstance(step, int):
            yield step
        else:
            block = []
            for what, second in step:
                number += 1
                block += ins(number, what, second * SECOND)
            yield block


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(LOGICS), st.booleans(), st.sampled_from([(), ("what",)]), STEPS, st.integers(0, 14))
def test_a_restart_changes_nothing(logic, timed, index, steps, cut):
    made = make(logic, timed=timed, index=index)
    blocks = list(numbered(steps))
    assert run(made, blocks, cut) == run(made, blocks)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.sampled_from(LOGICS), STEPS)
def test_the_cut_into_blocks_changes_nothing(logic, steps):
    # Given the same events in blocks and one by one, without ticks
    blocks = [block for block in numbered(steps) if not isinstance(block, int)]
    single = [[event] for block in blocks for event in block]
    whole = [event for out in run(make(logic), blocks)[0] for event in out]
    assert whole == [event for out in run(make(logic), single)[0] for event in out]
    assert all(event.opcode is Opcode.INSERT for event in whole)


XML = """<project name='p' pubsub='auto' threads='1'><contqueries><contquery name='q'><windows>
<window-source name='s'><schema-string>id*:int64,what:string</schema-string></window-source>
<window-pattern name='w'><schema-string>id*:int64,a:string,b:string</schema-string>
<patterns><pattern><events><event name='e1' source='s'>what=='a'</event><event name='e2' source='s'>what=='b'</event>
</events><logic>fby(e1,e2)</logic><output><field-selection name='id' node='e1'/><field-expr node='e1'/>
<field-expr node='e2'>what</field-expr></output></pattern></patterns></window-pattern>
</windows><edges><edge source='s' target='w'/></edges></contquery></contqueries></project>"""


def test_an_output_with_an_empty_expression_is_null():
    run = Run(compile_project(parse_xml(XML, "test")), "w")
    assert run.each("s", "i,1,a", "i,2,b") == ["I,N,1,,b"]
