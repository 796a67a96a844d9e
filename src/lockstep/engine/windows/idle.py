"""Idle windows: no edge leads to them, so that no event ever comes and nothing is kept."""

from __future__ import annotations

from lockstep.engine.events.event import Event, Row
from lockstep.engine.windows.operator import Moment, Operator, Tree


class IdleOperator(Operator):
    """Gives nothing."""

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:
        """Nothing comes here."""

    def dump(self) -> Tree:
        """There is no state."""
        return {}

    def load(self, state: Tree) -> None:
        """There is no state."""
