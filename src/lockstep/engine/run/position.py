"""How far a project's sequence was read: enough to go on reading from there, and to drop what came twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lockstep.core.sequence import SequenceState
from lockstep.engine.events.frames import FrameHead


@dataclass(frozen=True, slots=True)
class Position:
    """The fold of the sequence log and of the inputs up to one entry."""

    sequence: SequenceState = field(default_factory=SequenceState)
    ends: tuple[int, ...] = ()
    block: int = 0
    """The number of the last block."""
    events: int = 0
    clients: Mapping[str, int] = field(default_factory=dict)
    """For each client of each input that numbers its messages the last number taken."""

    @property
    def number(self) -> int:
        """The number of the last entry."""
        return self.sequence.number

    def tree(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Position:
        """Back from plain values."""
        return cls(
            SequenceState(**tree["sequence"]), tuple(tree["ends"]), tree["block"], tree["events"], tree["clients"]
        )


@dataclass(slots=True)
class Tally:
    """Numbers blocks as their frames go by: the leader and every reader count with this, and so they agree."""

    block: int
    events: int
    clients: dict[str, int]

    @classmethod
    def at(cls, position: Position) -> Tally:
        """Going on from a position."""
        return cls(position.block, position.events, dict(position.clients))

    def take(self, head: FrameHead | None, source: int) -> int | None:
        """Number the blocks of a frame of input `source`; how many at its beginning are left out, as they came before.

        A record that is no frame, and a frame before which messages of its client are missing, is one empty block, and
        the answer is None: it has a number, under which it is reported.
        """
        known = None if head is None else self._known(head, source)
        if head is None or known is None:
            self.block += 1
        elif known < head.blocks:
            self.block += head.blocks - known
            self.events += head.events
        return known

    def _known(self, head: FrameHead, source: int) -> int | None:
        if head.client is None:
            return 0
        client, first, last = f"{source}/{head.client.hex()}", head.first, head.first + head.blocks - 1
        latest = self.clients.get(client, first - 1)
        if first > latest + 1:
            return None
        self.clients[client] = max(latest, last)
        return min(latest + 1 - first, head.blocks)
