"""The function language: what functions give, and what is refused when a model is loaded."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.errors import BadExpression
from lockstep.engine.events.schema import FieldType, Schema
from lockstep.engine.reference.function_documents import (
    MAX_DEPTH,
    Unreadable,
    json_at,
    json_steps,
    read_json,
    read_xml,
    xml_at,
    xml_steps,
)
from lockstep.engine.reference.function_language import Names, check_function, compile_function
from lockstep.engine.reference.function_special import Context
from lockstep.engine.reference.function_values import fit, made

VALUES = {"a": "left", "b": "right", "n": 7, "x": 2.5, "nothing": None, "t": 1_381_498_277, "list": "3,1,2"}
JSON = '{"type":"Point","at":{"xy":[1,2.5,"z"]},"on":true,"off":null,"list":[{"v":1},{"v":2}]}'
XML = "<order id='7'><line n='1'>one</line><line n='2'>two &amp; more</line><empty/></order>"


def evaluate(text, **context):
    values = {**VALUES, "json": JSON, "xml": XML}
    function = compile_function(text, Names(tuple(values), ("p",), {"digits": r"\d+"}))
    return function.evaluate(Context(values=values, properties={"p": "prop"}, **context))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("5", 5),
        ("-1.5e2", -150.0),
        ("'it''s'", "it's"),
        ('"x"', "x"),
        ("null", None),
        ("true", 1),
        ("$a", "left"),
        ("#p", "prop"),
        ("concat($a,'-',$b)", "left-right"),
        ("string($n,$nothing,'-',$x)", "7-2.5"),
        ("concat($nothing)", None),
        ("sum($n,1)", 8),
        ("sum($n, $nothing, '2', )", 9),
        ("sum($nothing)", None),
        ("mean(1,2)", 1.5),
        ("diff(10,3,2)", 5),
        ("diff($nothing,3)", None),
        ("product($n,$x)", 17.5),
        ("quotient(7,2)", 3.5),
        ("quotient(7,0)", None),
        ("mod(-7,3)", -1),
        ("mod(9007199254740993,2)", 1),
        ("mod(7.5,2)", 1.5),
        ("max(1,'10',9)", "10"),
        ("min('b','a',$nothing)", "a"),
        ("abs(-3)", 3),
        ("floor(-2.5)", -3),
        ("ceiling(2.1)", 3),
        ("round(2.567,2)", 2.57),
        ("round(7)", 7),
        ("integer('12.9')", 12),
        ("long('x')", None),
        ("number(' 4.5 ')", 4.5),
        ("boolean('false')", 0),
        ("if(gt($x,5),'hi','lo')", "lo"),
        ("if(gt($n,5),'hi')", "hi"),
        ("if (equals($a,'other'),1)", None),
        ("equals(1,'1.0')", 1),
        ("equals($nothing,1)", None),
        ("notEquals('a','b')", 1),
        ("gte(2,2)", 1),
        ("lt('10','9')", 0),
        ("lt('b','c')", 1),
        ("between(5,1,5)", 1),
        ("and(1,'x',0)", 0),
        ("or(0,'',2)", 1),
        ("not(equals(1,2))", 1),
        ("isNull($nothing)", 1),
        ("firstSet($nothing,$a)", "left"),
        ("substring($a,1,2)", "ef"),
        ("substring($a,-2)", "ft"),
        ("substringBefore('a.b.c','.')", "a"),
        ("substringAfter('a.b.c','.')", "b.c"),
        ("substringBeforeLast('a.b.c','.')", "a.b"),
        ("substringAfterLast('a.b.c','.')", "c"),
        ("stringLength($a)", 4),
        ("toUpper($a)", "LEFT"),
        ("toLower('ÄB')", "äb"),
        ("trim('  x ')", "x"),
        ("normalizeSpace(translate('[1,2]','[],','   '))", "1 2"),
        ("translate('abc','ac','x')", "xb"),
        ("replace('a-b-c','-','+')", "a+b+c"),
        ("contains($a,'ef')", 1),
        ("startsWith($a,'x')", 0),
        ("endsWith($a,'ft')", 1),
        ("indexOf($a,'f')", 2),
        ("indexOf($a,'z')", None),
        ("urlDecode(urlEncode('a b/ü'))", "a b/ü"),
        ("listItem($list,',',1)", "1"),
        ("listItem($list,',',9)", None),
        ("listSize($list,',')", 3),
        ("listContains($list,',','2')", 1),
        ('listItem(\'["a","b"]\',1)', "b"),
        ("mapValue('a=1;b=2',';','=','b')", "2"),
        ("mapValue('{\"a\":5}','a')", 5),
        ("json($json,'type')", "Point"),
        ("json($json,'$.at.xy[1]')", 2.5),
        ("json($json,'at')", '{"xy":[1,2.5,"z"]}'),
        ("json($json,'on')", 1),
        ("json($json,'off')", None),
        ("json($json,'no.such.thing')", None),
        ("json($nothing,'a')", None),
        ("xpath($xml,'./line/text()')", "one"),
        ("xpath($xml,'//line/text()','|')", "one|two & more"),
        ("xpath($xml,'line[2]/@n')", "2"),
        ("xpath($xml,'/order/@id')", "7"),
        ("xpath($xml,'line[2]')", '<line n="2">two &amp; more</line>'),
        ("xpath($xml,'*/@n','+')", "1+2"),
        ("xpath($xml,'none/text()')", None),
        ("rgx('([a-z])=([0-9]+)','x=42',2)", "42"),
        ("rgx($a,'e.')", "ef"),
        ("rgx(#digits,'ab12')", "12"),
        ("rgx('(a)|(b)','b',1)", ""),
        ("rgx('a','b')", None),
        ("rgxV('[0-9]+','1 22 333')", "1,22,333"),
        ("rgxV('([a-z])[0-9]','a1b2','',1)", "ab"),
        ("rgxV('(a)|b','ab','-',1)", "a-"),
        ("rgxV('x*','aXb','-')", "---"),
        ("rgxMatch('^l',$a)", 1),
        ("rgxReplace($a,'e(.)','$1$1')", "lfft"),
        ("rgxReplaceAll('[aeiou]','banana','_')", "b_n_n_"),
        ("rgxReplaceAll('(.)(.)','abcde','$2$1$0$3')", "baab$3dccd$3e"),
        ("rgxReplaceAll('none','banana','_')", "banana"),
        ("timeGmtString($t,'%Y-%m-%d %H:%M:%S')", "2013-10-11 13:31:17"),
        ("timeString(0,'%D %T')", "01/01/70 00:00:00"),
        ("timeParse('2013-10-11 13:31:17')", 1_381_498_277),
        ("timeParse('13:30:00','%H:%M:%S')", 48_600),
        ("timeParse('2013-02-30','%F')", None),
        ("timeSecondOfDay($t)", 48_677),
        ("timeDayOfWeek(0)", 4),
        ("timeYear($t)", 2013),
        ("timeDayOfYear($t)", 284),
        ("timeString(99999999999999)", None),
    ],
)
def test_functions(text, value):
    assert evaluate(text) == value


def test_functions_about_the_event():
    context = {"input": "trades", "opcode": "UB", "flags": "R", "counter": 5, "number": 2, "clock_us": 90_061_000_000}
    assert evaluate("eventCounter()", **context) == 5
    assert evaluate("eventNumber()", **context) == 2
    assert evaluate("input()", **context) == "trades"
    assert evaluate("concat(eventOpcode(),eventFlags())", **context) == "UBR"
    assert evaluate("timeCurrent()", **context) == 90_061
    assert evaluate("timeToday()", **context) == 86_400


def test_a_function_says_what_it_uses():
    function = compile_function("sum($n,timeCurrent(),$x,eventCounter())", Names(("n", "x")))
    assert function.fields == {"n", "x"}
    assert function.clocks == ("timeCurrent",)
    assert function.uses_numbers


@pytest.mark.parametrize(
    ("text", "at", "reason"),
    [
        ("$missing", 1, "there is no field 'missing'"),
        ("#missing", 1, "there is no property 'missing'"),
        ("summ(1)", 1, "there is no function 'summ'"),
        ("random(1,2,3)", 1, "random takes 0 to 2 argument"),
        ("one", 1, "'one' is neither a function nor a field"),
        ("concat($a", 1, "the function that begins here has no end"),
        ("concat($a;1)", 10, ", or ) is expected here"),
        ("concat(;)", 8, "';' means nothing here"),
        ("concat($a 1)", 11, ", or ) is expected here"),
        ("concat(,)", 8, "',' means nothing here"),
        ("'open", 1, "the text that begins here has no end"),
        ("word", 1, "'word' is neither a function nor a field"),
        ("1 2", 3, "nothing may follow the function"),
        ("abs(1,2)", 1, "abs takes 1 argument(s), not 2"),
        ("json($a,$b)", 9, "a text is needed here that is written out"),
        ("json($a,'a..b')", 9, "is not like a.b[0].c"),
        ("xpath($a,'a[')", 10, "is not like ./a/b/text()"),
        ("rgx('(',$a)", 5, "the regular expression can't be read"),
        ("rgx('(a)(?=b)',$a)", 5, "invalid perl operator"),
        ("rgx($a,$b)", 5, "the regular expression must be written out"),
        ("timeString(1,'%Q')", 14, "the format is not known"),
        ("abs(" * 70 + "1" + ")" * 70, 261, "it is nested deeper than 64"),
    ],
)
def test_a_fault_is_told_with_its_character(text, at, reason):
    with pytest.raises(BadExpression, match=re.escape(reason)) as caught:
        compile_function(text, Names(("a", "b")))
    assert caught.value.params["at"] == at


def test_check_function_knows_the_schema_and_other_names():
    schema = Schema.parse("id*:int64,name:string")
    check_function("concat($id,$name,$more,#p)", schema, ("more",), ("p",))
    with pytest.raises(BadExpression, match="Did you mean name"):
        check_function("$nam", schema)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="abs(),'$#\"1 -.concatif", max_size=40))
def test_any_text_is_a_function_or_refused(text):
    try:
        compile_function(text, Names(("a", "b"))).evaluate(Context(values={"a": 1}))
    except BadExpression as error:
        place = error.params["at"]
    else:
        place = 1
    assert 1 <= place <= len(text) + 1


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["sum", "diff", "product", "quotient", "mod", "max", "compare", "substring", "round"]),
    st.lists(st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=8)), min_size=2, max_size=2),
)
def test_functions_never_raise(name, values):
    function = compile_function(f"{name}($a,$b)", Names(("a", "b")))
    result = function.evaluate(Context(values=dict(zip("ab", values, strict=True))))
    for kind in (FieldType.INT32, FieldType.DOUBLE, FieldType.STRING, FieldType.MONEY):
        fit(kind, result)
        made(kind, result)


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        (FieldType.INT32, 2**31, (None, "overflow")),
        (FieldType.INT32, 2.9, (2, None)),
        (FieldType.INT64, "12", (12, None)),
        (FieldType.INT64, "twelve", (None, "wrong-type")),
        (FieldType.INT64, "", (None, None)),
        (FieldType.DOUBLE, 3, (3.0, None)),
        (FieldType.DOUBLE, 10**400, (None, "overflow")),
        (FieldType.STRING, 3, ("3", None)),
        (FieldType.STRING, "\ud800", ("?", None)),
        (FieldType.BLOB, "ü", ("ü".encode(), None)),
        (FieldType.ARRAY_INT32, (1, None), ((1, None), None)),
        (FieldType.ARRAY_INT32, "1", (None, "wrong-type")),
        (FieldType.MONEY, 5, (5, None)),
    ],
)
def test_values_are_fitted_into_fields(kind, value, found):
    assert fit(kind, value) == found


def test_money_is_a_number_of_its_unit_to_functions():
    assert made(FieldType.MONEY, 12.34) == (123_400, None)
    assert made(FieldType.MONEY, 5) == (50_000, None)


@pytest.mark.parametrize(
    "text",
    [
        "<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>",
        "<!DOCTYPE a SYSTEM 'http://example.invalid/a.dtd'><a/>",
        "<a>&unknown;</a>",
        "<a>",
        "",
        "<a>" * (MAX_DEPTH + 1) + "</a>" * (MAX_DEPTH + 1),
        "<a>" + "x" * 1_000_001 + "</a>",
    ],
)
def test_dangerous_or_broken_xml_is_refused(text):
    with pytest.raises(Unreadable):
        read_xml(text)


@pytest.mark.parametrize("text", ["", "{", "NaN", "[" * 65 + "]" * 65, "9" * 5000, '"' + "x" * 1_000_001 + '"'])
def test_broken_or_too_deep_json_is_refused(text):
    with pytest.raises(Unreadable):
        read_json(text)


def test_brackets_inside_json_texts_are_no_nesting():
    assert json_at(read_json('{"a":"' + "[" * 100 + '"}'), json_steps("a")) == "[" * 100


def test_what_can_not_be_read_is_null_and_complained_about():
    context = Context(values={"doc": "<broken", "long": "x" * 70_000})
    for text in ("json($doc,'a')", "xpath($doc,'a')", "rgx('x',$long)"):
        assert compile_function(text, Names(("doc", "long"))).evaluate(context) is None
    assert len(context.complaints) == 3


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(a|aa)+$", "(.*)(.*)(.*)(.*)(.*)x", "(a?){500}a{500}b"])
def test_no_pattern_takes_forever(pattern):
    # Given a pattern that makes a backtracking engine try more ways than there are atoms
    context = Context(values={"evil": "a" * 60_000 + "!"})
    # Then each function that searches ends all the same
    for text in ("rgx", "rgxV", "rgxMatch"):
        assert not compile_function(f"{text}('{pattern}',$evil)", Names(("evil",))).evaluate(context)
    replace = compile_function(f"rgxReplaceAll('{pattern}',$evil,'')", Names(("evil",)))
    assert replace.evaluate(context) == context.values["evil"]


def test_half_characters_and_marks_in_a_searched_text_do_no_harm():
    # JSON can smuggle half characters in; the marks are what the search itself puts between groups
    context = Context(values={"text": "\ud800\U000f0000b"})
    assert compile_function("rgx('(.)(.)(b)',$text,2)", Names(("text",))).evaluate(context) == "\U000f0000"
    assert compile_function("rgx('^.',$text)", Names(("text",))).evaluate(context) == "?"


def test_texts_stay_below_their_limit():
    context = Context(values={"long": "x" * 600_000})
    assert compile_function("concat($long,$long)", Names(("long",))).evaluate(context) is None
    assert compile_function("replace($long,'x','xx')", Names(("long",))).evaluate(context) is None
    assert len(context.complaints) == 2


def test_elements_come_back_as_xml():
    text = '<a q="&quot;x"><b>1 &lt; 2</b><c/></a>'
    assert xml_at(read_xml(text), xml_steps(".")) == ["<a q='\"x'><b>1 &lt; 2</b><c/></a>"]
    assert xml_at(read_xml(text), xml_steps("text()")) == []
