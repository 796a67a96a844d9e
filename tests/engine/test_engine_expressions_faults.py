"""Every fault of an expression is told with its character, what is wrong and what to write."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.errors import BadExpression
from lockstep.engine.events.schema import Schema
from lockstep.engine.language.compiler import Environment, Scope, compile_aggregate, compile_expression
from lockstep.engine.model.windows import Initializer

SCOPE = Scope.of(Schema.parse("ID*:int32,symbol:string,price:double,time:stamp,day:date,v:array(i32),z:blob"))


@pytest.mark.parametrize(
    ("text", "at", "reason", "remedy"),
    [
        ("1 + pric", 5, "no field 'pric'", "Did you mean price?"),
        ("SYMBOL", 1, "no field 'SYMBOL'", "Did you mean symbol?"),
        ("2 * uper(symbol)", 5, "no function uper", "Did you mean upper?"),
        ("price +", 8, "a value is missing before the end", "Write a field"),
        ("price + * 2", 9, "a value is missing before '*'", "Write a field"),
        ("(price", 7, "')' is missing", "Close"),
        ("price)", 6, "a value is missing before ')'", "Write a field"),
        ("v[1", 4, "']' is missing", "Close"),
        ("left(symbol", 12, "')' is missing", "Close"),
        ("left(symbol)", 1, "can't take 1 argument", "left(text, count)"),
        ("left(symbol, 'a')", 14, "string can't be of type int64", "toint()"),
        ("left(price, 1)", 6, "double can't be of type string", "tostring()"),
        ("symbol + 1", 1, "+ can't take a value of type string", "Join texts with &"),
        ("1 - symbol", 5, "- can't take", "todouble()"),
        ("now() < symbol", 9, "don't go together", "tostring()"),
        ("symbol and 1", 8, "not a condition", "Compare it"),
        ("if symbol then 1 else 2", 1, "not a condition", "Compare it"),
        ("if ID then 'a' else 3", 1, "don't go together", "Convert"),
        ("1 < 2 < 3", 7, "can't be chained", "a < b and b < c"),
        ("day * 1.5", 5, "* can't take date and double", "toint()"),
        ("day + day", 5, "+ can't take", "Convert"),
        ("day - time", 5, "- can't take", "Convert"),
        ("z < z", 3, "can't be compared", "Compare numbers or texts"),
        ("v == v", 3, "can't be compared", "Compare numbers or texts"),
        ("symbol[1]", 1, "has no elements", "mid()"),
        ("size(symbol)", 6, "an array is needed", "len()"),
        ("year(ID)", 6, "a date or stamp is needed", "todate()"),
        ("'abc", 1, "has no end", "Close it with '"),
        ("1 /* abc", 3, "has no end", "*/"),
        ("price | 1", 7, "a single |", "||"),
        ("price # 1", 7, "'#' means nothing", "Remove it"),
        ("9223372036854775808", 1, "does not fit into int64", "double"),
        ("1e999", 1, "does not fit into a double", "largest"),
        ("regex(symbol, '(')", 15, "is not a pattern", "RE2"),
        ("regex(symbol, symbol)", 15, "must be a text that stands", "quotes"),
        ("price = 3; 4", 1, "nothing is done with this value", "declared before"),
        ("integer price; 1", 9, "declared already", "another name"),
        ("integer x integer x 1", 19, "declared already", "another name"),
        ("date x; x = 1.5; x", 13, "double can't be of type date", "todate()"),
        ("return 1 return 'a'", 17, "don't go together", "Convert"),
        ("begin return 1;", 1, "has no 'end'", "Close it"),
        ("goto price", 1, "no goto", "while"),
        ("1 + then", 5, "'then' can't stand here", "`then`"),
        ("1 + if price else 2", 14, "'then' is missing", "if CONDITION then"),
        ("ESP_aSum(price)", 1, "no function esp_asum", "aggregate windows"),
        ("tostring(v)", 10, "has no text", "elements"),
        ("1 & v", 5, "has no text", "elements"),
        ("-symbol", 1, "can't take a value of type string", "numbers only"),
        ("", 1, "it is empty", "Write a field"),
        ("1" + "+1" * 300, 400, "more than 200 operators", "parentheses"),
        ("(" * 101 + "1" + ")" * 101, 101, "deeper than 100 levels", "window before"),
        ("-" * 101 + "1", 101, "deeper than 100 levels", "window before"),
        ("1" * 70_000, 65_537, "longer than 65536 characters", "several windows"),
    ],
)
def test_faults_have_a_place_and_a_remedy(text: str, at: int, reason: str, remedy: str) -> None:
    with pytest.raises(BadExpression) as caught:
        compile_expression(text, SCOPE)
    assert (caught.value.params["at"], reason in str(caught.value), remedy in str(caught.value)) == (at, True, True), (
        str(caught.value)
    )


def test_a_variable_must_not_hide_a_field() -> None:
    with pytest.raises(BadExpression, match="'price' is a field"):
        compile_expression("ID", SCOPE, initialize=Initializer(text="integer price"))


def test_faults_of_an_initializer_show_its_own_text() -> None:
    with pytest.raises(BadExpression, match=r"'integer n; n = price' is not valid at character 16"):
        compile_expression("n", SCOPE, initialize=Initializer(text="integer n; n = price"))


@pytest.mark.parametrize(
    "text",
    [
        "1" + "+1" * 199,
        "price" + "+price" * 199,
        "(" * 99 + "1" + ")" * 99,
        "if(1, " * 98 + "1" + ")" * 98,
        "abs(" * 98 + "price" + ")" * 98,
        "(1 + " * 99 + "price" + ")" * 99,
        "not " * 90 + "1",
    ],
)
def test_what_is_just_small_enough_is_taken(text: str) -> None:
    expression = compile_expression(text, SCOPE)
    row = (1, "a", 1.0, 0, 0, (), b"")
    columns = {"price": pa.array([1.0, None])}
    assert expression.on_columns(columns, 2).to_pylist()[0] == expression.evaluate(row, Environment())


@pytest.mark.parametrize(
    "piece", ["2 ** ", "a or b xor c and d == e & f + g * -h ** (", "if 1 then ", "begin ", "v[", "if(", "- + ! not "]
)
def test_no_text_overruns_the_parser(piece: str) -> None:
    for text in (piece * 400, piece * 95, piece * 400 + "1"):
        with pytest.raises(BadExpression):
            compile_expression(text, SCOPE)


PIECES = [
    "price",
    "symbol",
    "ID",
    "1",
    "2.5",
    "'a'",
    "(",
    ")",
    "+",
    "-",
    "*",
    "=",
    "and",
    "not",
    "if",
    "then",
    "else",
    ",",
]
PIECES += [
    "integer",
    "x",
    ";",
    "return",
    "begin",
    "end",
    "[",
    "]",
    "upper",
    "null",
    "&",
    "ESP_aSum",
    "'",
    "/*",
    "`",
    "v",
]


def fault_in(text: str, compiled: Callable[[str, Scope], object]) -> BadExpression | None:
    try:
        compiled(text, SCOPE)
    except BadExpression as fault:
        return fault
    return None


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join) | st.text(max_size=20))
def test_any_text_is_an_expression_or_a_fault_within_it(text: str) -> None:
    for compiled in (compile_expression, compile_aggregate):
        fault = fault_in(text, compiled)
        assert fault is None or 1 <= fault.params["at"] <= len(text) + 1
        assert fault is None or fault.params["remedy"]
