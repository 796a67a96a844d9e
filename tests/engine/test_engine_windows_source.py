"""Source windows: opcodes, keys, types, transactional blocks."""

from __future__ import annotations

import pytest
from engine_models import Run, chain

from lockstep.engine.errors import WindowNotFound
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.windows import CopyWindow, Retention, SourceWindow

SCHEMA = Schema.parse("id*:int32,name:string,x:double")


def source(**parts: object) -> Run:
    return Run(chain(SourceWindow(name="s", **{"schema": SCHEMA, **parts})), "s")


def test_insert_update_upsert_delete_and_safedelete_are_resolved():
    run = source()
    assert run.send("s", "i,1,a,1") == ["I,N,1,a,1.0"]
    assert run.send("s", "u,1,b,2") == ["UB,N,1,b,2.0", "D,N,1,a,1.0"]
    assert run.send("s", "p,1,c,3") == ["UB,N,1,c,3.0", "D,N,1,b,2.0"]
    assert run.send("s", "p,2,d,4") == ["I,N,2,d,4.0"]
    assert run.send("s", "d,1") == ["D,N,1,c,3.0"]
    assert run.send("s", "s,1") == []
    assert run.send("s", "s,2") == ["D,N,2,d,4.0"]
    assert run.reasons == []
    assert run.rows == 0


def test_a_partial_update_keeps_what_it_leaves_null():
    run = source()
    run.send("s", "i,1,a,1")
    assert run.send("s", "u.P,1,,2") == ["UB,N,1,a,2.0", "D,N,1,a,1.0"]
    assert run.send("s", "p.P,1,b") == ["UB,N,1,b,2.0", "D,N,1,a,2.0"]
    assert run.send("s", "p.P,2,c") == ["I,N,2,c,"]
    assert run.send("s", "u,2") == ["UB,N,2,,", "D,N,2,c,"], "only a partial update keeps old values"


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ("i,1,again,0", "duplicate-key"),
        ("u,7,a,1", "unknown-key"),
        ("d,7", "unknown-key"),
        ("i,,a,1", "null-key"),
        ("UB,1,a,1", "bad-opcode"),
    ],
)
def test_bad_events_are_counted_by_reason_and_change_nothing(event, reason):
    run = source()
    run.send("s", "i,1,a,1")
    assert run.send("s", event, "i,2,b,2") == ["I,N,2,b,2.0"], "the events around it are taken"
    assert run.reasons == [reason]
    assert run.interpreter.counts["q/s"].bad == {reason: 1}
    assert run.interpreter.counts["q/s"].events_in == 3
    assert run.interpreter.bad[0].block == 2


@pytest.mark.parametrize(
    "values", [(2**31, "a", 1.0), (1, 5, 1.0), (1, "a", 1), (True, "a", 1.0), (1, "a"), (1, "a", 1.0, 2)]
)
def test_values_of_a_wrong_type_are_refused(values):
    run = source()
    run.send("s", "i,9,good,1")
    assert run.block(window="s", events=(Event(Opcode.INSERT, Flag.NORMAL, values),)) == []
    assert run.reasons == ["wrong-type"]


def test_elements_of_arrays_have_types_too():
    run = source(schema=Schema.parse("id*:int32,a:array(i32)"))
    good, bad = (1, (1, None, 3)), (2, (1, 2**31))
    events = tuple(Event(Opcode.INSERT, Flag.NORMAL, values) for values in (good, bad, (1, (4,))))
    assert run.block(window="s", events=events) == ["I,N,1,(1, None, 3)"]
    assert run.reasons == ["wrong-type", "duplicate-key"]


def test_an_empty_block_gives_an_empty_block():
    run = source()
    assert run.send("s") == []
    assert run.block(window="s") == []


def test_a_transactional_block_with_one_bad_event_is_refused_whole():
    run = source()
    run.send("s", "i,1,a,1")
    assert run.send("s", "i,2,b,2", "u,7,x,1", "d,1", transactional=True) == []
    assert run.reasons == ["transaction", "unknown-key", "transaction"]
    assert run.rows == 1
    assert run.send("s", "d,1") == ["D,N,1,a,1.0"], "nothing of the block was applied"


def test_a_transactional_block_sees_its_own_changes():
    run = source()
    assert run.send("s", "i,1,a,1", "u,1,b,2", "d,1", "i,1,c,3", transactional=True) == [
        "I,N,1,a,1.0",
        "UB,N,1,b,2.0",
        "D,N,1,a,1.0",
        "D,N,1,b,2.0",
        "I,N,1,c,3.0",
    ]
    assert run.send("s", "d,1", "u,1,x,9", transactional=True) == []
    assert run.reasons == ["transaction", "unknown-key"]


def test_a_transactional_block_is_whole_even_if_retention_takes_a_row_from_under_it():
    run = source(retention=Retention(kind="bycount_sliding", limit=1))
    run.send("s", "i,1,a,1")
    assert run.send("s", "i,2,b,2", "u,1,c,3", transactional=True) == [
        "I,N,2,b,2.0",
        "D,R,1,a,1.0",
        "I,N,1,c,3.0",
        "D,R,2,b,2.0",
    ]
    assert run.reasons == []


def test_an_insert_only_source_takes_nothing_else():
    run = source(insert_only=True)
    assert run.each("s", "i,1,a,1", "u,1,b,2", "p,1,b,2", "d,1", "s,1", "i,1,c,1") == ["I,N,1,a,1.0"]
    assert run.reasons == ["bad-opcode"] * 4 + ["duplicate-key"]


@pytest.mark.parametrize("kind", ["int64", "string"])
def test_keys_are_made_by_counting(kind):
    run = source(insert_only=True, autogen_key=True, schema=Schema.parse(f"id*:{kind},x:double"))
    assert run.send("s", "i,,5", "i,77,6", "u,1,1") == ["I,N,0,5.0", "I,N,1,6.0"], "what stood there does not matter"
    assert run.send("s", "i,,7", "d,1", transactional=True) == []
    assert run.send("s", "i,,8") == ["I,N,2,8.0"], "events that were refused use no number"
    assert run.reasons == ["bad-opcode", "transaction", "bad-opcode"]


def test_a_source_without_index_passes_opcodes_on():
    run = source(index="pi_EMPTY")
    assert run.each("s", "u.P,1,,2", "i,1,a,1", "i,1,a,1", "d,5", "i,,a,1") == [
        "U,P,1,,2.0",
        "I,N,1,a,1.0",
        "I,N,1,a,1.0",
        "D,N,5,,",
    ]
    assert run.reasons == ["null-key"]


def test_a_copy_behind_a_source_without_index_resolves():
    run = Run(
        chain(SourceWindow(name="s", schema=SCHEMA, index="pi_EMPTY"), CopyWindow(name="c", index="pi_HASH")), "c"
    )
    assert run.each("s", "p,1,a,1", "p.P,1,,2", "s,9", "d,9") == ["I,N,1,a,1.0", "UB,N,1,a,2.0", "D,N,1,a,1.0"]
    assert run.reasons == ["unknown-key"]


def test_events_for_a_window_that_is_no_source_are_an_error():
    run = Run(chain(SourceWindow(name="s", schema=SCHEMA), CopyWindow(name="c")), "c")
    with pytest.raises(WindowNotFound, match="q/s"):
        run.block(window="c", events=())
    with pytest.raises(WindowNotFound, match="nowhere"):
        run.block(window="nowhere", events=())
    assert run.block(window="q/s") == []
