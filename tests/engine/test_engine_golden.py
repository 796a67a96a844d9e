"""The tables that SAS's examples show, event by event."""

from __future__ import annotations

import pytest
from engine_models import Run, chain, graph

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.windows import (
    AggregateWindow,
    CopyWindow,
    FilterWindow,
    Retention,
    SourceWindow,
    UnionWindow,
)

TRADES = Schema.parse("id*:int32,symbol:string,quantity:int32,price:double")
SOURCE = SourceWindow(name="trades", schema=TRADES)


def test_aggregate_of_inserts_upserts_updates_and_deletes():
    totals = AggregateWindow(
        name="totals",
        schema=Schema.parse("symbol*:string,quantity:int64,price:double"),
        fields=("ESP_aSum(quantity)", "ESP_aMax(price)"),
    )
    run = Run(chain(SOURCE, totals), "totals")
    inputs = ("i,10,abc,2000,164.1", "p,20,xyz,1000,26.67", "p,21,xyz,2000,26.68", "d,10", "u,20,xyz,3000,26.99")
    assert run.each("trades", *inputs, "i,30,jkl,3000,2.11") == [
        "I,N,abc,2000,164.1",
        "I,N,xyz,1000,26.67",
        "UB,N,xyz,3000,26.68",
        "D,N,xyz,1000,26.67",
        "D,N,abc,2000,164.1",
        "UB,N,xyz,5000,26.99",
        "D,N,xyz,3000,26.68",
        "I,N,jkl,3000,2.11",
    ]
    assert run.rows == 2


def test_copy_that_keeps_five_minutes():
    retention = Retention(kind="bytime_sliding", limit=300_000_000, field="time")
    source = SourceWindow(name="source", schema=Schema.parse("id*:int32,time:date"))
    run = Run(chain(source, CopyWindow(name="copy", retention=retention)), "copy")
    times = ("13:34:39", "13:34:59", "13:35:59", "13:45:59", "13:46:39", "13:46:59")
    seconds = [
        sum(int(part) * unit for part, unit in zip(time.split(":"), (3600, 60, 1), strict=True)) for time in times
    ]
    lines = run.each("source", *(f"i,{number},{time}" for number, time in enumerate(seconds, 1)))
    short = [line.split(",")[0].lower() + line.split(",")[2] for line in lines]
    assert short == ["i1", "i2", "i3", "i4", "d1", "d2", "d3", "i5", "i6"]
    assert [line.split(",")[1] for line in lines] == list("NNNNRRRNN")


@pytest.mark.parametrize(
    ("kind", "sums"),
    [("bycount_sliding", [3, 8, 12, 15, 12, 16, 11]), ("bycount_jumping", [3, 8, 12, 6, 8, 16, 1])],
)
def test_sums_over_three_rows(kind, sums):
    source = SourceWindow(name="source", schema=Schema.parse("id*:int32,all:int32,x:int32"))
    copy = CopyWindow(name="copy", retention=Retention(kind=kind, limit=3))
    total = AggregateWindow(name="total", schema=Schema.parse("all*:int32,sum:int64"), fields=("ESP_aSum(x)",))
    run = Run(chain(source, copy, total), "total")
    found = []
    for number, value in enumerate((3, 5, 4, 6, 2, 8, 1)):
        lines = run.send("source", f"i,{number},0,{value}")
        said = [line for line in lines if not line.startswith("D")]
        found.append(int(said[-1].split(",")[-1]))
    assert found == sums


def test_filter_on_both_halves_of_an_update():
    run = Run(chain(SOURCE, FilterWindow(name="large", expression="quantity > 100")), "large")
    lines = run.each("trades", "i,10,a,200,1", "i,20,b,100,1", "d,10", "u,20,b,300,1", "i,30,c,300,1")
    assert lines == ["I,N,10,a,200,1.0", "D,N,10,a,200,1.0", "I,N,20,b,300,1.0", "I,N,30,c,300,1.0"]


def test_union_turns_the_insert_of_a_known_key_into_an_update():
    left = SourceWindow(name="left", schema=Schema.parse("id*:int32,price:double"))
    right = SourceWindow(name="right", schema=left.schema)
    run = Run(graph(left, right, UnionWindow(name="both"), edges="left:both right:both"), "both")
    assert run.each("left", "i,20,9.54", "i,30,1", "i,40,2") == ["I,N,20,9.54", "I,N,30,1.0", "I,N,40,2.0"]
    assert run.send("right", "i,20,9.67") == ["UB,N,20,9.67", "D,N,20,9.54"]


def test_standard_deviation_is_of_a_sample():
    # Given five prices of 39.76, when one, two and three of 39.77 follow, the figures of the document's image appear.
    spread = AggregateWindow(
        name="spread",
        schema=Schema.parse("symbol*:string,std:double,lag:double"),
        fields=("ESP_aStd(price)", "ESP_aLag(price, 1)"),
    )
    run = Run(chain(SOURCE, spread), "spread")
    assert run.send("trades", "i,0,bp,1,39.76") == ["I,N,bp,0.0,"]
    run.each("trades", *(f"i,{number},bp,1,39.76" for number in range(1, 5)))
    found = [run.send("trades", f"i,{number},bp,1,39.77")[0].split(",")[3] for number in (5, 6, 7)]
    assert [round(float(value), 6) for value in found] == [0.004082, 0.00488, 0.005175]
