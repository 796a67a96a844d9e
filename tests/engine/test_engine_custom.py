"""Windows of the user's own: rows, notices, ticks, state in pages, columns, and errors that say where."""

from __future__ import annotations

import custom_classes as c
import msgpack
import numpy as np
import pyarrow as pa
import pytest
from others_bench import SECOND, UB, Bench, D, I, N, gone, ins, node_of, upd

from lockstep.engine.columns.evaluator import Evaluator
from lockstep.engine.columns.runner import Span
from lockstep.engine.errors import ModelInvalid, UserCodeFailed
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event, InputBlock, Opcode
from lockstep.engine.model.builder import ProjectBuilder
from lockstep.engine.model.loading import parse_yaml, to_yaml
from lockstep.engine.model.plan import explain, make_plan
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import CustomWindow
from lockstep.engine.reference.custom import CustomOperator, check_classes
from lockstep.engine.reference.interpreter import Interpreter
from lockstep.engine.reference.operator import Moment
from lockstep.engine.runtime.output.side_streams import notice_trees
from lockstep.windows import Notice


def window(cls, schema=c.TOTALS, **more):
    name = cls if isinstance(cls, str) else cls.__name__
    return CustomWindow(name="mine", schema=schema, module="custom_classes", class_=name, version="1", **more)


def node(cls, schema=c.TOTALS, indexed=True, **more):
    return node_of(window(cls, schema, **more), schema, c.ORDERS, names=("Orders",), indexed=indexed)


def bench(cls, schema=c.TOTALS, **more):
    return Bench(lambda: CustomOperator(node(cls, schema, **more)))


def graph_of(cls, schema=c.TOTALS, **more):
    project = ProjectBuilder("p")
    project.query("q").source("Orders", c.ORDERS).custom("mine", schema, cls, **more)
    return compile_project(project.build())


def evaluate(graph, *blocks, first=1):
    events = [(number, list(block)) for number, block in enumerate(blocks, first)]
    batch = EventBatch.of(graph.nodes[0].schema, events)
    evaluator = Evaluator(graph, wanted=frozenset({"q/mine"}))
    return evaluator, evaluator.evaluate(Span(first, first + len(blocks) - 1, {"q/Orders": batch}))


# Rows


def test_a_row_replaces_the_one_with_its_key_and_a_delete_takes_it_away():
    lab = bench(c.Totals)
    assert lab.take(ins(1, "anna", 10.0)) == [Event(I, N, ("anna", 10.0))]
    assert lab.take(ins(2, "anna", 5.0)) == [Event(UB, N, ("anna", 15.0)), Event(D, N, ("anna", 10.0))]
    assert lab.take(upd((2, "anna", 7.0), (2, "anna", 5.0)))[0] == Event(UB, N, ("anna", 17.0))
    assert lab.take(gone(1, "anna", 10.0)) == [Event(D, N, ("anna", 17.0))]
    assert lab.bad == []


def test_what_can_not_be_resolved_is_a_bad_event_and_without_an_index_opcodes_stay():
    lab = bench(c.Totals)
    lab.take(gone(1, "nobody", 1.0))
    assert lab.reasons() == ["unknown-key"]
    open_ = bench(c.Totals, indexed=False)
    assert open_.take(ins(1, "anna", 1.0)) == [Event(Opcode.UPSERT, N, ("anna", 1.0))]


def test_a_change_names_its_source_its_fields_and_the_row_before():
    made = window(c.Sources, "n*:int64,what:string")
    inputs = ("a*:int64,b:string", "x*:string")
    lab = Bench(lambda: CustomOperator(node_of(made, "n*:int64,what:string", *inputs, names=("Left", "Right"))))
    (one,) = lab.take(ins(1, "p"), [])
    (two,) = lab.take(upd((1, "q"), (1, "p")), [])
    (three,) = lab.take([], gone("k"))
    assert one.values == (1, "Change('Left', I, {'a': 1, 'b': 'p'}) None")
    assert two.values == (2, "Change('Left', UB, {'a': 1, 'b': 'q'}) (1, 'p')")
    assert three.values == (3, "Change('Right', D, {'x': 'k'}) None")


def test_a_class_knows_its_block_and_the_models_clock():
    lab = bench(c.Places, "n*:int64,what:string", tick_us=SECOND)
    found = [*lab.take(ins(1, "a", 1.0)), *lab.tick(7 * SECOND), *lab.take(ins(2, "b", 1.0))]
    assert [event.values for event in found] == [
        (1, "block 1, time None"),
        (-2, "tick, time 7000000"),
        (2, "block 3, time 7000000"),
    ]


@pytest.mark.parametrize(
    ("gives", "words"),
    [
        ([{"customer": "a", "sum": 1.0}], "'sum', which is no field"),
        ([("a", 1)], "1 for total, which is a double"),
        ([("a",)], "a row of 1 fields, but the schema has 2"),
        ([("\ud800", 1.0)], "UTF-8 can't write"),
        ([7], "neither an event nor a row"),
        ({"customer": "a"}, "give back a list of rows"),
        ([c.Delete(7)], "neither an event nor a row"),
        ([Notice("", body=b"x")], "kind and key must be texts"),
        ([Notice("mail", body="text")], "body bytes"),
        ([Notice("mail", headers={"a": 1})], "headers texts by name"),
        ([Notice("mail", headers=[("a", "b")])], "headers texts by name"),
        ([Notice("mail", key="\udfff")], "kind and key must be texts"),
        ([Notice("mail", body=b"x" * (1 << 18))], "a notice of 262148 bytes"),
        ([Notice("mail", headers={str(n): "" for n in range(101)})], "a notice with 101 headers"),
        ([Notice("mail", headers={"x" * 513: ""})], "names of headers may have 512 bytes each"),
        ([Notice("mail", key="ü" * 257)], "key and names of headers may have 512 bytes each"),
        ([Notice("mail", id="")], "an id must be printable text of 1 to 512 bytes"),
        ([Notice("mail", id="ü" * 257)], "an id must be printable text of 1 to 512 bytes"),
        ([Notice("mail", id=7)], "an id must be printable text of 1 to 512 bytes"),
    ],
)
def test_what_is_no_answer_is_an_error_with_window_block_and_event(monkeypatch, gives, words):
    monkeypatch.setattr(c.Answers, "gives", gives)
    lab = bench(c.Answers)
    with pytest.raises(
        UserCodeFailed, match=r"(?s)custom_classes\.Answers of window cq/mine failed on block 1"
    ) as told:
        lab.take(ins(1, "anna", 2.5))
    assert words in str(told.value)
    assert "(1, 'anna', 2.5)" in str(told.value)


def test_an_error_in_the_class_names_the_place_and_state_that_can_not_be_kept_is_one():
    lab = bench(c.Failing)
    with pytest.raises(UserCodeFailed, match=r"block 1, event \(1, 'anna', 13.0\): ValueError: thirteen"):
        lab.take(ins(1, "anna", 13.0))
    lab.take(ins(1, "anna", 14.0))
    with pytest.raises(UserCodeFailed, match=r"its state holds \{1, 2\}, which can't be kept"):
        lab.operator.dump()


# Notices and ticks


def test_notices_carry_kind_key_headers_and_body():
    lab = bench(c.Totals, properties=(("limit", "12"),))
    lab.take(ins(1, "anna", 10.0))
    lab.take(ins(2, "anna", 5.0))
    (told,) = lab.notices
    assert (told.block, told.window, told.kind, told.key, told.body) == (2, "cq/mine", "mail", "anna", b"15.0")
    assert told.headers == (("to", "anna@example.org"),)


def test_ticks_come_at_the_multiples_of_the_windows_tick_and_say_when_the_engine_lags():
    lab = bench(c.Totals, tick_us=5 * SECOND)
    moments = []
    for seconds, lagging in ((1, False), (6, True), (7, False), (10, False), (31, True), (31, False)):
        moment = Moment(1, seconds * SECOND, True, False, lab.bad.append, lab.notices.append, lagging)
        lab.operator.evaluate([[]], moment)
        moments.append(len(lab.notices))
    assert moments == [0, 1, 1, 2, 3, 3]
    assert [told.body for told in lab.notices] == [b"6000000 1", b"10000000 0", b"31000000 1"]
    quiet = bench(c.Totals)
    quiet.tick(60 * SECOND)
    assert quiet.notices == []


def test_a_window_whose_ticks_are_lagging_knows_that_silence_says_nothing():
    graph = graph_of(c.Totals, tick="1 second")
    interpreter = Interpreter(graph)
    interpreter.evaluate(InputBlock(1, "Orders", tuple(ins(1, "anna", 1.0))))
    assert interpreter.evaluate(InputBlock(2, tick_us=2 * SECOND, lagging=True))["q/mine"] == []
    assert interpreter.evaluate(InputBlock(3, tick_us=3 * SECOND))["q/mine"] == [Event(D, N, ("anna", 1.0))]


# State


@pytest.mark.parametrize("cls", [c.Totals, c.Paged])
def test_state_is_kept_over_a_restart(cls):
    lab = bench(cls, tick_us=SECOND)
    lab.take(ins(1, "anna", 10.0) + ins(2, "carl", 1.0))
    lab.tick(10 * SECOND)
    lab.restart()
    assert lab.take(ins(3, "anna", 5.0))[0] == Event(UB, N, ("anna", 15.0))
    told = len(lab.notices)
    lab.tick(10 * SECOND)
    assert len(lab.notices) == told  # its tick was before the restart


def test_only_pages_that_changed_are_given_and_a_page_that_is_gone_is_told():
    operator = CustomOperator(node(c.Paged))
    moment = Moment(1, 0, False, False, print, print)
    operator.evaluate([ins(1, "anna", 1.0) + ins(2, "bob:/ü", 2.0)], moment)
    first = dict(operator.changed_pages())
    assert {name for name in first if name.startswith("page.")} == {"page.anna", "page.bob%3A%2F%C3%BC"}
    assert dict(operator.changed_pages()) == {}
    operator.evaluate([ins(3, "anna", 1.0)], moment)
    assert {name for name in dict(operator.changed_pages()) if name.startswith("page.")} == {"page.anna"}
    operator.evaluate([ins(4, "anna", -1.0)], moment)
    gone_pages = dict(operator.changed_pages())
    assert set(gone_pages.values()) == {None}
    pages = {name: page for name, page in (first | gone_pages).items() if page is not None}
    other = CustomOperator(node(c.Paged))
    other.load_pages(msgpack.unpackb(msgpack.packb(pages)))
    assert other.window.totals == {"bob:/ü": 2.0}
    assert other.rows.get(("bob:/ü",)) == ("bob:/ü", 2.0)
    assert len(list(other.rows.rows())) == 1


@pytest.mark.parametrize("name", ["", "x" * 501, 7, "\ud800"])
def test_a_page_needs_a_name(name):
    operator = CustomOperator(node(c.Paged))
    operator.window.mark(name)
    with pytest.raises(UserCodeFailed, match="marked a page"):
        list(operator.changed_pages())


def test_a_loaded_dump_takes_the_place_of_what_was_there():
    lab = bench(c.Totals)
    lab.take(ins(1, "anna", 10.0))
    kept = lab.operator.dump()
    lab.take(ins(2, "bob", 10.0))
    lab.operator.load(kept)
    assert lab.take(ins(3, "bob", 1.0)) == [Event(I, N, ("bob", 1.0))]


# The class and its version


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"module": "no_such_module"}, "the module no_such_module can't be loaded"),
        ({"class_": "Missing"}, "the module has no Missing"),
        ({"class_": "Plain"}, "is not a subclass of lockstep.windows.Window"),
        ({"class_": "VERSIONS"}, "is not a subclass of lockstep.windows.Window"),
        ({"version": "2"}, "has version '1' here, but the model needs version '2'"),
        ({"class_": "Unversioned"}, "has no version here, but the model needs version '1'"),
        ({"class_": "Unfinished"}, "has no on_event"),
    ],
)
def test_a_class_that_is_missing_or_other_is_a_fault_that_says_so(changed, words):
    made = {"module": "custom_classes", "class_": "Totals", "version": "1"} | changed
    project = ProjectBuilder("p")
    source = project.query("q").source("Orders", c.ORDERS)
    source.custom("mine", c.TOTALS, f"{made['module']}:{made['class_']}", version=made["version"])
    graph = compile_project(project.build())
    with pytest.raises(ModelInvalid, match="q/mine") as told:
        check_classes(graph)
    assert words in str(told.value)
    with pytest.raises(ModelInvalid):
        Interpreter(graph)


def test_all_classes_that_are_missing_are_named_at_once():
    project = ProjectBuilder("shop")
    source = project.query("q").source("Orders", c.ORDERS)
    for name, version in (("one", "2"), ("two", "1"), ("three", "3")):
        source.custom(name, c.TOTALS, "custom_classes:Totals", version=version)
    with pytest.raises(ModelInvalid, match=r"The model shop has 2 fault\(s\):\n  q/one: .*\n  q/three: "):
        check_classes(compile_project(project.build()))


def test_a_constructor_that_forgets_the_setup_is_told():
    with pytest.raises(UserCodeFailed, match="super"):
        CustomOperator(node(c.Careless))


def test_version_and_properties_are_part_of_the_fingerprint():
    made = {graph_of(c.Totals, **more).fingerprint for more in ({}, {"version": "2"}, {"properties": {"a": "b"}})}
    assert len(made) == 3


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"version": " "}, "names no version"),
        ({"tick": "10 milliseconds"}, "is shorter than the project's heartbeat"),
        ({"properties": (("a", "1"), ("a", "2"))}, "are called 'a'"),
    ],
)
def test_faults_of_the_model_are_told(more, words):
    with pytest.raises(ModelInvalid, match=words):
        graph_of(c.Totals, **more)


def test_the_three_words_of_a_model_in_yaml_and_what_explain_says():
    graph = graph_of(c.Totals, properties={"limit": "100"}, tick="5 seconds")
    text = to_yaml(graph.project)
    for line in ("class: Totals", "module: custom_classes", "tick: 5 seconds", "limit:"):
        assert line in text
    assert parse_yaml(text, "test") == graph.project
    (step,) = [each for each in explain(make_plan(graph)).data["windows"] if each["kind"] == "custom"]
    assert (step["clock"], step["members"], step["mode"]) == ("model clock", "state", "whole")


# Columns


def test_the_column_form_is_used_and_gives_the_rows_of_the_row_form():
    graph = graph_of(c.Doubled, "id*:int64,double:double")
    blocks = (ins(1, "a", 1.0), ins(2, "b", -1.0) + ins(3, "c", 3.0), ins(4, "d", 4.0))
    _, results = evaluate(graph, *blocks)
    interpreter = Interpreter(graph)
    wanted = [
        (number, events)
        for number, block in enumerate(blocks, 1)
        if (events := interpreter.evaluate(InputBlock(number, "Orders", tuple(block)))["q/mine"])
    ]
    assert results.outputs["q/mine"].blocks() == wanted


def test_the_column_form_may_give_notices_and_they_are_those_of_the_row_form():
    graph = graph_of(c.Telling, "id*:int64,double:double")
    blocks = (ins(1, "a", 11.0), ins(2, "b", 1.0) + ins(3, "c", 30.0), ins(4, "d", 40.0) + ins(5, "e", 50.0))
    _, results = evaluate(graph, *blocks)
    interpreter = Interpreter(graph)
    for number, block in enumerate(blocks, 1):
        interpreter.evaluate(InputBlock(number, "Orders", tuple(block)))
    assert results.notices == interpreter.notices
    assert [(told.block, told.id) for told in results.notices] == [
        (1, "order-1"),
        (2, "order-3"),
        (3, "order-4"),
        (3, "order-5"),
    ]
    trees = notice_trees("p/0", results.notices)
    assert [(tree["id"], tree["number"]) for tree in trees] == [
        ("order-1", 0),
        ("order-3", 0),
        ("order-4", 0),
        ("order-5", 1),
    ]


MAIL = Notice("mail")


@pytest.mark.parametrize(
    ("gives", "words"),
    [
        ((None,), "no pair of a record batch and a list of notices"),
        ((None, None), "no pair of a record batch and a list of notices"),
        ((None, [MAIL]), "give pairs of a block and a Notice"),
        ((None, [(1, "mail")]), "give pairs of a block and a Notice"),
        ((None, [(7, MAIL)]), "a notice of block 7, not in order or not of those that came"),
        ((None, [(2, MAIL), (1, MAIL)]), "a notice of block 1, not in order"),
        ((None, [(True, MAIL)]), "a notice of block True"),
        ((None, [(1, Notice("", body=b"x"))]), "kind and key must be texts"),
        ((None, [(1, Notice("mail", id="a\nb"))]), "an id must be printable text of 1 to 512 bytes"),
        (([], []), "on_batch gave a list"),
    ],
)
def test_notices_of_the_column_form_that_are_none(gives, words):
    c.Columns.gives = gives
    with pytest.raises(UserCodeFailed, match=words):
        evaluate(graph_of(c.Columns, "id*:int64,double:double"), ins(1, "a", 1.0), ins(2, "b", 1.0))


def test_a_null_in_a_key_is_refused_in_columns_as_in_rows():
    def give(batch):
        return pa.record_batch(
            [batch["_block"], pa.array([None, 2], pa.int64()), batch["amount"]], names=["_block", "id", "double"]
        )

    c.Columns.gives = staticmethod(give)
    for index in (None, "pi_EMPTY"):
        project = ProjectBuilder("p")
        query = project.query("q")
        query.source("Orders", c.ORDERS).custom("mine", "id*:int64,double:double", c.Columns).options(index=index)
        _, results = evaluate(compile_project(project.build()), ins(1, "a", 1.0), ins(2, "b", 2.0))
        assert [bad.reason for bad in results.bad] == ["null-key"]
        assert [block for block, _ in results.outputs["q/mine"].blocks()] == [2]


BLOCKS = pa.array([1, 2], pa.int64())
IDS, AMOUNTS = pa.array([1, 2], pa.int64()), pa.array([1.0, 2.0])
NAMES = ["_block", "id", "double"]


@pytest.mark.parametrize(
    ("gives", "words"),
    [
        ([1], "give a record batch of pyarrow"),
        (pa.record_batch([BLOCKS, IDS], names=["_block", "id"]), "without one column double"),
        (pa.record_batch([IDS, AMOUNTS], names=["id", "double"]), "without one column _block"),
        (pa.record_batch([BLOCKS, IDS, IDS], names=NAMES), "column double of type int64; it must be double"),
        (pa.record_batch([pa.array([2, 1]), IDS, AMOUNTS], names=NAMES), "not in order"),
        (pa.record_batch([pa.array([1, 3]), IDS, AMOUNTS], names=NAMES), "not of the blocks that came"),
        (pa.record_batch([pa.array(["1", "2"]), IDS, AMOUNTS], names=NAMES), "not in order"),
        (pa.record_batch([BLOCKS, IDS, AMOUNTS, pa.array([1, 9])], names=[*NAMES, "_opcode"]), "than opcodes"),
    ],
)
def test_a_column_form_that_gives_something_else_is_an_error(gives, words):
    c.Columns.gives = gives
    graph = graph_of(c.Columns, "id*:int64,double:double")
    with pytest.raises(UserCodeFailed, match=words):
        evaluate(graph, ins(1, "a", 1.0), ins(2, "b", 2.0))


def test_without_an_index_the_column_form_passes_opcodes_on():
    opcodes = np.array([int(Opcode.DELETE), int(Opcode.UPDATE_BLOCK)], np.uint8)
    c.Columns.gives = pa.record_batch([BLOCKS, IDS, AMOUNTS, pa.array(opcodes)], names=[*NAMES, "_opcode"])
    project = ProjectBuilder("p")
    query = project.query("q")
    query.source("Orders", c.ORDERS).custom("mine", "id*:int64,double:double", c.Columns).options(index="pi_EMPTY")
    _, results = evaluate(compile_project(project.build()), ins(1, "a", 1.0), ins(2, "b", 2.0))
    assert [event.opcode for event in results.outputs["q/mine"].events()] == [Opcode.DELETE, Opcode.UPDATE]
