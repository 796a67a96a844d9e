"""Kernels for numbers: what +, <, sqrt and their like do, for one value and for many, to the same bit.

Integers are int64, and a result that does not fit is null. Doubles follow IEEE 754; what has no value is null.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import numpy as np

from lockstep.engine.events.types import MONEY_SCALE
from lockstep.engine.expressions.code import Kernel
from lockstep.engine.expressions.vectors import Bools, Numbers

LOW, HIGH = -(2**63), 2**63 - 1
_SURE = 2.0**62
"""A product that is below this in doubles fits into int64 for certain."""
_WHOLE = 2.0**52
"""Doubles from here on are whole numbers."""

Result = tuple[Numbers, Bools | None]


def fitting(value: int) -> int | None:
    """The value if it fits into int64."""
    return value if LOW <= value <= HIGH else None


def total(function: Callable[..., float]) -> Callable[..., float | None]:
    """A function of doubles that gives null where it has no value."""

    def safe(*values: float) -> float | None:
        try:
            return function(*values)
        except (ValueError, OverflowError, ZeroDivisionError):
            return None

    return safe


def _add_ints(left: Numbers, right: Numbers) -> Result:
    found = left + right
    return found, ((left ^ found) & (right ^ found)) >= 0


def _subtract_ints(left: Numbers, right: Numbers) -> Result:
    found = left - right
    return found, ((left ^ right) & (left ^ found)) >= 0


def _multiply_ints(left: Numbers, right: Numbers) -> Result:
    found = left * right
    doubtful = np.flatnonzero(np.abs(left.astype(np.float64) * right.astype(np.float64)) >= _SURE)
    good = np.ones(len(found), np.bool_)
    for place in doubtful.tolist():
        good[place] = LOW <= int(left[place]) * int(right[place]) <= HIGH
    return found, good


def _remainder(left: int, right: int) -> int | None:
    if right == 0:
        return None
    found = abs(left) % abs(right)
    return -found if left < 0 else found


def _remainder_ints(left: Numbers, right: Numbers) -> Result:
    # By -1 the remainder is 0 as by 1, but the smallest integer can't be divided by it.
    divisor = np.where((right == 0) | (right == -1), 1, right)
    return np.fmod(left, divisor), right != 0


def _divide(left: float, right: float) -> float | None:
    return float(left) / float(right) if right else None


def _divide_doubles(left: Numbers, right: Numbers) -> Result:
    return left.astype(np.float64) / right.astype(np.float64), right != 0


def _remainder_doubles(left: Numbers, right: Numbers) -> Result:
    undefined = np.isinf(left) | (right == 0)
    return np.fmod(left, right), ~undefined | np.isnan(left) | np.isnan(right)


ADD_INTS = Kernel(lambda a, b: fitting(a + b), _add_ints)
SUBTRACT_INTS = Kernel(lambda a, b: fitting(a - b), _subtract_ints)
MULTIPLY_INTS = Kernel(lambda a, b: fitting(a * b), _multiply_ints)
REMAINDER_INTS = Kernel(_remainder, _remainder_ints)
NEGATE_INT = Kernel(lambda a: fitting(-a), lambda a: (-a, a != LOW))
ABS_INT = Kernel(lambda a: fitting(abs(a)), lambda a: (np.abs(a), a != LOW))

ADD_DOUBLES = Kernel(operator.add, lambda a, b: (a + b, None))
SUBTRACT_DOUBLES = Kernel(operator.sub, lambda a, b: (a - b, None))
MULTIPLY_DOUBLES = Kernel(operator.mul, lambda a, b: (a * b, None))
DIVIDE = Kernel(_divide, _divide_doubles)
REMAINDER_DOUBLES = Kernel(total(math.fmod), _remainder_doubles)
POWER = Kernel(total(math.pow))
NEGATE_DOUBLE = Kernel(operator.neg, lambda a: (-a, None))
ABS_DOUBLE = Kernel(abs, lambda a: (np.abs(a), None))
SQRT = Kernel(total(math.sqrt), lambda a: (np.sqrt(a), ~(a < 0)))
EXP = Kernel(total(math.exp))
LOG = Kernel(total(math.log))
LOG10 = Kernel(total(math.log10))
SIN, COS, TAN = Kernel(total(math.sin)), Kernel(total(math.cos)), Kernel(total(math.tan))
ASIN, ACOS, ATAN = Kernel(total(math.asin)), Kernel(total(math.acos)), Kernel(total(math.atan))
ATAN2 = Kernel(total(math.atan2))

SAME = Kernel(lambda a: a, lambda a: (a, None))
TO_DOUBLE = Kernel(float, lambda a: (a.astype(np.float64), None))
MONEY_TO_DOUBLE = Kernel(lambda a: float(a) / MONEY_SCALE, lambda a: (a.astype(np.float64) / MONEY_SCALE, None))
INT_TO_MONEY = Kernel(
    lambda a: fitting(a * MONEY_SCALE),
    lambda a: (a * MONEY_SCALE, (a >= -(-LOW // MONEY_SCALE)) & (a <= HIGH // MONEY_SCALE)),
)
NARROW = Kernel(lambda a: a if -(2**31) <= a < 2**31 else None, lambda a: (a, (a >= -(2**31)) & (a < 2**31)))

COMPARE = {
    "==": Kernel(lambda a, b: int(a == b), lambda a, b: (_flags(a == b), None)),
    "!=": Kernel(lambda a, b: int(a != b), lambda a, b: (_flags(a != b), None)),
    "<": Kernel(lambda a, b: int(a < b), lambda a, b: (_flags(a < b), None)),
    "<=": Kernel(lambda a, b: int(a <= b), lambda a, b: (_flags(a <= b), None)),
    ">": Kernel(lambda a, b: int(a > b), lambda a, b: (_flags(a > b), None)),
    ">=": Kernel(lambda a, b: int(a >= b), lambda a, b: (_flags(a >= b), None)),
}
MIN = Kernel(lambda a, b: min(a, b), lambda a, b: (_where(b < a, b, a), None))
MAX = Kernel(lambda a, b: max(a, b), lambda a, b: (_where(b > a, b, a), None))
SIGN = Kernel(lambda a: (a > 0) - (a < 0), lambda a: (_flags(a > 0) - _flags(a < 0), None))


def _where(test: Bools, then: Numbers, otherwise: Numbers) -> Numbers:
    found: Numbers = np.where(test, then, otherwise)
    return found


def _flags(found: Bools) -> Numbers:
    return found.astype(np.int64)


def _whole(step: Callable[[float], int]) -> Callable[[float], float]:
    """Floor, ceil or trunc that keeps the sign of zero, as the processor does."""
    return lambda a: math.copysign(float(step(a)), a) if abs(a) < _WHOLE else a


def _rounded(a: float) -> float:
    if not abs(a) < _WHOLE:
        return a
    whole = math.trunc(a)
    return math.copysign(float(abs(whole) + (abs(a) - abs(whole) >= 0.5)), a)


def _round_doubles(a: Numbers) -> Result:
    whole = np.trunc(a)
    return np.copysign(np.abs(whole) + (np.abs(a) - np.abs(whole) >= 0.5), a), None


FLOOR = Kernel(_whole(math.floor), lambda a: (np.floor(a), None))
CEIL = Kernel(_whole(math.ceil), lambda a: (np.ceil(a), None))
ROUND = Kernel(_rounded, _round_doubles)


def truncated(a: float) -> int | None:
    """The whole part, if it fits into int64."""
    return int(a) if -(2.0**63) <= a < 2.0**63 else None


def _truncate_doubles(a: Numbers) -> Result:
    good = (a >= -(2.0**63)) & (a < 2.0**63)
    return np.where(good, a, 0.0).astype(np.int64), good


TRUNCATE = Kernel(truncated, _truncate_doubles)
