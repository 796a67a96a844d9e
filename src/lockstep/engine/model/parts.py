"""What windows of several kinds are made of: retention, connectors, first values and splitters."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.engine.events.schema import FieldType
from lockstep.engine.model.values import shown

RETENTION_KINDS = (
    "bytime_sliding",
    "bytime_jumping",
    "bytime_jumping_lookback",
    "bycount_sliding",
    "bycount_jumping",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Retention:
    """How long a window keeps its rows: `limit` is microseconds for the time kinds, rows for the count kinds.

    With `field` the clock is the running maximum of that field; without it the model's clock.
    """

    kind: str
    limit: int
    field: str | None = None
    unit_us: int | None = None
    """The step of bytime_jumping_lookback."""

    @property
    def by_time(self) -> bool:
        """Bounded by age rather than by count."""
        return self.kind.startswith("bytime")


@dataclass(frozen=True, kw_only=True, slots=True)
class Connector:
    """A connection to the outside, kept with the window that it feeds or reads."""

    kind: str
    name: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    direction: str | None = None
    active: bool = True
    description: str = ""

    def __repr__(self) -> str:
        safe = {name: shown(name, value) for name, value in self.properties}
        return f"Connector(kind={self.kind!r}, name={self.name!r}, direction={self.direction!r}, properties={safe})"


@dataclass(frozen=True, kw_only=True, slots=True)
class UserFunction:
    """A function written in the expression language, for the expressions of one window."""

    name: str
    text: str
    type: FieldType = FieldType.INT32


@dataclass(frozen=True, kw_only=True, slots=True)
class Initializer:
    """Variables of a window's expressions, with their first values, kept from event to event."""

    text: str = ""
    type: FieldType = FieldType.INT32
    functions: tuple[UserFunction, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Splitter:
    """An expression whose value is the slot that an output event goes to."""

    expression: str
    initialize: Initializer | None = None
