"""How far a project's sequence was read: enough to go on reading from there, and to drop what came twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from google_crc32c import extend

from lockstep.core.sequence import SequenceState
from lockstep.engine.events.frames import FrameHead
from lockstep.engine.run.decisions import Decision

REQUESTS_REMEMBERED = 64
"""A request whose entry came twice must not be carried out twice."""


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
    stated_at: int = -1
    """Where on the sequence log the model in force is stated; -1: nowhere yet."""
    requests: tuple[str, ...] = ()
    """The last requests that entries answered."""
    running: bool = True
    """Whether input is taken."""

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
        fields = {**tree, "sequence": SequenceState(**tree["sequence"]), "ends": tuple(tree["ends"])}
        return cls(**{**fields, "requests": tuple(tree.get("requests", ()))})

    def after(self, sequence: SequenceState, decision: Decision, tally: Tally) -> Position:
        """Behind the entry that made the sequence what it is."""
        stated_at = self.stated_at if decision.states is None or self.knows(decision) else sequence.upto
        requests = self.requests
        if decision.request is not None and decision.request not in requests:
            requests = (*requests, decision.request)[-REQUESTS_REMEMBERED:]
        running = self.running if decision.running is None else decision.running
        return Position(sequence, decision.ends, tally.block, tally.events, tally.clients, stated_at, requests, running)

    def knows(self, decision: Decision) -> bool:
        """Whether what an entry asks for was done before."""
        return decision.request is not None and decision.request in self.requests


@dataclass(slots=True)
class Tally:
    """Numbers blocks as their frames go by: the leader and every reader count with this, and so they agree."""

    block: int
    events: int
    clients: dict[str, int]
    crc: int = 0
    """The checksum of the frames of the entry at hand."""

    @classmethod
    def at(cls, position: Position) -> Tally:
        """Going on from a position."""
        return cls(position.block, position.events, dict(position.clients))

    def sum_up(self, value: bytes) -> None:
        """Add a frame to the checksum; without its own at its end, behind which every frame looks alike."""
        self.crc = extend(self.crc, value[:-4])

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
