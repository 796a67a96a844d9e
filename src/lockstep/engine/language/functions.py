"""The functions of the language by name: what they take, and the code that they become."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np

from lockstep.engine.events.schema import MONEY_SCALE, FieldType, Value
from lockstep.engine.language import builtins
from lockstep.engine.language.code import (
    Bools,
    Code,
    Environment,
    Inputs,
    Kernel,
    Row,
    Uses,
    Vector,
    constant,
    merged,
    retyped,
    strict,
)
from lockstep.engine.language.faults import Misfit
from lockstep.engine.language.operators import arithmetic, chosen, picked
from lockstep.engine.language.types import (
    DATE,
    DOUBLE,
    INT32,
    INT64,
    INTEGERS,
    MONEY,
    PLAIN,
    STAMP,
    STRING,
    called,
    coerced,
    together,
)

Build = Callable[..., Code]
_MOST_DIGITS = 300


def _typed(kind: FieldType, codes: Sequence[Code], first: int = 0) -> list[Code]:
    """Arguments that must be of a type, or become it without loss."""
    found = []
    for place, code in enumerate(codes, first):
        try:
            found.append(coerced(code, kind))
        except Misfit as misfit:
            misfit.argument = place
            raise
    return found


def of_texts(function: Callable[..., Value], kind: FieldType, texts: int) -> Build:
    """A function whose first arguments are texts, and the others integers."""

    def build(*codes: Code) -> Code:
        arguments = _typed(STRING, codes[:texts]) + _typed(INT64, codes[texts:], texts)
        return strict(Kernel(function), kind, *arguments)

    return build


def length(code: Code) -> Code:
    """How many characters."""
    return strict(builtins.LENGTH, INT32, *_typed(STRING, [code]))


def pattern(translate: Callable[[str], str]) -> Build:
    """Whether a text matches a pattern that is known beforehand."""

    def build(text: Code, pattern: Code) -> Code:
        if not pattern.is_constant or type(pattern.value) is not str:
            raise Misfit(1, "the pattern must be a text that stands in the expression", "Write it in quotes.")
        return strict(builtins.matching(translate(pattern.value)), INT32, *_typed(STRING, [text]))

    return build


def doubles(kernel: Kernel) -> Build:
    """A function of doubles."""
    return lambda *codes: strict(kernel, DOUBLE, *_typed(DOUBLE, codes))


def by_type(ints: Kernel, doubles: Kernel) -> Build:
    """A function that leaves integers integers."""

    def build(code: Code) -> Code:
        if code.type is None or code.type in INTEGERS:
            return strict(ints, INT64, *_typed(INT64, [code]))
        return strict(doubles, DOUBLE, *_typed(DOUBLE, [code]))

    return build


def absolute(code: Code) -> Code:
    """Without its sign."""
    if code.type is MONEY:
        return strict(builtins.ABS_INT, MONEY, code)
    return by_type(builtins.ABS_INT, builtins.ABS_DOUBLE)(code)


def sign(code: Code) -> Code:
    """-1, 0 or 1."""
    if code.type is not None and code.type not in PLAIN:
        raise Misfit(0, f"sign can't take a value of type {called(code.type)}", "Use it with numbers only.")
    return strict(builtins.SIGN, INT32, coerced(code, INT64) if code.type is None else code)


def rounded(*codes: Code) -> Code:
    """To whole numbers, or to so many digits; halves go away from zero."""
    if len(codes) == 1:
        return by_type(builtins.SAME, builtins.ROUND)(*codes)
    return strict(Kernel(_round_digits), DOUBLE, *_typed(DOUBLE, codes[:1]), *_typed(INT64, codes[1:], 1))


def _round_digits(value: float, digits: int) -> float:
    """Halves away from zero, as the number is written: 2.675 to 2 digits is 2.68."""
    if value - value != 0:  # infinite or not a number
        return value
    places = max(-_MOST_DIGITS, min(digits, _MOST_DIGITS))
    step = Decimal(1).scaleb(-places)
    found = Decimal(repr(value)).quantize(step, ROUND_HALF_UP, Context(prec=1000, Emax=9999, Emin=-9999, traps=[]))
    return float(found)


def extreme(kernel: Kernel) -> Build:
    """The smallest or largest of several."""

    def build(*codes: Code) -> Code:
        kind, arguments = together(*codes)
        if not kind.is_numeric and kind is not STRING:
            raise Misfit(0, f"values of type {kind.value} have no order", "Use numbers or texts.")
        fitting = kernel if kind.is_numeric else Kernel(kernel.scalar)
        found = arguments[0]
        for argument in arguments[1:]:
            found = strict(fitting, kind, found, argument)
        return found

    return build


def toint(code: Code) -> Code:
    """The whole part of a number, or of the number that a text is."""
    if code.type is STRING:
        return strict(Kernel(builtins.parsed_integer), INT64, code)
    if code.type is DOUBLE or code.type is MONEY:
        return strict(builtins.TRUNCATE, INT64, coerced(code, DOUBLE))
    return _typed(INT64, [code])[0]


def todouble(code: Code) -> Code:
    """A number as a double, or the number that a text is."""
    if code.type is STRING:
        return strict(Kernel(builtins.parsed_double), DOUBLE, code)
    if code.type is DATE or code.type is STAMP:
        return strict(builtins.TO_DOUBLE, DOUBLE, code)
    return _typed(DOUBLE, [code])[0]


def tomoney(code: Code) -> Code:
    """An amount, rounded to ten-thousandths."""
    if code.type is STRING or code.type is DOUBLE:
        amount = arithmetic("*", todouble(code), constant(DOUBLE, float(MONEY_SCALE)))
        return retyped(strict(builtins.TRUNCATE, INT64, strict(builtins.ROUND, DOUBLE, amount)), MONEY)
    return _typed(MONEY, [code])[0]


def todate(code: Code) -> Code:
    """Seconds since 1970 as a date, or the second of a stamp."""
    if code.type is STAMP:
        return strict(Kernel(_seconds, lambda a: (np.floor_divide(a, builtins.MICROSECONDS), None)), DATE, code)
    return code if code.type is DATE else retyped(_typed(INT64, [code])[0], DATE)


def tostamp(code: Code) -> Code:
    """Microseconds since 1970 as a stamp, or the begin of a date's second."""
    if code.type is DATE:
        unit = constant(INT64, builtins.MICROSECONDS)
        return retyped(strict(builtins.MULTIPLY_INTS, INT64, code, unit), STAMP)
    return code if code.type is STAMP else retyped(_typed(INT64, [code])[0], STAMP)


def _seconds(microseconds: int) -> int:
    return microseconds // builtins.MICROSECONDS


def converted(code: Code, kind: FieldType) -> Code:
    """What a field or variable of a type makes of a value of another one, as ESP does without being asked.

    Numbers lose what follows the decimal point, texts are read as numbers, and numbers and times are written as texts;
    what has no such form stays as it is, and is found not to fit.
    """
    source = code.type
    if source is None or source is kind:
        return code
    if kind is STRING and (source.is_numeric or source in (DATE, STAMP)):
        return builtins.to_text(code)
    if kind in INTEGERS and source in (DOUBLE, MONEY, STRING):
        return toint(code)
    if kind is DOUBLE and source in (MONEY, STRING):
        return todouble(code)
    if kind is MONEY and (source in PLAIN or source is STRING):
        return tomoney(code)
    times = {(DATE, STAMP): todate, (STAMP, DATE): tostamp}
    return times[kind, source](code) if (kind, source) in times else code


def isblank(code: Code) -> Code:
    """1 if there is no value, or a text with nothing but blanks."""
    if code.type is not STRING:
        return isnull(code)
    return isnull(strict(Kernel(lambda text: text.strip() or None), STRING, code))


def _time(code: Code) -> FieldType:
    if code.type is not DATE and code.type is not STAMP:
        raise Misfit(0, f"a date or stamp is needed, not {called(code.type)}", "Convert it: todate() or tostamp().")
    return code.type


def part(name: str) -> Build:
    """The year, month, ... of a moment."""
    return lambda code: strict(Kernel(builtins.part_of(name, _time(code))), INT32, code)


def formatdate(code: Code, form: Code) -> Code:
    """A moment as text in a form of one's own."""
    return strict(Kernel(_bounded_format(_time(code))), STRING, code, *_typed(STRING, [form], 1))


def _bounded_format(kind: FieldType) -> Callable[[int, str], Value]:
    write = builtins.formatted(kind)

    def bounded(value: int, form: str) -> Value:
        found = write(value, form)
        return builtins.bounded(found) if isinstance(found, str) else None

    return bounded


def dateadd(code: Code, seconds: Code) -> Code:
    """A moment so many seconds later."""
    kind = _time(code)
    return strict(Kernel(builtins.later(kind)), kind, code, *_typed(INT64, [seconds], 1))


def clock(name: str, kind: FieldType, unit: int) -> Build:
    """The model's clock; never that of the machine."""

    def run(_row: Row, env: Environment) -> Value:
        return env.clock_us // unit

    return lambda: Code(kind, run, lambda _inputs: _no_columns(name), Uses(clocks=frozenset({name})))


def _no_columns(name: str) -> Vector:
    raise AssertionError(name)


def isnull(code: Code) -> Code:
    """1 if there is no value."""
    test = code.run

    def run(row: Row, env: Environment) -> Value:
        return int(test(row, env) is None)

    def vector(inputs: Inputs) -> Vector:
        found = code.vector(inputs)
        missing = ~_valid(found)
        return Vector(INT32, inputs.length, numbers=(missing.astype(np.int64), np.ones(inputs.length, np.bool_)))

    return Code(INT32, run, vector, code.uses)


def _valid(vector: Vector) -> Bools:
    if vector.type.is_numeric:
        return vector.numbers()[1]
    return np.fromiter((item is not None for item in vector.items()), np.bool_, vector.length)


def coalesce(*codes: Code) -> Code:
    """The first that is not null."""
    kind, arguments = together(*codes)
    runs = [argument.run for argument in arguments]

    def run(row: Row, env: Environment) -> Value:
        for each in runs:
            value = each(row, env)
            if value is not None:
                return value
        return None

    def vector(inputs: Inputs) -> Vector:
        found = arguments[0].vector(inputs)
        for argument in arguments[1:]:
            found = picked(_valid(found), found, argument.vector(inputs))
        return found

    return Code(kind, run, vector, merged(arguments))


def either(test: Code, then: Code, *otherwise: Code) -> Code:
    """One or the other by a condition."""
    return chosen(test, then, otherwise[0] if otherwise else constant(None, None))


def size(code: Code) -> Code:
    """How many elements."""
    if code.type is None or code.type.element is None:
        raise Misfit(0, f"an array is needed, not {called(code.type)}", "The size of a text is len().")
    return strict(Kernel(len), INT32, code)


def element_of(array: Code, index: Code) -> Code:
    """a[i], counted from 1; beyond the array it is null."""
    if array.type is None or array.type.element is None:
        raise Misfit(0, f"{called(array.type)} has no elements", "Take parts of texts with mid().")

    def element(values: tuple[int | float | None, ...], place: int) -> Value:
        return values[place - 1] if 1 <= place <= len(values) else None

    return strict(Kernel(element), array.type.element, array, *_typed(INT64, [index], 1))
