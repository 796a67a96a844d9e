"""Counter, transpose and remove-state windows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from others_bench import SECOND, UB, Bench, D, I, N, R, gone, ins, node_of, run, upd

from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.schemas import output_schema
from lockstep.engine.model.windows import CounterWindow, RemoveStateWindow, TransposeWindow
from lockstep.engine.reference.shapes import CounterOperator, RemoveStateOperator, TransposeOperator


def make(operator, window, *inputs, names=("source",), schema=None):
    made = schema or output_schema(window, [Schema.parse(each) for each in inputs])
    return lambda: operator(node_of(window, made, *inputs, names=names))


PLAIN = "id*:int64,v:int32"


def counter(**options):
    return make(CounterOperator, CounterWindow(name="c", **options), PLAIN, PLAIN, names=("left", "right"))


def test_a_counter_counts_every_event_and_an_update_once():
    bench = Bench(counter(count_us=2 * SECOND))
    # Given a first tick, from which time is measured
    assert bench.tick(10 * SECOND) == []
    assert bench.take(ins(1, 1) + upd((1, 2), (1, 1)) + gone(1, 2, flags=R), ins(5, 5)) == []
    # When the interval has not passed there is no row, then one for each input that had events
    assert bench.tick(11 * SECOND) == []
    assert bench.tick(12 * SECOND) == [
        Event(I, N, ("left", 3, 2.0, 1.5, 3, 2.0, 1.5)),
        Event(I, N, ("right", 1, 2.0, 0.5, 1, 2.0, 0.5)),
    ]
    # Then an interval without events is told as well
    bench.take([], ins(6, 6))
    assert bench.tick(15 * SECOND) == [
        Event(UB, N, ("left", 3, 5.0, 0.6, 0, 3.0, 0.0)),
        Event(D, N, ("left", 3, 2.0, 1.5, 3, 2.0, 1.5)),
        Event(UB, N, ("right", 2, 5.0, 0.4, 1, 3.0, 1 / 3)),
        Event(D, N, ("right", 1, 2.0, 0.5, 1, 2.0, 0.5)),
    ]
    # The intervals are counted from the first tick, not from the last row
    assert len(bench.tick(16 * SECOND)) == 4


def test_events_before_the_first_tick_count_from_there():
    bench = Bench(counter())
    assert bench.take(ins(1, 1), []) == []
    assert bench.tick(1000 * SECOND) == []
    assert bench.tick(1002 * SECOND) == [Event(I, N, ("left", 1, 2.0, 0.5, 1, 2.0, 0.5))]


def test_a_counter_without_an_index_gives_inserts_only():
    window = CounterWindow(name="c")
    bench = Bench(lambda: CounterOperator(node_of(window, output_schema(window, []), PLAIN, indexed=False)))
    bench.tick(10 * SECOND)
    bench.take(ins(1, 1))
    assert bench.tick(11 * SECOND) == [Event(I, N, ("source", 1, 1.0, 1.0, 1, 1.0, 1.0))]
    assert bench.tick(12 * SECOND) == [Event(I, N, ("source", 1, 2.0, 0.5, 0, 1.0, 0.0))]


def test_a_silent_input_is_cleared():
    bench = Bench(counter(count_us=SECOND, clear_us=3 * SECOND))
    bench.tick(10 * SECOND)
    bench.take(ins(1, 1), [])
    bench.tick(12 * SECOND)
    assert bench.tick(13 * SECOND) == [Event(D, N, ("left", 1, 2.0, 0.5, 1, 2.0, 0.5))]
    bench.take(ins(2, 2), [])
    assert bench.tick(14 * SECOND) == [Event(I, N, ("left", 1, 1.0, 1.0, 1, 1.0, 1.0))]


def test_a_tick_that_does_not_move_the_clock_makes_nothing():
    bench = Bench(counter())
    bench.tick(10 * SECOND)
    bench.take(ins(1, 1), [])
    assert bench.tick(5 * SECOND) == []


LONG = "id*:int64,plane:string,tag:string,value:double,time:stamp"
WIDE = "id*:int64,pitch_value:double,pitch_time:stamp,roll_value:double,roll_time:stamp,yaw_time:stamp,lat:double"


def wide(*, indexed=True, **options):
    window = TransposeWindow(
        name="t",
        mode="wide",
        tag_name="tag",
        tag_values=("value", "time"),
        tags_included=("pitch", "roll"),
        group_by=("plane",),
        **options,
    )
    schema = output_schema(window, [Schema.parse(LONG)])
    return lambda: TransposeOperator(node_of(window, schema, LONG, indexed=indexed))


def test_wide_has_the_parent_s_key_its_other_fields_and_the_tags():
    assert Bench(wide()).operator.node.schema.names == (
        "id", "plane", "pitch_value", "pitch_time", "roll_value", "roll_time",
    )  # fmt: skip


@pytest.mark.parametrize("indexed", [True, False])
def test_wide_gives_one_insert_for_each_row_under_its_own_key(indexed):
    bench = Bench(wide(indexed=indexed))
    rows = [(1, "jet", "pitch", 1.0, 10), (2, "jet", "roll", 2.0, 11), (3, "kite", "roll", 5.0, 12)]
    rows += [(4, "jet", "yaw", 9.0, 13), (5, "jet", None, 9.0, 13), (6, "jet", "pitch", 3.0, 14)]
    assert bench.each(*(ins(*row) for row in rows)) == [
        Event(I, N, (1, "jet", 1.0, 10, None, None)),
        Event(I, N, (2, "jet", 1.0, 10, 2.0, 11)),
        Event(I, N, (3, "kite", None, None, 5.0, 12)),
        Event(I, N, (6, "jet", 3.0, 14, 2.0, 11)),
    ]


def test_wide_with_an_index_changes_and_deletes_what_it_made_of_a_row():
    bench = Bench(wide())
    bench.take(ins(1, "jet", "pitch", 1.0, 10) + ins(2, "jet", "roll", 2.0, 11))
    assert bench.take(upd((1, "jet", "pitch", 7.0, 12), (1, "jet", "pitch", 1.0, 10))) == [
        Event(UB, N, (1, "jet", 7.0, 12, 2.0, 11)),
        Event(D, N, (1, "jet", 1.0, 10, None, None)),
    ]
    assert bench.take(gone(2, "jet", "roll", 2.0, 11, flags=R)) == [Event(D, R, (2, "jet", 1.0, 10, 2.0, 11))]
    assert bench.take(gone(9, "jet", "roll", 2.0, 11)) == []


def test_wide_without_an_index_keeps_nothing_of_rows():
    bench = Bench(wide(indexed=False))
    bench.take(ins(1, "jet", "pitch", 1.0, 10))
    assert bench.take(upd((1, "jet", "pitch", 7.0, 12), (1, "jet", "pitch", 1.0, 10))) == [
        Event(I, N, (1, "jet", 7.0, 12, None, None))
    ]
    assert bench.take(gone(1, "jet", "pitch", 7.0, 12)) == []
    assert bench.operator.dump()["made"] is None


def test_wide_forgets_the_values_of_a_silent_group():
    bench = Bench(wide(clear_us=10 * SECOND))
    bench.take(ins(1, "jet", "pitch", 1.0, 10))
    # Before the first tick there is no clock, so the silence is counted from there
    assert bench.tick(1000 * SECOND) == []
    bench.tick(1009 * SECOND)
    assert bench.take(ins(2, "jet", "roll", 2.0, 11)) == [Event(I, N, (2, "jet", 1.0, 10, 2.0, 11))]
    assert bench.tick(1019 * SECOND) == []
    assert bench.take(ins(3, "jet", "roll", 3.0, 12)) == [Event(I, N, (3, "jet", None, None, 3.0, 12))]


def long():
    window = TransposeWindow(
        name="t", mode="long", tag_name="tag", tag_values=("value", "time"), tags_included=("pitch", "roll")
    )
    return make(TransposeOperator, window, WIDE)


def test_long_makes_a_numbered_row_for_each_tag_with_the_fields_that_belong_to_none():
    bench = Bench(long())
    assert bench.operator.node.schema.names == ("id", "tagNum", "tag", "value", "time", "lat")
    first, second = (1, 0, "pitch", 1.0, 10, 5.0), (1, 1, "roll", 2.0, 11, 5.0)
    assert bench.take(ins(1, 1.0, 10, 2.0, 11, 99, 5.0)) == [Event(I, N, first), Event(I, N, second)]
    changed = (1, 3.0, 12, 2.0, 11, 99, 5.0)
    assert bench.take(upd(changed, (1, 1.0, 10, 2.0, 11, 99, 5.0), flags=R)) == [
        Event(UB, R, (1, 0, "pitch", 3.0, 12, 5.0)),
        Event(D, R, first),
        Event(UB, R, second),
        Event(D, R, second),
    ]
    assert bench.take(gone(*changed)) == [Event(D, N, (1, 0, "pitch", 3.0, 12, 5.0)), Event(D, N, second)]
    assert bench.take([]) == []


def removing(*kinds, log=False):
    return make(RemoveStateOperator, RemoveStateWindow(name="r", remove=kinds, add_log_fields=log), PLAIN)


EVENTS = [
    ins(1, 10),
    upd((1, 11), (1, 10)),
    upd((1, 12), (1, 11), flags=R),
    gone(1, 12),
    gone(2, 20, flags=R),
]


@pytest.mark.parametrize(
    ("kinds", "left"),
    [
        ((), [(1, 10), (1, 11), (1, 10), (1, 12), (1, 11), (1, 12), (2, 20)]),
        (("updateBlockDeletes",), [(1, 10), (1, 11), (1, 12), (1, 12), (2, 20)]),
        (("updates",), [(1, 10), (1, 12), (1, 11), (1, 12), (2, 20)]),
        (("updateBlockDeletes", "deletes"), [(1, 10), (1, 11), (1, 12), (2, 20)]),
        (("updateBlockDeletes", "retentionUpdates"), [(1, 10), (1, 11), (1, 12), (2, 20)]),
        (("updateBlockDeletes", "retentionDeletes"), [(1, 10), (1, 11), (1, 12), (1, 12)]),
        (("updates", "deletes", "retentionUpdates", "retentionDeletes"), [(1, 10)]),
    ],
)
def test_remove_state_numbers_what_is_left(kinds, left):
    bench = Bench(removing(*kinds))
    out = bench.each(*EVENTS)
    assert out == [Event(I, N, (number, *row)) for number, row in enumerate(left, 1)]
    assert bench.take([]) == []
    assert bench.tick(SECOND) == []


def test_remove_state_tells_what_an_event_was():
    bench = Bench(removing(log=True))
    names = bench.operator.node.schema.names
    assert names == ("eventNumber", "originalOC", "originalFL", "id", "v")
    rows = [dict(zip(names, event.values, strict=True)) for event in bench.each(*EVENTS)]
    assert [(row["originalOC"], row["originalFL"]) for row in rows] == [
        ("I", "N"),
        ("UB", "N"),
        ("D", "N"),
        ("UB", "R"),
        ("D", "R"),
        ("D", "N"),
        ("D", "R"),
    ]


def test_remove_state_takes_unresolved_opcodes():
    bench = Bench(removing("deletes"))
    events = [Event(opcode, Flag.NORMAL, (1, 1)) for opcode in (Opcode.UPSERT, Opcode.UPDATE, Opcode.SAFEDELETE)]
    assert len(bench.take(events)) == 2


@st.composite
def histories(draw, row):
    """Inserts, updates and deletes of an indexed parent, a block each, with ticks between them."""
    rows, steps, clock = {}, [], 0
    for new in draw(st.lists(row, max_size=14)):
        old = rows.get(new[0])
        flags = draw(st.sampled_from([N, R]))
        if old is None:
            block, rows[new[0]] = ins(*new, flags=flags), new
        elif draw(st.booleans()):
            block, rows[new[0]] = upd(new, old, flags=flags), new
        else:
            block = gone(*rows.pop(new[0]), flags=flags)
        steps.append(block)
        if draw(st.booleans()):
            clock += draw(st.integers(0, 5)) * SECOND
            steps.append(clock)
    return steps


KEYS = st.integers(1, 4)
NUMBERS = st.sampled_from([None, 1.0, 2.0, float("inf")])
CASES = [
    (make(CounterOperator, CounterWindow(name="c", count_us=2 * SECOND, clear_us=6 * SECOND), PLAIN), "plain"),
    (wide(clear_us=7 * SECOND), "tagged"),
    (long(), "spread"),
    (removing("retentionDeletes", log=True), "plain"),
]
ROWS = {
    "plain": st.tuples(KEYS, st.integers(0, 3)),
    "tagged": st.tuples(
        KEYS, st.sampled_from(["jet", "kite", None]), st.sampled_from(["pitch", "roll", "yaw", None]), NUMBERS, KEYS
    ),
    "spread": st.tuples(KEYS, NUMBERS, KEYS, NUMBERS, KEYS, KEYS, NUMBERS),
}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_restart_changes_nothing(data):
    made, kind = data.draw(st.sampled_from(CASES))
    steps = data.draw(histories(ROWS[kind]))
    cut = data.draw(st.integers(0, len(steps)))
    assert run(made, steps, cut) == run(made, steps)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(histories(ROWS["tagged"]))
def test_what_wide_gives_is_a_table(steps):
    rows = {}
    for block in run(wide(clear_us=7 * SECOND), steps)[0]:
        waiting = None
        for event in block:
            if waiting is not None:
                assert (event.opcode, rows[event.values[0]]) == (D, event.values)
                rows[event.values[0]], waiting = waiting, None
            elif event.opcode is UB:
                waiting = event.values
            elif event.opcode is I:
                assert event.values[0] not in rows
                rows[event.values[0]] = event.values
            else:
                assert rows.pop(event.values[0]) == event.values
