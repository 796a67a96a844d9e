"""What Spark says about its micro-batches, as figures."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener


@dataclass(slots=True)
class BatchFigures:
    """Micro-batches so far: how many, and how long the parts of the last ones took, in milliseconds."""

    batches: int = 0
    last_ms: dict[str, int] = field(default_factory=dict)
    total_ms: dict[str, int] = field(default_factory=dict)
    state_bytes: int = 0


class FigureListener(StreamingQueryListener):
    """Collects figures; called from Spark's own thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._figures: dict[str, BatchFigures] = {}

    def figures(self) -> dict[str, BatchFigures]:
        """The figures of each query by its name."""
        with self._lock:
            return dict(self._figures)

    def onQueryStarted(self, event: Any) -> None:
        """See StreamingQueryListener."""

    def onQueryProgress(self, event: Any) -> None:
        """See StreamingQueryListener."""
        progress = json.loads(event.progress.json)
        with self._lock:
            self._add(self._figures.setdefault(progress["name"], BatchFigures()), progress)

    def onQueryIdle(self, event: Any) -> None:
        """See StreamingQueryListener."""

    def onQueryTerminated(self, event: Any) -> None:
        """See StreamingQueryListener."""

    def _add(self, figures: BatchFigures, progress: dict[str, Any]) -> None:
        figures.batches += 1
        figures.last_ms = progress["durationMs"]
        for part, spent in progress["durationMs"].items():
            figures.total_ms[part] = figures.total_ms.get(part, 0) + spent
        figures.state_bytes = sum(state["memoryUsedBytes"] for state in progress["stateOperators"])
