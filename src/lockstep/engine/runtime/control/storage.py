"""What a project occupies: its streams on the bus, and the folders of its engines; and what trims each of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.errors import StreamNotFound
from lockstep.log.config import GROUP_LOG_PREFIX, StreamConfig
from lockstep.log.port import Bus, Log

MEASURE_S = 30.0
"""A folder is measured at most so often: it may have a thousand files."""
BY_ENGINES = "engines, after each snapshot (--trim)"
BY_NOBODY = "nobody: use 'engine run --trim' with --persist-every, or 'engine trim'"
BY_YOU = "nobody: use 'stream alter --retain-age', or 'stream trim'"


@dataclass(frozen=True, slots=True)
class StreamSize:
    """One stream of a project."""

    stream: str
    records: int
    """On a server, where an append is one message, the messages."""
    bytes: int | None
    """Stored bytes; None where the bus does not say."""
    trimmed_by: str
    is_trimmed: bool
    """Whether something bounds it."""


@dataclass(frozen=True, slots=True)
class FolderSize:
    """A folder with everything below it."""

    files: int = 0
    bytes: int = 0


class FolderGauge:
    """The size of a folder, measured now and then; None is no folder, and empty."""

    def __init__(self, path: Path | None, monotonic: Callable[[], float]) -> None:
        self._path, self._monotonic = path, monotonic
        self._due = monotonic()
        self._found = FolderSize()

    def size(self) -> FolderSize:
        """As of at most MEASURE_S ago."""
        if self._path is not None and self._monotonic() >= self._due:
            self._found = folder_size(self._path)
            self._due = self._monotonic() + MEASURE_S
        return self._found


def folder_size(path: Path) -> FolderSize:
    """Files and bytes below a folder; what vanishes or can't be read meanwhile is left out."""
    sizes = list(_file_sizes(path))
    return FolderSize(len(sizes), sum(sizes))


def _file_sizes(path: Path) -> Iterator[int]:
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                yield Path(folder, name).lstat().st_size
            except OSError:  # Spark and the engine delete files all the time
                continue


def stream_sizes(bus: Bus, streams: ProjectStreams, *, engines_trim: bool) -> tuple[StreamSize, ...]:
    """The streams of a project, in the order of their names."""
    found = []
    for name in _names(bus, streams):
        with suppress(StreamNotFound):  # it was deleted meanwhile
            found.append(_stream_size(bus.open(name), streams, engines_trim=engines_trim))
    return tuple(found)


def _names(bus: Bus, streams: ProjectStreams) -> list[str]:
    own = {streams.sequence, streams.control, streams.bad, streams.notices, streams.reports}
    own |= {streams.requests, GROUP_LOG_PREFIX + streams.group}
    root = streams.sequence.removesuffix("S")
    return [name for name in bus.names() if name in own or (name.startswith(root) and name.endswith((".I", ".O")))]


def _stream_size(log: Log, streams: ProjectStreams, *, engines_trim: bool) -> StreamSize:
    bounds, stride = log.bounds(), log.limits.stride
    stored = getattr(log, "stored_bytes", None)  # servers do not say
    by, is_trimmed = _trimmed_by(log, streams, engines_trim=engines_trim)
    return StreamSize(log.name, -(-bounds.count // stride), stored() if stored else None, by, is_trimmed)


def _trimmed_by(log: Log, streams: ProjectStreams, *, engines_trim: bool) -> tuple[str, bool]:
    if log.name == streams.control:
        return "engines", True
    if log.name == GROUP_LOG_PREFIX + streams.group:
        return "its members", True
    if bound := _retention(log.config):
        return f"retention: {bound}", True
    if log.name == streams.sequence or log.name.endswith(".I"):
        return (BY_ENGINES, True) if engines_trim else (BY_NOBODY, False)
    return BY_YOU, False


def _retention(config: StreamConfig) -> str:
    bounds = {
        "{:,} records": config.capacity,
        "{:,} bytes": config.retain_bytes,
        "{:,g} s": config.retain_age_s,
    }
    return ", ".join(words.format(bound) for words, bound in bounds.items() if bound is not None)
