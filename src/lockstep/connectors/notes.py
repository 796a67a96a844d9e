"""What connectors note on the engine's bus: how far they are, so that whoever leads next goes on there.

A note may be older than what was sent: where the other side can tell what it has, that counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lockstep.engine.errors import LogTooShort
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.errors import StreamNotFound
from lockstep.events.clients import client_id
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.config import StreamConfig
from lockstep.log.offsets import step_back
from lockstep.log.port import Bus, Log
from lockstep.runtime import Runtime

NOTES = StreamConfig(capacity=1_000)
"""The newest one says all."""
_LATE = 8
"""Of so many at the end the furthest counts: a leader that slept may write one late."""


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
