"""Bad records and notices on their streams: in the order of blocks, and each once, whoever writes them.

A record has the number of its block and its place within that. Whoever takes over goes on behind the last one; what a
leader wrote that was no longer one stands a second time, and readers drop it by these two numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lockstep.errors import AppendUncertain, Trimmed
from lockstep.log.batch import NO_PRODUCER, BatchView, Headers, pack
from lockstep.log.port import Log
from lockstep.runtime import Runtime, logger

_RECORDS_MAX, _BYTES_MAX = 1000, 1 << 19
"""What one batch of the log holds at most, but for a record that is larger by itself: any bus takes that."""

Item = Mapping[str, Any]
Label = Callable[[Item], tuple[bytes | None, Headers]]
"""Gives an item the key and the headers that its record has."""
NOWHERE = (0, -1)
"""Before the first place."""


class SideLog:
    """Writes items in order; they are there when they were read back. Not to be shared between threads."""

    def __init__(self, log: Log, runtime: Runtime, *, resend_s: float = 0.5, label: Label | None = None) -> None:
        self._log, self._runtime, self._resend_s, self._label = log, runtime, resend_s, label
        self._last, self._at, self._sent_at = NOWHERE, 0, float("-inf")

    def look(self) -> None:
        """Find out what is there."""
        bounds = self._log.bounds()
        self._last, self._at = max(self._last, last_place(self._log)), bounds.next
        self._sent_at = float("-inf")

    def write(self, items: Sequence[Item]) -> bool:
        """Write those that are not there yet, sorted by block; true once all were read back. Else call it again."""
        fresh = self._missing(numbered(items))
        while fresh and self._runtime.monotonic() - self._sent_at >= self._resend_s:
            chunk, values = _chunk(fresh)
            self._append(chunk, values)
            fresh = self._missing(fresh)
            if self._last >= place_of(chunk[-1]):  # the next one need not wait
                self._sent_at = float("-inf")
        return not fresh

    def _missing(self, items: Sequence[Item]) -> list[Item]:
        """Those that were not read back yet."""
        if items and place_of(items[-1]) > self._last:
            self._read()
        return [item for item in items if place_of(item) > self._last]

    def _append(self, items: Sequence[Item], values: Sequence[bytes]) -> None:
        self._sent_at = self._runtime.monotonic()
        labels = [self._label(item) for item in items] if self._label is not None else None
        batch = pack(
            values, producer=NO_PRODUCER, sequence=0, created_ns=self._runtime.wall_ns(),
            keys=[key for key, _ in labels] if labels else None,
            headers=[headers for _, headers in labels] if labels else None,
        )  # fmt: skip
        try:
            self._log.append([batch])
        except AppendUncertain as error:  # done means read back: what is not is sent again
            words = "Bad records or notices were not acknowledged"
            logger.warning(words, extra={"action": "publish", "reason": str(error)})

    def _read(self) -> None:
        try:
            while stored := self._log.read(self._at):
                for entry in stored:
                    view = BatchView(entry.base, entry.data, self._log.name)
                    self._last = max([self._last, *(place_of(json.loads(value)) for value in view.values())])
                    self._at = view.end
        except Trimmed:  # the stream keeps the newest only
            self._at = self._log.bounds().first


def _chunk(items: Sequence[Item]) -> tuple[list[Item], list[bytes]]:
    """The first items that fit into one batch, and how they are written."""
    values: list[bytes] = []
    size = 0
    for item in items[:_RECORDS_MAX]:
        value = json.dumps(item, ensure_ascii=False, default=str).encode()
        size += len(value)
        if values and size > _BYTES_MAX:
            break
        values.append(value)
    return list(items[: len(values)]), values


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
