"""What a step of the fleet gives: rows of the changelog, and notices of what is to be done once, outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

State = None | bool | int | float | str | bytes | list["State"] | dict[str, "State"]
"""What a page of state is made of."""


@dataclass(frozen=True, slots=True)
class Row:
    """A change of the changelog: it replaces the row with this id. Without a body the row is gone."""

    id: str
    kind: str
    client: str
    name: str
    body: str | None
    block: int = 0


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to be done once, outside; `id` is the same whenever it is computed again."""

    id: str
    kind: str
    key: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    block: int = 0


class Output:
    """The rows and notices of one or more steps, in order."""

    __slots__ = ("notices", "rows")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.notices: list[Notice] = []
