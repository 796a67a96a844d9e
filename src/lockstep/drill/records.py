"""What is noted of a drill as it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lockstep.drill.options import Fault


@dataclass(frozen=True, slots=True)
class Takeover:
    """An engine says that it leads from now on."""

    at: float
    engine: str
    epoch: int
    last: int
    """The last block that it found on the out stream."""
    current: int
    """The last block that it had computed by then."""
    drained_s: float


@dataclass(slots=True)
class Injected:
    """A fault that was done, and what came of it."""

    kind: Fault
    at: float
    engine: str
    events: int
    block: int
    """What had arrived by then."""
    takeovers: list[Takeover] = field(default_factory=list)
    settled_at: float = 0.0
    in_step_s: float | None = None
    """From the start of a process that was started again until it was in step."""
    stopped_again: int = 0
    """How often it had to go on for a moment, because it was stopped within a write to the bus."""


def takeover(at: float, engine: str, told: dict[str, Any]) -> Takeover:
    """From the line that an engine prints."""
    numbers = {name: int(told.get(name) or 0) for name in ("epoch", "last", "current")}
    return Takeover(at, engine, drained_s=float(told.get("drained_s") or 0.0), **numbers)
