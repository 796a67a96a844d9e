"""Many values at once: as numpy numbers, as an Arrow array or as a list, whichever the next step can use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lockstep.engine.events.types import FieldType, Value

Numbers = npt.NDArray[Any]
"""Of int64 or float64."""
Bools = npt.NDArray[np.bool_]


class Vector:
    """Values of one type; null where it is not valid. What stands in the place of a null number is of no meaning."""

    __slots__ = ("_arrow", "_items", "_numbers", "length", "type")

    def __init__(
        self,
        kind: FieldType,
        length: int,
        *,
        numbers: tuple[Numbers, Bools] | None = None,
        items: list[Value] | None = None,
        arrow: pa.Array | None = None,
    ) -> None:
        self.type = kind
        self.length = length
        self._numbers = numbers
        self._items = items
        self._arrow = arrow

    @classmethod
    def constant(cls, kind: FieldType, value: Value, length: int) -> Vector:
        """One value again and again."""
        if not kind.is_numeric:
            return cls(kind, length, items=[value] * length)
        number = np.full(length, 0 if value is None else value, _dtype(kind))
        return cls(kind, length, numbers=(number, np.full(length, value is not None)))

    def numbers(self) -> tuple[Numbers, Bools]:
        """Values and where they are valid; numeric types only."""
        if self._numbers is None:
            array = self.arrow()
            values = array.fill_null(0) if array.null_count else array
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            self._numbers = values.to_numpy(zero_copy_only=False).astype(_dtype(self.type), copy=False), valid
        return self._numbers

    def items(self) -> list[Value]:
        """The values one by one."""
        if self._items is None:
            values = self._plain() if self._numbers is None else _listed(*self._numbers)
            self._items = values
        return self._items

    def arrow(self) -> pa.Array:
        """The values as a column of their type."""
        if self._arrow is None:
            if self._numbers is None:
                self._arrow = pa.array(self._items, self.type.arrow)
            else:
                values, valid = self._numbers
                plain = np.where(valid, values, 0).astype(self.type.arrow.to_pandas_dtype(), copy=False)
                self._arrow = pa.array(plain, self.type.arrow, mask=~valid, from_pandas=False)
        return self._arrow

    def _plain(self) -> list[Value]:
        assert self._arrow is not None
        values = self._arrow.to_pylist()
        if self.type.element is None:
            return list(values)
        return [None if item is None else tuple(item) for item in values]


class Inputs:
    """The columns an expression is run on; `names` and types are those of its scope, in order."""

    def __init__(self, names: tuple[tuple[str, FieldType], ...], columns: Mapping[str, pa.Array], length: int) -> None:
        self.length = length
        self._types = dict(names)
        self._columns = columns
        self._vectors: dict[str, Vector] = {}

    def vector(self, name: str) -> Vector:
        """A field's column."""
        if name not in self._vectors:
            self._vectors[name] = Vector(self._types[name], self.length, arrow=self._columns[name])
        return self._vectors[name]

    def narrowed(self, count: int, names: tuple[tuple[str, FieldType], ...], given: Mapping[str, Vector]) -> Inputs:
        """The first columns only, and behind them others that are given."""
        found = Inputs((*list(self._types.items())[:count], *names), self._columns, self.length)
        found._vectors = {**self._vectors, **given}
        return found

    def rows(self, used: frozenset[str]) -> Iterator[tuple[Value, ...]]:
        """Row by row in the order of the scope; fields that are not used are null."""
        columns = [self.vector(name).items() if name in used else repeat(None, self.length) for name in self._types]
        return zip(*columns, strict=True) if columns else repeat((), self.length)


def _dtype(kind: FieldType) -> type[np.int64] | type[np.float64]:
    return np.float64 if kind is FieldType.DOUBLE else np.int64


def _listed(values: Numbers, valid: Bools) -> list[Value]:
    items: list[Value] = values.tolist()
    if not valid.all():
        for place in np.flatnonzero(~valid).tolist():
            items[place] = None
    return items
