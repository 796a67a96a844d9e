"""Whether a bus can be written to: a process that was stopped within a commit keeps everybody from it."""

from __future__ import annotations

import threading

from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.config import StreamConfig
from lockstep.log.port import Bus

_ANSWER_S, _END_S_MAX = 0.3, 30.0


class Probe:
    """Writes to a small stream of its own, in a thread that may have to wait."""

    def __init__(self, bus: Bus, stream: str) -> None:
        self._log = bus.create(stream, StreamConfig(capacity=10))
        self._thread: threading.Thread | None = None

    def is_writable(self) -> bool:
        """Whether a write is done within a moment."""
        self.wait()
        self._thread = threading.Thread(target=self._write, name="probe", daemon=True)
        self._thread.start()
        self._thread.join(_ANSWER_S)
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Until the last write is done."""
        if self._thread is not None:
            self._thread.join(_END_S_MAX)

    def _write(self) -> None:
        self._log.append([pack([b"?"], producer=NO_PRODUCER, sequence=0, created_ns=0)])
