"""The port of deliveries: an event that was claimed is handed over, and its outcome comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from lockstep.core.agenda import Event
from lockstep.schedule.tenants import Tenant


class Outcome(Enum):
    """What became of a delivery."""

    TAKEN = "taken"
    REFUSED = "refused"
    """The receiver will never take it: a 4xx but 408, 425 and 429."""
    FAILED = "failed"
    """It may be tried again."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event on its way to a tenant. `dry_run` says so to the receiver."""

    event: Event
    tenant: Tenant
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a delivery, with the reason if it was not taken."""

    delivery: Delivery
    outcome: Outcome
    error: str | None = None


Done = Callable[[Result], None]
"""Gets the result of a delivery, from any thread, exactly once."""


class Courier(Protocol):
    """Carries events to tenants of some types.

    Contract: `deliver` never blocks; `done` is called exactly once for each delivery, with FAILED after the time-out at
    the latest; a tenant that can't be delivered to is refused by `check` before it is registered.
    """

    def check(self, tenant: Tenant) -> None:
        """Raise BadArgument if a tenant's props can't work here."""

    def deliver(self, delivery: Delivery, done: Done) -> None:
        """Begin a delivery."""

    def forget(self, tenant: str) -> None:
        """A tenant was registered anew or removed: give up what is kept for it."""

    def close(self) -> None:
        """End what is under way, with FAILED, and give everything back."""
