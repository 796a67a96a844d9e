"""Sources over records in models: every form of a model, and every fault told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.builder import ProjectBuilder
from lockstep.engine.model.loading import load_model, parse_xml, parse_yaml, to_python, to_xml, to_yaml
from lockstep.engine.model.plan import make_plan
from lockstep.engine.model.project import ContinuousQuery, Project
from lockstep.engine.model.validation import compile_project, faults, fingerprint
from lockstep.engine.model.windows import Connector, SourceWindow

AVRO = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}'
ID = Schema.parse("id*:int64")


def project(**source: object) -> Project:
    given: dict[str, object] = {"form": "records", "stream": "orders", "decode": "json", "schema": ID, **source}
    window = SourceWindow(name="Orders", **given)  # type: ignore[arg-type]
    return Project(name="p", queries=(ContinuousQuery(name="q", windows=(window,), edges=()),))


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"decode": None, "schema": Schema.parse("offset*:int64,value:blob"), "insert_only": True},
        {"decode": "csv", "date_format": "%Y", "upsert": True},
        {"decode": "avro", "avro_schema": AVRO, "stream": "a-stream.of_2"},
    ],
)
def test_every_form_of_a_model_says_the_same(source, tmp_path):
    made = project(**source)
    assert faults(made) == []
    assert parse_yaml(to_yaml(made)) == made
    assert parse_xml(to_xml(made).encode(), "again") == made
    (tmp_path / "model.py").write_text(to_python(made))
    assert load_model(tmp_path / "model.py") == made


def test_the_builder_takes_a_stream():
    builder = ProjectBuilder("p")
    builder.query("q").source("Orders", "id*:int64", stream="orders", decode="json")
    assert builder.build() == project()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"form": "rows"}, "no form of a source"),
        ({"form": "events"}, "It has stream, which is for form records"),
        ({"stream": None}, "no name of a stream"),
        ({"stream": "orders/0"}, "no name of a stream"),
        ({"decode": "xml"}, "no way to decode"),
        ({"decode": None}, "A record has no 'id'"),
        ({"decode": None, "schema": Schema.parse("offset*:string")}, "Field offset is of type string"),
        ({"schema": Schema.parse("record_offset*:int32,id:int64")}, "Field record_offset is of type int32"),
        ({"schema": Schema.parse("record_offset*:int64")}, "No field comes from the value"),
        ({"decode": "avro"}, "without an avro_schema"),
        ({"decode": "avro", "avro_schema": "{}"}, "can't be used"),
        ({"avro_schema": AVRO}, "does not decode avro"),
        ({"date_format": "%Q"}, "date_format is '%Q'"),
        ({"decode": "avro", "avro_schema": AVRO, "date_format": "%Y"}, "which is for json and csv"),
        ({"insert_only": True, "upsert": True}, "insert-only and makes upserts"),
        ({"connectors": (Connector(kind="fs", name="c", properties=()),)}, "brings events in"),
    ],
)
def test_faults_are_told(source, words):
    assert any(words in str(fault) for fault in faults(project(**source)))


def test_a_source_of_events_keeps_the_fingerprint_that_it_had():
    plain = project(form="events", stream=None, decode=None)
    assert fingerprint(plain) == "53159a646afc56b9d076d7a30f5c1183"
    assert fingerprint(project()) != fingerprint(project(stream="others"))


def test_windows_over_records_keep_their_rows_themselves():
    text = """
name: p
queries:
  - name: q
    windows:
      - {kind: source, name: In, form: records, stream: s, insert_only: true, schema: "offset*:int64,time:stamp"}
      - {kind: copy, name: Recent, retention: bytime_sliding 5 minutes on time}
    edges: [In -> Recent]
"""
    steps = make_plan(compile_project(parse_yaml(text))).steps
    assert [step.members for step in steps] == ["state", "state"]
    own = text.replace("form: records, stream: s, ", "")
    assert [step.members for step in make_plan(compile_project(parse_yaml(own))).steps] == ["state", "log"]
    assert replace(parse_yaml(own)).queries[0].windows[0].form == "events"
