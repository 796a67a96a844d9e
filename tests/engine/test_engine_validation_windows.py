"""What keeps single windows from running, kind by kind, and the schemas of those that can."""

from __future__ import annotations

import pytest
from validation_models import chain, project, source, summing, told

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.validation import cautions, compile_project, faults
from lockstep.engine.model.windows import (
    AggregateWindow,
    ComputeWindow,
    FieldPlug,
    FilterWindow,
    JoinField,
    JoinWindow,
    Pattern,
    PatternEvent,
    PatternOutput,
    PatternWindow,
)


def schema_of(model, name):
    return str(compile_project(model).find(name).schema)


def aggregate(schema, *fields):
    return AggregateWindow(name="a", schema=Schema.parse(schema), fields=fields)


def compute(schema, *fields):
    return ComputeWindow(name="c", schema=Schema.parse(schema), fields=fields)


class TestAggregate:
    @pytest.mark.parametrize(
        ("window", "place", "problem", "remedy"),
        [
            (summing("a", "sybol*:string"), "q/a field sybol", "does not exist in the input", "Did you mean 'symbol'?"),
            (summing("a", "symbol*:int32"), "q/a field symbol", "is a int32 here, but a string", "Make it a string"),
            (
                aggregate("symbol*:string,x:double,y:double", "ESP_aSum(price)"),
                "q/a",
                "1 expression(s) for 2",
                "in order",
            ),
            (aggregate("symbol*:string"), "", "", ""),
            (aggregate("symbol*:string,x:date", "ESP_aSum(price)"), "q/a field x", "gives a double", "convert"),
            (aggregate("symbol*:string,x:blob", "ESP_aCount()"), "q/a field x", "does not fit into a blob", "Make"),
            (aggregate("symbol*:string,x:double", "ESP_aSum(prce)"), "q/a field x", "prce", "price"),
            (aggregate("symbol*:string,x:double", "ESP_aSum("), "q/a field x", "is not valid", ""),
            (
                aggregate("symbol*:string,x:double", FieldPlug(module="my module", function="f")),
                "q/a field x",
                "my module:f is no name",
                "module",
            ),
            (
                aggregate("symbol*:string,x:double", FieldPlug(module="m", function="f", fields=("prices",))),
                "q/a field x",
                "'prices', which does not exist",
                "Did you mean 'price'?",
            ),
        ],
    )
    def test_faults(self, window, place, problem, remedy):
        found = faults(chain(source(), window))
        if not place:
            assert found == []
            return
        (fault,) = found
        assert fault.place == place
        assert problem in fault.problem
        assert remedy in fault.remedy

    def test_integers_fit_into_doubles_and_into_each_other(self):
        fields = "n:int32,total:double,sum:int64"
        expressions = ("ESP_aCount()", "ESP_aSum(quantity)", "ESP_aSum(quantity)")
        assert faults(chain(source(), aggregate(f"symbol*:string,{fields}", *expressions))) == []

    def test_a_plug_is_not_imported(self):
        plug = FieldPlug(module="no.such.module", function="f", fields=("price",))
        assert faults(chain(source(), aggregate("symbol*:string,x:double", plug))) == []


class TestCompute:
    @pytest.mark.parametrize(
        ("window", "place", "problem"),
        [
            (compute("Id*:int32,x:double", "price"), "q/c field Id", "does not exist in the input"),
            (compute("ID*:int64,x:double", "price"), "q/c field ID", "but a int32 in the input"),
            (compute("ID*:int32,x:double"), "q/c", "0 expression(s) for 1 field(s)"),
            (compute("ID*:int32,x:date", "price * 2"), "q/c field x", "gives a double"),
            (compute("ID*:int32,x:double", "prise * 2"), "q/c field x", "prise"),
            (compute("ID*:int32,x:stamp,y:blob", "time", "time"), "q/c field y", "does not fit into a blob"),
        ],
    )
    def test_faults(self, window, place, problem):
        found = faults(chain(source(), window))
        assert any(fault.place == place and problem in fault.problem for fault in found), found

    def test_another_key_is_no_fault_but_rows_may_collide_where_fields_of_it_are_missing(self):
        wider = chain(source(), compute("ID*:int32,symbol*:string,x:double", "price"))
        other = chain(source(), compute("symbol*:string,x:double", "price"))
        assert faults(wider) == faults(other) == cautions(wider) == []
        [only] = cautions(other)
        assert (only.place, "key field(s) ID are not in its key" in only.problem) == ("q/c", True)

    def test_numbers_that_fit(self):
        assert faults(chain(source(), compute("ID*:int32,x:double,y:int32", "quantity", "quantity * 2"))) == []


def test_a_filter_says_yes_or_no():
    assert faults(chain(source(), FilterWindow(name="f", expression="price > 1 and symbol == 'A'"))) == []
    (fault,) = faults(chain(source(), FilterWindow(name="f", expression="symbol")))
    assert (fault.place, "gives a string" in fault.problem) == ("q/f expression", True)
    assert "q/f expression" in told(chain(source(), FilterWindow(name="f", expression="price >")))


FACT = "id*:int32,symbol:string,price:double"
DIMENSION = "symbol*:string,name:string"


def join(
    kind="leftouter", on=(("symbol", "symbol"),), fields="id=l_id,name=r_name", left=FACT, right=DIMENSION, **more
):
    made = [JoinField(name=name, source=text) for name, text in (item.split("=") for item in fields.split(",") if item)]
    extra = more.pop("extra", ())
    window = JoinWindow(name="j", type=kind, conditions=on, fields=(*made, *extra), **more)
    return project(source("l", left), source("r", right), window, links=["l j", "r j"])


class TestJoin:
    def test_a_left_outer_joins_key_is_the_left_one(self):
        assert schema_of(join(), "j") == "id*:int32,name:string"

    def test_a_right_outer_joins_key_is_the_right_one(self):
        model = join("rightouter", fields="name=l_name,id=r_id", left=DIMENSION, right=FACT)
        assert schema_of(model, "j") == "name:string,id*:int32"

    def test_an_inner_joins_key_is_that_of_the_side_that_is_not_looked_up(self):
        assert schema_of(join("inner"), "j") == "id*:int32,name:string"
        turned = join("inner", fields="name=l_name,id=r_id", left=DIMENSION, right=FACT)
        assert schema_of(turned, "j") == "name:string,id*:int32"
        both = join("inner", fields="a=l_symbol,b=r_symbol", left=DIMENSION)
        assert schema_of(both, "j") == "a*:string,b:string"

    def test_keys_of_the_fact_side_that_are_not_listed_come_first(self):
        assert schema_of(join(fields="name=r_name"), "j") == "id*:int32,name:string"
        assert schema_of(join(fields=""), "j") == "id*:int32"
        turned = join("rightouter", fields="name=l_name", left=DIMENSION, right=FACT)
        assert schema_of(turned, "j") == "id*:int32,name:string"

    def test_an_added_key_whose_name_is_taken_says_its_side(self):
        assert schema_of(join(fields="id=r_name"), "j") == "l_id*:int32,id:string"
        both = join("fullouter", fields="name=r_name", left=DIMENSION)
        assert schema_of(both, "j") == "symbol*:string,name:string"
        one = join("fullouter", fields="name=r_name,key=r_symbol", left=DIMENSION)
        assert schema_of(one, "j") == "symbol*:string,name:string,key:string"

    def test_a_full_outer_joins_key_is_that_of_its_left_side(self):
        model = join("fullouter", fields="a=l_symbol,b=r_symbol", left=DIMENSION)
        assert schema_of(model, "j") == "a*:string,b:string"

    def test_a_full_outer_join_compares_keys_only_and_keeps_both_sides(self):
        window = JoinWindow(name="j", type="fullouter", conditions=(("id", "id"), ("x", "x")), fields=())
        links = ["l j", "r j"]
        more = project(source("l", "id*:int32,x:int32"), source("r", "id*:int32,x:int32"), window, links=links)
        assert "more than the keys of both sides" in told(more)
        empty = JoinWindow(name="j", type="fullouter", conditions=(("id", "id"),), fields=(), right_index="pi_EMPTY")
        assert "keeps the rows of both sides" in told(
            project(source("l", "id*:int32"), source("r", "id*:int32"), empty, links=links)
        )

    def test_expressions_see_both_sides(self):
        more = (JoinField(name="twice", expression="l_price * 2"), JoinField(name="n", expression="1 + 1"))
        assert schema_of(join(extra=more), "j").startswith("id*:int32,name:string,twice:double,n:int")

    @pytest.mark.parametrize(
        ("model", "place", "problem", "remedy"),
        [
            (join("outer"), "q/j", "'outer' is no type of join", "Did you mean"),
            (join(on=()), "q/j condition", "no condition", "must be equal"),
            (join(on=(("symbl", "symbol"),)), "q/j condition", "left side has no field 'symbl'", "'symbol'?"),
            (join(on=(("symbol", "sym"),)), "q/j condition", "right side has no field 'sym'", "'symbol'?"),
            (join(on=(("id", "symbol"),)), "q/j condition", "id is a int32 on the left side", "same type"),
            (join(on=(("symbol", "name"),)), "q/j condition", "leaves out its key field(s) symbol", "all of its keys"),
            (join("fullouter", fields="a=l_id,b=r_symbol"), "q/j condition", "left side is a dimension", "full outer"),
            (
                join("inner", on=(("symbol", "name"),), left_index="pi_EMPTY"),
                "q/j condition",
                "whole key of neither side, so that left-index pi_EMPTY has no meaning",
                "id of the left",
            ),
            (join("inner", on=(("symbol", "name"),), no_regenerates=True), "q/j condition", "no-regenerates", "Take"),
            (join(fields="id=l_id,x=l_nam"), "q/j field x", "'l_nam' is no field", "Did you mean"),
            (join(fields="id=l_id,x=name"), "q/j field x", "'name' is no field of the left (l_)", "'r_name'"),
            (join(fields="id=l_price,l_id=r_name"), "q/j", "key field l_id finds no name: l_id is", "source l_id"),
            (join(fields="id=l_id,id=l_price"), "q/j", "Two of its fields are called 'id'", "own"),
            (join(left_index="x"), "q/j", "left-index is 'x'", "pi_HASH"),
            (join(extra=(JoinField(name="x"),)), "q/j field x", "either a source or an expression", "one of the two"),
            (join(extra=(JoinField(name="x", expression="l_prise"),)), "q/j field x", "l_prise", "l_price"),
        ],
    )
    def test_faults(self, model, place, problem, remedy):
        (fault,) = faults(model)
        assert fault.place == place
        assert problem in fault.problem
        assert remedy in fault.remedy

    def test_declared_types_must_be_right(self):
        from lockstep.engine.events.schema import FieldType

        wrong = JoinField(name="x", source="l_price", type=FieldType.INT32)
        assert "is declared as int32, but l_price is a double" in told(join(extra=(wrong,)))
        made = JoinField(name="x", expression="l_price", type=FieldType.DATE)
        assert "gives a double, which does not fit into a date" in told(join(extra=(made,)))

    @pytest.mark.parametrize("links", [["l j"], ["l j", "r j", "l j"]])
    def test_it_has_exactly_two_inputs(self, links):
        window = JoinWindow(name="j", conditions=(("id", "id"),), fields=(JoinField(name="id", source="l_id"),))
        model = project(source("l", "id*:int32"), source("r", "id*:int32"), window, links=links)
        (fault,) = faults(model)
        assert fault.problem == f"It is a join, but {len(links)} edge(s) lead to it."

    def test_both_sides_may_be_the_same_window(self):
        window = JoinWindow(name="j", conditions=(("id", "id"),), fields=(JoinField(name="id", source="l_id"),))
        assert faults(project(source("l", "id*:int32"), window, links=["l j", "l j"])) == []


def pattern(events=("e1=src:symbol == s", "e2=src:symbol == s and price > 1"), logic="fby{1 hour}(e1, e2)", **more):
    made = []
    for text in events:
        name, _, rest = text.partition("=")
        origin, _, expression = rest.partition(":")
        made.append(PatternEvent(name=name, source=origin, expression=expression))
    output = more.pop("output", (PatternOutput(node="e1", field="ID"), PatternOutput(node="e2", field="price")))
    one = Pattern(name="rise", events=tuple(made), logic=logic, output=output, **more)
    return chain(source(), PatternWindow(name="w", schema=Schema.parse("id*:int32,price:double"), patterns=(one,)))


class TestPattern:
    def test_a_sound_one(self):
        assert faults(pattern(index=("symbol",), time_fields=(("time", "src"),))) == []

    @pytest.mark.parametrize(
        ("model", "place", "problem", "remedy"),
        [
            (pattern(logic="fby(e1, e2, evnt)"), "logic", "'evnt', which does not exist", "There is: e1, e2."),
            (pattern(logic="fby(e1, e1)"), "logic", "'e2' is not in the logic", "Use it there"),
            (pattern(logic="fby(e1, e2"), "logic", "is not valid at character", ""),
            (pattern(events=("e1=sorc:", "e2=src:")), "event e1", "'sorc', from which no edge", "'src'?"),
            (pattern(events=("e1=src:", "e2=src:prise > 1")), "event e2", "prise", "price"),
            (pattern(events=("e1=src:", "e2=src:symbol")), "event e2", "neither true nor false", "Compare"),
            (pattern(events=("e1=src:", "e2=src:", "e1=src:")), "rise", "Two of its events are called 'e1'", "own"),
            (pattern(output=()), "rise", "fills 0 field(s), but the schema has 2", "in order"),
            (pattern(index=("sym",)), "rise", "index field 'sym' does not exist in src", "'symbol'?"),
            (pattern(time_fields=(("tim", "src"),)), "rise", "time field 'tim' does not exist", "'time'?"),
            (pattern(time_fields=(("price", "src"),)), "rise", "is a double, not a time", "stamp"),
            (pattern(time_fields=(("time", "other"),)), "rise", "'other', from which no edge", "src"),
        ],
    )
    def test_faults(self, model, place, problem, remedy):
        found = [fault for fault in faults(model) if problem in fault.problem]
        assert len(found) == 1, faults(model)
        assert found[0].place.startswith("q/w pattern rise")
        assert found[0].place.endswith(place)
        assert remedy in found[0].remedy

    @pytest.mark.parametrize(
        ("output", "problem"),
        [
            (PatternOutput(node="e9", field="ID"), "event 'e9', which does not exist"),
            (PatternOutput(node="e1", field="Idd"), "Event 'e1' has no field 'Idd'"),
            (PatternOutput(node="e1", field="symbol"), "gives a string, which does not fit into a int32"),
            (PatternOutput(), "needs the field of an event"),
        ],
    )
    def test_outputs(self, output, problem):
        (fault,) = faults(pattern(output=(output, PatternOutput(node="e1", field="price"))))
        assert fault.place == "q/w pattern rise field id"
        assert problem in fault.problem

    @pytest.mark.parametrize("node", ["e1", None])
    def test_an_empty_expression_is_null_and_fits_everywhere(self, node):
        first = PatternOutput(node="e1", field="ID")
        assert faults(pattern(output=(first, PatternOutput(node=node, expression=" ")))) == []

    def test_a_window_needs_a_pattern(self):
        window = PatternWindow(name="w", schema=Schema.parse("id*:int32"), patterns=())
        assert "It has no pattern." in told(chain(source(), window))
