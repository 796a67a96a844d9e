"""What Spark says about its micro-batches, as figures."""

from __future__ import annotations

import json
import threading
from typing import Any, ClassVar

from pyspark import SparkContext
from pyspark.sql.streaming.listener import StreamingQueryListener

from lockstep.engine.compute.port import BatchFigures


class FigureListener(StreamingQueryListener):
    """Collects figures; called from Spark's own thread.

    PySpark turns every event into Python objects with some hundred calls to the JVM: a quarter of a second after each
    batch, and most of a core in a busy engine. Here an event is one JSON text.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._figures: dict[str, BatchFigures] = {}
        self._java: Any = None

    def figures(self) -> dict[str, BatchFigures]:
        """The figures of each query by its name."""
        with self._lock:
            return dict(self._figures)

    def take(self, progress: str) -> None:
        """Count the progress of one micro-batch, as JSON."""
        told = json.loads(progress)
        with self._lock:
            self._add(self._figures.setdefault(told["name"], BatchFigures()), told)

    def onQueryStarted(self, event: Any) -> None:
        """See StreamingQueryListener."""

    def onQueryProgress(self, event: Any) -> None:
        """See StreamingQueryListener."""

    def onQueryTerminated(self, event: Any) -> None:
        """See StreamingQueryListener."""

    @property
    def _jlistener(self) -> Any:
        if self._java is None:  # always the same, so that it can be removed
            jvm: Any = SparkContext._jvm
            self._java = jvm.PythonStreamingQueryListenerWrapper(_Events(self))
        return self._java

    def _add(self, figures: BatchFigures, told: dict[str, Any]) -> None:
        figures.batches += 1
        figures.last_ms = told["durationMs"]
        figures.first_ms = figures.first_ms or figures.last_ms
        for part, spent in told["durationMs"].items():
            figures.total_ms[part] = figures.total_ms.get(part, 0) + spent
        figures.state_bytes = sum(state["memoryUsedBytes"] for state in told["stateOperators"])


class _Events:
    """What the JVM calls: its events as they are."""

    def __init__(self, listener: FigureListener) -> None:
        self._listener = listener

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to count."""

    def onQueryProgress(self, event: Any) -> None:
        """A micro-batch ended."""
        self._listener.take(event.progress().json())

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to count."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to count."""

    class Java:
        """For py4j."""

        implements: ClassVar[list[str]] = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]
