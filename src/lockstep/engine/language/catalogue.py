"""The names of the language's functions; case does not matter."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.engine.language import builtins
from lockstep.engine.language import functions as make
from lockstep.engine.language.functions import Build
from lockstep.engine.language.operators import arithmetic
from lockstep.engine.language.syntax import FIND_FIRST
from lockstep.engine.language.types import DATE, INT32, STAMP, STRING

_ANY = 64


@dataclass(frozen=True, slots=True)
class Function:
    """How a function is called: the fewest and the most arguments, and what makes code of them."""

    usage: str
    build: Build
    fewest: int
    most: int


_TEXTS = (
    Function("upper(text)", make.of_texts(builtins.upper, STRING, 1), 1, 1),
    Function("lower(text)", make.of_texts(builtins.lower, STRING, 1), 1, 1),
    Function("left(text, count)", make.of_texts(builtins.left, STRING, 1), 2, 2),
    Function("right(text, count)", make.of_texts(builtins.right, STRING, 1), 2, 2),
    Function("mid(text, start[, count])", make.of_texts(builtins.middle, STRING, 1), 2, 3),
    Function("len(text)", make.length, 1, 1),
    Function("instr(text, part[, start])", make.of_texts(builtins.place_of, INT32, 2), 2, 3),
    Function("trim(text)", make.of_texts(str.strip, STRING, 1), 1, 1),
    Function("ltrim(text)", make.of_texts(str.lstrip, STRING, 1), 1, 1),
    Function("rtrim(text)", make.of_texts(str.rstrip, STRING, 1), 1, 1),
    Function("replace(text, part, by)", make.of_texts(builtins.replaced, STRING, 3), 3, 3),
    Function("compare(text, text)", make.of_texts(builtins.order, INT32, 2), 2, 2),
    Function("match_string(text, 'with * and ?')", make.pattern(builtins.wildcards), 2, 2),
    Function("regex(text, 'pattern')", make.pattern(lambda pattern: pattern), 2, 2),
    Function("tostring(value)", builtins.to_text, 1, 1),
)
_NUMBERS = (
    Function("abs(number)", make.absolute, 1, 1),
    Function("sign(number)", make.sign, 1, 1),
    Function("round(number[, digits])", make.rounded, 1, 2),
    Function("floor(number)", make.by_type(builtins.SAME, builtins.FLOOR), 1, 1),
    Function("ceil(number)", make.by_type(builtins.SAME, builtins.CEIL), 1, 1),
    Function("sqrt(number)", make.doubles(builtins.SQRT), 1, 1),
    Function("exp(number)", make.doubles(builtins.EXP), 1, 1),
    Function("log(number)", make.doubles(builtins.LOG), 1, 1),
    Function("log10(number)", make.doubles(builtins.LOG10), 1, 1),
    Function("sin(number)", make.doubles(builtins.SIN), 1, 1),
    Function("cos(number)", make.doubles(builtins.COS), 1, 1),
    Function("tan(number)", make.doubles(builtins.TAN), 1, 1),
    Function("asin(number)", make.doubles(builtins.ASIN), 1, 1),
    Function("acos(number)", make.doubles(builtins.ACOS), 1, 1),
    Function("atan(number)", make.doubles(builtins.ATAN), 1, 1),
    Function("atan2(number, number)", make.doubles(builtins.ATAN2), 2, 2),
    Function("pow(number, number)", make.doubles(builtins.POWER), 2, 2),
    Function("mod(number, number)", lambda left, right: arithmetic("%", left, right), 2, 2),
    Function("min(value, value, ...)", make.extreme(builtins.MIN), 1, _ANY),
    Function("max(value, value, ...)", make.extreme(builtins.MAX), 1, _ANY),
    Function("toint(value)", make.toint, 1, 1),
    Function("todouble(value)", make.todouble, 1, 1),
    Function("tomoney(value)", make.tomoney, 1, 1),
)
_TIMES = (
    Function("today()", make.clock("today", DATE, builtins.MICROSECONDS), 0, 0),
    Function("now()", make.clock("now", STAMP, 1), 0, 0),
    Function("formatdate(time, 'YYYY-MM-DD hh:mm:ss')", make.formatdate, 2, 2),
    Function("dateadd(time, seconds)", make.dateadd, 2, 2),
    Function("todate(value)", make.todate, 1, 1),
    Function("tostamp(value)", make.tostamp, 1, 1),
    *(Function(f"{name}(time)", make.part(name), 1, 1) for name in builtins.PARTS),
)
_OTHERS = (
    Function("isnull(value)", make.isnull, 1, 1),
    Function("isblank(value)", make.isblank, 1, 1),
    Function("coalesce(value, value, ...)", make.coalesce, 1, _ANY),
    Function("if(condition, then[, else])", make.either, 2, 3),
    Function("size(array)", make.size, 1, 1),
)
_ALIASES = {
    "upcase": "upper",
    "lowcase": "lower",
    "substr": "mid",
    "length": "len",
    "index": "instr",
    "string": "tostring",
    "regex_match": "regex",
    "ceiling": "ceil",
    "ln": "log",
    "integer": "toint",
    "tointeger": "toint",
    "real": "todouble",
    "toreal": "todouble",
}
_BY_NAME = {function.usage.partition("(")[0]: function for function in (*_TEXTS, *_NUMBERS, *_TIMES, *_OTHERS)}
FUNCTIONS = _BY_NAME | {alias: _BY_NAME[name] for alias, name in _ALIASES.items()}
"""Every function by its names, in lower case."""
METHODS = {FIND_FIRST: Function("r.findfirst(text)", make.of_texts(builtins.found_first, INT32, 2), 2, 2)}
"""What objects can do; the parser makes these calls of its own."""
