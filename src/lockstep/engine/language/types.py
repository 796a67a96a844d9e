"""Which types go together, and what they become."""

from __future__ import annotations

from lockstep.engine.events.schema import FieldType
from lockstep.engine.language import builtins
from lockstep.engine.language.code import Code, retyped, strict
from lockstep.engine.language.faults import Misfit

INT32, INT64, DOUBLE, STRING = FieldType.INT32, FieldType.INT64, FieldType.DOUBLE, FieldType.STRING
DATE, STAMP, MONEY = FieldType.DATE, FieldType.STAMP, FieldType.MONEY
INTEGERS = (INT32, INT64)
PLAIN = (INT32, INT64, DOUBLE, MONEY)
"""Numbers that can be mixed."""


def called(kind: FieldType | None) -> str:
    """A type in words."""
    return "null" if kind is None else kind.value


def unified(left: FieldType | None, right: FieldType | None) -> FieldType | None:
    """The type that both become where one value may be of either."""
    if left is right or right is None:
        return left
    if left is None:
        return right
    if left in PLAIN and right in PLAIN:
        return _mixed(left, right)
    raise Misfit(
        None,
        f"{called(left)} and {called(right)} don't go together",
        "Convert one of them: tostring(), toint(), todouble(), todate(), tostamp() or tomoney().",
    )


def _mixed(left: FieldType, right: FieldType) -> FieldType:
    for kind in (DOUBLE, MONEY):
        if kind in (left, right):
            return kind
    return INT64


def coerced(code: Code, kind: FieldType) -> Code:
    """The code with its value turned into a type that `unified` chose, or that a variable of that type takes."""
    source = code.type
    if source is kind:
        return code
    if kind is DOUBLE and source in PLAIN:
        return strict(builtins.MONEY_TO_DOUBLE if source is MONEY else builtins.TO_DOUBLE, DOUBLE, code)
    if kind is MONEY and source in INTEGERS:
        return strict(builtins.INT_TO_MONEY, MONEY, code)
    if kind is INT32 and source is INT64:
        return strict(builtins.NARROW, INT32, code)
    if source is None or (kind is INT64 and source in (INT32, DATE, STAMP)):
        return retyped(code, kind)
    raise Misfit(None, f"a value of type {called(source)} can't be of type {kind.value}", _remedy(kind))


def _remedy(kind: FieldType) -> str:
    makers = {INT32: "toint", INT64: "toint", DOUBLE: "todouble", STRING: "tostring"}
    makers |= {DATE: "todate", STAMP: "tostamp", MONEY: "tomoney"}
    return f"Convert it with {makers[kind]}()." if kind in makers else "Use a field of that type."


def together(*codes: Code) -> tuple[FieldType, list[Code]]:
    """Codes of one type, and the type; null alone counts as int32."""
    kind: FieldType | None = None
    for place, code in enumerate(codes):
        try:
            kind = unified(kind, code.type)
        except Misfit as misfit:
            misfit.argument = place
            raise
    found = kind or INT32
    return found, [coerced(code, found) for code in codes]


def condition(code: Code) -> Code:
    """The code as something that holds or not: a number, where 0 does not hold."""
    if code.type is None:
        return coerced(code, INT32)
    if not code.type.is_numeric:
        raise Misfit(
            None, f"a value of type {called(code.type)} is not a condition", "Compare it with something: x == 'a'."
        )
    return code
