"""Following what others write: the subscriber's notes, and the engines' reports."""

from __future__ import annotations

from pathlib import Path

from lockstep.drill.arrivals import Arrival, parse
from lockstep.engine.runtime.control.reports import Report, parse_report
from lockstep.errors import DataError, Trimmed
from lockstep.log.batch import BatchView
from lockstep.log.port import Log


class Notes:
    """The notes of a subscriber, as they come. What it cuts off after a kill was never complete, so never read."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def new(self) -> list[Arrival]:
        """Those that came since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        complete = data[: data.rfind(b"\n") + 1]
        self._at += len(complete)
        return parse(complete.decode())


class Reports:
    """What engines say of themselves, as it comes; what was trimmed unread is passed over, newer ones say it again."""

    def __init__(self, log: Log) -> None:
        self._log, self._at = log, log.bounds().first

    def new(self) -> list[Report]:
        """Those that came since the last call."""
        found: list[Report] = []
        while True:
            try:
                entries = self._log.read(self._at)
            except Trimmed:
                self._at = self._log.bounds().first
                continue
            if not entries:
                return found
            for entry in entries:
                view = BatchView(entry.base, entry.data, self._log.name)
                found += [report for value in view.values() if (report := _report(value)) is not None]
                self._at = view.end


def _report(value: bytes) -> Report | None:
    try:
        return parse_report(value)
    except DataError:  # of another version: it says nothing to us
        return None
