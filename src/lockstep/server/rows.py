"""The rows a window holds now, folded from what it published: read on at each question, bounded in time and memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lockstep.core.outputs import OutState
from lockstep.engine.errors import OutputBroken
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Opcode, Row
from lockstep.engine.model.graph import Node
from lockstep.engine.runtime.output.event_streams import OutFold
from lockstep.errors import Trimmed
from lockstep.log.batch import BatchView
from lockstep.log.port import Log
from lockstep.runtime import Runtime
from lockstep.server.errors import RowsNotReady, RowsUnknown

Key = tuple[object, ...]
_DELETE, _SAFE_DELETE, _UPDATE_BLOCK = int(Opcode.DELETE), int(Opcode.SAFEDELETE), int(Opcode.UPDATE_BLOCK)


@dataclass(frozen=True, slots=True)
class RowLimits:
    """What is kept and done for those who ask for rows."""

    windows: int = 8
    rows: int = 100_000
    bytes: int = 64 << 20
    """Of one window."""
    seconds: float = 5.0
    """Of reading for one question."""
    read_bytes: int = 1 << 20
    """Read at once, between two looks at the clock."""


class RowsOfWindows:
    """The windows that were asked for last, each as far as its stream was read."""

    def __init__(self, runtime: Runtime, limits: RowLimits) -> None:
        self._runtime, self._limits = runtime, limits
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str, str], WindowRows] = OrderedDict()

    def now(self, log: Log, node: Node, model: str) -> tuple[int, list[Row]]:
        """Return the last block on the stream, and the rows after that block in the order in which they came."""
        if not node.is_indexed:
            raise RowsUnknown(window=node.path, reason="it keeps no rows by key")
        key = (log.name, log.identity, model)
        with self._lock:
            found = self._known.pop(key, None) or WindowRows(node, self._limits)
            self._known[key] = found
            while len(self._known) > self._limits.windows:
                self._known.popitem(last=False)
        return found.now(log, self._runtime)


class WindowRows:
    """The rows of one window."""

    def __init__(self, node: Node, limits: RowLimits) -> None:
        self._node, self._limits = node, limits
        self._fold: OutFold | None = None
        self._next = self._bytes = 0
        self._rows: dict[Key, Row] = {}
        self._is_update_open = False
        self._refusal: RowsUnknown | None = None
        self._lock = threading.Lock()

    def now(self, log: Log, runtime: Runtime) -> tuple[int, list[Row]]:
        """Read on to the end of the stream, or as far as the time allows."""
        end, deadline = log.bounds().next, runtime.monotonic() + self._limits.seconds
        if not self._lock.acquire(timeout=self._limits.seconds):
            raise self._not_ready(end)
        try:
            if self._refusal is not None:
                raise self._refusal
            while self._next < end:
                self._read_on(log)
                if runtime.monotonic() > deadline and self._next < end:
                    raise self._not_ready(end)
            last = self._fold.last if self._fold is not None else 0
            return last or 0, list(self._rows.values())
        finally:
            self._lock.release()

    def _not_ready(self, end: int) -> RowsNotReady:
        return RowsNotReady(window=self._node.path, done=self._next, total=end)

    def _read_on(self, log: Log) -> None:
        try:
            for offset, value in self._values(log):
                self._take(log.name, offset, value)
        except OutputBroken as error:
            missing = f"blocks before {error.params['number']} are no longer on {log.name}"
            raise self._refuse(missing) from error

    def _take(self, stream: str, offset: int, value: bytes) -> None:
        if self._fold is None:
            self._fold = OutFold(stream, self._node.schema, OutState())
        batch = self._fold.take(offset, value)
        if len(batch):
            self._apply(batch)
        if len(self._rows) > self._limits.rows or self._bytes > self._limits.bytes:
            many = f"there are more than {self._limits.rows} of them, or they have more than {self._limits.bytes} bytes"
            raise self._refuse(many)

    def _values(self, log: Log) -> Iterator[tuple[int, bytes]]:
        """Some records from where reading stopped. Where they were trimmed, the blocks' own chain tells."""
        try:
            stored = log.read(self._next, max_bytes=self._limits.read_bytes)
        except Trimmed:
            stored = log.read(log.bounds().first, max_bytes=self._limits.read_bytes)
        for entry in stored:
            view = BatchView(entry.base, entry.data, log.name)
            for index, value in enumerate(view.values()):
                if view.base + index >= self._next:
                    yield view.base + index, value
            self._next = view.end
        if not stored:
            self._next = log.bounds().next

    def _apply(self, batch: EventBatch) -> None:
        """Full rows are made only of the last event of each key."""
        changed, removed = self._changes(batch)
        for key in removed:
            self._put(key, None)
        events = batch.take(np.array(list(changed.values()), np.intp)).events() if changed else []
        for key, event in zip(changed, events, strict=True):
            self._put(key, event.values)

    def _changes(self, batch: EventBatch) -> tuple[dict[Key, int], set[Key]]:
        names = [batch.schema.fields[place].name for place in batch.schema.keys]
        keys = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
        changed: dict[Key, int] = {}
        removed: set[Key] = set()
        for at, (opcode, key) in enumerate(zip(batch.opcode.tolist(), keys, strict=True)):
            if opcode == _DELETE and self._is_update_open:  # the old row of an update: the new one is there
                self._is_update_open = False
            elif opcode in (_DELETE, _SAFE_DELETE):
                changed.pop(key, None)
                removed.add(key)
            else:
                changed[key] = at
                self._is_update_open = opcode == _UPDATE_BLOCK
        return changed, removed

    def _put(self, key: Key, row: Row | None) -> None:
        before = self._rows.get(key)
        self._bytes -= _weight(before) if before is not None else 0
        if row is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = row
            self._bytes += _weight(row)

    def _refuse(self, reason: str) -> RowsUnknown:
        """Give up for good, and drop the rows."""
        self._rows, self._bytes, self._fold = {}, 0, None
        self._refusal = RowsUnknown(window=self._node.path, reason=reason)
        return self._refusal


def _weight(row: Row) -> int:
    """About how many bytes a row takes."""
    return 64 + sum(16 + len(value) if isinstance(value, str | bytes | tuple) else 32 for value in row)
