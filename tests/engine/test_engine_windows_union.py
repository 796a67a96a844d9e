"""Union windows, strict and not."""

from __future__ import annotations

from engine_models import SECOND, Run, graph

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.windows import CopyWindow, Retention, SourceWindow, UnionWindow

SCHEMA = Schema.parse("id*:int32,x:double")
SOURCES = (SourceWindow(name="a", schema=SCHEMA), SourceWindow(name="b", schema=SCHEMA))


def union(**parts: object) -> Run:
    return Run(graph(*SOURCES, UnionWindow(name="u", **parts), edges="a:u b:u"), "u")


def test_the_last_writer_has_the_row():
    run = union()
    assert run.send("a", "i,1,1") == ["I,N,1,1.0"]
    assert run.send("b", "i,1,2") == ["UB,N,1,2.0", "D,N,1,1.0"]
    assert run.send("a", "d,1") == [], "a's row is not the one that is there"
    assert run.send("b", "p,1,3") == ["UB,N,1,3.0", "D,N,1,2.0"]
    assert run.send("b", "d,1") == ["D,N,1,3.0"]
    assert run.reasons == []
    assert run.rows == 0


def test_an_update_takes_the_row_over():
    run = union()
    run.send("a", "i,1,1")
    run.send("b", "i,1,2")
    assert run.send("a", "u,1,5") == ["UB,N,1,5.0", "D,N,1,2.0"]
    assert run.send("b", "d,1") == []
    assert run.send("a", "d,1") == ["D,N,1,5.0"]
    run.send("b", "i,1,7")
    assert run.send("a", "i,1,8") == ["UB,N,1,8.0", "D,N,1,7.0"]


def test_strict_refuses_a_key_from_two_inputs():
    run = union(strict=True)
    assert run.send("a", "i,1,1") == ["I,N,1,1.0"]
    assert run.send("b", "i,1,2") == []
    assert run.send("b", "u,1,3") == []
    assert run.send("b", "d,1") == []
    assert run.reasons == ["strict-union"] * 3
    assert run.send("a", "u,1,4") == ["UB,N,1,4.0", "D,N,1,1.0"]
    assert run.send("a", "d,1") == ["D,N,1,4.0"]
    assert run.send("b", "i,1,5") == ["I,N,1,5.0"], "the key is free again"


def test_blocks_of_several_inputs_are_taken_in_the_order_of_edges():
    copies = (CopyWindow(name="c1"), CopyWindow(name="c2"))
    edges = "a:c1 a:c2 c2:u c1:u"
    run = Run(graph(SOURCES[0], *copies, UnionWindow(name="u", strict=True), edges=edges), "u")
    assert run.send("a", "i,1,1", "i,2,2") == ["I,N,1,1.0", "I,N,2,2.0"]
    assert [bad.event.values[0] for bad in run.interpreter.bad] == [1, 2], "c2 came first, c1 is refused"


def test_retention_of_one_input_leaves_the_other_ones_rows():
    schema = Schema.parse("id*:int32,time:date")
    retention = Retention(kind="bytime_sliding", limit=10 * SECOND, field="time")
    sources = (SourceWindow(name="a", schema=schema, retention=retention), SourceWindow(name="b", schema=schema))
    run = Run(graph(*sources, UnionWindow(name="u"), edges="a:u b:u"), "u")
    assert run.each("a", "i,1,100", "i,2,50") == ["I,N,1,100", "I,N,2,50"]
    assert run.send("b", "i,1,60") == ["UB,N,1,60", "D,N,1,100"]
    assert run.send("a", "i,3,110") == ["I,N,3,110", "D,R,2,50"]


def test_empty_and_transactional_blocks():
    run = union()
    assert run.send("a") == []
    assert run.send("a", "i,1,1", "d,9", transactional=True) == []
    assert run.send("a", "i,1,1", "i,2,1", transactional=True) == ["I,N,1,1.0", "I,N,2,1.0"]


def test_without_an_index_everything_passes():
    run = union(index="pi_EMPTY")
    run.send("a", "i,1,1")
    assert run.send("b", "i,1,2") == ["I,N,1,2.0"]
    assert run.send("b", "u,1,3") == ["UB,N,1,3.0", "D,N,1,2.0"]
