"""Orders to the fleet: appended to its input, carried out by every engine at the same block, answered in the view."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lockstep.monitor.changelog import ChangelogReader
from lockstep.monitor.transport.streams import MonitorStreams
from lockstep.streams.client import Lockstep

_STORED_S = 10.0
_ORDER_KEY = b"o:"


class OrderClient:
    """Sends orders, and waits for answers. Safe to share between threads."""

    def __init__(self, bus: Lockstep, streams: MonitorStreams, reader: ChangelogReader) -> None:
        self._bus, self._reader = bus, reader
        self._publisher = bus.publisher(streams.input)

    def send(self, kind: str, fields: Mapping[str, Any]) -> str:
        """Append an order durably; return its id."""
        order = self._bus.runtime.new_id().hex()
        self._append(_ORDER_KEY, {"order": kind, "id": order, **fields})
        return order

    def wait(self, order: str, seconds: float) -> bool:
        """Wait until the view has the answer to an order; False if it does not come in time."""
        return self._reader.wait_answer(order, seconds)

    def close(self) -> None:
        """Send what is left."""
        self._publisher.close()

    def _append(self, key: bytes, document: Mapping[str, Any]) -> None:
        value = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
        self._publisher.publish(value, key=key).result(_STORED_S)
