"""Streams that the console keeps for itself: plain JSON records, written durably and folded by every server.

Their names begin with `console.`, and their records carry a header that nothing which callers of the server can reach
writes: not the act that publishes, not a scheduler that delivers to a stream. A record without it is ignored, so that
nobody makes himself an admin with a record of his own.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from lockstep.errors import StreamNotFound
from lockstep.log.config import StreamConfig
from lockstep.log.offsets import step_back
from lockstep.streams.client import Lockstep
from lockstep.streams.publisher import Publisher
from lockstep.streams.subscriber import Subscriber

OWN = "console."
"""What the names of these streams begin with."""
_STORED_S = 10.0
_MARK = "lockstep-console"


def is_own(stream: str) -> bool:
    """Whether a stream, or a shard of one, is one that the console keeps for itself."""
    return stream.startswith(OWN)


class Ledger:
    """One such stream: records are appended by any server, and every server sees all of them in one order."""

    def __init__(
        self,
        client: Lockstep,
        stream: str,
        config: StreamConfig,
        take: Callable[[dict[str, Any]], None],
        newest: int | None = None,
    ) -> None:
        """`newest`: a server that starts takes only so many of the records that are there already."""
        self._newest = newest
        self._client, self.stream, self._config, self._take = client, stream, config, take
        self._publisher: Publisher[Any, Any] | None = None
        self._subscriber: Subscriber[Any, Any] | None = None
        self._lock = threading.RLock()

    def append(self, record: Mapping[str, Any]) -> None:
        """Store a record; returns when it is durable."""
        with self._lock:
            if self._publisher is None:
                self._publisher = self._client.publisher(self.stream, config=self._config, linger_s=0.0)
            receipt = self._publisher.publish(
                json.dumps(record, separators=(",", ":")).encode(), headers=((_MARK, b"1"),)
            )
        receipt.result(_STORED_S)

    def follow(self) -> None:
        """Take what has come since the last call."""
        with self._lock:
            if self._subscriber is None:
                try:
                    self._subscriber = self._client.subscriber(self.stream, initial="earliest", create=False)
                except StreamNotFound:  # nothing was written yet
                    return
                if self._newest is not None:
                    [log] = self._client.logs(self.stream)
                    bounds = log.bounds()
                    first = step_back(log, bounds.next, self._newest, bounds.first)
                    self._subscriber.seek(first, stream=log.name)
            while batch := self._subscriber.poll(0.0):
                for record in batch:
                    if any(name == _MARK for name, _ in record.headers):
                        self._take(json.loads(record.value))

    def close(self) -> None:
        """Close what was opened."""
        with self._lock:
            for opened in (self._publisher, self._subscriber):
                if opened is not None:
                    opened.close()
