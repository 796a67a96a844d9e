"""Copy windows: the parent's rows, as long as retention keeps them."""

from __future__ import annotations

from typing import cast

from lockstep.engine.events.event import Event, Row
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import CopyWindow
from lockstep.engine.windows.index import UPDATE_BLOCK, Index, add_update
from lockstep.engine.windows.operator import Moment, Operator, Tree
from lockstep.engine.windows.retention import make_policy
from lockstep.engine.windows.source import details


class CopyOperator(Operator):
    """Resolves and retains. With retention it may have let rows go that the parent still has: that is forgiven."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        policy = make_policy(cast(CopyWindow, node.window).retention, node.schema)
        self._index = Index(node.schema, policy) if node.is_indexed or policy is not None else None
        self._has_retention = policy is not None

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - one input
        """Take one change."""
        if self._index is None:
            pass_on(event, old, out)
            return
        reason = self._index.take(event, out, forgiving=self._has_retention)
        if reason is not None:
            self.refuse(event, reason, details(reason), moment)

    def on_tick(self, moment: Moment, out: list[Event]) -> None:
        """Retention on the model's clock."""
        if self._index is not None:
            self._index.tick(moment.clock_us, out)

    def dump(self) -> Tree:
        """The rows."""
        return None if self._index is None else self._index.dump()

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        if self._index is not None:
            self._index.load(state)


def pass_on(event: Event, old: Row | None, out: list[Event]) -> None:
    """What a window without an index does: the change as it came."""
    if event.opcode is UPDATE_BLOCK and old is not None:
        add_update(event.values, old, event.flags, out)
    else:
        out.append(event)
