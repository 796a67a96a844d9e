"""Regex objects in expressions: a pattern is compiled by an initializer or a step, and looked for in texts."""

from __future__ import annotations

import pytest

from lockstep.engine.errors import BadExpression
from lockstep.engine.events.schema import FieldType, Schema
from lockstep.engine.language.compiler import Environment, Scope, compile_expression
from lockstep.engine.model.windows import Initializer

SCOPE = Scope.of(Schema.parse("id*:int64,city:string,pattern:string"))
APEX = Initializer(type=FieldType.INT32, text='regex r\n r.compile("Ap+ex")\n return 5')


def value(text: str, city: str | None = "Apex", pattern: str | None = "", initialize: Initializer | None = None):
    expression = compile_expression(text, SCOPE, initialize=initialize)
    environment = Environment(variables=expression.initial())
    return expression.evaluate((1, city, pattern), environment)


@pytest.mark.parametrize(("city", "found"), [("Apex", 1), ("in Appex, NC", 1), ("apex", 0), ("", 0), (None, 0)])
def test_an_object_of_the_initializer_finds_its_pattern_anywhere_in_a_text(city, found):
    assert value("if r.findfirst(city) then return 1 else return 0", city, initialize=APEX) == found


def test_an_object_of_the_expression_takes_any_pattern_even_none():
    text = "regex x x.compile(pattern) return x.findFirst(city)"
    assert [value(text, "Apex", pattern) for pattern in ("^A", "x$", "^p", "(", None)] == [1, 1, 0, 0, None]
    assert value("regex x return x.findfirst(city)") is None, "nothing was compiled"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("regex x x.compile('(') return 1", "is not a pattern"),
        ("regex x x.compile() return 1", "compile takes the pattern"),
        ("regex x x.compile return 1", "compile takes the pattern"),
        ("regex x return x.findfirst('a', 'b')", "findfirst takes a text"),
        ("regex x return x.matchstart()", "regex objects have no 'matchstart'"),
        ("y.findfirst(city)", "'y' is no regex object"),
        ("y.compile('a') return 1", "'y' is no regex object"),
        ("regex x return x.findfirst(id.a)", "'id' is no regex object"),
        (".findfirst(city, 'a')", "a value is missing"),
    ],
)
def test_faults_are_told_with_their_place(text, why):
    with pytest.raises(BadExpression, match=why):
        compile_expression(text, SCOPE)


def test_functions_that_are_not_there_are_never_answered_with_a_method():
    with pytest.raises(BadExpression) as caught:
        compile_expression("findfrst(city)", SCOPE)
    assert ".findfirst" not in str(caught.value.params)
