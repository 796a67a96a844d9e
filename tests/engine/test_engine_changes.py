"""What a new model changes, and every reason why a running project can't change to it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from change_strategies import edits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_strategies import models

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.changes import Change, compare, refusals
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.loading import parse_yaml, to_yaml
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import (
    AggregateWindow,
    ComputeWindow,
    Connector,
    CopyWindow,
    FilterWindow,
    Pattern,
    PatternEvent,
    PatternOutput,
    PatternWindow,
    Retention,
    SourceWindow,
    UnionWindow,
    Window,
)

TRADES = Schema.parse("ID*:int32,symbol:string,price:double")
SUMS = Schema.parse("symbol*:string,total:double")
SECOND = 1_000_000
NOTHING = frozenset[str]()


def file_connector(path: str) -> Connector:
    kept = {"type": "sub", "fsname": path, "fstype": "csv", "snapshot": "true"}
    return Connector(kind="fs", name="file", properties=tuple(kept.items()))


def pattern(name: str, source: str) -> PatternWindow:
    events = tuple(PatternEvent(name=f"e{n}", source=source, expression=f"price > {n}.0") for n in (1, 2))
    output = (PatternOutput(node="e1", field="price"), PatternOutput(node="e2", field="price"))
    schema = Schema.parse("k*:int64,a:double,b:double")
    return PatternWindow(
        name=name, schema=schema, patterns=(Pattern(events=events, logic="fby(e1, e2)", output=output),)
    )


WINDOWS: dict[str, Window] = {
    "in": SourceWindow(name="in", schema=TRADES, insert_only=True),
    "dear": FilterWindow(name="dear", expression="price > 10.0"),
    "recent": CopyWindow(name="recent", retention=Retention(kind="bycount_sliding", limit=5)),
    "sums": AggregateWindow(name="sums", schema=SUMS, fields=("ESP_aSum(price)",)),
    "all": AggregateWindow(name="all", schema=SUMS, fields=("ESP_aSum(price)",)),
}
EDGES = (("in", "dear"), ("dear", "recent"), ("recent", "sums"), ("in", "all"))


def graph_of(
    windows: dict[str, Window] = WINDOWS, edges: tuple[tuple[str, str], ...] = EDGES, **project: object
) -> Graph:
    drawn = tuple(Edge(source=source, target=target) for source, target in edges)
    query = ContinuousQuery(name="q", windows=tuple(windows.values()), edges=drawn)
    return compile_project(Project(**{"name": "p", "queries": (query,), **project}))  # type: ignore[arg-type]


def with_window(name: str, **changes: object) -> Graph:
    """The model with one window changed."""
    return graph_of({**WINDOWS, name: replace(WINDOWS[name], **changes)})


def paths(*names: str) -> frozenset[str]:
    return frozenset(f"q/{name}" for name in names)


# What is kept


def test_the_same_model_keeps_everything():
    assert compare(graph_of(), graph_of()) == Change(paths(*WINDOWS), NOTHING, NOTHING, NOTHING)


def test_a_changed_window_is_rebuilt_with_all_behind_it():
    change = compare(graph_of(), with_window("dear", expression="price > 20.0"))
    assert change == Change(paths("in", "all"), paths("dear", "recent", "sums"), NOTHING, NOTHING)


@pytest.mark.parametrize(
    "beside",
    [
        {"description": "in words"},
        {"connectors": (file_connector("out.csv"),)},
        {"pubsub": True},
        {"index": "pi_RBTREE"},
        {"pubsub_index": "pi_HASH"},
    ],
    ids=lambda each: next(iter(each)),
)
def test_what_is_beside_the_answer_changes_nothing(beside):
    assert compare(graph_of(), with_window("recent", **beside)).rebuilt == NOTHING


def test_the_form_in_which_a_model_is_written_does_not_matter():
    text = to_yaml(graph_of().project)
    assert compare(graph_of(), compile_project(parse_yaml(text))).rebuilt == NOTHING


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("recent", {"retention": Retention(kind="bycount_sliding", limit=6)}),
        ("recent", {"retention": None, "index": "pi_EMPTY"}),
        ("sums", {"fields": ("ESP_aMax(price)",)}),
        ("sums", {"pulse_us": SECOND}),
        ("sums", {"output_insert_only": True}),
        ("in", {"insert_only": False}),
    ],
)
def test_what_can_change_an_answer_does(name, changes):
    assert f"q/{name}" in compare(graph_of(), with_window(name, **changes)).rebuilt


def test_an_index_that_all_windows_take_from_the_project_counts_where_it_says_whether_there_is_one():
    bare = {"in": WINDOWS["in"], "copy": CopyWindow(name="copy")}
    old, edges = graph_of(bare, (("in", "copy"),)), (("in", "copy"),)
    assert compare(old, graph_of(bare, edges, index="pi_LN_HASH")).rebuilt == NOTHING
    assert compare(old, graph_of(bare, edges, index="pi_EMPTY")).rebuilt == paths("in", "copy")


def test_new_and_removed_windows():
    more = {**WINDOWS, "other": SourceWindow(name="other", schema=TRADES, insert_only=True)}
    del more["all"]
    change = compare(graph_of(), graph_of(more, EDGES[:3]))
    assert change == Change(paths("in", "dear", "recent", "sums"), paths("other"), paths("all"), paths("other"))


def test_the_order_of_inputs_counts():
    windows = {
        "a": SourceWindow(name="a", schema=TRADES, insert_only=True),
        "b": SourceWindow(name="b", schema=TRADES, insert_only=True),
        "both": UnionWindow(name="both"),
    }
    old = graph_of(windows, (("a", "both"), ("b", "both")))
    assert compare(old, graph_of(windows, (("b", "both"), ("a", "both")))).rebuilt == paths("both")
    assert compare(old, graph_of(dict(reversed(windows.items())), (("a", "both"), ("b", "both")))).rebuilt == NOTHING


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), old=models())
def test_every_window_has_one_fate_and_nothing_is_kept_behind_a_rebuilt_one(data, old):
    new = data.draw(edits(old))
    change = compare(old, new)
    before, after = ({node.path for node in graph.nodes} for graph in (old, new))
    assert (change.kept | change.rebuilt, change.kept & change.rebuilt) == (after, NOTHING)
    assert (change.removed, change.added) == (before - after, after - before)
    assert change.added <= change.rebuilt
    for node in new.nodes:
        if any(new.nodes[parent.node].path in change.rebuilt for parent in node.parents):
            assert node.path in change.rebuilt
    assert not compare(new, new).rebuilt


# What can't be changed


def test_what_is_allowed_is_not_refused():
    changed = with_window("recent", retention=Retention(kind="bycount_sliding", limit=6))
    assert refusals(graph_of(), changed, published=paths(*WINDOWS)) == []
    assert refusals(graph_of(), with_window("sums", fields=("ESP_aMax(price)",)), published=paths("sums")) == []


SCHEMAS = {
    "ID*:int32,symbol:string": "its field price would be gone",
    "ID*:int32,symbol:string,price:int64": "its field price would be int64 instead of double",
    "ID*:int32,symbol*:string,price:double": "its field symbol would belong to the key",
    "ID*:int32,symbol:string,price:double,venue:string": "it would have a new field venue",
    "ID*:int32,price:double,symbol:string": "its fields would stand in another order: ID, price, symbol",
}


@pytest.mark.parametrize(("schema", "words"), SCHEMAS.items())
def test_the_schema_of_a_source_is_refused_field_by_field(schema, words):
    one = {"in": WINDOWS["in"]}
    other = {"in": replace(WINDOWS["in"], schema=Schema.parse(schema))}
    found = refusals(graph_of(one, ()), graph_of(other, ()), published=NOTHING)
    assert found == [f"Source window q/in: {words}; publishers hold its schema."]


def test_the_schema_of_a_published_window_is_refused_and_that_of_another_is_not():
    wider = Schema.parse("symbol*:string,total:double,most:double")
    changed = with_window("sums", schema=wider, fields=("ESP_aSum(price)", "ESP_aMax(price)"))
    words = "Published window q/sums: it would have a new field most; readers hold its schema."
    assert refusals(graph_of(), changed, published=paths("sums", "all")) == [words]
    assert refusals(graph_of(), changed, published=paths("all")) == []


def test_a_published_window_whose_schema_follows_from_another_is_found():
    narrow = ComputeWindow(name="narrow", schema=Schema.parse("ID*:int32,p:double"), fields=("price",))
    wide = ComputeWindow(name="narrow", schema=Schema.parse("ID*:int32,p:double,s:string"), fields=("price", "symbol"))
    edges = (("in", "narrow"), ("narrow", "copy"))
    old, new = (
        graph_of({"in": WINDOWS["in"], "narrow": each, "copy": CopyWindow(name="copy")}, edges)
        for each in (narrow, wide)
    )
    found = refusals(old, new, published=paths("copy"))
    assert found == ["Published window q/copy: it would have a new field s; readers hold its schema."]


def test_a_window_with_connectors_is_refused_with_what_would_change():
    here, there = (file_connector(path) for path in ("here.csv", "there.csv"))
    old = with_window("recent", connectors=(here,))
    longer = Retention(kind="bycount_sliding", limit=6)
    new = with_window("recent", connectors=(there,), retention=longer)
    words = "Window q/recent has connectors, and of it would change: connectors, retention."
    assert refusals(old, new, published=NOTHING) == [words]
    assert refusals(graph_of(), old, published=NOTHING) == [words.replace(", retention", "")]
    assert refusals(old, with_window("recent", connectors=(here,), description="x"), published=NOTHING) == []


def test_a_window_with_connectors_is_not_removed():
    old = with_window("all", connectors=(file_connector("out.csv"),))
    fewer = {name: window for name, window in WINDOWS.items() if name != "all"}
    found = refusals(old, graph_of(fewer, EDGES[:3]), published=NOTHING)
    assert found == ["Window q/all has connectors and would be removed."]


def test_a_pattern_window_that_would_be_rebuilt_is_refused_with_the_cause():
    edges = (("in", "dear"), ("dear", "seen"))
    windows = {"in": WINDOWS["in"], "dear": WINDOWS["dear"], "seen": pattern("seen", "dear")}
    old = graph_of(windows, edges)
    cheap = replace(WINDOWS["dear"], expression="price < 1.0")
    found = refusals(old, graph_of({**windows, "dear": cheap}, edges), published=NOTHING)
    assert found == ["Pattern window q/seen would lose its open patterns, because of a change of q/dear."]
    other = replace(windows["seen"], patterns=(replace(windows["seen"].patterns[0], is_active=False),))
    found = refusals(old, graph_of({**windows, "seen": other}, edges), published=NOTHING)
    assert found == ["Pattern window q/seen would lose its open patterns, because of a change of itself."]


def test_a_pattern_window_may_come_and_go():
    windows, edges = {**WINDOWS, "seen": pattern("seen", "dear")}, (*EDGES, ("dear", "seen"))
    assert refusals(graph_of(), graph_of(windows, edges), published=NOTHING) == []
    assert refusals(graph_of(windows, edges), graph_of(), published=NOTHING) == []


def test_the_heartbeat_is_refused_where_a_window_follows_the_clock():
    assert refusals(graph_of(), graph_of(heartbeat_us=2 * SECOND), published=NOTHING) == []
    ticking = {**WINDOWS, "all": replace(WINDOWS["all"], pulse_us=SECOND)}
    found = refusals(graph_of(ticking), graph_of(ticking, heartbeat_us=2 * SECOND), published=NOTHING)
    assert found == [
        "The heartbeat would be 2 seconds instead of 1 second, and the model's clock is followed by q/all."
    ]


def test_another_name_is_refused():
    found = refusals(graph_of(), graph_of(name="other"), published=NOTHING)
    assert found == ["The project would be called other instead of p: its streams and snapshots carry the name."]


def test_a_source_stays_a_source():
    two = {"in": WINDOWS["in"], "more": SourceWindow(name="more", schema=TRADES, insert_only=True)}
    one = {"in": WINDOWS["in"], "more": CopyWindow(name="more")}
    old, new = graph_of(two, ()), graph_of(one, (("in", "more"),))
    words = ["Window q/more would be a copy window instead of a source window."]
    assert refusals(old, new, published=NOTHING) == words


def test_a_model_that_can_not_be_divided_over_the_shards_is_refused():
    old, new = graph_of(), with_window("in", insert_only=False)
    assert refusals(old, new, published=NOTHING) == []
    (found,) = refusals(old, new, published=NOTHING, shards=2)
    assert found.startswith("The project runs on 2 shards, and the new model could run on 1 shard at most: ")


def test_all_reasons_are_given_at_once():
    changed = {**WINDOWS, "in": replace(WINDOWS["in"], schema=Schema.parse("ID*:int32,symbol:string,price:int64"))}
    found = refusals(graph_of(), graph_of(changed, name="other"), published=paths("dear"))
    assert [each.split(":")[0] for each in found] == [
        "The project would be called other instead of p",
        "Source window q/in",
        "Published window q/dear",
    ]
