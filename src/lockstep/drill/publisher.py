"""The publisher of a drill, started with the name of its errand's file.

Lines on its standard input say how many events it may send; it ends when all are sent, or its input ends. Killed and
started again, it sends its last pieces once more, under the same message ids: engines drop what they know.
"""

from __future__ import annotations

import sys
import threading
import time
from hashlib import sha256
from pathlib import Path
from typing import TextIO

import numpy as np

from lockstep.drill.plan import Pace
from lockstep.drill.scene import PublishErrand, Scene, load, scene
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.csv_format import BadLine, CsvOptions, read_csv
from lockstep.engine.runtime.output.event_streams import EventPublisher
from lockstep.errors import DataError
from lockstep.streams.client import connect

_AGAIN = 3
"""Pieces that are sent once more after a restart."""


class Permission:
    """How many events may be sent, as the lines on a stream say it, one after the other."""

    def __init__(self, lines: TextIO) -> None:
        self._lines, self._changed = lines, threading.Condition()
        self._allowed, self._is_over = 0, False
        threading.Thread(target=self._listen, name="permission", daemon=True).start()

    def wait_for(self, events: int) -> bool:
        """Wait until that many events may be sent; returns False if that will never be."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._allowed >= events)
            return self._allowed >= events

    def _listen(self) -> None:
        for line in self._lines:
            with self._changed:
                self._allowed = int(line)
                self._changed.notify()
        with self._changed:
            self._is_over = True
            self._changed.notify()


class Progress:
    """How many blocks are surely on the stream, in a file that outlives the process."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open("r+b", buffering=0)
        self._before: list[int] = []

    def first(self) -> int:
        """The block to begin with."""
        text = self._file.read()
        return int(text) + 1 if text else 1

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def sent(self, begin: int) -> None:
        """A piece that begins with a block is on the stream: what comes some pieces before it is never sent again."""
        self._before.append(begin)
        if len(self._before) > _AGAIN:
            self._file.seek(0)
            self._file.write(f"{self._before.pop(0) - 1:>20}".encode())


def send(errand: PublishErrand, place: Scene, publisher: EventPublisher, progress: Progress, lines: TextIO) -> None:
    """Send all blocks from the publisher's next id on, as permitted and at the requested rate."""
    permission, pace, sent, first = Permission(lines), Pace(errand.rate), 0, publisher.next_id
    options = CsvOptions(block_size=errand.block)
    for batch in read_csv(errand.file, place.source.schema, options, _refuse, chunk=errand.piece):
        sent += len(batch)
        rest = _behind(batch, first)
        if not len(rest):
            continue
        if not permission.wait_for(sent):
            return
        time.sleep(pace.wait_s(time.monotonic(), len(rest)))
        publisher.publish_batch(rest)
        publisher.flush()
        progress.sent(int(rest.block[0]))


def _behind(batch: EventBatch, first: int) -> EventBatch:
    return batch.slice(int(np.searchsorted(batch.block, first)), len(batch))


def _refuse(bad: BadLine) -> None:
    raise DataError(reason=f"A made-up trade can't be read: line {bad.line}: {bad.reason}.")


def client_id(name: str) -> bytes:
    """The same sixteen bytes for the same name."""
    return sha256(name.encode()).digest()[:16]


def main(arguments: list[str]) -> int:
    """Play it."""
    errand = PublishErrand(**load(arguments[0]))
    place = scene(Path(errand.model), errand.cluster)
    progress = Progress(Path(errand.progress))
    first = progress.first()
    with connect(errand.url, create=False) as client:
        publisher = EventPublisher(
            client, place.input, place.source.schema, client=client_id(errand.client), next_id=first
        )
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        send(errand, place, publisher, progress, sys.stdin)
        publisher.close()
    progress.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
