from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.engine.errors import FileMissing, ModelUnreadable, ModelUnwritable
from lockstep.engine.model.loading import load_model, parse_xml, parse_yaml, to_python, to_xml, to_yaml, write_model
from lockstep.engine.model.validation import faults

TRADES = Path(__file__).parents[2] / "examples" / "trades"


def test_the_trades_model_is_the_same_in_all_three_forms():
    python, yaml, xml = (load_model(TRADES / f"trades.{ending}") for ending in ("py", "yaml", "xml"))
    assert python == yaml == xml
    assert faults(python) == []


def test_the_trades_model_is_the_one_of_the_document():
    project = load_model(TRADES / "trades.yaml")
    (query,) = project.queries
    assert (project.name, query.name) == ("trades", "trades")
    assert {(edge.source, edge.target) for edge in query.edges} == {
        ("TradesSource", "Copy5MinRet"),
        ("TradesSource", "Copy1HRRet"),
        ("TradesSource", "Copy24HRRet"),
        ("Copy5MinRet", "Aggregate5min"),
        ("Copy1HRRet", "Aggregate1HR"),
        ("Copy24HRRet", "Aggregate24HR"),
    }
    windows = {window.name: window for window in query.windows}
    assert windows["TradesSource"].insert_only
    assert str(windows["TradesSource"].schema).startswith("ID*:int32,symbol:string,currency:int32,udate:int64")
    limits = [windows[f"Copy{name}Ret"].retention.limit // 1_000_000 for name in ("5Min", "1HR", "24HR")]
    assert limits == [300, 3600, 86_400]
    assert windows["Aggregate24HR"].fields == (
        "ESP_aWAve(quantity,price)",
        "ESP_aMin(price)",
        "ESP_aMax(price)",
        "ESP_aStd(price)",
    )


def test_each_form_converts_to_the_others_and_back():
    project = load_model(TRADES / "trades.xml")
    assert parse_yaml(to_yaml(project)) == parse_xml(to_xml(project)) == project
    assert [write_model(project, form) for form in ("xml", ".yaml", "yml", "py")] == [
        to_xml(project),
        to_yaml(project),
        to_yaml(project),
        to_python(project),
    ]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileMissing, match=r"none\.yaml' can't be read: No such file"):
        load_model(tmp_path / "none.yaml")
    with pytest.raises(FileMissing):
        load_model(tmp_path / "none.py")


def test_the_ending_must_say_what_a_file_is(tmp_path):
    with pytest.raises(ModelUnreadable, match="does not say what it is"):
        load_model(tmp_path / "model.json")
    with pytest.raises(ModelUnwritable, match="there is no such form"):
        write_model(load_model(TRADES / "trades.xml"), "json")


def test_a_file_that_is_not_utf8_is_refused_with_the_place(tmp_path):
    file = tmp_path / "m.yaml"
    file.write_bytes(b"name: p\nqueries: \xff\n")
    with pytest.raises(ModelUnreadable, match="line 2, column 10: it is not UTF-8"):
        load_model(file)


def test_a_byte_order_mark_does_no_harm(tmp_path):
    file = tmp_path / "m.yaml"
    file.write_bytes(b"\xef\xbb\xbfname: p\nqueries: []\n")
    assert load_model(file).name == "p"
