"""The plan in words and as data."""

from __future__ import annotations

import json

from validation_models import chain, project, sliding, source, trades_model

from lockstep.engine.model.plan import explain, make_plan, stages_of
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import CopyWindow, UnionWindow


def explained(model):
    return explain(make_plan(compile_project(model)))


def test_the_table_says_everything_about_each_window():
    lines = explained(trades_model()).lines
    assert lines[0] == "trades: any number of shards"
    assert "q/TradesSource by symbol" in lines[1]
    (row,) = [line for line in lines if line.startswith("q/Copy1HRRet")]
    for words in ("copy", "2", "divided", "field time", "its rows are read from the log", "log", "columns", "symbol"):
        assert words in row
    assert len([line for line in lines if line.startswith("q/")]) == 7


def test_columns_of_the_table_line_up():
    lines = explained(trades_model()).lines
    rows = [line for line in lines if line.startswith(("q/", "window"))]
    assert len({row.index(word) for row, word in zip(rows, ["kind", "source", "copy"], strict=False)}) == 1


def test_the_data_can_be_written_as_json():
    data = json.loads(json.dumps(explained(trades_model()).data))
    assert data["max_shards"] is None
    assert data["splits"][0]["fields"] == ["symbol"]
    assert data["splits"][0]["source"] == "q/TradesSource"
    windows = {window["window"]: window for window in data["windows"]}
    assert windows["q/Aggregate24HR"]["stage"] == 3
    assert windows["q/Copy24HRRet"]["members"] == "log"
    assert windows["q/TradesSource"]["schema"].startswith("ID*:int32")
    assert data["clock_dependence"] == []


def test_why_windows_go_row_by_row_is_told():
    one, other = source("one"), source("other", insert_only=True, index="pi_EMPTY")
    made = explained(project(one, other, UnionWindow(name="u"), links=["one u", "other u"]))
    assert "Row by row, with the same answer:" in made.lines
    assert "  q/u: an input may give partial rows, which are put together one by one." in made.lines
    whys = {window["window"]: window["form_why"] for window in made.data["windows"]}
    assert [whys["q/other"], whys["q/one"].split(",")[0]] == ["", "it takes more than inserts"]
    assert not any("Row by row" in line for line in explained(trades_model()).lines)


def test_clock_dependence_is_told():
    made = explained(chain(source(), CopyWindow(name="c", retention=sliding(field=None))))
    assert any("Answers that depend on a wall clock" in line for line in made.lines)
    assert any(line.startswith("  q/c: its retention has no time field.") for line in made.lines)
    assert made.data["clock_dependence"][0]["path"] == "q/c"
    assert made.lines[0] == "p: 1 shard"


def test_parts_are_counted():
    assert explained(project(source("a"), source("b"))).lines[0] == "p: up to 2 shards"


def test_a_stage_is_the_longest_way_from_a_source():
    model = chain(source(), CopyWindow(name="a"), CopyWindow(name="b"))
    assert stages_of(compile_project(model)) == (1, 2, 3)


def test_the_window_that_forbids_dividing_is_named():
    made = explained(
        project(
            source("Orders", insert_only=True),
            source("Names"),
            UnionWindow(name="Both"),
            links=["Orders Both", "Names Both"],
        )
    )
    first = "Both is a union window, which looks at the rows of all groups in their order"
    assert first in made.data["not_divided"]
    assert [window["why"] for window in made.data["windows"] if window["window"] == "q/Both"] == [first]
