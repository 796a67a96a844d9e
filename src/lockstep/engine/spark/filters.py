"""What conditions of a query say about one column of whole numbers: where what is wanted begins and ends."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual


def bounds_of(filters: Iterable[Filter], column: str) -> tuple[int, int | None]:
    """The first number that is wanted, and the first after it that is not; None: there is no end.

    All conditions hold together; one that says nothing about the column is passed over.
    """
    first, end = 0, None
    for one in filters:
        low, high = _bounds(one, column)
        first = max(first, low)
        end = high if end is None else end if high is None else min(end, high)
    return first, end if end is None else max(end, first)


def _bounds(one: Filter, column: str) -> tuple[int, int | None]:
    if getattr(one, "attribute", None) != (column,):
        return 0, None
    match one:
        case EqualTo(value=int(value)):
            return value, value + 1
        case GreaterThan(value=int(value)):
            return value + 1, None
        case GreaterThanOrEqual(value=int(value)):
            return value, None
        case LessThan(value=int(value)):
            return 0, value
        case LessThanOrEqual(value=int(value)):
            return 0, value + 1
        case In(value=values) if values and all(type(value) is int for value in values):
            return min(values), max(values) + 1
    return 0, None
