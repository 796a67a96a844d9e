"""Bad records and notices on their streams: in the order of blocks, and each once, whoever writes them.

A record has the number of its block and its place within that. Whoever takes over goes on behind the last one; what a
leader wrote that was no longer one stands a second time, and readers drop it by these two numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.errors import AppendUncertain
from lockstep.log.batch import NO_PRODUCER, BatchView, pack
from lockstep.log.port import Log
from lockstep.runtime import Runtime

_RECORDS_MAX = 1000
"""Records in one batch of the log."""
_TRIES = 5

Item = Mapping[str, Any]
NOWHERE = (0, -1)
"""Before the first place."""


class SideLog:
    """Writes items in order. Not to be shared between threads."""

    def __init__(self, log: Log, runtime: Runtime) -> None:
        self._log, self._runtime = log, runtime
        self._last = NOWHERE

    def look(self) -> None:
        """Find out what is there."""
        self._last = max(self._last, last_place(self._log))

    def add(self, items: Sequence[Item]) -> None:
        """Write those that are not there yet; sorted by block."""
        fresh = [item for item in numbered(items) if place_of(item) > self._last]
        for at in range(0, len(fresh), _RECORDS_MAX):
            self._append(fresh[at : at + _RECORDS_MAX])

    def _append(self, items: Sequence[Item]) -> None:
        values = [json.dumps(item, ensure_ascii=False, default=str).encode() for item in items]
        batch = pack(values, producer=NO_PRODUCER, sequence=0, created_ns=self._runtime.wall_ns())
        for attempt in range(_TRIES):
            try:
                self._log.append([batch])
                break
            except AppendUncertain:
                self.look()
                if self._last >= place_of(items[-1]):
                    break
                if attempt == _TRIES - 1:
                    raise
        self._last = place_of(items[-1])


def numbered(items: Sequence[Item]) -> list[Item]:
    """Items with their place within their block."""
    found: list[Item] = []
    block, index = 0, 0
    for item in items:
        index = index + 1 if item["block"] == block else 0
        block = item["block"]
        found.append({**item, "index": index})
    return found


def place_of(item: Item) -> tuple[int, int]:
    """Where an item stands in the order of everything."""
    return item["block"], item.get("index", 0)


def last_place(log: Log) -> tuple[int, int]:
    """The place of the last record of a stream."""
    bounds = log.bounds()
    if bounds.next == bounds.first:
        return NOWHERE
    stored = log.read(bounds.next - 1)[-1]
    return place_of(json.loads(BatchView(stored.base, stored.data, log.name).values()[-1]))
