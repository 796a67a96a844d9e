"""Functions that a window's initializer defines."""

from __future__ import annotations

import pyarrow as pa
import pytest
from engine_models import Run, chain

from lockstep.engine.errors import BadExpression
from lockstep.engine.events.schema import FieldType, Schema
from lockstep.engine.language.compiler import (
    Environment,
    Expression,
    Scope,
    compile_aggregate,
    compile_expression,
)
from lockstep.engine.model.loading import parse_xml, to_xml
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import (
    AggregateWindow,
    ComputeWindow,
    FilterWindow,
    Initializer,
    SourceWindow,
    UserFunction,
)

SCHEMA = Schema.parse("id*:int32,s:string,x:double,n:int64")
SCOPE = Scope.of(SCHEMA)
ROWS = ((1, "a", 1.5, 3), (2, None, None, None), (3, "Zürich", float("inf"), 2**63 - 1), (4, "", -0.0, -(2**63)))


def initializer(text: str = "", **functions: str | tuple[str, FieldType]) -> Initializer:
    made = []
    for name, content in functions.items():
        body, kind = (content, FieldType.INT64) if isinstance(content, str) else content
        made.append(UserFunction(name=name, text=body, type=kind))
    return Initializer(text=text, functions=tuple(made))


def expression(text: str, start: str = "", **functions: str | tuple[str, FieldType]) -> Expression:
    return compile_expression(text, SCOPE, initialize=initializer(start, **functions))


def value(text: str, **functions: str | tuple[str, FieldType]) -> object:
    return expression(text, **functions).evaluate(ROWS[0], Environment())


DOUBLE, STRING = FieldType.DOUBLE, FieldType.STRING


@pytest.mark.parametrize(
    ("text", "functions", "wanted"),
    [
        ("twice(n)", {"twice": "parameter(1) * 2"}, 6),
        ("TWICE(2) + twice(id)", {"Twice": "return parameter(1) * 2"}, 6),
        ("f(1, 2)", {"f": "parametercount() * 10 + parameter(2)"}, 22),
        ("f(7)", {"f": "coalesce(parameter(2), parameter(1))"}, 7),
        ("f(null)", {"f": "isnull(parameter(1))"}, 1),
        ("f(x)", {"f": ("parameter(1)", DOUBLE)}, 1.5),
        ("f(n)", {"f": ("parameter(1)", DOUBLE)}, 3.0),
        ("f(s) & f(n)", {"f": ("'<' & parameter(1) & '>'", STRING)}, "<a><3>"),
        ("f()", {"f": "n + 1"}, 4),
        ("f(4)", {"f": "private integer n; n = parameter(1); return n * n"}, 16),
        ("f(g(2))", {"f": "g(parameter(1)) + g(10)", "g": "parameter(1) + 1"}, 15),
        ("f('b')", {"f": "regex('abc', parameter(1))"}, 1),
        ("max(n)", {"max": "parameter(1) + 100"}, 103),
        ("integer a = 5 integer b = f(a) return a * 100 + b", {"f": "integer a = 1 return parameter(1) + a"}, 506),
        ("f(x)", {"f": "parameter(1)"}, 1),
        ("f(n)", {"f": ("if parameter(1) > 2\nreturn 1\nelse\nreturn 0", STRING)}, "1"),
        ("f('17')", {"f": "parameter(1)"}, 17),
        ("if f(n) > 3 then 'big' else 'small'", {"f": "if parameter(1) > 2 then return 9 else return 0"}, "big"),
    ],
)
def test_a_call_is_what_the_function_says_of_its_parameters(text, functions, wanted):
    assert value(text, **functions) == wanted


def test_the_declared_type_is_that_of_the_call():
    assert expression("f(1)", f=("parameter(1)", DOUBLE)).type is DOUBLE
    assert value("f(n * 1000000000000)", f=("parameter(1)", FieldType.INT32)) is None, "it does not fit"


@pytest.mark.parametrize(
    ("text", "functions"),
    [
        ("f(x, n)", {"f": ("parameter(1) * parameter(2) + x", DOUBLE)}),
        ("f(s) & g(id)", {"f": ("upper(parameter(1))", STRING), "g": ("parameter(1)", FieldType.INT32)}),
        ("f(n, id) + f(id, n)", {"f": "integer a = parameter(1) if a > 2 then return a else return parameter(2)"}),
        ("f(g(n), x)", {"f": ("if parameter(1) > 0 then parameter(2) else x", DOUBLE), "g": "parameter(1) - n + id"}),
        ("f(s)", {"f": ("1", DOUBLE)}),
        ("f(x)", {"f": ("if parameter(1) > 0 begin return parameter(1) end else begin return 1 end", FieldType.INT32)}),
        ("f(x)", {"f": ("parameter(1)", STRING)}),
        ("f(s)", {"f": "s"}),
        ("f(null)", {"f": "coalesce(parameter(1), n)"}),
    ],
)
def test_columns_give_what_rows_give(text, functions):
    found = expression(text, **functions)
    columns = {
        field.name: pa.array([row[place] for row in ROWS], field.type.arrow) for place, field in enumerate(SCHEMA)
    }
    assert found.is_pure
    on_columns = found.on_columns({name: columns[name] for name in found.fields}, len(ROWS))
    assert [repr(each) for each in on_columns.to_pylist()] == [repr(found.evaluate(row, Environment())) for row in ROWS]


def test_what_a_function_uses_is_used_by_the_expression():
    assert expression("f(x)", f="n + parametercount()").fields == {"n", "x"}
    clocked = expression("f()", f=("now()", FieldType.STAMP))
    assert (clocked.clocks, clocked.is_pure) == (("now",), False)


def test_variables_of_the_initializer_are_shared_and_arguments_are_evaluated_once():
    found = expression(
        "f(next())", "integer count count = 10", f="parameter(1) * 100 + parameter(1)", next="count = count + 1 count"
    )
    environment = Environment(variables=found.initial())
    assert [found.evaluate(ROWS[0], environment) for _ in range(2)] == [1111, 1212]
    assert environment.variables == [12]
    assert not found.is_pure


def test_the_initializer_itself_can_call_them():
    assert expression("a", "integer a a = f(4)", f="parameter(1) * 2").initial() == [8]


def test_aggregates_take_them_inside_and_outside():
    functions = initializer(f="parameter(1) * 2", g=("parameter(1) / 2", DOUBLE))
    found = compile_aggregate("g(ESP_aSum(f(n)))", SCOPE, initialize=functions)
    assert found.calls[0].arguments[0].evaluate(ROWS[0], Environment()) == 6
    assert found.combine.evaluate((7,), Environment()) == 3.5
    assert found.fields == {"n"}


def doubling(count: int) -> dict[str, str]:
    calls = {f"f{n}": f"f{n - 1}(parameter(1)) + f{n - 1}(parameter(1))" for n in range(1, count)}
    return {"f0": "parameter(1)", **calls}


@pytest.mark.parametrize(
    ("text", "functions", "reason"),
    [
        ("f(1)", {"f": "f(parameter(1) - 1)"}, "the function f calls itself"),
        ("f(1)", {"f": "g(1)", "g": "h(1)", "h": "f(1)"}, "the function f calls itself"),
        ("f39(1)", doubling(40), "more than 1000 calls"),
        ("f39(1)", {name: text.partition(" + ")[0] for name, text in doubling(40).items()}, "deeper than 200 levels"),
        ("f()", {"f": ("s", FieldType.DATE)}, "of what f returns, a value of type string can't be of type date"),
        ("f()", {"f": "1 +"}, "a value is missing"),
        ("1", {"f": "1 +"}, "a value is missing"),
        ("1", {"f": ""}, "the function f is empty"),
        ("1", {"f": "1", "F": "2"}, "two functions are called F"),
        ("1", {"parameter": "1"}, "can't be called 'parameter'"),
        ("1", {"ESP_aSum": "1"}, "can't be called 'ESP_aSum'"),
        ("parameter(1)", {"f": "1"}, "there is no function parameter"),
        ("f(1)", {"f": "parameter(n)"}, "number of a parameter must stand"),
        ("f(1)", {"f": "parameter()"}, "number of a parameter must stand"),
        ("f(1)", {"f": "parameter(0)"}, "number of a parameter must stand"),
        ("integer a = 1 return f()", {"f": "a"}, "there is no field 'a'"),
        ("f()", {"f": "integer a integer a return 1"}, "'a' is declared already"),
        ("f('a')", {"f": "parameter(1) * 2"}, "string"),
    ],
)
def test_what_can_not_be_is_told(text, functions, reason):
    with pytest.raises(BadExpression) as caught:
        expression(text, **functions)
    assert reason in caught.value.params["reason"]


def test_the_deepest_that_is_allowed_runs():
    deep = "1" + " + 1" * 90
    functions = {"f": f"parameter(1) + {deep}", "g": f"f(parameter(1)) + {deep[:77]}"}
    assert value("(" * 40 + "g(n)" + ")" * 40, **functions) == 3 + 91 + 20


XML = """<project name='p' pubsub='auto' threads='1'><contqueries><contquery name='q'><windows>
<window-source name='s'><schema-string>id*:int32,n:int32</schema-string></window-source>
<window-compute name='c'><schema-string>id*:int32,m:int32</schema-string>
<expr-initialize><initializer type='int32'><![CDATA[integer counter counter=0]]></initializer>
<udfs><udf name='udf1' type='int32'><![CDATA[private integer p p = parameter(1); return p*10;]]></udf></udfs>
</expr-initialize><output><field-expr>counter=counter+1 return udf1(n)+counter</field-expr></output></window-compute>
</windows><edges><edge source='s' target='c'/></edges></contquery></contqueries></project>"""


def test_a_model_with_udfs_runs():
    project = parse_xml(XML, "test")
    assert parse_xml(to_xml(project), "test") == project
    run = Run(compile_project(project), "c")
    assert run.send("s", "i,1,4", "i,2,5") == ["I,N,1,41", "I,N,2,52"]


def test_filters_computes_and_aggregates_know_them():
    functions = initializer(f="parameter(1) * 2")
    source = SourceWindow(name="in", schema=Schema.parse("id*:int32,n:int64"))
    kept = FilterWindow(name="kept", expression="f(n) > 4", initialize=functions)
    made = ComputeWindow(name="made", schema=Schema.parse("id*:int32,n:int64"), fields=("f(n)",), initialize=functions)
    summed = AggregateWindow(
        name="summed", schema=Schema.parse("id*:int32,n:int64"), fields=("ESP_aSum(f(n)) + f(1)",), initialize=functions
    )
    run = Run(chain(source, kept, made, summed), "summed")
    assert run.send("in", "i,1,2", "i,2,3") == ["I,N,2,14"]
