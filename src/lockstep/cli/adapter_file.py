"""A file that grows, with the position of the subscriber beside it: after kill -9 it goes on to the byte."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.errors import Conflict

if TYPE_CHECKING:
    from lockstep.events.positions import Position

SUFFIX = ".position"


class ResumedFile:
    """An output file and the position to which it was written.

    The position is replaced after the bytes it stands for are on the disk. What follows it is cut off at the next
    start, and written again.
    """

    def __init__(self, path: Path, form: Mapping[str, Any]) -> None:
        from lockstep.engine.events.writing import unwritable

        self.path, self._form = path, dict(form)
        self._beside = path.with_name(path.name + SUFFIX)
        known = self._load()
        self.position: Position | None = None if known is None else known[0]
        self.size = 0 if known is None else known[1]
        with unwritable(path):
            self._file = path.open("r+b" if path.exists() else "w+b")
        self._cut()

    @property
    def is_resumed(self) -> bool:
        """Whether it goes on with a file that was begun before."""
        return self.position is not None

    def write(self, data: bytes) -> None:
        """Add to the file."""
        from lockstep.engine.events.writing import unwritable

        with unwritable(self.path):
            self._file.write(data)
            self.size += len(data)

    def save(self, position: Position | None) -> None:
        """Say that everything up to a position is in the file; None: it is to be begun anew."""
        from dataclasses import asdict

        from lockstep.engine.events.writing import new_file, unwritable

        tree = {"position": None if position is None else asdict(position), "bytes": self.size, "form": self._form}
        with unwritable(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
        with new_file(self._beside, sync=True) as file:
            file.write(json.dumps(tree).encode())

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _load(self) -> tuple[Position | None, int] | None:
        from lockstep.engine.errors import PositionForeign
        from lockstep.events.positions import Position

        if not self._beside.exists():
            if self.path.exists() and self.path.stat().st_size:
                raise Conflict(reason=f"{self.path} has no position beside it ({self._beside.name}): begin a new file.")
            return None
        tree = json.loads(self._beside.read_bytes())
        if tree["form"] != self._form:
            raise PositionForeign(found=json.dumps(tree["form"]), wanted=json.dumps(self._form))
        position = tree["position"]
        return (None, 0) if position is None else (Position.of(position), tree["bytes"])

    def _cut(self) -> None:
        from lockstep.engine.errors import PositionForeign

        found = self._file.seek(0, os.SEEK_END)
        if found < self.size:
            self._file.close()
            raise PositionForeign(found=f"a file of {self.size} bytes", wanted=f"{self.path} with {found}")
        self._file.truncate(self.size)
        self._file.seek(self.size)
