"""The interface of connectors, and the notes that record how far each has come."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from lockstep.engine.errors import LogTooShort
from lockstep.engine.events.columns import EventBatch, Int64s
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.errors import StreamNotFound
from lockstep.events.clients import client_id
from lockstep.events.subscriber import Block
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.config import StreamConfig
from lockstep.log.offsets import step_back
from lockstep.log.port import Bus, Log
from lockstep.runtime import Runtime

NOTHING: Int64s = np.array([], np.int64)
REST_S = 0.05
"""The longest wait, so that a lost lead or a stop is noticed soon."""


class Halted(Exception):
    """Raised when this engine stops or no longer leads: drop the work at hand, as the next leader repeats it."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Tells a connector whether to go on, and waits for it."""

    goes_on: Callable[[], bool]
    wait: Callable[[float], None]
    monotonic: Callable[[], float]

    def check(self) -> None:
        """Raise Halted if this engine no longer leads."""
        if not self.goes_on():
            raise Halted

    def rest(self, seconds: float = REST_S) -> None:
        """Wait briefly; raises Halted if the lead was lost meanwhile."""
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
    """A frame with its own client and numbers, to be passed on unchanged."""
    at: int = 0
    """How far the source was read with this, where that is not the number of a block."""
    frame_events: int = 0

    @property
    def events(self) -> int:
        """How many events it has."""
        return len(self.batch) if self.frame is None else self.frame_events


class Source(Protocol):
    """Where a publisher connector reads blocks."""

    is_numbered: bool
    """Whether each block has a fixed number in the source; if not, what was read cannot be read again."""

    def pieces(self, after: int, note: Note | None) -> Iterator[Piece | None]:
        """Yield everything after block `after`, and None while nothing is available; ends where the source ends.

        `note` is the last note, for sources whose position does not follow from the numbers on the input.
        """

    def start(self) -> Note | None:
        """Return where reading began, if the next leader must begin at the same position; else None."""

    def close(self) -> None:
        """Close what is open."""


class Target(Protocol):
    """Where a subscriber connector writes blocks; `open` keeps other writers out as far as the target allows."""

    def open(self, note: Note) -> int | None:
        """Cut off a torn end and return the last block; None if the target does not know it and the note counts."""

    def send(self, blocks: Sequence[Block]) -> None:
        """Write blocks; they are in the target when this returns."""

    def mark(self) -> Mapping[str, Any]:
        """Return what to note with the number of the last block."""

    def idle(self) -> None:
        """Keep the connection alive while there is nothing to send."""

    def close(self) -> None:
        """Close what is open."""


NOTES = StreamConfig(capacity=1_000)
"""The newest one says all."""
_LATE = 8
"""Of this many notes at the end the furthest counts: a former leader that was paused may write one late."""


@dataclass(frozen=True, slots=True)
class Note:
    """Everything up to `at` is done: a block of the out stream, or a place in the source. More is for the kind."""

    at: int
    more: Mapping[str, Any] = field(default_factory=dict)


def notes_name(streams: ProjectStreams, connector: str) -> str:
    """The stream of a connector's notes: CLUSTER.PROJECT.K. and sixteen digits made of its path."""
    return f"{streams.cluster}.{streams.project}.K.{client_id(connector).hex()[:16]}"


class Notes:
    """The notes of one connector. Not to be shared between threads."""

    def __init__(self, bus: Bus, streams: ProjectStreams, connector: str, runtime: Runtime) -> None:
        self._bus, self._name, self._runtime = bus, notes_name(streams, connector), runtime
        self._connector = connector
        self._log: Log | None = None

    def last(self) -> Note | None:
        """The newest note; None if there is none."""
        try:
            log = self._log or self._bus.open(self._name)
        except StreamNotFound:
            return None
        try:
            found = [json.loads(value) for value in _newest(log)]
        except LogTooShort:  # a thousand newer ones came meanwhile
            found = [json.loads(value) for value in _newest(log)]
        newest_first = (Note(tree["at"], tree["more"]) for tree in reversed(found))
        return max(newest_first, key=lambda note: note.at, default=None)

    def write(self, note: Note) -> None:
        """Note something."""
        if self._log is None:
            self._log = self._bus.create(self._name, NOTES)
        tree = {"connector": self._connector, "at": note.at, "more": dict(note.more)}
        text = json.dumps(tree, separators=(",", ":")).encode()
        self._log.append([pack([text], producer=NO_PRODUCER, sequence=0, created_ns=self._runtime.wall_ns())])


def _newest(log: Log) -> list[bytes]:
    bounds = log.bounds()
    start = step_back(log, bounds.next, _LATE, bounds.first)
    return [value for _, value in values_between(log, start, bounds.next)]


EVENTS = "events"
"""Key in a note: the number of events up to its position."""


@dataclass(slots=True)
class Count:
    """Counts the events taken; a `most` of 0 sets no limit."""

    most: int
    taken: int = 0

    @classmethod
    def of(cls, most: int, note: Note | None) -> Count:
        """As noted."""
        return cls(most, 0 if note is None else int(note.more.get(EVENTS, 0)))

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return self.most > 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be taken."""
        return self.is_limited and self.taken >= self.most

    def take(self, piece: Piece) -> Piece:
        """Return the part of a piece within the limit; a frame with its own numbers is never cut."""
        left = self.most - self.taken
        if self.is_limited and piece.frame is None and left < len(piece.batch):
            piece = first_events(piece, left)
        self.taken += piece.events
        return piece


def first_events(piece: Piece, count: int) -> Piece:
    """Return the first `count` events of a piece, at least one, and the blocks up to there."""
    batch = piece.batch.slice(0, count)
    return replace(piece, batch=batch, numbers=piece.numbers[piece.numbers <= batch.block[-1]])


def behind(piece: Piece, last: int) -> Piece:
    """Return the blocks of a piece after block `last`."""
    start = int(np.searchsorted(piece.batch.block, last, "right"))
    batch = piece.batch.slice(start, len(piece.batch))
    return replace(piece, batch=batch, numbers=piece.numbers[piece.numbers > last])
