"""Aggregate windows: groups, all functions, plugs."""

from __future__ import annotations

import math
import statistics

import pytest
from engine_models import SECOND, Run, chain, read, write
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.errors import ModelInvalid, UserCodeFailed
from lockstep.engine.events.event import Event, Flag, InputBlock, Opcode
from lockstep.engine.events.schema import FieldType, Schema
from lockstep.engine.language.compiler import Scope, compile_aggregate
from lockstep.engine.model.windows import AggregateWindow, CopyWindow, FieldPlug, Initializer, Retention, SourceWindow
from lockstep.engine.reference.aggregate_functions import function_maker
from lockstep.engine.reference.aggregate_sums import DoubleDouble
from lockstep.engine.reference.interpreter import Interpreter, make_operator
from lockstep.engine.reference.operator import BadEvent, Moment

SCHEMA = Schema.parse("id*:int32,g:string,n:int32,x:double,t:string")
SOURCE = SourceWindow(name="s", schema=SCHEMA)


def grouped(*fields: object, types: str = "double", source: SourceWindow = SOURCE) -> Run:
    """An aggregate by g with fields f0, f1, ... of the given types."""
    kinds = types.split()
    kinds += kinds[-1:] * (len(fields) - len(kinds))
    text = ",".join(f"f{place}:{kind}" for place, kind in enumerate(kinds))
    window = AggregateWindow(name="a", schema=Schema.parse(f"g*:string,{text}"), fields=fields)
    return Run(chain(source, window), "a")


def said(lines: list[str]) -> list[str]:
    """The values of the last row that was said."""
    return [line for line in lines if not line.startswith("D")][-1].split(",")[3:]


def test_first_member_inserts_last_one_deletes_and_all_others_update():
    run = grouped("ESP_aCount()", types="int64")
    assert run.send("s", "i,1,a") == ["I,N,a,1"]
    assert run.send("s", "i,2,a") == ["UB,N,a,2", "D,N,a,1"]
    assert run.send("s", "u,2,a,5") == ["UB,N,a,2", "D,N,a,2"], "an update is told even if it changes nothing"
    assert run.send("s", "p,2,a,6") == ["UB,N,a,2", "D,N,a,2"]
    assert run.send("s", "d,1") == ["UB,N,a,1", "D,N,a,2"]
    assert run.send("s", "d,2") == ["D,N,a,1"]
    assert run.rows == 0


def test_a_member_that_moves_changes_the_old_group_first():
    run = grouped("ESP_aSum(n)", types="int64")
    run.each("s", "i,1,a,1", "i,2,a,2", "i,3,b,3")
    assert run.send("s", "u,2,b,2") == ["UB,N,a,1", "D,N,a,3", "UB,N,b,5", "D,N,b,3"]
    assert run.send("s", "u,1,c,1") == ["D,N,a,1", "I,N,c,1"]


def test_null_is_a_group_like_any_other():
    run = grouped("ESP_aCount()", types="int64")
    assert run.each("s", "i,1,,1", "i,2,,1") == ["I,N,,1", "UB,N,,2", "D,N,,1"]


def test_retention_is_passed_on_with_its_flag():
    copy = CopyWindow(name="c", retention=Retention(kind="bycount_sliding", limit=1))
    window = AggregateWindow(name="a", schema=Schema.parse("g*:string,n:int64"), fields=("ESP_aSum(n)",))
    run = Run(chain(SOURCE, copy, window), "a")
    assert run.each("s", "i,1,a,1", "i,2,a,2") == ["I,N,a,1", "UB,N,a,3", "D,N,a,1", "UB,R,a,2", "D,R,a,3"]
    assert run.send("s", "i,3,b,3") == ["I,N,b,3", "D,R,a,2"]


def test_a_late_time_stamp_belongs_to_its_group_like_any_other():
    schema = Schema.parse("id*:int32,g:string,time:date")
    copy = CopyWindow(name="c", retention=Retention(kind="bytime_sliding", limit=10 * SECOND, field="time"))
    window = AggregateWindow(name="a", schema=Schema.parse("g*:string,t:date"), fields=("ESP_aMin(time)",))
    run = Run(chain(SourceWindow(name="s", schema=schema), copy, window), "a")
    assert run.each("s", "i,1,a,100", "i,2,a,50") == ["I,N,a,100", "UB,N,a,50", "D,N,a,100"]
    assert run.send("s", "i,3,b,110") == ["I,N,b,110", "UB,R,a,50", "D,R,a,50", "D,R,a,50"]


def test_empty_and_transactional_blocks():
    run = grouped("ESP_aSum(n)", types="int64")
    assert run.send("s") == []
    assert run.send("s", "i,1,a,1", "i,1,a,2", transactional=True) == []
    assert run.send("s", "i,1,a,1", "i,2,a,2", transactional=True) == ["I,N,a,1", "UB,N,a,3", "D,N,a,1"]


def test_nulls_are_skipped():
    calls = ["ESP_aSum(n)", "ESP_aAve(n)", "ESP_aMin(x)", "ESP_aMax(x)", "ESP_aStd(x)", "ESP_aWAve(n, x)"]
    run = grouped(*calls, "ESP_aMedian(x)", "ESP_aMode(x)", types="int64 double")
    assert run.send("s", "i,1,a") == ["I,N,a,,,,,,,,"]
    assert said(run.send("s", "i,2,a,2")) == ["2", "2.0", "", "", "", "", "", ""]
    assert said(run.send("s", "i,3,a,4,8")) == ["6", "3.0", "8.0", "8.0", "0.0", "8.0", "8.0", "8.0"]
    assert said(run.send("s", "d,3")) == ["2", "2.0", "", "", "", "", "", ""]


def test_counts():
    calls = ("ESP_aCount()", "ESP_aCount(t)", "ESP_aCountNonNull(t)", "ESP_aCountNull(t)", "ESP_aCountDistinct(t)")
    run = grouped(*calls, types="int64")
    lines = run.each("s", "i,1,a,,,p", "i,2,a", "i,3,a,,,q", "i,4,a,,,p")
    assert said(lines) == ["4", "4", "3", "1", "2"]
    assert said(run.send("s", "d,1")) == ["3", "3", "2", "1", "2"]
    assert said(run.send("s", "d,4")) == ["2", "2", "1", "1", "1"]


def test_sums_of_whole_numbers_are_exact_and_null_if_they_do_not_fit():
    source = SourceWindow(name="s", schema=Schema.parse("id*:int32,g:string,n:int64"))
    run = grouped("ESP_aSum(n)", "ESP_aAve(n)", types="int64 double", source=source)
    big = 2**63 - 1
    assert run.send("s", f"i,1,a,{big}") == [f"I,N,a,{big},{float(big)}"]
    assert said(run.send("s", "i,2,a,1")) == ["", str(float(2**63) / 2)]
    assert said(run.send("s", "d,1")) == ["1", "1.0"], "nothing was lost on the way"


def test_a_result_that_does_not_fit_its_field_is_null_and_reported():
    run = grouped("ESP_aSum(n)", types="int32")
    run.send("s", f"i,1,a,{2**31 - 1}")
    assert run.send("s", "i,2,a,1") == ["UB,N,a,", f"D,N,a,{2**31 - 1}"]
    assert run.reasons == ["overflow"]
    assert run.send("s", "d,2") == [f"UB,N,a,{2**31 - 1}", "D,N,a,"]


def test_whole_numbers_become_doubles_where_the_schema_says_so():
    assert grouped("ESP_aSum(n)").send("s", "i,1,a,3") == ["I,N,a,3.0"]


def test_order_functions_follow_the_order_of_coming_and_updates_come_last():
    calls = ("ESP_aFirst(n)", "ESP_aLast(n)", "ESP_aLag(n, 1)", "ESP_aLag(n, 2)", "ESP_aCat(t)", "ESP_aCat(n, '-')")
    run = grouped(*calls, types="int32 int32 int32 int32 string")
    assert run.send("s", "i,1,a,1,,x") == ["I,N,a,1,1,,,x,1"]
    assert said(run.each("s", "i,2,a,2,,y", "i,3,a,3")) == ["1", "3", "2", "1", "x", "y", "1-2-3"]
    assert said(run.send("s", "u,1,a,9,,z")) == ["2", "9", "3", "2", "y", "z", "2-3-9"]
    assert said(run.send("s", "d,2")) == ["3", "9", "3", "", "z", "3-9"]


def test_cat_writes_values_as_they_are_written_everywhere():
    source = SourceWindow(name="s", schema=Schema.parse("id*:int32,g:string,m:money,x:double"))
    run = grouped("ESP_aCat(m, ' ')", "ESP_aCat(x, ' ')", types="string", source=source)
    assert said(run.each("s", "i,1,a,15000,0.5", "i,2,a,-1,1")) == ["1.5 -0.0001", "0.5 1.0"]


def test_median_and_mode():
    run = grouped("ESP_aMedian(n)", "ESP_aMode(n)", types="double int32")
    assert said(run.each("s", "i,1,a,5", "i,2,a,1", "i,3,a,5", "i,4,a,1")) == ["3.0", "1"], "of equals the smallest"
    assert said(run.send("s", "i,5,a,5")) == ["5.0", "5"]
    assert said(run.send("s", "d,5")) == ["3.0", "1"]


def test_smallest_and_largest_of_texts():
    run = grouped("ESP_aMin(t)", "ESP_aMax(t)", types="string")
    assert said(run.each("s", "i,1,a,,,b", "i,2,a,,,B", "i,3,a,,,é")) == ["B", "é"]
    assert said(run.send("s", "d,3")) == ["B", "b"]


def test_not_a_number_is_outside_the_order():
    run = grouped(
        "ESP_aMin(x)", "ESP_aMax(x)", "ESP_aMedian(x)", "ESP_aCountDistinct(x)", types="double double double int64"
    )
    assert run.send("s", "i,1,a,,nan") == ["I,N,a,nan,nan,nan,1"]
    assert said(run.each("s", "i,2,a,,nan", "i,3,a,,2")) == ["2.0", "2.0", "2.0", "2"]
    assert said(run.send("s", "d,3")) == ["nan", "nan", "nan", "1"]
    assert said(run.send("s", "u,1,a,,-0.0")) == ["0.0", "0.0", "0.0", "2"]


def test_infinities_stay_in_a_sum_until_the_group_is_dropped():
    run = grouped("ESP_aSum(x)", "ESP_aStd(x)")
    assert said(run.each("s", "i,1,a,,1", "i,2,a,,inf", "d,2")) == ["nan", "0.0"]
    assert run.each("s", "d,1", "i,1,a,,1")[-1] == "I,N,a,1.0,0.0"


def test_weighted_mean_is_null_without_weight():
    run = grouped("ESP_aWAve(n, x)")
    assert run.send("s", "i,1,a,0,5") == ["I,N,a,"]
    assert said(run.each("s", "i,2,a,1,4", "i,3,a,3,8")) == ["7.0"]


def test_calls_are_combined_by_an_expression():
    run = grouped("ESP_aSum(x) / ESP_aCount() + ESP_aSum(n + 1)", "ESP_aMax(x) - ESP_aMin(x)")
    assert said(run.each("s", "i,1,a,1,2", "i,2,a,2,6")) == ["9.0", "4.0"]
    assert said(run.send("s", "d,1")) == ["9.0", "0.0"]


def test_variables_of_the_initializer_are_kept_from_event_to_event():
    window = AggregateWindow(
        name="a",
        schema=Schema.parse("g*:string,n:int64"),
        fields=("told = told + 1; return told * 100 + ESP_aCount()",),
        initialize=Initializer(text="integer told; told = 0", type=FieldType.INT32),
    )
    run = Run(chain(SOURCE, window), "a")
    assert run.each("s", "i,1,a", "i,2,b", "i,3,a") == ["I,N,a,101", "I,N,b,201", "UB,N,a,302", "D,N,a,101"]


def test_timed_functions_begin_anew_when_the_limit_has_passed():
    calls = ("ESP_aSumTimed(n, 10)", "ESP_aCountTimed(10)", "ESP_aMaxTimed(n, 10)", "ESP_aAveTimed(n, 10)")
    run = grouped(*calls, types="int64 int64 int32 double")
    run.tick(100)
    assert said(run.each("s", "i,1,a,1", "i,2,a,5")) == ["6", "2", "5", "3.0"]
    run.tick(110)
    assert said(run.send("s", "i,3,a,2")) == ["8", "3", "5", str(8 / 3)], "not more than the limit"
    assert said(run.send("s", "d,1")) == ["8", "3", "5", str(8 / 3)], "deletes are ignored"
    run.tick(110.5)
    assert said(run.send("s", "i,4,a,3")) == ["3", "1", "3", "3.0"]


def test_timed_functions_count_from_the_first_tick_what_came_before_it():
    run = grouped("ESP_aCountTimed(10)", types="int64")
    assert said(run.each("s", "i,1,a,1", "i,2,a,1")) == ["2"]
    run.tick(1_000_000)
    run.tick(1_000_010)
    assert said(run.send("s", "i,3,a,1")) == ["3"], "ten seconds after the first tick"
    run.tick(1_000_011)
    assert said(run.send("s", "i,4,a,1")) == ["1"]


def plug(name: str, *fields: str) -> FieldPlug:
    return FieldPlug(module="engine_plugs", function=name, fields=fields)


def test_a_python_function_gets_the_rows_of_the_group():
    run = grouped(plug("spread", "n", "x"), plug("whole"))
    assert said(run.each("s", "i,1,a,1,5", "i,2,a,1,9", "i,3,a,1,7")) == ["4.0", "3.0"]
    assert said(run.send("s", "d,2")) == ["2.0", "2.0"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("failing", "ZeroDivisionError: two are too many"),
        ("wrong", "it gave 'three', which is not of type double"),
        ("leaving", "SystemExit: 3"),
    ],
)
def test_what_a_python_function_does_wrong_names_window_block_and_event(name, words):
    run = grouped(plug(name))
    with pytest.raises(UserCodeFailed, match=words) as caught:
        run.each("s", "i,1,a", "i,2,a", "i,3,a")
    number = "2" if name == "failing" else "3"
    assert f"window q/a failed on block {number}, event I,N,{number},a" in str(caught.value)


def test_a_python_function_that_gives_half_a_character_is_refused():
    run = grouped(plug("half_a_character"), types="string")
    with pytest.raises(UserCodeFailed, match=r"block 3, event I,N,3,a.*which UTF-8 can't write"):
        run.each("s", "i,1,a", "i,2,a", "i,3,a")


@pytest.mark.parametrize("name", ["absent", "LIST"])
def test_a_function_that_is_not_there_is_a_fault_of_the_model(name):
    with pytest.raises(ModelInvalid, match=f"engine_plugs.{name}"):
        grouped(plug(name))


def test_behind_an_insert_only_source_without_index_every_insert_counts():
    source = SourceWindow(name="s", schema=SCHEMA, index="pi_EMPTY", insert_only=True)
    run = grouped("ESP_aSum(n)", types="int64", source=source)
    assert run.each("s", "i,1,a,1", "i,1,a,2") == ["I,N,a,1", "UB,N,a,3", "D,N,a,1"]


def test_opcodes_that_nobody_resolved_are_refused():
    operator = make_operator(grouped("ESP_aSum(n)", types="int64").graph.nodes[1])
    bad: list[BadEvent] = []
    moment = Moment(1, 0, False, False, bad.append, lambda _: None)
    events = [read(SCHEMA, text) for text in ("i,1,a,1", "p,1,a,3", "u,1,a,3", "s,1,a", "d,7,b")]
    assert write(operator.evaluate([events], moment)) == ["I,N,a,1"]
    assert [each.reason for each in bad] == ["bad-opcode"] * 3 + ["unknown-key"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=60))
def test_sums_do_not_drift(values):
    # Given values that were added, when all but the first are removed again, the first one is left.
    total = DoubleDouble()
    for value in values:
        total.add(value)
    assert total.hi == pytest.approx(math.fsum(values), rel=1e-14, abs=1e-9)
    for value in values[1:]:
        total.add(-value)
    assert total.hi == pytest.approx(values[0], rel=1e-14, abs=1e-9)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(-1000, 1000)), min_size=1, max_size=40))
def test_every_function_agrees_with_a_plain_one_over_the_members(changes):
    run = grouped(
        "ESP_aStd(n)",
        "ESP_aMedian(n)",
        "ESP_aMin(n)",
        "ESP_aMax(n)",
        "ESP_aSum(n)",
        types="double double int32 int32 int64",
    )
    members: dict[int, int] = {}
    for key, value in changes:
        if key in members and value % 3 == 0:
            del members[key]
            lines = run.send("s", f"d,{key}")
        else:
            members[key] = value
            lines = run.send("s", f"p,{key},a,{value}")
        if not members:
            assert lines[-1].startswith("D")
            continue
        std, median, low, high, total = map(float, said(lines))
        numbers = list(members.values())
        expected = statistics.stdev(numbers) if len(numbers) > 1 else 0.0
        assert std == pytest.approx(expected, rel=1e-9, abs=1e-6)
        assert (median, low, high, total) == (statistics.median(numbers), min(numbers), max(numbers), sum(numbers))


ARRAYS = SourceWindow(name="s", schema=Schema.parse("id*:int32,g:string,v:array(dbl),w:array(i64)"))
PLACES = st.none() | st.integers(-(2**62), 2**62)


@given(st.lists(st.tuples(st.integers(0, 4), st.none() | st.lists(PLACES, max_size=3).map(tuple)), max_size=20))
@settings(max_examples=60, deadline=None)
def test_the_mean_of_arrays_is_that_of_each_place_as_long_as_the_longest(steps):
    # Given a mean over arrays, which is made anew from its state after each change
    (call,) = compile_aggregate("ESP_aAve(w)", Scope.of(ARRAYS.schema)).calls
    mean, there = function_maker(call)(), {}
    for key, array in steps:
        if key in there:
            mean.remove((there.pop(key),))
        else:
            there[key] = array
            mean.add((array,))
        again = function_maker(call)()
        again.load(mean.dump())
        mean = again
        # Then each place has the mean of the numbers that are there
        arrays = [array for array in there.values() if array is not None]
        places = [[array[place] for array in arrays if place < len(array) and array[place] is not None]
                  for place in range(max(map(len, arrays), default=0))]  # fmt: skip
        wanted = tuple(float(sum(place)) / len(place) if place else None for place in places)
        assert mean.value() == (wanted if arrays else None)


def test_an_aggregate_gives_the_mean_of_arrays_of_doubles():
    window = AggregateWindow(name="a", schema=Schema.parse("g*:string,m:array(dbl)"), fields=("ESP_aAve(v)",))
    interpreter = Interpreter(chain(ARRAYS, window))
    values = [(1, "g", (1.0, 2.0), None), (2, "g", (2.0, None, 5.0), None), (3, "g", None, None)]
    events = tuple(Event(Opcode.INSERT, Flag.NORMAL, row) for row in values)
    outputs = interpreter.evaluate(InputBlock(1, "s", events))
    assert outputs["q/a"][-2].values == ("g", (1.5, 2.0, 5.0))
