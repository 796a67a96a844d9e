"""Output options: insert-only, collapsed updates, pulses, slots."""

from __future__ import annotations

import pytest
from engine_models import Run, chain, graph
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.windows import CopyWindow, Initializer, SourceWindow, Splitter

SCHEMA = Schema.parse("id*:int32,n:int32")


def source(**options: object) -> Run:
    return Run(chain(SourceWindow(name="s", schema=SCHEMA, **options)), "s")


def test_only_inserts_get_out():
    run = source(output_insert_only=True)
    assert run.each("s", "i,1,1", "u,1,2", "p,2,1", "d,1") == ["I,N,1,1", "I,N,2,1"]
    counts = run.interpreter.counts["q/s"]
    assert (counts.rows, counts.events_in, counts.events_out) == (1, 4, 2), "rows are those of the window itself"


def test_changes_of_one_key_in_a_block_become_one():
    run = source(collapse_updates=True)
    assert run.send("s", "i,1,1", "i,2,1", "u,1,2", "u,1,3") == ["I,N,1,3", "I,N,2,1"]
    assert run.send("s", "u,2,2", "u,1,4", "u,2,3") == ["UB,N,2,3", "D,N,2,1", "UB,N,1,4", "D,N,1,3"]
    assert run.send("s", "d,1", "i,1,7") == ["UB,N,1,7", "D,N,1,4"]
    assert run.send("s", "u,1,8", "d,1") == ["D,N,1,7"]
    assert run.send("s", "i,5,1", "u,5,2", "d,5") == []
    assert run.send("s", "u,2,3") == ["UB,N,2,3", "D,N,2,3"]


def test_what_is_not_resolved_is_not_collapsed():
    run = source(collapse_updates=True, index="pi_EMPTY")
    assert run.send("s", "p,1,1", "p,1,2") == ["P,N,1,1", "P,N,1,2"]


def test_a_pulse_holds_output_until_the_clock_reaches_a_multiple():
    run = source(pulse_us=10_000_000)
    assert run.send("s", "i,1,1") == []
    assert run.tick(9) == []
    assert run.send("s", "u,1,2", "i,2,2") == []
    assert run.tick(10) == ["I,N,1,2", "I,N,2,2"]
    assert run.send("s", "u,1,3", "u,1,4") == []
    assert run.tick(19.9) == []
    assert run.tick(35) == ["UB,N,1,4", "D,N,1,2"]
    assert run.tick(40) == [], "nothing was held"
    assert run.send("s", "d,1") == []
    assert run.tick(30) == [], "the clock does not go back"
    assert run.tick(50) == ["D,N,1,4"]


def split(expression: str, watch: str, initialize: str = "") -> Run:
    first = Initializer(text=initialize) if initialize else None
    windows = [CopyWindow(name=name) for name in ("zero", "one", "all")]
    top = SourceWindow(name="s", schema=SCHEMA, splitter=Splitter(expression=expression, initialize=first))
    return Run(graph(top, *windows, edges="s:zero@0 s:one@1 s:all"), watch)


def test_events_go_to_the_slot_that_an_expression_names():
    lines = ("i,1,10", "i,2,11", "i,3,20", "i,4", "i,5,-1", "i,6,7")
    assert split("n % 10", "zero").each("s", *lines) == ["I,N,1,10", "I,N,3,20"]
    assert split("n % 10", "one").each("s", *lines) == ["I,N,2,11"]
    assert len(split("n % 10", "all").each("s", *lines)) == 6


def test_an_update_that_changes_the_slot_is_a_delete_and_an_insert():
    lines = ("i,1,0", "u,1,10", "u,1,11", "u,1,21", "d,1")
    zero, one, everything = (split("n % 10", name).each("s", *lines) for name in ("zero", "one", "all"))
    assert zero == ["I,N,1,0", "UB,N,1,10", "D,N,1,0", "D,N,1,10"]
    assert one == ["I,N,1,11", "UB,N,1,21", "D,N,1,11", "D,N,1,21"]
    assert len(everything) == 8, "an edge that takes everything sees the updates"


def test_slots_in_turn_remember_where_a_row_went():
    turns = "turn = turn + 1; return turn % 2"
    zero, one = (
        split(turns, name, "integer turn; turn = 1").each("s", "i,1,1", "i,2,2", "u,1,3", "u,2,4", "d,1")
        for name in ("zero", "one")
    )
    # Rows 1 and 2 go to slots 0 and 1; their updates are turns 3 and 4: the same slots again.
    assert zero == ["I,N,1,1", "UB,N,1,3", "D,N,1,1", "D,N,1,3"]
    assert one == ["I,N,2,2", "UB,N,2,4", "D,N,2,2"]


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.sampled_from("psps"), st.integers(0, 4), st.integers(0, 9)), max_size=8), max_size=8)
)
def test_collapsed_or_split_the_rows_are_the_same_in_the_end(blocks):
    plain, collapsed, zero, one = source(), source(collapse_updates=True), split("n % 2", "zero"), split("n % 2", "one")
    rows: list[set[str]] = [set(), set(), set(), set()]
    for block in blocks:
        texts = [f"{opcode},{key},{n}" for opcode, key, n in block]
        for place, run in enumerate((plain, collapsed, zero, one)):
            for line in _old_first(run.send("s", *texts)):
                opcode, _, row = line.split(",", 2)
                (rows[place].remove if opcode == "D" else rows[place].add)(row)
        assert rows[0] == rows[1] == rows[2] | rows[3]
        assert all(int(row.split(",")[1]) % 2 == 0 for row in rows[2])


def _old_first(lines: list[str]) -> list[str]:
    """With the old half of each update before the new one."""
    ordered = list(lines)
    for place, line in enumerate(lines):
        if line.startswith("UB"):
            ordered[place : place + 2] = lines[place + 1], line
    return ordered
