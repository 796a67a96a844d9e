"""What keeps a model from running: names, edges, schemas, and that everything is said at once."""

from __future__ import annotations

import re

import pytest
from validation_models import SECOND, chain, kafka, project, query, sliding, source, summing, told, trades_model

from lockstep.engine.errors import ModelInvalid
from lockstep.engine.events.event import Event, Flag, InputBlock, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.blockers import without_effect
from lockstep.engine.model.project import ConnectorEntry, ConnectorGroup, GroupEdge, Project
from lockstep.engine.model.validation import cautions, compile_project, faults, fingerprint
from lockstep.engine.model.windows import (
    CopyWindow,
    FilterWindow,
    JoinField,
    JoinWindow,
    Retention,
    Splitter,
    UnionWindow,
)
from lockstep.engine.model.xml_cursor import Notes
from lockstep.engine.model.xml_reader import Reading
from lockstep.engine.reference.interpreter import Interpreter


def copy(name="copy", **options):
    return CopyWindow(name=name, **options)


def test_the_trades_model_has_no_fault():
    assert faults(trades_model()) == []


def test_windows_are_ordered_parents_first_and_then_as_declared():
    # Given windows declared in a bad order, in two queries
    first = query(copy("c"), copy("b"), source("a"), name="one", links=["a b", "b c"])
    second = query(source("a"), copy("b"), name="two", links=["a b"])
    graph = compile_project(Project(name="p", queries=(first, second)))
    # Then each comes after its parents, and ties keep the order of declaration
    assert [node.path for node in graph.nodes] == ["one/a", "one/b", "one/c", "two/a", "two/b"]
    assert [node.index for node in graph.nodes] == [0, 1, 2, 3, 4]
    assert [parent.node for parent in graph.nodes[2].parents] == [1]


def test_ties_follow_the_order_of_declaration_not_of_the_edges():
    model = project(source("s"), copy("z"), copy("a"), links=["s a", "s z"])
    assert [node.window.name for node in compile_project(model).nodes] == ["s", "z", "a"]


def test_the_index_of_a_window_is_its_own_else_its_querys_else_the_projects():
    windows = (source("a"), source("b", index="pi_RBTREE"))
    model = Project(name="p", queries=(query(*windows, index="pi_EMPTY"),), index="pi_HASH")
    assert [node.is_indexed for node in compile_project(model).nodes] == [False, True]
    assert not compile_project(project(source(), index="pi_EMPTY")).nodes[0].is_indexed


def test_a_model_with_faults_is_refused_with_all_of_them():
    with pytest.raises(ModelInvalid, match=r"has 2 fault\(s\)") as caught:
        compile_project(project(source("a b"), copy("c")))
    assert "'a b'" in str(caught.value)
    assert "q/c" in str(caught.value)


def test_a_brace_in_a_name_does_not_spoil_the_message():
    with pytest.raises(ModelInvalid, match=re.escape("a{b}")):
        compile_project(project(source("a{b}")))


class TestFingerprint:
    def test_is_the_same_for_an_equal_model(self):
        assert fingerprint(trades_model()) == fingerprint(trades_model())
        assert len(fingerprint(trades_model())) == 32

    def test_leaves_out_what_changes_no_answer(self):
        plain = project(source())
        told_more = project(source(description="d", connectors=(kafka("k"),)), description="x", port=5)
        assert fingerprint(plain) == fingerprint(told_more)

    @pytest.mark.parametrize(
        "other",
        [
            project(source(insert_only=True)),
            project(source("other")),
            project(source(), heartbeat_us=5),
            project(source(), index="pi_RBTREE"),
            project(source(schema="ID*:int64")),
        ],
    )
    def test_differs_where_an_answer_may(self, other):
        assert fingerprint(other) != fingerprint(project(source()))


@pytest.mark.parametrize(
    ("model", "place", "problem", "remedy"),
    [
        (project(source(), name="my project"), "project my project", "'my project' is not allowed", "letters"),
        (project(source("a/b")), "q/a/b", "'a/b' is not allowed", "letters"),
        (project(source("a.b")), "q/a.b", "'a.b' is not allowed", "letters"),
        (Project(name="p", queries=(query(source(), name=""),)), "query ", "'' is not allowed", "letters"),
        (project(source("w" * 60), name="p" * 60), "q/www", "123 characters", "Shorten"),
        (project(source("a"), source("a")), "query q", "Two windows are called 'a'", "name of its own"),
        (
            Project(name="p", queries=(query(source()), query(source()))),
            "project p",
            "Two queries are called 'q'",
            "own",
        ),
        (Project(name="p", queries=()), "project p", "no continuous query", "Add one"),
        (project(), "query q", "no windows", "Add a source"),
        (project(source(), pubsub="always"), "project p", "pubsub is 'always'", "auto, manual or none"),
        (project(source(), index="pi_HUSH"), "project p", "'pi_HUSH'", "Did you mean 'pi_HASH'?"),
        (project(source(index="pi_TREE")), "q/src", "'pi_TREE'", "Did you mean 'pi_RBTREE'?"),
        (project(source(pubsub_index="x")), "q/src", "pubsub-index is 'x'", "pi_HASH"),
        (Project(name="p", queries=(query(source(), index="no"),)), "query q", "index is 'no'", "pi_EMPTY"),
        (project(source(), heartbeat_us=0), "project p", "heartbeat-interval is 0", "above 0"),
        (project(source(), threads=-1), "project p", "threads is -1", "above 0"),
        (project(source(pulse_us=0)), "q/src", "pulse-interval is 0", "above 0"),
    ],
)
def test_names_and_settings(model, place, problem, remedy):
    (fault,) = faults(model)
    assert fault.place.startswith(place)
    assert problem in fault.problem
    assert remedy in fault.remedy


@pytest.mark.parametrize(
    ("model", "place", "problem", "remedy"),
    [
        (project(source(), copy(), links=["src copy", "src cpoy"]), "query q", "'cpoy'", "Did you mean 'copy'?"),
        (project(source(), copy(), links=["src copy", "zz copy"]), "q", "'zz'", "There is: copy, src."),
        (project(source(), copy()), "q/copy", "no edge leads to it", "Add an edge"),
        (project(source("a"), source("b"), links=["a b"]), "q/b", "is a source window, but", "copy window"),
        (project(source("a"), source("b"), copy(), links=["a copy", "b copy"]), "q/copy", "2 edges", "union"),
        (project(source(), copy(), links=["src copy", "src copy"]), "query q", "there twice", "Remove one"),
        (project(source(), copy(), links=["src copy:0"]), "query q", "src has no splitter", "splitter expression"),
        (project(source(), copy(), links=["src copy:-2"]), "query q", "takes slot -2", "from 0"),
    ],
)
def test_edges(model, place, problem, remedy):
    found = faults(model)
    assert any(place in fault.place and problem in fault.problem and remedy in fault.remedy for fault in found), found


def test_a_cycle_is_named_along_its_edges():
    windows = (source("s"), UnionWindow(name="u"), copy("a"), copy("b"))
    model = project(*windows, links=["s u", "u a", "a b", "b u"])
    (fault,) = faults(model)
    assert (fault.place, "u -> a -> b -> u" in fault.problem) == ("query q", True)


def test_a_window_that_feeds_itself_is_a_cycle():
    assert "u -> u" in told(project(source("s"), UnionWindow(name="u"), links=["s u", "u u"]))


def test_two_cycles_are_both_named():
    windows = (source("s"), UnionWindow(name="a"), copy("b"), UnionWindow(name="c"), copy("d"))
    text = told(project(*windows, links=["s a", "a b", "b a", "b c", "c d", "d c"]))
    assert "a -> b -> a" in text
    assert "c -> d -> c" in text


@pytest.mark.parametrize(("schema", "problem"), [("", "has no fields"), ("a:int32,b:string", "has no key field")])
def test_a_schema_needs_a_key(schema, problem):
    (fault,) = faults(project(source(schema=schema)))
    assert (fault.place, problem in fault.problem) == ("q/src", True)


@pytest.mark.parametrize(
    ("schema", "insert_only", "problem"),
    [
        ("id*:int64", False, "is not insert-only"),
        ("id*:int32", True, "id*:int32"),
        ("id*:int64,other*:string", True, "id*:int64, other*:string"),
    ],
)
def test_a_source_that_makes_its_keys(schema, insert_only, problem):
    (fault,) = faults(project(source(schema=schema, insert_only=insert_only, autogen_key=True)))
    assert problem in fault.problem


@pytest.mark.parametrize("schema", ["id*:int64,x:double", "id*:string"])
def test_a_source_may_make_keys_that_are_int64_or_string(schema):
    assert faults(project(source(schema=schema, insert_only=True, autogen_key=True))) == []


@pytest.mark.parametrize(
    ("retention", "problem", "remedy"),
    [
        (Retention(kind="bytime_slide", limit=1), "'bytime_slide' is no kind", "Did you mean 'bytime_sliding'?"),
        (sliding(limit=0), "limit is 0", "above 0"),
        (sliding(field="tiem"), "'tiem' does not exist", "Did you mean 'time'?"),
        (sliding(field="price"), "'price' is a double, not a time", "time"),
        (sliding(kind="bytime_jumping_lookback"), "no unit", "above 0"),
        (sliding(kind="bytime_jumping_lookback", unit_us=0), "no unit", "above 0"),
        (sliding(unit_us=SECOND), "has a unit", "take it away"),
        (Retention(kind="bycount_sliding", limit=3, field="time"), "counts rows", "Take the field away"),
    ],
)
@pytest.mark.parametrize("where", ["source", "copy"])
def test_retention(retention, problem, remedy, where):
    model = project(source(retention=retention)) if where == "source" else chain(source(), copy(retention=retention))
    (fault,) = faults(model)
    assert fault.place == ("q/src retention" if where == "source" else "q/copy retention")
    assert problem in fault.problem
    assert remedy in fault.remedy


def test_retention_needs_an_index():
    (fault,) = faults(chain(source(), copy(index="pi_EMPTY", retention=sliding())))
    assert "keeps no rows" in fault.problem


def test_unions_need_inputs_that_look_the_same():
    windows = (source("a", "id*:int32,x:double"), source("b", "id*:int32,x:int64"), UnionWindow(name="u"))
    (fault,) = faults(project(*windows, links=["a u", "b u"]))
    assert fault.place == "q/u"
    assert "a has x:double, b has x:int64" in fault.problem


def test_a_union_of_equal_inputs_is_sound_and_looks_like_them():
    model = project(source("a"), source("b"), UnionWindow(name="u"), links=["a u", "b u"])
    assert compile_project(model).find("u").schema == compile_project(model).find("a").schema


def test_what_follows_from_another_fault_is_not_reported():
    # Given a join whose fields are unknown, and windows below it that use them
    broken = JoinWindow(name="j", conditions=(("id", "id"),), fields=(JoinField(name="x", source="l_nothing"),))
    windows = (source("a", "id*:int32"), source("b", "id*:int32"), broken)
    behind = (FilterWindow(name="f", expression="y > 1"), summing("g"))
    model = project(*windows, *behind, links=["a j", "b j", "j f", "f g"])
    # Then only the join's own faults are told
    assert {fault.place for fault in faults(model)} == {"q/j field x"}


def test_a_splitter_must_give_a_whole_number():
    model = project(source(splitter=Splitter(expression="price")), copy(), links=["src copy:0"])
    (fault,) = faults(model)
    assert fault.place == "q/src splitter"
    assert "gives a double" in fault.problem
    good = project(source(splitter=Splitter(expression="ID % 2")), copy(), links=["src copy:1"])
    assert faults(good) == []


def test_a_source_without_an_index_takes_inserts_only_if_an_aggregate_must_know_what_is_replaced():
    model = chain(source(index="pi_EMPTY"), FilterWindow(name="f", expression="price > 1"), summing("sum"))
    assert compile_project(model).nodes[0].window.insert_only
    [told] = without_effect(Reading(model, Notes()))
    assert ("q/src" in told.what, "q/sum" in told.why) == (True, True)
    for free in (chain(source(index="pi_EMPTY"), copy(), summing("sum")), chain(source(), summing("sum"))):
        assert not compile_project(free).nodes[0].window.insert_only
        assert without_effect(Reading(free, Notes())) == []


class TestConnectorGroups:
    def model(self, *entries, links=()):
        groups = (ConnectorGroup(name="g", entries=entries), ConnectorGroup(name="h", entries=()))
        made = tuple(GroupEdge(source=a, target=b) for a, b in links)
        return project(source(connectors=(kafka("in"),)), connector_groups=groups, connector_edges=made)

    def test_entries_name_connectors_and_states(self):
        assert faults(self.model(ConnectorEntry(connector="q/src/in", state="running"))) == []
        text = told(self.model(ConnectorEntry(connector="q/src/inn", state="ready")))
        assert "Did you mean 'q/src/in'?" in text
        assert "started, running or finished" in text

    def test_edges_name_groups_and_make_no_circle(self):
        assert faults(self.model(links=[("g", "h")])) == []
        assert "'x', which does not exist" in told(self.model(links=[("g", "x")]))
        assert "g -> h -> g" in told(self.model(links=[("g", "h"), ("h", "g")]))


def test_a_model_with_many_faults_lists_them_all():
    # Given a model in which nearly everything is wrong
    windows = (
        source("src", "symbol:string,price:double"),
        source("auto", "id*:int32", autogen_key=True, insert_only=True),
        copy("late", retention=sliding(field="price", limit=-1)),
        FilterWindow(name="f", expression="prise > 1"),
        summing("sum", "simbol*:string"),
        copy("lost"),
        copy("bad name"),
        UnionWindow(name="u"),
    )
    links = ["src late", "src f", "late sum", "src bad", "u u", "src u"]
    model = project(*windows, links=links, heartbeat_us=0, pubsub="yes")
    # When it is checked
    text = told(model)
    # Then every fault is there, each with its place
    for words in (
        "q/bad name: The window name",
        "project p: pubsub is 'yes'",
        "project p: heartbeat-interval is 0",
        "query q: The edge src -> bad names window 'bad'",
        "q/lost: It is a copy window, but no edge",
        "q/bad name: It is a copy window, but no edge",
        "u -> u",
        "q/src: Its schema has no key field",
        "q/auto: It makes its keys itself",
        "q/late retention: Its limit is -1",
        "q/late retention: Its field 'price' is a double",
        "q/f expression: The expression 'prise > 1' is not valid",
        "q/sum field simbol: The group by field 'simbol' does not exist in the input. Did you mean 'symbol'?",
    ):
        assert words in text, words
    assert len(faults(model)) == 13


def test_schemas_of_copies_and_filters_are_their_parents():
    graph = compile_project(chain(source(), copy(), FilterWindow(name="f", expression="price > 1.5")))
    assert {str(node.schema) for node in graph.nodes} == {str(Schema.parse(str(graph.nodes[0].schema)))}


def test_a_window_that_no_edge_leads_to_runs_and_gives_nothing_if_its_rows_are_known():
    # Given an aggregate without an input, and a copy of it
    model = project(source("src"), summing("sum", "symbol*:string"), copy("late"), links=["sum late"])
    # When it is checked, there is no fault, but a caution that names it
    assert faults(model) == []
    (caution,) = cautions(model)
    assert (caution.place, "no edge leads to it" in caution.problem) == ("q/sum", True)
    assert "Add an edge" in caution.remedy
    # Then it is in the graph with its rows, and nothing comes out of it
    graph = compile_project(model)
    idle = graph.find("sum")
    assert (idle.window.kind, idle.schema, idle.parents) == ("idle", graph.find("late").schema, ())
    event = Event(Opcode.INSERT, Flag.NORMAL, (1, *[None] * (len(graph.find("src").schema) - 1)))
    outputs = Interpreter(graph).evaluate(InputBlock(1, "src", (event,), tick_us=1_000_000))
    assert (len(outputs["q/src"]), outputs["q/sum"], outputs["q/late"]) == (1, [], [])


def test_a_model_with_all_its_edges_has_no_caution():
    assert cautions(trades_model()) == []


@pytest.mark.parametrize("links", [[], ["src j"]])
def test_a_join_needs_both_inputs(links):
    window = JoinWindow(name="j", conditions=(("id", "id"),), fields=())
    assert "q/j: It is a join, but" in told(project(source(), window, links=links))
