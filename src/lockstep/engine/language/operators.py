"""Operators on typed code: which kernel, and what type comes out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.engine.events.schema import FieldType, Value
from lockstep.engine.language import builtins
from lockstep.engine.language.builtins import joined, parsed_double, to_text
from lockstep.engine.language.code import (
    Bools,
    Code,
    Environment,
    Inputs,
    Kernel,
    Numbers,
    Row,
    Run,
    Vector,
    constant,
    merged,
    strict,
)
from lockstep.engine.language.faults import Misfit
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
    condition,
    together,
    unified,
)

_INTS = {
    "+": builtins.ADD_INTS,
    "-": builtins.SUBTRACT_INTS,
    "*": builtins.MULTIPLY_INTS,
    "%": builtins.REMAINDER_INTS,
}
_DOUBLES = {
    "+": builtins.ADD_DOUBLES,
    "-": builtins.SUBTRACT_DOUBLES,
    "*": builtins.MULTIPLY_DOUBLES,
    "%": builtins.REMAINDER_DOUBLES,
    "**": builtins.POWER,
    "/": builtins.DIVIDE,
}
_ARROW = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


_DAY: dict[FieldType | None, int] = {DATE: 86_400, STAMP: 86_400_000_000}
"""A day in the units of a time."""


def binary(operator: str, left: Code, right: Code) -> Code:
    """Two operands and what stands between them."""
    if operator in ("and", "or", "xor"):
        return logical(operator, left, right)
    if operator in builtins.COMPARE:
        return compared(operator, left, right)
    if operator == "&":
        return strict(Kernel(joined), STRING, to_text(left), to_text(right, 1))
    return arithmetic(operator, left, right)


def arithmetic(operator: str, left: Code, right: Code) -> Code:
    """+ - * / % and **."""
    for place, code in enumerate((left, right)):
        if code.type is not None and not code.type.is_numeric:
            remedy = "Join texts with &." if code.type is STRING and operator == "+" else "Convert it with todouble()."
            raise Misfit(place, f"{operator} can't take a value of type {called(code.type)}", remedy)
    left, right = (
        coerced(left, INT64) if left.type is None else left,
        coerced(right, INT64) if right.type is None else right,
    )
    if left.type not in PLAIN or right.type not in PLAIN:
        return _with_time(operator, left, right)
    if operator in ("/", "**") or DOUBLE in (left.type, right.type):
        return strict(_DOUBLES[operator], DOUBLE, coerced(left, DOUBLE), coerced(right, DOUBLE))
    if MONEY in (left.type, right.type):
        return _with_money(operator, left, right)
    return strict(_INTS[operator], INT64, left, right)


def _with_money(operator: str, left: Code, right: Code) -> Code:
    if operator != "*":
        return strict(_INTS[operator], MONEY, coerced(left, MONEY), coerced(right, MONEY))
    if left.type is right.type:
        return strict(_DOUBLES["*"], DOUBLE, coerced(left, DOUBLE), coerced(right, DOUBLE))
    return strict(_INTS["*"], MONEY, left, right)


def _with_time(operator: str, left: Code, right: Code) -> Code:
    """Times and days: the difference of two times is so many days, and days can be added to a time."""
    kinds = (left.type, right.type)
    if operator == "-" and kinds in ((DATE, DATE), (STAMP, STAMP)):
        units = coerced(strict(_INTS["-"], INT64, left, right), DOUBLE)
        return strict(_DOUBLES["/"], DOUBLE, units, constant(DOUBLE, float(_DAY[left.type])))
    if operator in ("+", "-") and left.type in (DATE, STAMP) and right.type in (*INTEGERS, DOUBLE):
        return strict(_INTS[operator], left.type, left, _units(right, _DAY[left.type]))
    if operator == "+" and right.type in (DATE, STAMP) and left.type in (*INTEGERS, DOUBLE):
        return strict(_INTS["+"], right.type, _units(left, _DAY[right.type]), right)
    if operator == "%" and right.type in INTEGERS:
        return strict(_INTS["%"], INT64, left, right)
    reason = f"{operator} can't take {called(left.type)} and {called(right.type)}"
    raise Misfit(None, reason, "Convert with toint(), todate() or tostamp() first.")


def _units(days: Code, day: int) -> Code:
    """Days as so many seconds or microseconds, parts of a day to the nearest of them."""
    if days.type is DOUBLE:
        found = strict(_DOUBLES["*"], DOUBLE, days, constant(DOUBLE, float(day)))
        return strict(builtins.TRUNCATE, INT64, strict(builtins.ROUND, DOUBLE, found))
    return strict(_INTS["*"], INT64, days, constant(INT64, day))


def compared(operator: str, left: Code, right: Code) -> Code:
    """A comparison: 1 or 0. Texts are compared by their characters' numbers."""
    times = (DATE, STAMP)
    if (left.type in times and right.type in INTEGERS) or (right.type in times and left.type in INTEGERS):
        return strict(builtins.COMPARE[operator], INT32, left, right)
    left, right = _as_numbers(left, right)
    kind, (left, right) = together(left, right)
    if kind.is_numeric:
        return strict(builtins.COMPARE[operator], INT32, left, right)
    if kind is STRING:
        return strict(_text_comparison(operator, left, right), INT32, left, right)
    if kind is FieldType.BLOB and operator in ("==", "!="):
        return strict(Kernel(builtins.COMPARE[operator].scalar), INT32, left, right)
    raise Misfit(None, f"values of type {kind.value} can't be compared with {operator}", "Compare numbers or texts.")


def _as_numbers(left: Code, right: Code) -> tuple[Code, Code]:
    """A text that is compared with a number is read as one; what is no number is null, and so is the comparison."""
    if left.type is STRING and right.type in PLAIN:
        return strict(Kernel(parsed_double), DOUBLE, left), right
    if right.type is STRING and left.type in PLAIN:
        return left, strict(Kernel(parsed_double), DOUBLE, right)
    return left, right


def _text_comparison(operator: str, left: Code, right: Code) -> Kernel:
    """Arrow compares UTF-8 by bytes, which is the order of the characters' numbers. A constant is handed over once."""
    function = _ARROW[operator]
    fixed = [pa.scalar(code.value, pa.string()) if code.is_constant else None for code in (left, right)]

    def on_arrays(*sides: Vector) -> pa.Array:
        given = [side.arrow() if once is None else once for side, once in zip(sides, fixed, strict=True)]
        return function(*given).cast(pa.int32())

    return Kernel(builtins.COMPARE[operator].scalar, arrow=on_arrays)


def negated(operator: str, operand: Code) -> Code:
    """-x, +x and not x."""
    if operator == "not":
        return strict(
            Kernel(lambda a: int(not a), lambda a: ((a == 0).astype(np.int64), None)), INT32, condition(operand)
        )
    operand = coerced(operand, INT64) if operand.type is None else operand
    if operand.type not in PLAIN:
        raise Misfit(None, f"{operator} can't take a value of type {called(operand.type)}", "Use it with numbers only.")
    if operator == "+":
        return operand
    if operand.type is DOUBLE:
        return strict(builtins.NEGATE_DOUBLE, DOUBLE, operand)
    folded = INT32 if operand.is_constant and operand.type is INT32 else MONEY if operand.type is MONEY else INT64
    return strict(builtins.NEGATE_INT, folded, operand)


def logical(operator: str, left: Code, right: Code) -> Code:
    """And, or, xor. What is decided by one side is not made null by the other: 0 and null is 0, 1 or null is 1."""
    left, right = condition(left), condition(right)
    if operator == "xor":
        return strict(Kernel(lambda a, b: int(bool(a) != bool(b)), _exclusive), INT32, left, right)
    run = _conjunction(left.run, right.run) if operator == "and" else _disjunction(left.run, right.run)
    if left.is_constant and right.is_constant:
        return constant(INT32, run((), Environment()))
    decisive = operator == "or"

    def vector(inputs: Inputs) -> Vector:
        first, second = (_truth(code.vector(inputs)) for code in (left, right))
        decided = (first[0] if decisive else first[1]) | (second[0] if decisive else second[1])
        known = decided | ((first[0] | first[1]) & (second[0] | second[1]))
        values = decided if decisive else ~decided
        return Vector(INT32, inputs.length, numbers=(values.astype(np.int64), known))

    return Code(INT32, run, vector, merged((left, right)))


def _truth(vector: Vector) -> tuple[Bools, Bools]:
    """Where it holds, and where it certainly does not."""
    values, valid = vector.numbers()
    return (values != 0) & valid, (values == 0) & valid


def _exclusive(left: Numbers, right: Numbers) -> tuple[Numbers, None]:
    return ((left != 0) != (right != 0)).astype(np.int64), None


def _conjunction(left: Run, right: Run) -> Run:
    def run(row: Row, env: Environment) -> Value:
        first = left(row, env)
        if first is not None and not first:
            return 0
        second = right(row, env)
        if second is not None and not second:
            return 0
        return None if first is None or second is None else 1

    return run


def _disjunction(left: Run, right: Run) -> Run:
    def run(row: Row, env: Environment) -> Value:
        first = left(row, env)
        if first:
            return 1
        second = right(row, env)
        if second:
            return 1
        return None if first is None or second is None else 0

    return run


def chosen(test: Code, then: Code, otherwise: Code) -> Code:
    """If, then, else. A condition that is null does not hold."""
    test = condition(test)
    kind = unified(then.type, otherwise.type)
    if kind is None:
        return constant(None, None)
    then, otherwise = coerced(then, kind), coerced(otherwise, kind)
    decide, yes, no = test.run, then.run, otherwise.run

    def run(row: Row, env: Environment) -> Value:
        return yes(row, env) if decide(row, env) else no(row, env)

    def vector(inputs: Inputs) -> Vector:
        holds, _ = _truth(test.vector(inputs))
        return picked(holds, then.vector(inputs), otherwise.vector(inputs))

    return Code(kind, run, vector, merged((test, then, otherwise)))


def picked(holds: Bools, then: Vector, otherwise: Vector) -> Vector:
    """From one vector where it holds, from the other where not."""
    kind, length = then.type, then.length
    if not kind.is_numeric:
        pairs = zip(holds.tolist(), then.items(), otherwise.items(), strict=True)
        return Vector(kind, length, items=[yes if held else no for held, yes, no in pairs])
    (yes, yes_valid), (no, no_valid) = then.numbers(), otherwise.numbers()
    numbers = np.where(holds, yes, no), np.where(holds, yes_valid, no_valid)
    return Vector(kind, length, numbers=numbers)
