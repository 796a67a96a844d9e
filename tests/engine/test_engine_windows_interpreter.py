"""The interpreter: order, counts, state that can be kept and gone on from."""

from __future__ import annotations

import pytest
from engine_models import SECOND, Run, chain, graph, in_one_go, read, with_a_break
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.errors import ModelMismatch
from lockstep.engine.events.event import Event, Flag, InputBlock, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.windows import (
    AggregateWindow,
    ComputeWindow,
    CopyWindow,
    FieldPlug,
    FilterWindow,
    Initializer,
    JoinField,
    JoinWindow,
    Retention,
    SourceWindow,
    Splitter,
    UnionWindow,
)
from lockstep.engine.reference.interpreter import Interpreter
from lockstep.engine.reference.operator import WindowCounts

SCHEMA = Schema.parse("id*:int32,g:string,n:int64,x:double,time:stamp,a:array(dbl)")
SOURCE = SourceWindow(name="s", schema=SCHEMA)
COUNTER = Initializer(text="integer v; v = 0")
PLUG = FieldPlug(module="engine_plugs", function="whole")
CALLS = (
    "ESP_aSum(n)",
    "ESP_aSum(x)",
    "ESP_aStd(x)",
    "ESP_aWAve(n, x)",
    "ESP_aMin(x)",
    "ESP_aMode(n)",
    "ESP_aMedian(x)",
    "ESP_aCountDistinct(x)",
    "ESP_aFirst(g)",
    "ESP_aLag(x, 2)",
    "ESP_aCat(n)",
    "ESP_aSumTimed(n, 3)",
    "ESP_aAve(n) + ESP_aMax(x)",
)
AGGREGATE = Schema.parse(
    "g*:string,a:int64,b:double,c:double,d:double,e:double,f:int64,h:double,i:int64,j:string,k:double,l:string,m:int64,"
    "n:double,p:double"
)


def kept(kind: str, limit: int, field: str | None = None, unit_us: int | None = None) -> CopyWindow:
    retention = Retention(kind=kind, limit=limit, field=field, unit_us=unit_us)
    return CopyWindow(name=f"{kind}{'F' if field else ''}", retention=retention)


COPIES = (
    kept("bycount_sliding", 3),
    kept("bycount_jumping", 3),
    kept("bytime_sliding", 4 * SECOND),
    kept("bytime_sliding", 4 * SECOND, "time"),
    kept("bytime_jumping", 4 * SECOND),
    kept("bytime_jumping", 4 * SECOND, "time"),
    kept("bytime_jumping_lookback", 4 * SECOND, None, 3 * SECOND),
    kept("bytime_jumping_lookback", 4 * SECOND, "time", 3 * SECOND),
)


def everything() -> Graph:
    """A model with every window of this package, in every form that keeps state."""
    windows = [
        SOURCE,
        SourceWindow(name="names", schema=Schema.parse("g*:string,title:string")),
        SourceWindow(name="auto", schema=Schema.parse("id*:int64,x:double"), insert_only=True, autogen_key=True),
        *COPIES,
        AggregateWindow(name="agg", schema=AGGREGATE, fields=(*CALLS, PLUG)),
        AggregateWindow(name="byx", schema=Schema.parse("x*:double,c:int64"), fields=("ESP_aCount()",)),
        FilterWindow(name="filter", expression="v = v + 1; return v % 3 != 0", initialize=COUNTER),
        ComputeWindow(
            name="compute",
            schema=Schema.parse("id*:int32,y:int64"),
            fields=("v = v + n; return v",),
            initialize=COUNTER,
        ),
        UnionWindow(name="union", pulse_us=2 * SECOND),
        UnionWindow(name="strict", strict=True, collapse_updates=True),
        _join("left", "leftouter"),
        _join("stale", "leftouter", no_regenerates=True),
        _join("inner", "inner"),
        CopyWindow(name="top", splitter=Splitter(expression="v = v + 1; return v % 2", initialize=COUNTER)),
        CopyWindow(name="slot", output_insert_only=True),
    ]
    behind = " ".join(f"s:{copy.name}" for copy in COPIES)
    joins = " ".join(f"bytime_slidingF:{name} names:{name}" for name in ("left", "stale", "inner"))
    unions = " ".join(f"bycount_sliding:{name} bytime_slidingF:{name}" for name in ("union", "strict"))
    return graph(
        *windows, edges=f"{behind} {joins} {unions} bytime_slidingF:agg s:byx s:filter s:compute s:top top:slot@1"
    )


def _join(name: str, kind: str, **parts: object) -> JoinWindow:
    fields = (
        JoinField(name="id", source="l_id"),
        JoinField(name="x", source="l_x"),
        JoinField(name="t", source="r_title"),
    )
    return JoinWindow(name=name, type=kind, conditions=(("g", "g"),), fields=fields, **parts)


doubles = st.none() | st.sampled_from([0.0, -0.0, 0.1, 1.5, -7.25, 1e300, float("nan"), float("inf")])
groups = st.none() | st.sampled_from(["a", "b", "ä"])
flags = st.sampled_from([Flag.NORMAL, Flag.NORMAL, Flag.NORMAL, Flag.PARTIAL, Flag.NORMAL | Flag.PARTIAL])
opcodes = st.sampled_from(
    [Opcode.INSERT, Opcode.UPSERT, Opcode.UPSERT, Opcode.UPDATE, Opcode.DELETE, Opcode.SAFEDELETE]
)
rows = st.tuples(
    st.integers(0, 8) | st.none(),
    groups,
    st.none() | st.sampled_from([0, 1, 5, -3, 2**62, -(2**63)]),
    doubles,
    st.none() | st.integers(0, 20).map(lambda second: second * SECOND),
    st.none() | st.lists(st.sampled_from([0.5, None]), max_size=2).map(tuple),
)
names = st.tuples(groups, st.sampled_from(["A", "B"]))
numbered = st.tuples(st.none(), doubles)


def blocks_of(window: str, values: st.SearchStrategy[tuple[object, ...]]) -> st.SearchStrategy[InputBlock]:
    events = st.lists(st.builds(Event, opcodes, flags, values), max_size=5).map(tuple)
    return st.builds(InputBlock, st.just(0), st.just(window), events, st.booleans())


ticks = st.integers(0, 20).map(lambda second: InputBlock(0, tick_us=second * SECOND))
blocks = st.lists(
    blocks_of("s", rows) | blocks_of("s", rows) | blocks_of("names", names) | blocks_of("auto", numbered) | ticks,
    max_size=25,
).map(lambda found: [InputBlock(n, b.window, b.events, b.transactional, b.tick_us) for n, b in enumerate(found, 1)])


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(blocks, st.data())
def test_a_dump_in_the_middle_gives_the_same_rest(found, data):
    model = everything()
    at = data.draw(st.integers(0, len(found)))
    assert with_a_break(model, found, at) == in_one_go(model, found)


@pytest.mark.parametrize("at", [1, 5, 9])
def test_sums_and_deviations_go_on_from_a_dump(at):
    texts = ["p,1,a,1,100.1", "p,2,a,2,101.7", "p,3,b,3,99.9", "p,4,a,4,105.3", "p,2,a,7,98.2", "s,1", "p,5,a,5,100.6"]
    events = [read(SCHEMA, text) for text in [*texts, "p,3,a,1,97.5", "p,6,a,6,102.4", "s,4", "p,7,b,1,1.25"]]
    found = [InputBlock(number, "s", (event,)) for number, event in enumerate(events, 1)]
    model = everything()
    assert with_a_break(model, found, at) == in_one_go(model, found)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(blocks)
def test_only_inserts_deletes_and_update_pairs_leave_a_window_and_rows_add_up(found):
    interpreter = Interpreter(everything())
    there: dict[str, set[object]] = {}
    for block in found:
        for path, events in interpreter.evaluate(block).items():
            if path == "q/slot":
                continue
            waiting = None
            for opcode, _, values in events:
                node = next(node for node in interpreter.graph.nodes if node.path == path)
                key = repr([values[place] for place in node.schema.keys]).replace("-0.0", "0.0")
                keys = there.setdefault(path, set())
                if waiting is not None:
                    assert opcode is Opcode.DELETE
                    assert key == waiting
                    waiting = None
                elif opcode is Opcode.UPDATE_BLOCK:
                    assert key in keys or path == "q/filter"
                    waiting = key
                elif opcode is Opcode.INSERT:
                    assert key not in keys or path == "q/filter"
                    keys.add(key)
                else:
                    assert opcode is Opcode.DELETE
                    assert key in keys or path == "q/filter"
                    keys.discard(key)
            assert waiting is None
    for path, counts in interpreter.counts.items():
        if path not in ("q/filter", "q/slot", "q/union"):
            assert counts.rows == len(there.get(path, ())), path


def test_parents_come_before_children_and_each_window_speaks_once_a_block():
    run = Run(chain(SOURCE, CopyWindow(name="c"), FilterWindow(name="f", expression="n > 1")), "f")
    outputs = run.interpreter.evaluate(
        InputBlock(1, "s", (Event(Opcode.INSERT, Flag.NORMAL, (1, "a", 2, None, None, None)),))
    )
    assert list(outputs) == ["q/s", "q/c", "q/f"]
    assert [len(events) for events in outputs.values()] == [1, 1, 1]
    assert run.interpreter.counts["q/f"] == WindowCounts(rows=1, events_in=1, events_out=1)


def test_counts_of_shards_are_added():
    first, second = WindowCounts(1, 2, 3, {"overflow": 1}), WindowCounts(10, 20, 30, {"overflow": 2, "null-key": 1})
    assert first + second == WindowCounts(11, 22, 33, {"overflow": 3, "null-key": 1})


def test_bad_events_go_to_the_callback():
    found = []
    interpreter = Interpreter(chain(SOURCE), on_bad=found.append)
    interpreter.evaluate(InputBlock(3, "s", (Event(Opcode.DELETE, Flag.NORMAL, (1, None, None, None, None, None)),)))
    assert [(bad.block, bad.window, bad.reason) for bad in found] == [(3, "q/s", "unknown-key")]
    assert interpreter.bad == []


def test_the_state_of_another_model_is_refused():
    first, second = Interpreter(chain(SOURCE)), Interpreter(chain(SOURCE, CopyWindow(name="c")))
    with pytest.raises(ModelMismatch):
        second.load(first.dump())


def test_a_tick_below_the_clock_leaves_it():
    interpreter = Interpreter(chain(SOURCE))
    for time in (5, 9, 3):
        interpreter.evaluate(InputBlock(1, tick_us=time))
    assert interpreter.clock_us == 9
