from __future__ import annotations

import re
from datetime import timedelta

import pytest

from lockstep.engine.errors import BadSchema
from lockstep.engine.events.schema import FieldType, Schema
from lockstep.engine.model import windows as w
from lockstep.engine.model.builder import (
    ProjectBuilder,
    email,
    jumping,
    jumping_rows,
    lookback,
    pattern,
    plug,
    sliding,
    sliding_rows,
)
from lockstep.engine.model.project import ConnectorEntry, ConnectorGroup, Edge, GroupEdge, Project
from lockstep.engine.model.validation import faults
from lockstep.errors import BadArgument

TRADE = "ID*:int64,symbol:string,quantity:int32,price:double,cost:money,time:stamp"
SECOND = 1_000_000


@pytest.fixture
def project():
    return ProjectBuilder("p")


@pytest.fixture
def query(project):
    return project.query("q")


@pytest.fixture
def trades(query):
    return query.source("Trades", TRADE, insert_only=True)


def median_of(rows):
    return None


def test_a_chain_of_calls_is_a_graph(project, query, trades):
    # Given a source, a copy and an aggregate put below each other
    last = trades.copy("Last", retain=sliding("5 minutes", field="time"))
    last.aggregate("Prices", by="symbol", low="ESP_aMin(price)")
    # When the project is built
    built = project.build()
    # Then windows and edges stand in the order of the calls, and the model is sound
    assert isinstance(built, Project)
    assert [window.name for window in built.queries[0].windows] == ["Trades", "Last", "Prices"]
    assert built.queries[0].edges == (Edge(source="Trades", target="Last"), Edge(source="Last", target="Prices"))
    assert faults(built) == []


def test_retention_is_written_in_words():
    assert sliding("5 minutes") == w.Retention(kind="bytime_sliding", limit=300 * SECOND)
    assert jumping(60, field="t") == w.Retention(kind="bytime_jumping", limit=60 * SECOND, field="t")
    assert lookback("1 day", unit=timedelta(hours=1)) == w.Retention(
        kind="bytime_jumping_lookback", limit=86_400 * SECOND, unit_us=3600 * SECOND
    )
    assert sliding_rows(7) == w.Retention(kind="bycount_sliding", limit=7)
    assert jumping_rows(7) == w.Retention(kind="bycount_jumping", limit=7)


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("ESP_aCount()", "int64"),
        ("ESP_aCountDistinct(symbol)", "int64"),
        ("ESP_aSum(quantity)", "int64"),
        ("ESP_aSum(price)", "double"),
        ("ESP_aAve(quantity)", "double"),
        ("ESP_aWAve(quantity,price)", "double"),
        ("ESP_aStd(price)", "double"),
        ("ESP_aMin(quantity)", "int32"),
        ("ESP_aMax(cost)", "money"),
        ("ESP_aFirst(symbol)", "string"),
        (" esp_alast( time ) ", "stamp"),
        ("ESP_aLag(price, 2)", "double"),
        ("ESP_aCat(symbol)", "string"),
    ],
)
def test_types_are_told_from_simple_expressions(trades, expression, kind):
    window = trades.aggregate("A", by="symbol", it=expression).window
    assert window.schema == Schema.parse(f"symbol*:string,it:{kind}")
    assert window.fields == (expression,)


@pytest.mark.parametrize("expression", ["ESP_aMin(price * 2)", "ESP_aSum(a)+1", "ESP_aMax(nothing)", "ESP_aFoo(price)"])
def test_types_that_can_not_be_told_must_be_given(trades, expression):
    with pytest.raises(BadArgument, match=rf"the type of 'it' can't be told.*it=\({re.escape(repr(expression))}, "):
        trades.aggregate("A", by="symbol", it=expression)
    assert trades.aggregate("B", by="symbol", it=(expression, "double")).window.fields == (expression,)


def test_fields_may_have_the_names_of_arguments(trades):
    window = trades.aggregate("A", by="symbol", fields={"by": "ESP_aCount()"}, name="ESP_aMin(price)").window
    assert window.schema == Schema.parse("symbol*:string,by:int64,name:double")


def test_a_schema_may_be_given_whole(trades):
    schema = "symbol*:string,n:int32,low:double"
    by_name = trades.aggregate("A", schema=schema, low="ESP_aMin(price)", n="ESP_aCount()").window
    in_order = trades.aggregate("B", schema=schema, fields=["ESP_aCount()", "ESP_aMin(price)"]).window
    assert by_name.fields == in_order.fields == ("ESP_aCount()", "ESP_aMin(price)")
    with pytest.raises(BadSchema, match="made by name"):
        trades.aggregate("C", schema=schema, low="ESP_aMin(price)")
    with pytest.raises(BadSchema, match="needs a schema"):
        trades.aggregate("D", by="symbol", fields=["ESP_aCount()"])


def test_python_functions_make_fields_of_aggregates(trades):
    window = trades.aggregate("A", by="symbol", middle=(plug(median_of, "price"), "double")).window
    assert window.fields == (w.FieldPlug(module=__name__, function="median_of", fields=("price",)),)
    assert plug("my.code:f") == w.FieldPlug(module="my.code", function="f")
    with pytest.raises(ValueError, match="must be MODULE:NAME"):
        plug("f")


def test_a_compute_window_copies_the_key(trades):
    window = trades.compute("C", symbol="symbol", value=("price * quantity", "double")).window
    assert window.schema == Schema.parse("ID*:int64,symbol:string,value:double")
    assert window.fields == ("symbol", "price * quantity")
    with pytest.raises(BadSchema, match="no plugs"):
        trades.compute("D", x=(plug("a:b"), "double"))


def test_types_are_known_behind_windows_without_a_schema_of_their_own(query, trades):
    other = query.source("Other", TRADE)
    both = trades.copy("Copy").filter("Some", "quantity > 1").union("Both", other)
    assert both.schema == Schema.parse(TRADE)
    assert both.aggregate("A", by="symbol", low="ESP_aMin(quantity)").schema == Schema.parse("symbol*:string,low:int32")


def test_a_join_names_its_fields_by_side(query, trades):
    names = query.source("Names", "symbol*:string,company:string")
    window = trades.join(
        "J", names, on="symbol", select="l_ID l_price", name="r_company", double=("l_price * 2", "double")
    ).window
    assert window.conditions == (("symbol", "symbol"),)
    assert window.fields == (
        w.JoinField(name="ID", source="l_ID"),
        w.JoinField(name="price", source="l_price"),
        w.JoinField(name="name", source="r_company"),
        w.JoinField(name="double", expression="l_price * 2", type=FieldType.DOUBLE),
    )


def test_slots_and_roles_belong_to_the_edge(project, query, trades):
    trades.options(splitter="quantity % 2")
    trades.slot(1).copy("Odd")
    trades.slot(0).role("data").copy("Even")
    query.edge(trades.slot(1), "Even")
    query.edge("Odd", "Even", slot=3, role="x")
    built = project.build().queries[0]
    assert built.windows[0].splitter == w.Splitter(expression="quantity % 2")
    assert [(edge.source, edge.target, edge.slot, edge.role) for edge in built.edges] == [
        ("Trades", "Odd", 1, None),
        ("Trades", "Even", 0, "data"),
        ("Trades", "Even", 1, None),
        ("Odd", "Even", 3, "x"),
    ]


def test_options_change_only_what_is_given(trades):
    trades.options(index="pi_RBTREE", pulse="2 seconds").options(pubsub=False, description="All trades")
    trades.connector("fs", "pub", direction="publish", fsname="trades.csv")
    window = trades.window
    assert (window.index, window.pulse_us, window.pubsub, window.description, window.insert_only) == (
        "pi_RBTREE",
        2 * SECOND,
        False,
        "All trades",
        True,
    )
    assert window.connectors == (
        w.Connector(kind="fs", name="pub", direction="publish", properties=(("fsname", "trades.csv"),)),
    )


def test_every_other_kind_of_window_can_be_built(project, query, trades):
    twice = pattern(
        "fby{1 hour}(a, b)",
        events={"a": ("Trades", "s == symbol"), "b": ("Trades", "s == symbol")},
        output=["a.ID", "b.ID", "1 + 1"],
        index="symbol",
        times={"time": "Trades"},
    )
    assert [output.node for output in twice.output] == ["a", "b", None]
    trades.pattern("Twice", "n*:int64,a:int64,b:int64,c:int64", twice)
    trades.functional("Texts", "ID*:int64,text:string", {"text": "string($symbol)"}, generate="1")
    trades.counter("Counted", every="5 seconds", clear="1 minute")
    trades.transpose("Wide", mode="wide", tag="symbol", values="price", tags="A,B", group_by="quantity")
    trades.remove_state("Numbered", remove="updates deletes", log_fields=True)
    trades.notify("Told", "localhost", email("a@x", "b@x", "Hello", throttle="1 hour"))
    trades.procedural("Made", "ID*:int64", "handlers:made")
    windows = {window.name: window for window in project.build().queries[0].windows}
    assert windows["Twice"].patterns == (twice,)
    assert windows["Texts"].functions == (("text", "string($symbol)"),)
    assert (windows["Counted"].count_us, windows["Counted"].clear_us) == (5 * SECOND, 60 * SECOND)
    assert windows["Wide"].tags_included == ("A", "B")
    assert windows["Numbered"].remove == ("updates", "deletes")
    assert windows["Told"].channels[0].throttle_us == 3600 * SECOND
    assert (windows["Made"].module, windows["Made"].handler) == ("handlers", "made")


def test_a_project_keeps_what_belongs_to_all_queries():
    project = ProjectBuilder("p", heartbeat="500 milliseconds", threads=4, metadata={"a": "b"})
    project.query("q", trace="x y")
    project.connector_group("g", {"q/w/c": "running"}).connector_edge("g", "h")
    built = project.build()
    assert (built.heartbeat_us, built.threads, built.metadata) == (500_000, 4, (("a", "b"),))
    assert built.queries[0].trace == ("x", "y")
    assert built.connector_groups == (
        ConnectorGroup(name="g", entries=(ConnectorEntry(connector="q/w/c", state="running"),)),
    )
    assert built.connector_edges == (GroupEdge(source="g", target="h"),)


def test_two_windows_of_one_name_are_refused_at_once(query, trades):
    with pytest.raises(ValueError, match="has a window Trades already"):
        trades.copy("Trades")


def test_grouping_by_an_unknown_field_is_refused_at_once(trades):
    with pytest.raises(BadArgument, match=r"no field 'smybol' to group by; it has ID, symbol"):
        trades.aggregate("A", by="smybol", n="ESP_aCount()")


def test_a_schema_may_be_a_mapping_and_a_retention_a_text_as_in_yaml(query, trades):
    window = query.source("S", {"ID*": "int32", "symbol": "string"}, retain="bycount_sliding 3").window
    assert (window.schema, window.retention) == (Schema.parse("ID*:int32,symbol:string"), sliding_rows(3))
    copy = trades.copy("C", retain="bytime_sliding 5 minutes on time").window
    assert copy.retention == sliding("5 minutes", field="time")


@pytest.mark.parametrize("retain", ["5 minutes", "sliding", 300, ("bytime_sliding", 5)])
def test_what_is_no_retention_is_refused_with_what_to_write(trades, retain):
    with pytest.raises(BadArgument, match=r'write sliding\("5 minutes", field="time"\)'):
        trades.copy("C", retain=retain)


def test_what_is_no_schema_is_refused_with_what_to_write(query):
    with pytest.raises(BadArgument, match=r"schema = \['ID'\] is not valid: write a text such as"):
        query.source("S", ["ID"])


def test_a_circle_does_not_hang_the_builder(query, trades):
    copy = trades.copy("Copy")
    query.edge(copy, copy)
    assert copy.schema is None
