"""What the expression language means, one row at a time."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from lockstep.engine.events.schema import FieldType, Schema
from lockstep.engine.language.aggregates import AGGREGATES
from lockstep.engine.language.catalogue import FUNCTIONS
from lockstep.engine.language.compiler import Environment, Scope, compile_expression
from lockstep.engine.language.parser import TYPES
from lockstep.engine.model.windows import Initializer

SCHEMA = Schema.parse(
    "ID*:int32,symbol:string,price:double,quantity:int64,time:stamp,day:date,cash:money,v:array(dbl),none:int64,"
    "nothing:string,end:int32,big-one:int64"
)
SCOPE = Scope.of(SCHEMA)
ROW = (7, "IBM", 2.5, 3, 1_700_000_000_123_456, 1_700_000_000, 12_345, (1.0, None, 3.0), None, None, 99, 5)
BIG = 2**63 - 1


def value(text: str, **environment: object) -> object:
    return compile_expression(text, SCOPE).evaluate(ROW, Environment(**environment))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("10 - 4 - 3", 3),
        ("2 ** 3 ** 2", 512.0),
        ("-2 ** 2", -4.0),
        ("2 ** -1", 0.5),
        ("7 % 4 * 2", 6),
        ("1 + 1 & 'a'", "2a"),
        ("'a' & 1 == 'a1'", 1),
        ("not 1 == 2", 1),
        ("!1 == 0", 1),
        ("1 or 0 and 0", 1),
        ("1 || 0 && 0", 1),
        ("1 xor 1 or 1", 1),
        ("0 and 1 xor 1", 1),
        ("1 < 2 and 2 < 3", 1),
        ("- - 3", 3),
        ("if 1 then 2 else 3 + 10", 2),
        ("(if 0 then 2 else 3) + 10", 13),
        ("if(0, 2, 3) + 10", 13),
        ("if (1) > 2 then 4 else 5", 5),
    ],
)
def test_precedence(text: str, wanted: object) -> None:
    assert value(text) == wanted


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ID", "int32"),
        ("ID + 1", "int64"),
        ("quantity * ID", "int64"),
        ("ID / 1", "double"),
        ("ID * price", "double"),
        ("ID == 7", "int32"),
        ("5", "int32"),
        ("-5", "int32"),
        ("5000000000", "int64"),
        ("cash + 1", "money"),
        ("cash * 2", "money"),
        ("cash * cash", "double"),
        ("day + 60", "date"),
        ("day - day", "double"),
        ("day + 1", "date"),
        ("1.5 + time", "stamp"),
        ("time - time", "double"),
        ("symbol & ID", "string"),
        ("v", "array(dbl)"),
        ("v[1]", "double"),
        ("if(ID, 1, 2.5)", "double"),
        ("coalesce(null, ID)", "int32"),
        ("now()", "stamp"),
        ("today()", "date"),
    ],
)
def test_types(text: str, kind: str) -> None:
    assert compile_expression(text, SCOPE).type is FieldType(kind)


@pytest.mark.parametrize(
    "text",
    [
        "none + 1",
        "1 - none",
        "none == none",
        "none < 1",
        "not none",
        "1 and none",
        "0 or none",
        "1 xor none",
        "nothing & 'a'",
        "upper(nothing)",
        "min(1, none)",
        "quantity / 0",
        "quantity / 0.0",
        "quantity % 0",
        "sqrt(-1)",
        "log(0)",
        "log(-1)",
        "(-8) ** 0.5",
        "10 ** 400",
        "exp(1000)",
        f"{BIG} + 1",
        f"-{BIG} - 2",
        f"{BIG} * 2",
        "-(-9223372036854775808)",
        "abs(-9223372036854775808)",
        "toint(1e19)",
        "toint('x')",
        "todouble('nan')",
        "todouble('1_0')",
        "v[0]",
        "v[2]",
        "v[4]",
        "year(todate(9223372036854775807))",
        "if none then 1",
    ],
)
def test_what_has_no_value_is_null(text: str) -> None:
    assert value(text) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0 and none", 0),
        ("none and 0", 0),
        ("1 or none", 1),
        ("none or 1", 1),
        ("if none then 1 else 2", 2),
        ("isnull(none)", 1),
        ("isnull(symbol) == false", 1),
        ("not isnull(symbol)", 1),
        ("coalesce(none, none, 4)", 4),
    ],
)
def test_null_does_not_decide(text: str, wanted: int) -> None:
    assert value(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("upper('aß')", "ASS"),
        ("lower('AB')", "ab"),
        ("left(symbol, 2)", "IB"),
        ("left(symbol, -1)", ""),
        ("right(symbol, 2)", "BM"),
        ("right(symbol, 0)", ""),
        ("mid(symbol, 2, 1)", "B"),
        ("mid(symbol, 2)", "BM"),
        ("len('a\U0001f600')", 2),
        ("instr(symbol, 'M')", 3),
        ("index(symbol, 'x')", 0),
        ("instr('abab', 'a', 2)", 3),
        ("trim('  a ') & '|'", "a|"),
        ("replace('aXbX', 'X', '--')", "a--b--"),
        ("replace('ab', '', 'x')", "ab"),
        ("compare('a', 'b')", -1),
        ("match_string(symbol, 'I*')", 1),
        ("match_string(symbol, 'I?')", 0),
        ("match_string('a.c', 'a.c')", 1),
        ("match_string('abc', 'a.c')", 0),
        ("regex(symbol, '^I.M$')", 1),
        ("regex(symbol, '\\d')", 0),
        ("tostring(1.0)", "1.0"),
        ("tostring(0.1)", "0.1"),
        ("tostring(cash)", "1.2345"),
        ("tostring(-cash)", "-1.2345"),
        ("tostring(day)", "2023-11-14 22:13:20"),
        ("'' & time", "2023-11-14 22:13:20.123456"),
        ("toint('12')", 12),
        ("toint(' -3.9 ')", -3),
        ("toint(-3.9)", -3),
        ("todouble('1e3')", 1000.0),
        ("tomoney(1.23456)", 12_346),
        ("tomoney(2)", 20_000),
        ("-7 % 3", -1),
        ("7 % -3", 1),
        ("mod(7.5, 2)", 1.5),
        ("round(2.5)", 3.0),
        ("round(-2.5)", -3.0),
        ("round(2.675, 2)", 2.68),
        ("round(1234, -2)", 1200.0),
        ("floor(-0.5)", -1.0),
        ("ceil(1.2)", 2.0),
        ("floor(ID)", 7),
        ("sign(-2.5)", -1),
        ("pow(2, 10)", 1024.0),
        ("sqrt(9)", 3.0),
        ("min(3, 1.5, 2)", 1.5),
        ("max('a', 'b')", "b"),
        ("size(v)", 3),
        ("v[3]", 3.0),
        ("year(day)", 2023),
        ("month(time)", 11),
        ("day(time)", 14),
        ("hour(day)", 22),
        ("minute(day)", 13),
        ("second(time)", 20),
        ("weekday(day)", 2),
        ("formatdate(day, 'DD.MM.YY hh:mm')", "14.11.23 22:13"),
        ("dateadd(time, 43200) - time", 0.5),
        ("dateadd(day, 43200) - day", 0.5),
        ("todate(time) == day", 1),
        ("tostamp(day) <= time", 1),
        ("day > 1600000000", 1),
        ("cash > 1", 1),
        ("cash == 1.2345", 1),
        ("UPPER('a') & Lower('B')", "Ab"),
        ("TRUE AND NOT FALSE", 1),
        ("`end` + $ID", 106),
        ("`big-one` * 2", 10),
        ("'it''s' & \"a\\tb\\n\" & 'x\\'y'", "it'sa\tb\nx'y"),
        ("1 // a remark\n + /* another */ 2", 3),
        ("ID = 7", 1),
        ("ID <> 7", 0),
        (".5 + 1e-1", 0.6),
    ],
)
def test_functions_and_literals(text: str, wanted: object) -> None:
    found = value(text)
    assert (type(found), found) == (type(wanted), wanted)


def test_integers_are_compared_exactly_and_with_doubles_as_doubles() -> None:
    assert value("9007199254740993 == 9007199254740992") == 0
    assert value("9007199254740993 == 9007199254740992.0") == 1


def test_not_a_number_is_equal_to_nothing() -> None:
    infinite = "(1e308 * 10)"
    assert value(f"{infinite} - {infinite} == {infinite} - {infinite}") == 0
    assert math.isnan(value(f"{infinite} - {infinite}"))


def test_texts_do_not_grow_without_bound() -> None:
    scope = Scope((("s", FieldType.STRING),))
    long = "ab" * 2**18
    for text in ("s & s & s", "replace(s, 'a', 'bbbb')", "upper(s & s & s)"):
        assert compile_expression(text, scope).evaluate((long,), Environment()) is None
    assert compile_expression("s & s", scope).evaluate((long,), Environment()) == long * 2


def test_the_clock_is_the_models_and_is_named() -> None:
    expression = compile_expression("now() - tostamp(today())", SCOPE)
    assert expression.clocks == ("now", "today")
    assert not expression.is_pure
    assert expression.evaluate(ROW, Environment(clock_us=5_000_001)) == 1 / 86_400_000_000


def test_opcode_and_flags() -> None:
    text = 'if instr(ESP_FLAGS,"R") then return 0 else return 1'
    assert value(text, flags="N") == 1
    assert value(text, flags="NR") == 0
    assert value("esp_opcode == 'D'", opcode="D") == 1
    assert not compile_expression("ESP_OPCODE", SCOPE).is_pure


def test_the_fields_used_are_known() -> None:
    expression = compile_expression("if price > 1 then quantity else `ID`", SCOPE)
    assert expression.fields == {"price", "quantity", "ID"}
    assert expression.is_pure
    assert expression.initial() == []


def test_nothing_but_null_takes_the_type_that_is_wanted() -> None:
    assert compile_expression("null", SCOPE).type is FieldType.INT32
    assert compile_expression("null", SCOPE, wanted=FieldType.STRING).type is FieldType.STRING


# Programs and what they keep


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("integer x x = ID + 1 return x * 2", 16),
        ("private integer p\n p = ID;\n return (p+5) * 3;", 36),
        ("integer a, b = 2; a = b; a + b", 4),
        ("real r; r = ID; r", 7.0),
        ("string s; if ID > 5 then s = 'big' else s = 'small'; return s", "big"),
        ("integer x; if ID > 9 then begin x = 1; return x end; return 2", 2),
        ("if (ID > 5) return 1; else return 2.5", 1.0),
        ("if ID > 9 then return 1", None),
        ("int32 x = 3000000000; x", None),
        ("integer x; x", None),
        ("integer x = 1; if x = 1 then x = x + 1; x", 2),
        ("begin begin return 4; end end", 4),
    ],
)
def test_programs(text: str, wanted: object) -> None:
    assert value(text) == wanted


def test_a_programs_own_variables_begin_anew_for_every_event() -> None:
    expression = compile_expression("integer x; if ID > 0 then x = coalesce(x, 0) + 1; return x", SCOPE)
    environment = Environment()
    assert [expression.evaluate(ROW, environment) for _ in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("text", ["integer counter counter=0", "integer counter; counter=0;", "integer counter = 0"])
def test_initialized_variables_are_kept_from_event_to_event(text: str) -> None:
    # Given
    expression = compile_expression("counter=counter+1 return counter", SCOPE, initialize=Initializer(text=text))
    environment = Environment(variables=expression.initial())
    # When
    found = [expression.evaluate(ROW, environment) for _ in range(3)]
    # Then
    assert found == [1, 2, 3]
    assert environment.variables == [3]
    assert expression.initial() == [0]
    assert not expression.is_pure


def test_several_expressions_share_the_variables() -> None:
    initialize = Initializer(text="integer n; string last; n = 0")
    first = compile_expression("n = n + 1; last = symbol; n", SCOPE, initialize=initialize)
    second = compile_expression("last & n", SCOPE, initialize=initialize)
    unrelated = compile_expression("price", SCOPE, initialize=initialize)
    environment = Environment(variables=first.initial())
    assert environment.variables == [0, None]
    assert first.evaluate(ROW, environment) == 1
    assert second.evaluate(ROW, environment) == "IBM1"
    assert unrelated.is_pure


def test_a_rate_by_the_models_clock() -> None:
    # Given a compute that counts trades since its start; the difference of two dates is a number of days
    initialize = Initializer(text="integer trades; trades=0; date begun; integer span; begun=Today()")
    text = "trades=trades+1; span=round((Today()-begun)*86400); if (span != 0) return trades/span;"
    expression = compile_expression(text, SCOPE, initialize=initialize)
    environment = Environment(variables=expression.initial(clock_us=10_000_000))
    # When the clock moves by two seconds an event
    found = []
    for second in (10, 12, 14):
        environment.clock_us = second * 1_000_000
        found.append(expression.evaluate(ROW, environment))
    # Then
    assert found == [None, 1.0, 0.75]
    assert expression.clocks == ("today",)


def test_the_reference_names_every_function() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "expressions.md").read_text(encoding="utf-8").lower()
    names = [*FUNCTIONS, *(f"esp_a{name}" for name in AGGREGATES), *TYPES]
    assert [name for name in names if f"`{name}(" not in page and f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("2.9", "int32", 2),
        ("-2.9", "int64", -2),
        ("7", "string", "7"),
        ("1.5", "string", "1.5"),
        ("' 12 '", "int64", 12),
        ("'none'", "int64", None),
        ("'1.25'", "double", 1.25),
        ("1.25", "money", 12_500),
        ("tomoney(1.25)", "double", 1.25),
        ("tostamp(1000000)", "date", 1),
        ("todate(1)", "stamp", 1_000_000),
        ("todate(0)", "string", "1970-01-01 00:00:00"),
    ],
)
def test_what_a_field_takes_becomes_of_its_type_by_rows_and_by_columns(text, kind, expected) -> None:
    expression = compile_expression(text, SCOPE, wanted=FieldType(kind))
    assert expression.type is {"int32": FieldType.INT64}.get(kind, FieldType(kind))
    assert expression.evaluate(ROW, Environment()) == expected
    [column] = expression.on_columns({}, 1).cast(expression.type.arrow).to_pylist()
    assert column == expected or expression.type is FieldType.DATE or expression.type is FieldType.STAMP


def test_what_has_no_form_of_a_type_stays_as_it_is() -> None:
    assert compile_expression("2.5", SCOPE, wanted=FieldType.DATE).type is FieldType.DOUBLE
    assert compile_expression("'x'", SCOPE, wanted=FieldType.STAMP).type is FieldType.STRING


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("todate(86400) - todate(0)", 1.0),
        ("(tostamp(1500000) - tostamp(0)) * 86400", 1.5),
        ("toint(todate(0) + 2)", 172_800),
        ("toint(todate(172800) - 0.5)", 129_600),
        ("toint(0.5 + tostamp(0))", 43_200_000_000),
        ("toint(tostamp(0) + 0.0000000000001)", 0),
        ("isnull(todate(0) + null)", 1),
    ],
)
def test_times_are_counted_in_days(text, expected) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("isblank('')", 1), ("isblank(' \t')", 1), ("isblank('a')", 0)])
def test_blank(text, expected) -> None:
    assert value(text) == expected
    assert value("isblank(null)") == 1
    assert value("isblank(7)") == 0


def test_angles() -> None:
    assert value("sin(0) + cos(0) + tan(0)") == 1.0
    assert value("round(4 * atan(1), 10)") == round(math.pi, 10)
    assert value("atan2(0, 0 - 1)") == math.pi
    assert value("asin(2)") is None
    assert value("acos(1)") == 0.0
