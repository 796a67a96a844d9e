"""Retention: five kinds, on a field or on the model's clock, in source and copy windows."""

from __future__ import annotations

import pytest
from engine_models import SECOND, Run, chain

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.windows import CopyWindow, Retention, SourceWindow

SCHEMA = Schema.parse("id*:int32,time:date")


def keeping(kind: str, limit: int, **parts: object) -> Run:
    """A copy window that keeps so many seconds or rows."""
    by_time = kind.startswith("bytime")
    retention = Retention(kind=kind, limit=limit * (SECOND if by_time else 1), **parts)
    return Run(chain(SourceWindow(name="s", schema=SCHEMA), CopyWindow(name="c", retention=retention)), "c")


def short(lines: list[str]) -> str:
    """I1 for an insert of row 1, R1 for its end by retention, D1 for its deletion, U1 for its update."""
    shown, skip = [], False
    for line in lines:
        opcode, flags, key = line.split(",")[:3]
        if skip:
            skip = False
            continue
        skip = opcode == "UB"
        shown.append(("R" if flags == "R" else opcode[0]) + key)
    return " ".join(shown)


def test_a_row_leaves_when_it_is_as_old_as_the_limit_not_before():
    run = keeping("bytime_sliding", 10, field="time")
    assert short(run.each("s", "i,1,100", "i,2,109", "i,3,110")) == "I1 I2 I3 R1"
    assert short(run.each("s", "i,4,120")) == "I4 R2 R3"


def test_a_late_row_counts_from_the_clock_that_it_met():
    run = keeping("bytime_sliding", 10, field="time")
    assert short(run.each("s", "i,1,100", "i,2,50")) == "I1 I2", "late, but it stays"
    assert short(run.each("s", "i,3,109")) == "I3"
    assert short(run.each("s", "i,4,110")) == "I4 R1 R2"


def test_an_update_renews_and_a_delete_just_removes():
    run = keeping("bytime_sliding", 10, field="time")
    assert short(run.each("s", "i,1,100", "i,2,101", "i,3,102", "u,1,105", "d,2", "i,4,112")) == "I1 I2 I3 U1 D2 I4 R3"
    assert short(run.each("s", "i,5,115")) == "I5 R1"


def test_null_times_do_not_move_the_clock():
    run = keeping("bytime_sliding", 10, field="time")
    assert short(run.each("s", "i,1", "i,2,100", "i,3", "i,4,109")) == "I1 I2 I3 I4"
    assert short(run.each("s", "i,5,110")) == "I5 R1 R2 R3", "rows without a clock count from its first value"


def test_any_event_moves_the_clock():
    run = keeping("bytime_sliding", 10, field="time")
    assert short(run.each("s", "i,1,100", "i,2,105")) == "I1 I2"
    assert short(run.each("s", "u,2,111")) == "U2 R1"


def test_an_update_of_a_row_that_left_brings_it_back_and_its_delete_is_nothing():
    run = keeping("bytime_sliding", 10, field="time")
    assert short(run.each("s", "i,1,100", "i,2,101", "i,3,200")) == "I1 I2 I3 R1 R2"
    assert run.send("s", "u,1,200") == ["I,N,1,200"]
    assert run.send("s", "d,2") == []
    assert run.reasons == []


def test_sliding_on_the_model_clock_looks_at_ticks_only():
    run = keeping("bytime_sliding", 10)
    assert short(run.each("s", "i,1")) == "I1"
    assert run.tick(100) == [], "before the first tick there is no clock: row 1 counts from here"
    assert short(run.each("s", "i,2")) == "I2"
    assert run.tick(105) == []
    assert short(run.each("s", "i,3", "u,1")) == "I3 U1"
    assert short(run.tick(110)) == "R2"
    assert run.tick(100) == [], "the clock does not go back"
    assert short(run.tick(115)) == "R3 R1"


def test_jumping_lets_everything_go_that_was_there_before_the_event_that_ends_a_period():
    run = keeping("bytime_jumping", 10, field="time")
    assert short(run.each("s", "i,1,100", "i,2,109", "i,3,110")) == "I1 I2 I3 R1 R2"
    assert short(run.each("s", "i,4,119", "i,5,145")) == "I4 I5 R3 R4"
    assert short(run.each("s", "i,6,149", "i,7,150")) == "I6 I7 R5 R6", "periods go on at multiples of the limit"


def test_jumping_keeps_the_row_that_the_event_itself_renewed():
    run = keeping("bytime_jumping", 10, field="time")
    assert short(run.each("s", "i,1,100", "i,2,101", "u,1,110")) == "I1 I2 U1 R2"


def test_jumping_on_the_model_clock_empties_the_window():
    run = keeping("bytime_jumping", 10)
    run.tick(100)
    assert short(run.each("s", "i,1", "i,2")) == "I1 I2"
    assert run.tick(109) == []
    assert short(run.tick(110)) == "R1 R2"
    run.send("s", "i,3")
    assert run.tick(119) == []
    assert short(run.tick(135)) == "R3"


def test_lookback_lets_old_rows_go_at_multiples_of_its_unit_only():
    run = keeping("bytime_jumping_lookback", 10, unit_us=4 * SECOND, field="time")
    assert short(run.each("s", "i,1,100", "i,2,101", "i,3,110", "i,4,111")) == "I1 I2 I3 R1 I4"
    assert short(run.each("s", "i,5,112")) == "I5 R2"


def test_lookback_on_the_model_clock():
    run = keeping("bytime_jumping_lookback", 10, unit_us=4 * SECOND)
    run.tick(100)
    run.send("s", "i,1")
    assert run.tick(109) == [], "a multiple was crossed, but the row is too young"
    assert run.tick(111) == [], "the row is old enough, but no multiple was crossed"
    assert short(run.tick(112)) == "R1"


def test_counting_slides():
    run = keeping("bycount_sliding", 2)
    assert short(run.each("s", "i,1", "i,2", "i,3")) == "I1 I2 I3 R1"
    assert short(run.each("s", "u,2", "i,4")) == "U2 I4 R3", "an update renews"
    assert short(run.each("s", "d,2", "i,5")) == "D2 I5"


def test_counting_jumps():
    run = keeping("bycount_jumping", 2)
    assert short(run.each("s", "i,1", "i,2", "u,1", "i,3")) == "I1 I2 U1 I3 R2 R1"


@pytest.mark.parametrize(("kind", "scale"), [("date", 1), ("stamp", SECOND)])
def test_dates_are_seconds_and_stamps_microseconds(kind, scale):
    retention = Retention(kind="bytime_sliding", limit=10 * SECOND, field="time")
    source = SourceWindow(name="s", schema=Schema.parse(f"id*:int32,time:{kind}"), retention=retention)
    run = Run(chain(source), "s")
    assert short(run.each("s", f"i,1,{100 * scale}", f"i,2,{110 * scale - 1}")) == "I1 I2"
    assert short(run.each("s", f"i,3,{110 * scale}")) == "I3 R1"


def test_a_source_with_retention_forgets_what_left():
    source = SourceWindow(name="s", schema=SCHEMA, retention=Retention(kind="bycount_sliding", limit=1))
    run = Run(chain(source), "s")
    assert short(run.each("s", "i,1", "i,2", "i,1", "u,2")) == "I1 I2 R1 I1 R2"
    assert run.reasons == ["unknown-key"]


def test_retention_flows_down_the_graph():
    # Given two windows with retention one below the other, what the first lets go leaves the second with flag R.
    first = CopyWindow(name="a", retention=Retention(kind="bycount_sliding", limit=1))
    second = CopyWindow(name="b", retention=Retention(kind="bycount_sliding", limit=5))
    run = Run(chain(SourceWindow(name="s", schema=SCHEMA), first, second), "b")
    assert short(run.each("s", "i,1", "i,2")) == "I1 I2 R1"
