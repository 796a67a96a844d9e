"""The tables that SAS's examples show, event by event."""

from __future__ import annotations

import pytest
from engine_models import Run, chain, graph

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.windows import (
    AggregateWindow,
    CopyWindow,
    FilterWindow,
    JoinField,
    JoinWindow,
    Retention,
    SourceWindow,
    TransposeWindow,
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


def test_transpose_wide_gives_one_insert_for_each_reading_under_its_made_key():
    schema = Schema.parse("tag:string,value:double,units:string,time:string,sequence*:int64")
    source = SourceWindow(name="source", schema=schema, insert_only=True, autogen_key=True, index="pi_EMPTY")
    turned = TransposeWindow(
        name="turned",
        mode="wide",
        tag_name="tag",
        tag_values=("value", "units"),
        tags_included=("temperature", "pressure"),
        group_by=("time",),
        index="pi_EMPTY",
    )
    run = Run(chain(source, turned), "turned")
    readings = (
        "temperature,100.0,F,12:00",
        "pressure,50.0,Pa,12:00",
        "depth,45.0,m,12:00",
        "temperature,101.0,F,12:01",
    )
    assert run.graph.nodes[1].schema.names == (
        "sequence", "time", "temperature_value", "temperature_units", "pressure_value", "pressure_units",
    )  # fmt: skip
    assert run.each("source", *(f"i,{reading}," for reading in readings)) == [
        "I,N,0,12:00,100.0,F,,",
        "I,N,1,12:00,100.0,F,50.0,Pa",
        "I,N,3,12:01,101.0,F,,",
    ]


def test_full_outer_join_has_one_key_and_a_match_is_an_update():
    customers = SourceWindow(name="customers", schema=Schema.parse("id*:int32,name:string,city:string"))
    loyalty = SourceWindow(name="loyalty", schema=Schema.parse("id*:int32,level:string"))
    fields = (JoinField(name="name", source="l_name"), JoinField(name="level", source="r_level"))
    join = JoinWindow(name="both", type="fullouter", conditions=(("id", "id"),), fields=fields)
    run = Run(graph(customers, loyalty, join, edges="customers:both loyalty:both"), "both")
    assert run.graph.nodes[2].schema.names == ("id", "name", "level")
    assert run.each("customers", "i,111,Alice,Rome", "i,555,Diana,Bonn") == ["I,N,111,Alice,", "I,N,555,Diana,"]
    assert run.each("loyalty", "p,111,Gold", "p,666,Bronze") == [
        "UB,N,111,Alice,Gold",
        "D,N,111,Alice,",
        "I,N,666,,Bronze",
    ]
    assert run.each("customers", "d,111", "i,666,Eve,Nice") == [
        "UB,N,111,,Gold",
        "D,N,111,Alice,Gold",
        "UB,N,666,Eve,Bronze",
        "D,N,666,,Bronze",
    ]
    assert run.each("loyalty", "d,111", "d,666") == ["D,N,111,,Gold", "UB,N,666,Eve,", "D,N,666,Eve,Bronze"]


def test_a_join_whose_left_side_has_no_index_keeps_nothing_of_it():
    orders = SourceWindow(name="orders", schema=Schema.parse("id*:int32,who:int32"))
    people = SourceWindow(name="people", schema=Schema.parse("who*:int32,name:string"))
    fields = (JoinField(name="name", source="r_name"),)
    join = JoinWindow(name="both", type="leftouter", conditions=(("who", "who"),), fields=fields, left_index="pi_EMPTY")
    run = Run(graph(orders, people, join, edges="orders:both people:both"), "both")
    assert run.each("orders", "i,1,7") == ["I,N,1,"]
    # A row that came before is not made anew
    assert run.each("people", "i,7,Ann") == []
    assert run.each("orders", "i,2,7", "u,2,8", "d,1") == ["I,N,2,Ann", "UB,N,2,", "D,N,2,Ann", "D,N,1,Ann"]
    assert run.reasons == []
    kept = run.interpreter.dump()
    assert "(1, 7)" not in repr(kept)
