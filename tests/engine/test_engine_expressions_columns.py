"""Rows and columns give the same bits: random typed expressions on random rows, nulls and extremes among them."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.engine.events.schema import FieldType, Schema, fits
from lockstep.engine.language.compiler import Environment, Scope, compile_expression

SCHEMA = Schema.parse(
    "i*:int32,j:int64,k:int64,x:double,y:double,s:string,t:string,d:date,m:stamp,c:money,v:array(dbl),w:array(i64),z:blob"
)
SCOPE = Scope.of(SCHEMA)
STRANGE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF0_0000_DEAD_BEEF))[0]

int32s = st.sampled_from([0, 1, -1, 2, 3, 2**31 - 1, -(2**31)]) | st.integers(-(2**31), 2**31 - 1)
int64s = st.sampled_from(
    [0, 1, -1, 2, -3, 10_000, 2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 3_037_000_500, -(2**63) // 10_000]
) | st.integers(-(2**63), 2**63 - 1)
doubles = st.sampled_from(
    [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        0.49999999999999994,
        1e308,
        5e-324,
        2.0**52 + 0.5,
        2.0**63,
        -(2.0**63),
        float("inf"),
        float("-inf"),
        float("nan"),
        STRANGE_NAN,
        2.675,
        1e-5,
        1e16,
        123456789.125,
    ]
) | st.floats(allow_subnormal=True)
texts = st.sampled_from(
    ["", " ", "a", "A", "abc", "ß", "İ", "ﬃ", "e\u0301", "é", "\U0001f600", "\uffff", "\0", "12", "-1.5e3"]
) | st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
moments = int64s | st.integers(0, 2**31) | st.integers(0, 2**51)
VALUES = {
    FieldType.INT32: int32s,
    FieldType.INT64: int64s,
    FieldType.DOUBLE: doubles,
    FieldType.STRING: texts,
    FieldType.DATE: moments,
    FieldType.STAMP: moments,
    FieldType.MONEY: int64s,
    FieldType.BLOB: st.binary(max_size=3),
    FieldType.ARRAY_DOUBLE: st.lists(st.none() | doubles, max_size=3).map(tuple),
    FieldType.ARRAY_INT64: st.lists(st.none() | int64s, max_size=3).map(tuple),
}
rows = st.lists(
    st.tuples(*(st.none() | VALUES[field.type] for field in SCHEMA)),
    min_size=0,
    max_size=12,
)


def one_of(*texts: str) -> st.SearchStrategy[str]:
    return st.sampled_from(texts)


def filled(*forms: str, **parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Texts made of a form, with {name} replaced by what the strategy of that name draws, each time anew."""

    @st.composite
    def fill(draw: st.DrawFn) -> str:
        form = draw(st.sampled_from(forms))
        pieces = form.split("{")
        return pieces[0] + "".join(
            draw(parts[piece.partition("}")[0]]) + piece.partition("}")[2] for piece in pieces[1:]
        )

    return fill()


ints = st.deferred(lambda: int_leaves | int_forms)
reals = st.deferred(lambda: real_leaves | real_forms)
strings = st.deferred(lambda: string_leaves | string_forms)
dates = st.deferred(lambda: date_leaves | date_forms)
moneys = st.deferred(lambda: money_leaves | money_forms)
numbers = ints | reals | moneys
tests = st.deferred(lambda: comparisons | logic | ints | reals)

int_leaves = one_of(
    "i", "j", "k", "0", "1", "-7", "2147483648", "9223372036854775807", "(-9223372036854775808)", "w[1]", "null"
)
real_leaves = one_of("x", "y", "0.0", "-0.0", "0.5", "1e300", "v[2]", "v[i]")
string_leaves = one_of("s", "t", "''", "'a'", "'ß'", '"it\'s"', "tostring(null)")
date_leaves = one_of("d", "todate(m)", "todate(j)")
money_leaves = one_of("c", "tomoney(1.25)", "tomoney(x)", "tomoney(j)")

ARITHMETIC = one_of("+", "-", "*", "%")
COMPARING = one_of("==", "!=", "<>", "<", "<=", ">", ">=", "=")
both = {
    "n": numbers,
    "i": ints,
    "r": reals,
    "s": strings,
    "t": tests,
    "d": dates,
    "c": moneys,
    "a": ARITHMETIC,
    "o": COMPARING,
}
INT_FORMS = (
    "({i} {a} {i})", "(-{i})", "abs({i})", "toint({r})", "toint({n})", "len({s})", "instr({s}, {s}, {i})", "sign({n})",
    "round({i})", "min({i}, {i}, {i})", "max({i}, {i})", "if({t}, {i}, {i})", "coalesce({i}, {i})", "year({d})",
    "month(tostamp({d}))", "weekday({d})", "second(m)", "({d} - {d})", "({d} % 60)", "mod({i}, {i})", "size(v)",
    "w[{i}]", "compare({s}, {s})", "isnull({s})", "regex({s}, '[a-z]+')", "match_string({s}, '?*a*')",
    "toint(todate(m))", "toint({s})",
)  # fmt: skip
REAL_FORMS = (
    "({r} {a} {n})", "({n} {a} {r})", "({n} / {n})", "({n} ** {n})", "(-{r})", "abs({r})", "sqrt({n})", "floor({r})",
    "ceil({r})", "round({r})", "round({r}, 2)", "round({r}, {i})", "exp({r})", "log({n})", "log10({n})",
    "min({n}, {r})", "max({n}, {r})", "if({t}, {r}, {n})", "coalesce({r}, {i})", "todouble({s})", "todouble({n})",
    "todouble({d})", "v[{i}]", "({c} * {c})", "pow({r}, 2)",
)  # fmt: skip
STRING_FORMS = (
    "({s} & {s})", "({s} & {n})", "({d} & {s})", "upper({s})", "lower({s})", "left({s}, {i})", "right({s}, {i})",
    "mid({s}, {i}, {i})", "mid({s}, 2)", "trim({s})", "replace({s}, {s}, {s})", "tostring({n})", "if({t}, {s}, {s})",
    "coalesce({s}, {s})", "min({s}, {s})", "formatdate({d}, 'YYYY-MM-DD ' & {s})", "tostring(tostamp({d}))",
)  # fmt: skip
DATE_FORMS = (
    "({d} + {i})",
    "({d} - {i})",
    "dateadd({d}, {i})",
    "if({t}, {d}, {d})",
    "max({d}, {d})",
)
MONEY_FORMS = (
    "tomoney({r})",
    "({c} + {c})",
    "({c} - {i})",
    "({c} * {i})",
    "({c} % {c})",
    "(-{c})",
    "abs({c})",
    "if({t}, {c}, {i})",
)
COMPARISONS = (
    "({n} {o} {n})",
    "({s} {o} {s})",
    "({d} {o} {d})",
    "({d} {o} {i})",
    "({s} {o} 'a')",
    "(z == z)",
)
LOGIC = (
    "({t} and {t})",
    "({t} or {t})",
    "({t} xor {t})",
    "(not {t})",
    "(!{t})",
    "({t} && {t} || {t})",
    "isnull({n})",
)
PROGRAMS = (
    "integer p real q p = {i}; if {t} then q = {r} else begin q = p end return q",
    "string p p = {s} if {t} then return p else return {s} & 'b'",
    "if {t} then {i} else if {t} then {r}",
    "int32 p = {i}; p",
)
FORMS = INT_FORMS + REAL_FORMS + STRING_FORMS + DATE_FORMS + MONEY_FORMS + COMPARISONS + LOGIC + PROGRAMS
int_forms = filled(*INT_FORMS, **both)
real_forms = filled(*REAL_FORMS, **both)
string_forms = filled(*STRING_FORMS, **both)
date_forms = filled(*DATE_FORMS, **both)
money_forms = filled(*MONEY_FORMS, **both)
comparisons = filled(*COMPARISONS, **both)
logic = filled(*LOGIC, **both)
programs = filled(*PROGRAMS, **both)
expressions = (
    numbers | strings | dates | tests | programs | one_of("z", "v", "w", "m", "if(i, z, null)", "coalesce(w, w)")
)


def bits(value: object) -> object:
    """A value such that equal means equal to the bit."""
    if isinstance(value, tuple | list):
        return [bits(item) for item in value]
    return struct.pack("<d", value) if isinstance(value, float) else value


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(text=expressions, given_rows=rows, cut=st.integers(0, 3))
def test_columns_give_the_same_bits_as_rows(text: str, given_rows: list[tuple], cut: int) -> None:
    # Given an expression that fits the schema, and rows as columns that do not begin at the begin of their memory
    expression = compile_expression(text, SCOPE)
    kept = given_rows[cut:]
    columns = {
        field.name: pa.array([row[place] for row in given_rows], field.type.arrow).slice(cut)
        for place, field in enumerate(SCHEMA)
        if field.name in expression.fields
    }
    # When it is run on both
    found = expression.on_columns(columns, len(kept))
    wanted = [expression.evaluate(row, Environment()) for row in kept]
    # Then the values are the same, and of the promised type
    assert found.type == expression.type.arrow
    assert [bits(value) for value in found.to_pylist()] == [bits(value) for value in wanted]
    assert all(fits(expression.type, value) for value in wanted)


ALL_INTS = [0, 1, -1, 2, 7, -7, 2**31, 2**32 + 1, 2**53 + 1, 2**62, -(2**62), 2**63 - 1, -(2**63), 3_037_000_500, None]
ALL_DOUBLES = [0.0, -0.0, 0.5, -2.5, 1e308, -1e308, 5e-324, 2.0**63, float("inf"), float("-inf"), float("nan"), None]


@pytest.mark.parametrize(
    "operator", ["+", "-", "*", "/", "%", "**", "==", "!=", "<", "<=", ">", ">=", "and", "or", "xor"]
)
@pytest.mark.parametrize(("left", "right"), [("j", "k"), ("x", "y"), ("j", "x"), ("x", "k"), ("c", "k"), ("c", "x")])
def test_every_operator_on_every_pair_of_extremes(operator: str, left: str, right: str) -> None:
    expression = compile_expression(f"{left} {operator} {right}", SCOPE)
    places = SCHEMA.places
    sides = [ALL_DOUBLES if name in "xy" else ALL_INTS for name in (left, right)]
    pairs = [(first, second) for first in sides[0] for second in sides[1]]
    table = []
    for first, second in pairs:
        row: list[object] = [None] * len(SCHEMA)
        row[places[left]], row[places[right]] = first, second
        table.append(row)
    columns = {name: pa.array([row[places[name]] for row in table], SCHEMA[name].type.arrow) for name in (left, right)}
    found = expression.on_columns(columns, len(table)).to_pylist()
    assert [bits(value) for value in found] == [bits(expression.evaluate(row, Environment())) for row in table]


PLAIN = {"n": "c", "i": "j", "r": "x", "s": "s", "t": "x", "d": "d", "c": "c", "a": "*", "o": "<"}
ALL_TEXTS = ["", "a", "ß", "\U0001f600b", "12", None, "-1.5e3", " a ", "9223372036854775808", "\0"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_on_every_pair_of_extremes(form: str) -> None:
    # Given the form with plain fields in it, and rows with every pair of an extreme integer and an extreme double
    expression = compile_expression(form.format(**PLAIN), SCOPE)
    pairs = [(whole, real) for whole in ALL_INTS for real in ALL_DOUBLES]
    made = {
        "x": [real for _, real in pairs],
        "s": [ALL_TEXTS[place % len(ALL_TEXTS)] for place in range(len(pairs))],
        "v": [(real, None) for _, real in pairs],
        "w": [(whole,) for whole, _ in pairs],
        "z": [b"a" if whole else None for whole, _ in pairs],
    }
    table = [made.get(field.name, [whole for whole, _ in pairs]) for field in SCHEMA]
    columns = {name: pa.array(table[SCHEMA.places[name]], SCHEMA[name].type.arrow) for name in expression.fields}
    # Then rows and columns agree
    found = expression.on_columns(columns, len(pairs)).to_pylist()
    wanted = [expression.evaluate(row, Environment()) for row in zip(*table, strict=True)]
    assert [bits(value) for value in found] == [bits(value) for value in wanted]
    assert all(fits(expression.type, value) for value in wanted)


def test_a_plain_field_is_its_column_without_a_copy() -> None:
    column = pa.array(["a", None, "b"])
    assert compile_expression("s", SCOPE).on_columns({"s": column}, 3) is column


def test_what_depends_on_more_than_the_row_is_not_run_on_columns() -> None:
    with pytest.raises(AssertionError):
        compile_expression("now()", SCOPE).on_columns({}, 1)
