"""Filter and compute windows."""

from __future__ import annotations

import pytest
from engine_models import SECOND, Run, chain

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.windows import ComputeWindow, CopyWindow, FilterWindow, Initializer, Retention, SourceWindow

SCHEMA = Schema.parse("id*:int32,n:int32,x:double")
SOURCE = SourceWindow(name="s", schema=SCHEMA)
SHORT = CopyWindow(name="c", retention=Retention(kind="bycount_sliding", limit=1))


def filtered(expression: str, initialize: str = "", between: tuple[CopyWindow, ...] = ()) -> Run:
    first = Initializer(text=initialize) if initialize else None
    return Run(chain(SOURCE, *between, FilterWindow(name="f", expression=expression, initialize=first)), "f")


def computed(fields: str, *expressions: str, initialize: str = "", source: SourceWindow = SOURCE) -> Run:
    first = Initializer(text=initialize) if initialize else None
    schema = Schema.parse(f"id*:int32,{fields}")
    return Run(chain(source, ComputeWindow(name="k", schema=schema, fields=expressions, initialize=first)), "k")


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (5, 6, ["UB,N,1,6,", "D,N,1,5,"]),
        (-5, 6, ["I,N,1,6,"]),
        (5, -6, ["D,N,1,5,"]),
        (-5, -6, []),
    ],
)
@pytest.mark.parametrize("opcode", ["u", "p"])
def test_each_half_of_an_update_is_tested(old, new, lines, opcode):
    run = filtered("n > 0")
    run.send("s", f"i,1,{old}")
    assert run.send("s", f"{opcode},1,{new}") == lines


def test_inserts_and_deletes_pass_if_the_row_holds():
    run = filtered("n > 0")
    assert run.each("s", "i,1,1", "i,2,-1", "i,3", "d,1", "d,2", "d,3") == ["I,N,1,1,", "D,N,1,1,"]
    assert run.send("s") == []
    assert run.send("s", "i,4,1", "i,4,2", transactional=True) == []


def test_a_filter_sees_opcode_and_flags():
    run = filtered("ESP_FLAGS == 'R'", between=(SHORT,))
    assert run.each("s", "i,1,1", "i,2,2") == ["D,R,1,1,"]
    run = filtered("ESP_OPCODE == 'I'")
    assert run.each("s", "i,1,1", "u,1,2", "d,1") == ["I,N,1,1,"]


def test_variables_are_stepped_once_for_each_half_the_new_one_first():
    run = filtered("seen = seen + 1; return seen % 2 == 1", initialize="integer seen; seen = 0")
    assert run.each("s", "i,1,1", "i,2,2", "u,2,3") == ["I,N,1,1,", "I,N,2,3,"], "halves were numbers 3 and 4"


def test_compute_maps_both_halves():
    run = computed("twice:int64,half:double", "n * 2", "x / 2")
    assert run.send("s", "i,1,3,1") == ["I,N,1,6,0.5"]
    assert run.send("s", "p,1,4") == ["UB,N,1,8,", "D,N,1,6,0.5"]
    assert run.send("s", "d,1") == ["D,N,1,8,"]
    assert run.send("s") == []
    assert run.send("s", "i,4,1", "u,5,2", transactional=True) == []


def test_the_key_may_stand_anywhere():
    window = ComputeWindow(name="k", schema=Schema.parse("n:int32,id*:int32,m:int32"), fields=("n", "n"))
    run = Run(chain(SOURCE, window), "k")
    assert run.send("s", "i,1,3,1") == ["I,N,3,1,3"]


def test_whole_numbers_too_large_for_their_field_are_null_and_reported():
    run = computed("big:int32,d:double", "n * 2", "n")
    assert run.send("s", f"i,1,{2**31 - 1}") == [f"I,N,1,,{float(2**31 - 1)}"]
    assert run.reasons == ["overflow"]


def test_with_variables_the_old_half_is_what_was_given_out():
    run = computed("number:int32", "seen = seen + 1; return seen", initialize="integer seen; seen = 0")
    assert run.each("s", "i,1,1", "i,2,1") == ["I,N,1,1", "I,N,2,2"]
    assert run.send("s", "u,1,5") == ["UB,N,1,3", "D,N,1,1"]
    assert run.send("s", "d,1") == ["D,N,1,3"]
    assert run.send("s", "i,1,5") == ["I,N,1,4"], "a delete does not step the variables"


def test_expressions_of_one_window_share_their_variables():
    run = computed("a:int32,b:int32", "v = v + 1; return v", "v * 10", initialize="integer v; v = 0")
    assert run.each("s", "i,1", "i,2") == ["I,N,1,1,10", "I,N,2,2,20"]


def test_retention_and_late_rows_flow_through():
    schema = Schema.parse("id*:int32,time:date")
    source = SourceWindow(name="s", schema=schema)
    copy = CopyWindow(name="c", retention=Retention(kind="bytime_sliding", limit=10 * SECOND, field="time"))
    compute = ComputeWindow(name="k", schema=Schema.parse("id*:int32,time:date,y:int64"), fields=("time", "id * 2"))
    run = Run(chain(source, copy, compute, FilterWindow(name="f", expression="y < 5")), "f")
    lines = run.each("s", "i,1,100", "i,2,50", "i,3,110")
    assert lines == ["I,N,1,100,2", "I,N,2,50,4", "D,R,1,100,2", "D,R,2,50,4"]


def test_behind_a_source_without_index_opcodes_pass_as_they_came():
    source = SourceWindow(name="s", schema=SCHEMA, index="pi_EMPTY")
    run = computed("m:int64", "n + 1", source=source)
    assert run.each("s", "p,1,1", "u,2,2", "s,3") == ["P,N,1,2", "U,N,2,3", "S,N,3,"]


def rekeyed(schema: str, *expressions: str, initialize: str = "", index: str | None = None) -> Run:
    first = Initializer(text=initialize) if initialize else None
    window = ComputeWindow(name="k", schema=Schema.parse(schema), fields=expressions, initialize=first, index=index)
    return Run(chain(SOURCE, window), "k")


def test_a_row_whose_key_changes_leaves_and_comes_again_under_the_other():
    run = rekeyed("n*:int32,id:int32,twice:double", "id", "x * 2")
    assert run.each("s", "i,1,10,0.5", "u,1,10,1.5", "u,1,11,1.5", "d,1") == [
        "I,N,10,1,1.0",
        "UB,N,10,1,3.0",
        "D,N,10,1,1.0",
        "D,N,10,1,3.0",
        "I,N,11,1,3.0",
        "D,N,11,1,3.0",
    ]


def test_a_key_that_is_taken_is_not_given_twice_and_the_rows_of_others_stay():
    run = rekeyed("n*:int32,id:int32", "id")
    assert run.each("s", "i,1,10", "i,2,10", "u,2,10", "d,2") == ["I,N,10,1"]
    assert run.reasons == ["duplicate-key", "duplicate-key"]
    assert run.each("s", "i,2,20", "u,1,20", "d,1", "u,2,10") == ["I,N,20,2", "D,N,10,1", "D,N,20,2", "I,N,10,2"]
    assert run.reasons == ["duplicate-key"] * 3, "20 was taken, so 1 has no row any more"


def test_a_wider_key_never_collides():
    run = rekeyed("id*:int32,n*:int32", *())
    assert run.each("s", "i,1,10", "i,2,10", "u,1,11", "d,2") == [
        "I,N,1,10",
        "I,N,2,10",
        "D,N,1,10",
        "I,N,1,11",
        "D,N,2,10",
    ]
    assert run.reasons == []


def test_without_an_index_nothing_is_looked_up_and_pairs_of_two_keys_are_divided():
    run = rekeyed("n*:int32,id:int32", "id", index="pi_EMPTY")
    assert run.each("s", "i,1,10", "i,2,10", "u,1,11", "u,2,10") == [
        "I,N,10,1", "I,N,10,2", "D,N,10,1", "I,N,11,1", "UB,N,10,2", "D,N,10,2",
    ]  # fmt: skip


def test_with_variables_what_leaves_is_what_was_given_out():
    run = rekeyed("n*:int32,seen:int32", "seen = seen + 1; return seen", initialize="integer seen; seen = 0")
    assert run.each("s", "i,1,10", "i,2,20", "u,1,11", "d,2") == [
        "I,N,10,1", "I,N,20,2", "D,N,10,1", "I,N,11,3", "D,N,20,2",
    ]  # fmt: skip
