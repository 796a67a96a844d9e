"""Files as sources and targets of connectors."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from lockstep.connectors.errors import ConnectorDown
from lockstep.connectors.forms import OnBad, ReadForm, WriteForm, block_of
from lockstep.connectors.port import Note, Pace, Piece
from lockstep.connectors.properties import BINARY
from lockstep.engine.events.atomic_files import unwritable
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.runtime.files import open_input
from lockstep.events.rows import FRAME_MAX, PREFIX, limited
from lockstep.events.subscriber import Block

_READ = 1 << 20
_CHUNK = 50_000


class Growing:
    """A file that is read as it grows: at its end it waits for more. What `read` gives is never nothing."""

    def __init__(self, file: BinaryIO, pace: Pace) -> None:
        self._file, self._pace = file, pace
        self._buffer = b""

    def read(self, size: int = -1) -> bytes:
        """Return the bytes available now, at most as many as asked for."""
        if not self._buffer:
            self._buffer = self._more()
        most = len(self._buffer) if size < 0 else size
        given, self._buffer = self._buffer[:most], self._buffer[most:]
        return given

    def readline(self) -> bytes:
        """A whole line."""
        while b"\n" not in self._buffer:
            self._buffer += self._more()
        line, end, self._buffer = self._buffer.partition(b"\n")
        return line + end

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def _more(self) -> bytes:
        while not (data := self._file.read(_READ)):
            self._pace.rest()
        return data


class FileSource:
    """A file, once or several times. The number of a block is its place in all of that."""

    is_numbered = True

    def __init__(
        self, path: Path, form: ReadForm, pace: Pace, on_bad: OnBad, *, rounds: int = 1, grows: bool = False,
        most: int | None = None, slow: bool = False,
    ) -> None:  # fmt: skip
        self._path, self._form, self._pace, self._on_bad = path, form, pace, on_bad
        self._rounds, self._grows, self._most, self._slow = rounds, grows, most, slow
        self._file: BinaryIO | None = None

    def pieces(self, after: int, note: Note | None) -> Iterator[Piece | None]:
        """Yield the file's blocks after block `after`; raises at once if the file cannot be opened."""
        del note  # the numbers on the input tell the place
        open_input(self._path).close()  # one that is missing is told now, not when it is first read
        return self._read(after)

    def _read(self, after: int) -> Iterator[Piece | None]:
        done = 0
        for batch in limited(self._batches(), self._most):
            starts = np.flatnonzero(np.r_[True, batch.block[1:] != batch.block[:-1]])[: len(batch)]
            first, done = done + 1, done + len(starts)
            if done <= after:
                self._pace.check()
                continue
            known = max(after - first + 1, 0)
            yield piece_of(batch.slice(int(starts[known]), len(batch)), first + known, self._form)

    def start(self) -> Note | None:
        """Return None: a file is always read from its beginning."""
        return None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _batches(self) -> Iterator[EventBatch]:
        for _ in range(self._rounds):
            self.close()
            file = self._file = open_input(self._path)
            source = cast("BinaryIO", Growing(file, self._pace)) if self._grows else file
            yield from self._form.blocks(source, self._on_bad, 1 if self._grows or self._slow else _CHUNK)


def piece_of(batch: EventBatch, first: int, form: ReadForm) -> Piece:
    """The blocks of a batch, numbered from `first` on."""
    places = np.cumsum(np.r_[True, batch.block[1:] != batch.block[:-1]]) - 1
    block = (places + first).astype(np.int64)
    made = EventBatch(batch.schema, block, batch.opcode, batch.flags, batch.columns)
    return Piece(made, np.arange(first, int(block[-1]) + 1, dtype=np.int64), form.csv.transactional)


class FileTarget:
    """A file that one process at a time appends blocks to. What was not noted is cut off, and sent again.

    Binary blocks carry their numbers, so only a torn end is cut off.
    """

    def __init__(self, path: Path, form: WriteForm, connector: str) -> None:
        self._path, self._form, self._connector = path, form, connector
        self._file: BinaryIO | None = None
        self._size = 0

    def open(self, note: Note) -> int | None:
        """Lock the file and cut off what is torn or not noted; returns the last block in it if the format is binary."""
        with unwritable(self._path):
            file = self._file = self._path.open("r+b" if self._path.exists() else "w+b")
        self._lock(file)
        found, noted = file.seek(0, os.SEEK_END), int(note.more.get("bytes", 0))
        if found < noted:  # another machine's, or it was taken away: what comes now begins a new part
            noted = found
        last = None
        self._size = noted
        if self._form.form == BINARY:
            self._size, last = _whole_frames(file, noted)
        with unwritable(self._path):
            file.truncate(self._size)
            file.seek(self._size)
            if not self._size:
                self._write(self._form.first())
        return last

    def send(self, blocks: Sequence[Block]) -> None:
        """Write blocks and fsync the file; raises if it cannot be written."""
        assert self._file is not None
        with unwritable(self._path):
            self._write(b"".join(self._form.part(block) for block in blocks))
            self._file.flush()
            os.fsync(self._file.fileno())

    def mark(self) -> Mapping[str, Any]:
        """Return the size of the file, at which a restart cuts off the rest."""
        return {"bytes": self._size}

    def idle(self) -> None:
        """Do nothing: a file has no connection to keep alive."""

    def close(self) -> None:
        """Close the file, which also releases its lock."""
        if self._file is not None:
            self._file.close()

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        self._file.write(data)
        self._size += len(data)

    def _lock(self, file: BinaryIO) -> None:
        """An engine that sleeps holds its file: it could write to it when it wakes."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            reason = "another engine has it open"
            raise ConnectorDown(connector=self._connector, server=self._path, reason=reason) from error


def _whole_frames(file: BinaryIO, start: int) -> tuple[int, int | None]:
    """Return where the last whole frame after `start` ends, and its block; `start` and None if there is none."""
    file.seek(start)
    at, last = start, None
    while len(prefix := file.read(PREFIX)) == PREFIX:
        size = int.from_bytes(prefix, "little")
        data = file.read(size) if 0 < size <= FRAME_MAX else b""
        block = block_of(data) if len(data) == size else None
        if block is None:
            break
        at, last = at + PREFIX + size, block
    return at, last
