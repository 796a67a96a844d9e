"""The subscriber of a drill, started with the name of its errand's file.

It writes what comes out of a window to a CSV file. Beside it each piece is noted when it is in the file: killed at any
moment and started again, it cuts the file back to the last note and goes on after it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import BinaryIO

import numpy as np

from lockstep.core.outputs import OutState
from lockstep.drill.arrivals import Arrival, parse
from lockstep.drill.scene import Scene, SubscribeErrand, load, orphaned, scene
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.csv_format import write_csv
from lockstep.engine.runtime.output.event_streams import OutFold
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.log.port import Bus
from lockstep.streams.client import connect

_WAIT_S = 1.0


class Taking:
    """The file, the notes beside it, and how far both are."""

    def __init__(self, errand: SubscribeErrand, scene: Scene, file: BinaryIO, notes: BinaryIO) -> None:
        self._errand, self._file, self._notes = errand, file, notes
        last = _last_note(notes)
        file.truncate(last.size if last else 0)
        file.seek(0, 2)
        self.offset = last.offset if last else 0
        self._fold = OutFold(scene.output, scene.window.schema, OutState(last.last, last.part) if last else 0)

    @property
    def is_over(self) -> bool:
        """Whether all is there."""
        state = self._fold.state
        return state is not None and state.last >= self._errand.until and state.part == 0

    def take(self, offset: int, value: bytes) -> None:
        """A record of the out stream."""
        batch = self._fold.take(offset, value)
        self.offset = offset + 1
        if len(batch):
            write_csv(batch, self._file)
            self._file.flush()
            self._notes.write(self._note(batch).line().encode())
            self._notes.flush()

    def _note(self, batch: EventBatch) -> Arrival:
        state, errand = self._fold.state, self._errand
        assert state is not None
        blocks = int(np.count_nonzero(np.diff(batch.block))) + 1
        events = min(state.last * errand.block, errand.events)
        first, size = int(batch.block[0]), self._file.tell()
        return Arrival(time.monotonic(), first, state.last, blocks, events, size, self.offset, state.part)


def _last_note(notes: BinaryIO) -> Arrival | None:
    """Return the last complete note; what a kill left after it is cut off."""
    notes.seek(0)
    text = notes.read().decode()
    known = parse(text)
    notes.truncate(len(text[: text.rfind("\n") + 1].encode()))
    notes.seek(0, 2)
    return known[-1] if known else None


def follow(bus: Bus, scene: Scene, taking: Taking) -> None:
    """Read until everything has arrived or the drill has ended."""
    log, waiter, is_alone = bus.open(scene.output), bus.waiter(), orphaned()
    try:
        waiter.watch(log)
        while not taking.is_over and not is_alone():
            for offset, value in values_between(log, taking.offset, log.bounds().next):
                taking.take(offset, value)
            if not taking.is_over:
                waiter.wait(_WAIT_S)
    finally:
        waiter.close()


def main(arguments: list[str]) -> int:
    """Play it."""
    errand = SubscribeErrand(**load(arguments[0]))
    place = scene(Path(errand.model), errand.cluster)
    file, notes = Path(errand.file), Path(errand.arrivals)
    for path in (file, notes):
        path.touch()
    with connect(errand.url, create=False) as client, file.open("r+b") as out, notes.open("r+b") as beside:
        follow(client.bus, place, Taking(errand, place, out, beside))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
