"""Functional windows: the rows they make of inserts, updates and deletes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from others_bench import SECOND, UB, Bench, D, I, N, R, gone, ins, node_of, run, upd

from lockstep.engine.errors import BadExpression
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.windows import ContextProperty, EventLoop, FunctionalWindow
from lockstep.engine.reference.functional import FunctionalOperator

INPUT = "id*:int64,name:string,price:double,data:string"


def make(schema, *functions, indexed=True, inputs=(INPUT,), names=("source",), **options):
    window = FunctionalWindow(name="f", schema=Schema.parse(schema), functions=functions, **options)
    return lambda: FunctionalOperator(node_of(window, schema, *inputs, names=names, indexed=indexed))


PLAIN = ("id*:int64,name:string,price:int32,twice:double,late:string", ("twice", "product($price,2)"))


def test_fields_are_made_copied_or_null():
    # Given `twice` made by a function, name copied, price of another type and late from nowhere
    bench = Bench(make(*PLAIN))
    assert bench.take(ins(1, "a", 1.5, None)) == [Event(I, N, (1, "a", 1, 3.0, None))]
    assert bench.take([]) == []
    assert bench.tick(SECOND) == []


def test_functions_see_the_results_of_those_above():
    bench = Bench(make("id*:int64,a:string,b:string", ("x", "concat($name,'!')"), ("a", "$x"), ("b", "concat($a,$x)")))
    assert bench.take(ins(1, "n", None, None)) == [Event(I, N, (1, "n!", "n!n!"))]
    with pytest.raises(BadExpression, match="there is no field 'b'"):
        make("id*:int64,a:string", ("a", "$b"), ("b", "1"))()


@pytest.mark.parametrize("indexed", [True, False])
def test_updates_and_deletes_follow_the_input(indexed):
    bench = Bench(make(*PLAIN, indexed=indexed))
    bench.take(ins(1, "a", 1.5, None))
    new, old = (1, "b", 2, 4.0, None), (1, "a", 1, 3.0, None)
    assert bench.take(upd((1, "b", 2.0, None), (1, "a", 1.5, None), flags=R)) == [Event(UB, R, new), Event(D, R, old)]
    assert bench.take(gone(1, "b", 2.0, None, flags=R)) == [Event(D, R, new)]
    assert bench.bad == []


@pytest.mark.parametrize("indexed", [True, False])
def test_generate_decides_about_rows_and_what_was_made_is_taken_back(indexed):
    bench = Bench(make("id*:int64,price:double", generate="gt($price,10)", indexed=indexed))
    assert bench.take(ins(1, "a", 5.0, None)) == []
    # When the row begins to count it is inserted, when it no longer does it is deleted
    assert bench.take(upd((1, "a", 15.0, None), (1, "a", 5.0, None))) == [Event(I, N, (1, 15.0))]
    assert bench.take(upd((1, "a", 6.0, None), (1, "a", 15.0, None))) == [Event(D, N, (1, 15.0))]
    assert bench.take(gone(1, "a", 6.0, None)) == []
    assert bench.bad == []


@pytest.mark.parametrize("indexed", [True, False])
def test_a_changed_key_moves_the_row(indexed):
    bench = Bench(make("name*:string,id:int64", indexed=indexed))
    bench.take(ins(1, "a", None, None))
    assert bench.take(upd((1, "b", None, None), (1, "a", None, None))) == [Event(D, N, ("a", 1)), Event(I, N, ("b", 1))]


def test_the_event_counter_numbers_rows_and_deletes_find_them_again():
    bench = Bench(make("n*:int64,name:string", ("n", "eventCounter()")))
    assert bench.take(ins(7, "a", None, None) + ins(8, "b", None, None)) == [
        Event(I, N, (1, "a")),
        Event(I, N, (2, "b")),
    ]
    bench.restart()
    assert bench.take(gone(7, "a", None, None)) == [Event(D, N, (1, "a"))]
    assert bench.take(upd((8, "c", None, None), (8, "b", None, None))) == [
        Event(D, N, (2, "b")),
        Event(I, N, (3, "c")),
    ]


def test_an_input_without_an_index_may_insert_a_key_again():
    bench = Bench(make("n*:int64,name:string", ("n", "eventCounter()")))
    assert len(bench.each(ins(7, "a", None, None), ins(7, "b", None, None))) == 2
    assert bench.take(gone(7, "b", None, None)) == [Event(D, N, (1, "a")), Event(D, N, (2, "b"))]


def test_without_an_index_numbered_rows_are_only_inserted():
    bench = Bench(make("n*:int64,name:string", ("n", "eventCounter()"), indexed=False))
    bench.take(ins(7, "a", None, None))
    assert bench.take(upd((7, "b", None, None), (7, "a", None, None))) == [Event(I, N, (2, "b"))]
    assert bench.take(gone(7, "b", None, None)) == []
    numbered = Bench(make("name*:string", generate="gt(eventCounter(),0)", indexed=False))
    assert numbered.each(ins(7, "a", None, None), gone(7, "a", None, None)) == [Event(I, N, ("a",))]


def test_without_an_index_opcodes_pass_as_they_are():
    bench = Bench(make("id*:int64,name:string", indexed=False))
    for opcode in (Opcode.UPSERT, Opcode.SAFEDELETE, Opcode.UPDATE):
        flags = Flag.NORMAL | Flag.PARTIAL
        assert bench.take([Event(opcode, flags, (1, "a", None, None))]) == [Event(opcode, flags, (1, "a"))]


def test_produces_only_inserts():
    bench = Bench(make("n*:int64,name:string", ("n", "eventCounter()"), produces_only_inserts=True))
    assert bench.take(ins(1, "a", None, None) + upd((1, "b", None, None), (1, "a", None, None))) == [
        Event(I, N, (1, "a")),
        Event(I, N, (2, "b")),
    ]
    assert bench.take(gone(1, "b", None, None)) == []


def test_the_opcode_function_decides_by_the_key_of_the_row():
    bench = Bench(make("name*:string,price:double", opcode="if(isNull($price),'delete','upsert')"))
    assert bench.take(ins(1, "a", 1.0, None)) == [Event(I, N, ("a", 1.0))]
    assert bench.take(ins(2, "a", 2.0, None)) == [Event(UB, N, ("a", 2.0)), Event(D, N, ("a", 1.0))]
    assert bench.take(ins(3, "a", None, None)) == [Event(D, N, ("a", 2.0))]
    assert bench.take(ins(4, "a", None, None)) == []
    assert bench.reasons() == ["unknown-key"]
    odd = Bench(make("name*:string", opcode="'replace'"))
    assert odd.take(ins(1, "a", None, None)) == []
    assert odd.reasons() == ["bad-opcode"]


def test_rows_that_can_not_be_are_refused_and_counted():
    bench = Bench(make("name*:string,price:int32", ("price", "$price")))
    out = bench.take(ins(1, None, 1.0, None) + ins(2, "a", 1e12, None) + ins(3, "a", 1.0, None))
    assert out == [Event(I, N, ("a", None))]
    assert bench.reasons() == ["null-key", "overflow", "duplicate-key"]
    # The input row whose row was refused owns nothing, so its end takes nothing away
    assert bench.take(gone(3, "a", 1.0, None)) == []
    assert bench.take(gone(2, "a", 1e12, None)) == [Event(D, N, ("a", None))]


LOOPS = {
    "json": ("list", '{"list":[{"v":1},{"v":2}]}', "json($item,'v')"),
    "xml": ("//v", "<d><v>1</v><v>2</v></d>", "xpath($item,'text()')"),
    "regex": ("v=([0-9])", "v=1 v=2", "$item"),
}


def loop_window(kind, indexed=True, **options):
    item, text, function = LOOPS[kind]
    loop = EventLoop(
        name="loop",
        use="#doc" if kind != "regex" else "$data",
        item=item,
        kind=kind,
        data="item",
        group=1 if kind == "regex" else 0,
        functions=(("key", "string($id,'-',eventNumber())"), ("value", function)),
    )
    properties = (ContextProperty(name="doc", kind="string", text="$data"),)
    schema = "key*:string,value:int32,name:string"
    functions = (("key", "string($id)"), ("name", "'main'"))
    return make(schema, *functions, indexed=indexed, loops=(loop,), properties=properties, **options), text


@pytest.mark.parametrize("kind", sorted(LOOPS))
def test_loops_make_a_row_for_each_item_with_what_the_functions_of_the_window_made(kind):
    window, text = loop_window(kind)
    bench = Bench(window)
    assert bench.take(ins(1, "n", None, text)) == [
        Event(I, N, ("1", None, "main")),
        Event(I, N, ("1-2", 1, "main")),
        Event(I, N, ("1-3", 2, "main")),
    ]
    # When the input row leaves, all rows made of it leave
    assert [event.opcode for event in bench.take(gone(1, "n", None, text))] == [D, D, D]


@pytest.mark.parametrize("kind", sorted(LOOPS))
def test_a_loop_over_nothing_or_something_broken_makes_no_rows(kind):
    window, _ = loop_window(kind, generate="0")
    bench = Bench(window)
    assert bench.each(ins(1, "n", None, None), ins(2, "n", None, "no items here")) == []


def test_generate_is_about_the_row_itself_and_loops_run_anyway():
    window, text = loop_window("json", generate="0")
    assert [event.values for event in Bench(window).take(ins(1, "n", None, text))] == [
        ("1-1", 1, "main"),
        ("1-2", 2, "main"),
    ]


def test_an_update_changes_the_rows_of_items_that_stay():
    window, text = loop_window("json", generate="0")
    bench = Bench(window)
    bench.take(ins(1, "n", None, text))
    fewer = '{"list":[{"v":9}]}'
    assert bench.take(upd((1, "n", None, fewer), (1, "n", None, text))) == [
        Event(D, N, ("1-2", 2, "main")),
        Event(UB, N, ("1-1", 9, "main")),
        Event(D, N, ("1-1", 1, "main")),
    ]


def test_properties_of_lists_and_maps():
    properties = (
        ContextProperty(name="l", kind="list", text="$name", outer=";"),
        ContextProperty(name="s", kind="set", text="$name", outer=";"),
        ContextProperty(name="m", kind="map", text="$data", outer="&", inner="="),
    )
    functions = (("a", "listItem(#l,2)"), ("n", "listSize(#s)"), ("b", "mapValue(#m,'k')"))
    bench = Bench(make("id*:int64,a:string,n:int32,b:string", *functions, properties=properties))
    out = bench.take(ins(1, "x;y;x", None, "j=1&k=2"))
    assert out == [Event(I, N, (1, "x", 2, "2"))]


def test_several_inputs_and_their_names():
    functions = (("key", "concat(input(),$id,$other)"),)
    window = make("key*:string", *functions, inputs=("id*:int64", "other*:int64"), names=("one", "two"))
    assert Bench(window).take(ins(1), ins(2)) == [Event(I, N, ("one1",)), Event(I, N, ("two2",))]


def test_a_window_that_can_not_be_is_refused_when_the_model_is_loaded():
    with pytest.raises(BadExpression, match="no loop of kind"):
        make("id*:int64", loops=(EventLoop(name="l", use="$data", item="x", kind="csv"),))()
    with pytest.raises(BadExpression, match="regular expression"):
        make("id*:int64", loops=(EventLoop(name="l", use="$data", item="("),))()


ROWS = st.tuples(
    st.integers(1, 4),
    st.sampled_from(["a", "b"]),
    st.sampled_from([1.0, 20.0]),
    st.sampled_from([None, LOOPS["json"][1], '{"list":[{"v":3}]}', "{"]),
)


@st.composite
def histories(draw):
    """Inserts, updates and deletes of an indexed parent, in blocks, with ticks between them."""
    rows, steps = {}, []
    for row in draw(st.lists(ROWS, max_size=14)):
        old = rows.get(row[0])
        flags = draw(st.sampled_from([N, R]))
        if old is None:
            block, rows[row[0]] = ins(*row, flags=flags), row
        elif draw(st.booleans()):
            block, rows[row[0]] = upd(row, old, flags=flags), row
        else:
            block = gone(*rows.pop(row[0]), flags=flags)
        steps.append(block)
        if draw(st.booleans()):
            steps.append(len(steps) * SECOND)
    return steps


def windows():
    for indexed in (True, False):
        yield make("n*:int64,name:string", ("n", "eventCounter()"), indexed=indexed)
        yield make("id*:int64,price:double", generate="gt($price,10)", indexed=indexed)
        yield loop_window("json", indexed=indexed)[0]
        yield make("name*:string,id:int64", indexed=indexed)
        yield make("name*:string,id:int64", opcode="'upsert'", indexed=indexed)


WINDOWS = list(windows())


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(st.sampled_from(range(len(WINDOWS))), histories(), st.integers(0, 14))
def test_a_restart_changes_nothing(which, steps, cut):
    assert run(WINDOWS[which], steps, cut) == run(WINDOWS[which], steps)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(st.sampled_from(range(5)), histories())
def test_what_an_indexed_window_gives_is_a_table(which, steps):
    """Inserts are of new keys, deletes and updates name the row as it was."""
    rows = {}
    window = WINDOWS[which]
    key_of = window().node.schema.key_of
    for block in run(window, steps)[0]:
        waiting = None
        for event in block:
            key = key_of(event.values)
            if waiting is not None:
                assert (event.opcode, key, event.values) == (D, key_of(waiting), rows[key])
                rows[key], waiting = waiting, None
            elif event.opcode is UB:
                waiting = event.values
            elif event.opcode is I:
                assert key not in rows
                rows[key] = event.values
            else:
                assert rows.pop(key) == event.values


def test_random_and_guid_differ_from_event_to_event_and_are_the_same_wherever_they_are_made():
    schema = "id*:int64,name:string,price:double,late:string"
    functions = (("name", "guid()"), ("late", "guid()"), ("price", "random(10,20)"))
    first, second = Bench(make(schema, *functions)), Bench(make(schema, *functions))
    events = [ins(number, "a", 1.5, None) for number in range(50)]
    made = [[event.values for event in first.take(one)] for one in events]
    assert made == [[event.values for event in second.take(one)] for one in events]
    rows = [row for block in made for row in block]
    assert len({text for row in rows for text in (row[1], row[3])}) == 100
    assert all(10 <= row[2] < 20 for row in rows)
    assert len({row[2] for row in rows}) == 50


def test_prose_is_a_text_and_an_opcode_may_be_a_word():
    bench = Bench(make("id*:int64,name:string", ("name", "more than three payments - DECLINE"), opcode="upsert"))
    assert bench.take(ins(1, "a", 1.5, None)) == [Event(I, N, (1, "more than three payments - DECLINE"))]
    assert [event.opcode for event in bench.take(ins(1, "a", 1.5, None))] == [UB, D]


def test_prose_is_no_condition():
    with pytest.raises(BadExpression, match="'price' is neither a function nor a field"):
        make("id*:int64,name:string", generate="price gt 10")()


def test_times_in_the_form_of_the_c_locale_and_no_summer_time():
    names = ("name", "timeString(1280928600,'%c')"), ("price", "timeParse($name,'%c')"), ("late", "timeIsDst()")
    bench = Bench(make("id*:int64,name:string,price:double,late:string", *names))
    [made] = bench.take(ins(1, "a", 1.5, None))
    assert made.values == (1, "Wed Aug  4 13:30:00 2010", 1_280_928_600.0, "0")
