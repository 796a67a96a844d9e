"""Aggregate expressions are split into calls and what combines them."""

from __future__ import annotations

import pytest

from lockstep.engine.errors import BadExpression
from lockstep.engine.events.schema import Schema
from lockstep.engine.language.compiler import Environment, Scope, compile_aggregate
from lockstep.engine.model.windows import Initializer

SCHEMA = Schema.parse("ID*:int32,symbol:string,price:double,quantity:int32,cash:money,time:stamp,v:array(i32)")
SCOPE = Scope.of(SCHEMA)
ROW = (1, "IBM", 2.5, 4, 12_345, 9, (1,))


def test_an_average_by_hand_is_two_calls_and_a_division() -> None:
    # When
    found = compile_aggregate("ESP_aSum(price*quantity)/ESP_aCount()", SCOPE)
    # Then
    total, count = found.calls
    assert (total.function, total.type.value, total.constants) == ("sum", "double", ())
    assert total.arguments[0].text == "price*quantity"
    assert total.arguments[0].evaluate(ROW, Environment()) == 10.0
    assert (count.function, count.arguments, count.type.value) == ("count", (), "int64")
    assert found.combine.evaluate((10.0, 4), Environment()) == 2.5
    assert (found.type.value, found.fields, found.clocks) == ("double", {"price", "quantity"}, ())


def test_equal_calls_are_one_however_they_are_written() -> None:
    found = compile_aggregate("esp_AMAX( price ) - ESP_aMin(price) + ESP_aMax(price)", SCOPE)
    assert [call.function for call in found.calls] == ["max", "min"]
    assert found.combine.evaluate((5.0, 1.0), Environment()) == 9.0


def test_calls_that_differ_in_a_type_only_are_two() -> None:
    found = compile_aggregate("ESP_aSum(1) + ESP_aSum(1.0)", SCOPE)
    assert [call.type.value for call in found.calls] == ["int64", "double"]


@pytest.mark.parametrize(
    ("text", "function", "kind", "constants"),
    [
        ("ESP_aSum(quantity)", "sum", "int64", ()),
        ("ESP_aSum(price)", "sum", "double", ()),
        ("ESP_aSum(cash)", "sum", "money", ()),
        ("ESP_aAve(quantity)", "ave", "double", ()),
        ("ESP_aMin(quantity)", "min", "int32", ()),
        ("ESP_aMax(symbol)", "max", "string", ()),
        ("ESP_aCount()", "count", "int64", ()),
        ("ESP_aCount(symbol)", "count", "int64", ()),
        ("ESP_aCountNonNull(symbol)", "countnonnull", "int64", ()),
        ("ESP_aCountNull(symbol)", "countnull", "int64", ()),
        ("ESP_aCountDistinct(symbol)", "countdistinct", "int64", ()),
        ("ESP_aStd(price)", "std", "double", ()),
        ("ESP_aVar(quantity)", "var", "double", ()),
        ("ESP_aWAve(quantity,price)", "wave", "double", ()),
        ("ESP_aMedian(quantity)", "median", "double", ()),
        ("ESP_aMode(symbol)", "mode", "string", ()),
        ("ESP_aFirst(time)", "first", "stamp", ()),
        ("ESP_aLast(v)", "last", "array(i32)", ()),
        ("ESP_aLag(price, 3)", "lag", "double", (3,)),
        ("ESP_aLag(price)", "lag", "double", (1,)),
        ("ESP_aCat(price)", "cat", "string", (",",)),
        ("ESP_aCat(symbol, '; ')", "cat", "string", ("; ",)),
        ("ESP_aSumTimed(price, 5)", "sumtimed", "double", (5,)),
        ("ESP_aAveTimed(price, 0.5)", "avetimed", "double", (0.5,)),
        ("ESP_aMinTimed(quantity, 2 * 5)", "mintimed", "int32", (10,)),
        ("ESP_aMaxTimed(quantity, 5)", "maxtimed", "int32", (5,)),
        ("ESP_aCountTimed(5)", "counttimed", "int64", (5,)),
    ],
)
def test_functions(text: str, function: str, kind: str, constants: tuple[object, ...]) -> None:
    (call,) = compile_aggregate(text, SCOPE).calls
    assert (call.function, call.type.value, call.constants) == (function, kind, constants)


def test_timed_functions_count_as_readers_of_the_clock() -> None:
    found = compile_aggregate("ESP_aCountTimed(5) + toint(now())", SCOPE)
    assert found.clocks == ("counttimed", "now")


def test_money_is_averaged_as_an_amount() -> None:
    (call,) = compile_aggregate("ESP_aAve(cash)", SCOPE).calls
    assert call.arguments[0].evaluate(ROW, Environment()) == 1.2345


def test_results_are_combined_by_programs_too() -> None:
    text = "integer n; n = ESP_aCount(); if n > 1 then return ESP_aSum(price) / n else return 0.0"
    found = compile_aggregate(text, SCOPE)
    assert found.combine.evaluate((4, 10.0), Environment()) == 2.5
    assert found.combine.evaluate((1, 10.0), Environment()) == 0.0


def test_results_may_be_combined_with_kept_variables() -> None:
    initialize = Initializer(text="integer n = 0")
    found = compile_aggregate("n = n + ESP_aCount(); n", SCOPE, initialize=initialize)
    environment = Environment(variables=found.combine.initial())
    assert [found.combine.evaluate((2,), environment) for _ in range(2)] == [2, 4]


@pytest.mark.parametrize(
    ("text", "at", "reason"),
    [
        ("ESP_aSum(price) + quantity", 19, "'quantity' stands outside"),
        ("ESP_aSum(ESP_aMax(price))", 10, "no function esp_amax"),
        ("1 + ESP_aSun(price)", 5, "no aggregate function esp_asun. Did you mean ESP_aSum?"),
        ("ESP_aSum()", 1, "can't take 0 argument"),
        ("ESP_aWAve(price)", 1, "can't take 1 argument"),
        ("ESP_aSum(symbol)", 10, "a number is needed, not string"),
        ("ESP_aSum(time)", 10, "a number is needed, not stamp"),
        ("ESP_aMin(v)", 10, "have no order"),
        ("ESP_aLag(price, quantity)", 17, "a whole number"),
        ("ESP_aLag(price, -1)", 17, "a whole number"),
        ("ESP_aCat(price, 5)", 17, "a text is needed"),
        ("ESP_aSumTimed(price, 0)", 22, "a number of seconds"),
        ("ESP_aSum(price * toint(now()))", 16, "depend on the rows only"),
        ("ESP_aSum(pric)", 10, "no field 'pric'"),
    ],
)
def test_faults(text: str, at: int, reason: str) -> None:
    with pytest.raises(BadExpression) as caught:
        compile_aggregate(text, SCOPE)
    assert caught.value.params["at"] == at
    assert reason in str(caught.value)
