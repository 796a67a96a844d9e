from __future__ import annotations

import forms_strategies as forms
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lockstep.engine.errors import ModelUnreadable
from lockstep.engine.model.document import from_document, to_document
from lockstep.engine.model.windows import FilterWindow
from lockstep.engine.model.yaml_form import parse_yaml, to_yaml

# Projects are large: finding a smaller one that fails too takes longer than reading the first.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
RANDOM = settings(max_examples=30, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@pytest.mark.parametrize("kind", forms.BODIES, ids=lambda kind: kind.kind)
@settings(RANDOM, max_examples=15)
@given(data=st.data())
def test_every_kind_of_window_comes_back_from_yaml_as_it_was(kind, data):
    project = forms.project_of(data.draw(forms.windows_of(kind)))
    assert parse_yaml(to_yaml(project)) == project


@pytest.mark.slow
@RANDOM
@given(project=forms.projects)
def test_projects_come_back_from_yaml_as_they_were(project):
    assert parse_yaml(to_yaml(project)) == project


@pytest.mark.slow
@RANDOM
@given(project=forms.projects)
def test_projects_come_back_from_documents_as_they_were(project):
    assert from_document(to_document(project)) == project


def refused(text):
    with pytest.raises(ModelUnreadable) as caught:
        parse_yaml(text, "m.yaml")
    params = caught.value.params
    return params["line"], params["column"], params["reason"], params["remedy"]


HEAD = "name: p\nqueries:\n- name: q\n  windows:\n"


@pytest.mark.parametrize(
    ("text", "line", "column", "reason", "remedy"),
    [
        ("name: p\nqueris: []\n", 2, 1, "'queris' is not known here", "Did you mean queries?"),
        ("queries: []\n", 1, 1, "'name' is missing", "Add name."),
        (HEAD + "  - name: a\n", 5, 5, "'kind' is missing", "Add kind"),
        (HEAD + "  - {kind: sorce, name: a}\n", 5, 12, "'sorce' is not a kind of window", "Did you mean source?"),
        (HEAD + "  - kind: copy\n    name: a\n    retain: x\n", 7, 5, "'retain' is not known here", "retention"),
        (HEAD + "  - kind: copy\n    name: [a]\n", 6, 11, "name must be a text", "Write a text."),
        (HEAD + "  - kind: union\n    name: a\n    strict: maybe\n", 7, 13, "strict must be true or false", "Write"),
        (HEAD + "  - {kind: source, name: a, schema: 'x*:int'}\n", 5, 37, "'x*:int' must be NAME:TYPE", "Write NAME"),
        (HEAD + "  - {kind: copy, name: a, retention: bytime 5}\n", 5, 38, "'bytime' is not a kind", "bytime_"),
        (
            HEAD + "  - {kind: copy, name: a, retention: {kind: bytime_sliding, limit: soon}}\n",
            5,
            68,
            "'soon' is not a duration",
            "Write a number and a unit",
        ),
        (
            HEAD + "  - kind: compute\n    name: c\n    schema: a*:int32,b:int32\n    fields: {bb: a}\n",
            8,
            14,
            "'bb' is not a field of the schema",
            "Did you mean b?",
        ),
        ("name: p\nqueries:\n- {name: q, windows: [], edges: [a b]}\n", 3, 34, "'a b' is not an edge", "SOURCE"),
        ("name: p\nname: q\n", 2, 1, "the key 'name' occurs twice", "Keep one"),
        ("name: &a p\nqueries: []\n", 1, 7, "anchors, aliases and tags", "Write the value out"),
        ("name: !!python/name:os.system p\nqueries: []\n", 1, 7, "anchors, aliases and tags", "Write"),
        ("name: p\nqueries: *x\n", 2, 10, "anchors, aliases and tags", "Write"),
        ("name: [p\n", 2, 1, "did not find expected", "Fix the YAML"),
        ("name: p\nqueries: []\n---\nname: q\n", 3, 1, "a second document", "Keep one model"),
        ("", 1, 1, "it is empty", "Write"),
        ("? [a]\n: b\n", 1, 3, "a key must be a plain name", "Write NAME"),
    ],
)
def test_what_is_wrong_is_named_with_its_place_and_a_remedy(text, line, column, reason, remedy):
    found = refused(text)
    assert found[:2] == (line, column)
    assert reason in found[2]
    assert remedy in found[3]


def test_the_message_names_the_file_the_line_and_the_column():
    with pytest.raises(ModelUnreadable, match=r"The model m\.yaml can't be read: line 2, column 1: 'queris'"):
        parse_yaml("name: p\nqueris: []\n", "m.yaml")


def test_deep_and_large_files_are_refused():
    assert "nested deeper" in refused("name: " + "[" * 100_000)[2]
    assert "larger than" in refused("#" * (16 * 1024 * 1024 + 1))[2]


def test_short_forms_mean_what_the_long_ones_do():
    short = parse_yaml(
        HEAD
        + """\
  - {kind: copy, name: a, retention: bytime_jumping_lookback 2 hours on t by 10 minutes}
  - {kind: copy, name: b, retention: bycount_sliding 10}
  - {kind: join, name: j, conditions: [x, y == z], fields: {x: l_x, s: {expression: l_x + r_z, type: int64}}}
  - {kind: filter, name: f, expression: 1, splitter: x % 2, initialize: integer n}
  edges:
  - a, b -> j
"""
    )
    long = parse_yaml(
        HEAD
        + """\
  - kind: copy
    name: a
    retention: {kind: bytime_jumping_lookback, limit: 7200, field: t, unit: 600 seconds}
  - {kind: copy, name: b, retention: {kind: bycount_sliding, limit: 10}}
  - kind: join
    name: j
    conditions: [[x, x], [y, z]]
    fields: [{name: x, source: l_x}, {name: s, expression: l_x + r_z, type: int64}]
  - {kind: filter, name: f, expression: "1", splitter: {expression: x % 2}, initialize: {text: integer n}}
  edges:
  - {source: a, target: j}
  - {source: b, target: j}
"""
    )
    assert short == long


def test_a_splitter_and_time_fields_have_short_forms():
    head = "name: p\nqueries:\n- name: q\n  windows:\n  - {kind: source, name: s, schema: a*:int32}\n"
    short = parse_yaml(head + "  - {kind: copy, name: c, splitter: {expression: n, initialize: integer n}}\n")
    long = parse_yaml(head + "  - {kind: copy, name: c, splitter: {expression: n, initialize: {text: integer n}}}\n")
    assert short == long
    assert parse_yaml(to_yaml(short)) == short
    pattern = "  - {kind: pattern, name: w, schema: a*:int32, patterns: [{logic: x, output: [], events: [], %s}]}\n"
    listed = parse_yaml(head + pattern % "time_fields: [[t, s]]")
    assert listed == parse_yaml(head + pattern % "time_fields: {t: s}")
    for wrong in ("[t: s]", "[[t]]", "t", "[t, s]"):
        with pytest.raises(ModelUnreadable, match="time_fields must name a field and its source window"):
            parse_yaml(head + pattern % f"time_fields: {wrong}")


def test_fields_by_name_may_come_in_any_order():
    text = HEAD + "  - {kind: compute, name: c, schema: 'k*:int32,a:int32,b:int32', fields: {b: k + 1, a: k}}\n"
    assert parse_yaml(text).queries[0].windows[0].fields == ("k", "k + 1")


def test_what_has_its_default_is_left_out():
    text = HEAD + "  - {kind: union, name: u, strict: false, pubsub: null, collapse_updates: false}\n"
    assert to_yaml(parse_yaml(text)) == "name: p\nqueries:\n- name: q\n  windows:\n  - kind: union\n    name: u\n"


@pytest.mark.parametrize(
    "text", ["true", "null", "~", "", "12", "007", "1e3", "2024-01-01", " x", "x\n", "- a", "a: b", "\x07"]
)
def test_texts_that_look_like_something_else_stay_texts(text):
    project = forms.project_of(FilterWindow(name="f", expression=text))
    assert parse_yaml(to_yaml(project)) == project
