"""What a connector of any kind is to the rest: a source of blocks, or a target for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from lockstep.connectors.notes import Note
from lockstep.engine.events.columns import EventBatch, Int64s
from lockstep.events.subscribing import Block

NOTHING: Int64s = np.array([], np.int64)
REST_S = 0.05
"""A wait is never longer: the lead may be lost, or the engine told to end."""


class Halted(Exception):
    """This engine leads no longer, or is to end: what is at hand is dropped, and done by whoever leads."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Whether to go on, and how to rest."""

    goes_on: Callable[[], bool]
    wait: Callable[[float], None]
    monotonic: Callable[[], float]

    def check(self) -> None:
        """Stop here if this engine no longer leads."""
        if not self.goes_on():
            raise Halted

    def rest(self, seconds: float = REST_S) -> None:
        """Rest for a moment; stop if the lead was lost meanwhile."""
        self.check()
        self.wait(min(seconds, REST_S))
        self.check()


@dataclass(frozen=True, slots=True)
class Piece:
    """Blocks of a source, with their numbers there, also of those without events."""

    batch: EventBatch
    numbers: Int64s
    transactional: bool = False
    frame: bytes | None = field(default=None, repr=False)
    """A frame with a client and numbers of its own, to be passed on as it is."""
    at: int = 0
    """How far the source was read with this, where that is not the number of a block."""
    frame_events: int = 0

    @property
    def events(self) -> int:
        """How many events it has."""
        return len(self.batch) if self.frame is None else self.frame_events


class Source(Protocol):
    """Gives blocks."""

    is_numbered: bool
    """The same place in the source has the same number whoever reads it; else what was read can't be read again."""

    def pieces(self, after: int, note: Note | None) -> Iterator[Piece | None]:
        """Everything behind block `after`; None where nothing is there now. Ends where the source does.

        `note` is what was noted last, where the numbers on the input can't tell the place.
        """

    def start(self) -> Note | None:
        """Where a source was begun, if that must not be decided again by whoever leads next."""

    def close(self) -> None:
        """Let go of it."""


class Target(Protocol):
    """Takes blocks. `open` keeps others from adding to it, as far as it can."""

    def open(self, note: Note) -> int | None:
        """The last block that is there; what is torn is cut off. None: it can't tell, so the note counts."""

    def send(self, blocks: Sequence[Block]) -> None:
        """Add blocks; they are there when this returns."""

    def mark(self) -> Mapping[str, Any]:
        """What to note beside the last block."""

    def idle(self) -> None:
        """Nothing to send now: keep the connection alive."""

    def close(self) -> None:
        """Let go of it."""
