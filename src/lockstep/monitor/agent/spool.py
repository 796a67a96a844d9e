"""Results on disk until they are sent: files of checksummed entries, oldest first, bounded.

An entry is its length and CRC-32, 4 bytes each, big-endian, then the message. What was sent is noted in the file
`sent`. What is written survives the agent's death; `sync` has it survive the machine's.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lockstep.errors import BadArgument
from lockstep.monitor.agent.errors import SpoolBusy
from lockstep.runtime import logger

SPOOL_BYTES = 64 << 20
MEMORY_MESSAGES = 10_000
_SEGMENTS = 16
_HEAD = struct.Struct(">II")
_SUFFIX = ".spool"
_LEAST_BYTES = 1 << 16


class Spool(ABC):
    """Messages that wait to be sent, in order."""

    dropped: int = 0
    """Messages that were given up, as there was no room, or as they were damaged."""

    @abstractmethod
    def append(self, message: bytes) -> None:
        """Keep a message."""

    @abstractmethod
    def first(self, count: int, size: int) -> list[bytes]:
        """The first messages that wait, at most so many, and about so many bytes; they stay."""

    @abstractmethod
    def remove(self, count: int) -> None:
        """Forget so many of the messages that `first` gave last, from the first one on: they are sent."""

    @abstractmethod
    def __len__(self) -> int: ...

    def sync(self) -> None:  # noqa: B027 - memory has nothing to do
        """Have what was kept survive a loss of power."""

    def close(self) -> None:  # noqa: B027 - likewise
        """Keep nothing more."""


class MemorySpool(Spool):
    """Messages in memory: they end with the process. The oldest go if there are too many."""

    def __init__(self, limit: int = MEMORY_MESSAGES) -> None:
        self._limit = limit
        self._waiting: deque[bytes] = deque()
        self._gone = 0

    def append(self, message: bytes) -> None:
        self._waiting.append(message)
        if len(self._waiting) > self._limit:
            self._waiting.popleft()
            self._gone += 1
            self.dropped += 1
            logger.warning("A result was dropped: %d wait already", self._limit, extra={"action": "result_dropped"})

    def first(self, count: int, size: int) -> list[bytes]:
        self._gone = 0
        found: list[bytes] = []
        for message in self._waiting:
            if len(found) >= count or (found and size < len(message)):
                break
            size -= len(message)
            found.append(message)
        return found

    def remove(self, count: int) -> None:
        for _ in range(count - self._gone):  # those that went meanwhile were the first
            self._waiting.popleft()
        self._gone = 0

    def __len__(self) -> int:
        return len(self._waiting)


@dataclass(slots=True)
class _Segment:
    """One file: how many bytes of whole entries it has, and how many entries are not sent yet."""

    number: int
    path: Path
    size: int = 0
    waiting: int = 0


class FileSpool(Spool):
    """Messages in a folder that one agent has for itself.

    If the disk takes no more, messages wait in memory after those on disk, as long as there is room.
    """

    def __init__(self, folder: Path, *, limit_bytes: int = SPOOL_BYTES) -> None:
        if limit_bytes < _LEAST_BYTES:
            raise BadArgument(name="spool bytes", value=limit_bytes, reason=f"it must be at least {_LEAST_BYTES}")
        self._folder, self._limit = folder, limit_bytes
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise SpoolBusy(path=folder) from error
        self._segments: deque[_Segment] = deque()
        self._at = 0
        """Where the first message that waits begins, in the first segment."""
        self._file: int | None = None
        self._number = 0
        """Of the newest file; numbers are never used again."""
        self._memory = MemorySpool()
        self._given: list[tuple[_Segment, int]] = []
        """The file and the size of each entry that was handed out last."""
        self._load()

    # keeping

    def append(self, message: bytes) -> None:
        if len(self._memory):
            self._memory.append(message)  # after those that are there: the order counts
            return
        entry = _HEAD.pack(len(message), zlib.crc32(message)) + message
        try:
            self._make_room(len(entry))
            segment = self._open_segment(len(entry))
            self._write(segment, entry)
        except OSError as error:
            logger.warning("The spool can't be written: %s", error, extra={"action": "spool_failed"})
            self._memory.append(message)

    def sync(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # it stays as safe as it was
                os.fsync(self._file)

    def _open_segment(self, size: int) -> _Segment:
        last = self._segments[-1] if self._segments else None
        if last is not None and self._file is not None and last.size + size <= self._limit // _SEGMENTS:
            return last
        self.sync()
        self._close_file()
        self._number += 1
        path = self._folder / f"{self._number:020d}{_SUFFIX}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        segment = _Segment(self._number, path)
        self._segments.append(segment)
        return segment

    def _write(self, segment: _Segment, entry: bytes) -> None:
        """Write the whole entry, or leave the file as it was."""
        assert self._file is not None
        left = memoryview(entry)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            file = self._file
            try:
                os.ftruncate(file, segment.size)
            except OSError:
                self._close_file()  # its end is not known: what comes next goes into another file
            raise
        segment.size += len(entry)
        segment.waiting += 1

    def _make_room(self, size: int) -> None:
        """Drop the oldest file when all of them are too large together."""
        total = sum(segment.size for segment in self._segments)
        while len(self._segments) > 1 and total + size > self._limit:
            segment = self._segments.popleft()
            total -= segment.size
            self.dropped += segment.waiting
            logger.warning(
                "%d results were dropped: the spool is full", segment.waiting, extra={"action": "results_dropped"}
            )
            segment.path.unlink(missing_ok=True)
            self._at = 0
            self._note_sent()

    # sending

    def first(self, count: int, size: int) -> list[bytes]:
        found: list[bytes] = []
        self._given = []
        for index, segment in enumerate(self._segments):
            given = 0
            for message in _entries(segment.path, self._at if index == 0 else 0, segment.size):
                if len(found) >= count or (found and size < len(message)):
                    return found
                size -= len(message)
                given += 1
                found.append(message)
                self._given.append((segment, _HEAD.size + len(message)))
            self._give_up_rest(segment, given)
        return found or self._memory.first(count, size)

    def _give_up_rest(self, segment: _Segment, readable: int) -> None:
        """What comes after damage in a file can't be told apart: it is lost, and nothing is written after it."""
        lost = segment.waiting - readable
        if lost > 0:
            logger.error("%d results are damaged in %s", lost, segment.path, extra={"action": "spool_damaged"})
            self.dropped += lost
            segment.waiting = readable
            if segment is self._segments[-1]:
                self._close_file()

    def remove(self, count: int) -> None:
        given, self._given = self._given, []
        if not given:
            self._memory.remove(count)
            return
        for segment, size in given[:count]:
            while self._segments and self._segments[0].number < segment.number:
                self._forget(self._segments[0])  # what is left of it is damaged
            if self._segments and self._segments[0] is segment:  # else it was dropped meanwhile
                self._at += size
                segment.waiting -= 1
        if self._segments and self._segments[0].waiting <= 0:
            self._forget_sent_segment()
        self._note_sent()

    def _forget_sent_segment(self) -> None:
        """Remove the first file once all of it is sent; the one that is written to only if it has grown large."""
        segment = self._segments[0]
        is_written = len(self._segments) == 1 and self._file is not None
        if is_written and segment.size >= self._limit // _SEGMENTS // 2:
            self._close_file()
            is_written = False
        if not is_written:
            self._forget(segment)

    def _forget(self, segment: _Segment) -> None:
        self._segments.popleft()
        self._at = 0
        segment.path.unlink(missing_ok=True)

    def __len__(self) -> int:
        return sum(segment.waiting for segment in self._segments) + len(self._memory)

    def close(self) -> None:
        self._close_file()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    # what is on disk

    def _load(self) -> None:
        """Find what an earlier agent left; what is damaged ends its file."""
        number, at = self._sent()
        self._number = number
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            found = _number_of(path)
            if found is None or found < number:
                path.unlink(missing_ok=True)
                continue
            start = min(at, path.stat().st_size) if found == number else 0
            size, count = start, 0
            for message in _entries(path, start, path.stat().st_size):
                size += _HEAD.size + len(message)
                count += 1
            if size < path.stat().st_size:
                logger.warning("The spool %s ends with what was not written whole", path, extra={"action": "spool_cut"})
                os.truncate(path, size)
            if not self._segments:
                self._at = start
            self._number = max(self._number, found)
            self._segments.append(_Segment(found, path, size, count))
        if self._segments:
            self._file = os.open(self._segments[-1].path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def _sent(self) -> tuple[int, int]:
        try:
            number, at = (self._folder / "sent").read_text().split()
            return int(number), int(at)
        except (OSError, ValueError):
            return 0, 0  # nothing is noted: what is there is sent again, and servers know it

    def _note_sent(self) -> None:
        """Note from where on messages wait, in one step."""
        number = self._segments[0].number if self._segments else self._number + 1
        new = self._folder / "sent.new"
        try:
            new.write_text(f"{number} {self._at}\n")
            new.replace(self._folder / "sent")
        except OSError as error:
            logger.warning("What was sent can't be noted: %s", error, extra={"action": "spool_failed"})


def _number_of(path: Path) -> int | None:
    return int(path.stem) if path.stem.isdigit() else None


def _entries(path: Path, start: int, stop: int) -> Iterator[bytes]:
    """Whole entries of a file, until one is damaged."""
    try:
        file = path.open("rb")
    except OSError as error:
        logger.warning("The spool can't be read: %s", error, extra={"action": "spool_failed"})
        return
    with file:
        file.seek(start)
        at = start
        while at + _HEAD.size <= stop:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                return
            length, checksum = _HEAD.unpack(head)
            if at + _HEAD.size + length > stop:
                return
            message = file.read(length)
            if len(message) < length or zlib.crc32(message) != checksum:
                return
            at += _HEAD.size + length
            yield message
