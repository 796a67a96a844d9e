"""Spark at work for one engine: a session, a query for each shard, their figures, and the spools they write to."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from lockstep.engine.compute.port import BatchFigures, Compute, check_runner
from lockstep.engine.errors import SparkFailed, SparkNotStarted
from lockstep.engine.runtime.setup import EngineSetup
from lockstep.engine.spark.query import start_query
from lockstep.engine.spark.session import (
    JVM_LOG,
    check_engine,
    check_shared,
    crash_files,
    first_words,
    is_local,
    lent_session,
    start_session,
    stop_session,
)
from lockstep.errors import LockstepError
from lockstep.runtime import logger


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
        """Not called: the JVM calls an object that takes events as JSON."""

    def onQueryProgress(self, event: Any) -> None:
        """Not called: the JVM calls an object that takes events as JSON."""

    def onQueryTerminated(self, event: Any) -> None:
        """Not called: the JVM calls an object that takes events as JSON."""

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


_BATCH_S_MAX, _LOOK_S = 10.0, 0.01
"""How long a batch that has begun may take when a query is stopped, and how often it is looked at."""
_LATE, _LATE_MAX = "Python worker failed to connect back", 5
"""Spark gives a Python process ten seconds to start. On a machine that is very busy that is not enough: try again."""


class SparkCompute(Compute):
    """Starting takes seconds, and must come before there are threads."""

    def __init__(
        self,
        setup: EngineSetup,
        project: str,
        divided: frozenset[str],
        *,
        master: str | None = None,
        own: Mapping[str, str] | None = None,
        session: SparkSession | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(setup, project, divided)
        self._master, self._own, self._verbose = master, own or {}, verbose
        self._lent = session
        self._listener = FigureListener()
        self._queries: list[StreamingQuery] = []
        self._spark: SparkSession | None = None
        self._crashed_before: set[Path] = set()
        self._late = 0

    def open(self, inherit: Sequence[int]) -> None:
        """Start the JVM; before there are threads, as a process with threads is better not forked."""
        folder = Path(self.setup.folder)
        check_runner(folder, "spark")
        self._crashed_before = crash_files(folder)
        self._spark = self._session(folder, inherit)
        check_shared(self._spark, folder)
        self._spark.streams.addListener(self._listener)

    def _session(self, folder: Path, inherit: Sequence[int]) -> SparkSession:
        if self._lent is not None:
            return lent_session(self._lent)
        check_engine(self._own)
        name = f"lockstep {self.project}"
        return start_session(
            folder, app=name, master=self._master, own=self._own, inherit=inherit, verbose=self._verbose,
            took_s=self.started_s,
        )  # fmt: skip

    def start(self) -> None:
        """Begin to evaluate."""
        began = time.monotonic()
        for shard in range(self.setup.shards):
            self._queries.append(self._start_query(shard))
        self.started_s["queries"] = time.monotonic() - began

    def _start_query(self, shard: int) -> StreamingQuery:
        assert self._spark is not None
        checkpoint = f"file://{Path(self.setup.folder) / 'checkpoint' / str(shard)}"  # whatever Spark's own default is
        while True:
            try:
                return start_query(self._spark, self.setup, self.project, shard, checkpoint)
            except (PySparkException, Py4JError) as error:
                if not self._was_late(error):
                    master, words = str(self._spark.sparkContext.master), Path(self.setup.folder) / JVM_LOG
                    reason = f"its first query failed: {_python_error(str(error)) or first_words(error)}"
                    raise SparkNotStarted(master=master, reason=reason, words=words) from error

    def _was_late(self, error: BaseException) -> bool:
        """Whether a Python process did not start in time, and may be started once more."""
        if _LATE not in str(error) or self._late >= _LATE_MAX:
            return False
        self._late += 1
        logger.warning("A Python process of Spark did not start in time: once more", extra={"action": "spark"})
        return True

    def works_here(self) -> bool:
        """Whether Spark's workers are those of this machine."""
        assert self._spark is not None
        return is_local(self._spark)

    def check(self) -> None:
        """Raise what stopped it, if anything did."""
        try:
            failed = [query.exception() for query in self._queries]
            late = [shard for shard, reason in enumerate(failed) if reason is not None and self._was_late(reason)]
            for shard in late:
                self._queries[shard] = self._start_query(shard)
            if late:
                return
            ended = [query for query in self._queries if not query.isActive]
        except (OSError, Py4JError) as error:
            raise SparkFailed(project=self.project, reason=self._end_of_jvm()) from error
        for spool in self.spools:
            failure = spool.failure()
            if failure is not None and any(failed):
                raise failure
        for reason in failed:
            if reason is not None:
                raise self._spark_error(reason)
        if ended:
            raise self._spark_error(None)

    def figures(self) -> Mapping[str, BatchFigures]:
        """What Spark says of its batches."""
        return self._listener.figures()

    def batches_done(self) -> int:
        """Micro-batches that every query has finished since the start."""
        figures = self._listener.figures()
        return min((figures[query.name].batches if query.name in figures else 0) for query in self._queries)

    def stop_queries(self) -> None:
        """Begin no new batches, let those that run come to their end, and stop.

        A query that is stopped within a batch interrupts its tasks. Spark then closes the state store although a task
        may still read from it, and that can take the whole JVM down.
        """
        self.setup.end_orders()
        end = time.monotonic() + _BATCH_S_MAX
        for query in self._queries:
            with suppress(OSError, Py4JError):  # a JVM that was told to end with us has nothing left to stop
                while query.isActive and query.status["isTriggerActive"] and time.monotonic() < end:
                    time.sleep(_LOOK_S)
                query.stop()
        self._queries = []

    def stop(self) -> None:
        """End Spark."""
        self.stop_queries()
        if self._spark is None:
            return
        if self._lent is None:
            stop_session(self._spark)
        else:
            with suppress(OSError, Py4JError):  # its owner may have stopped it
                self._spark.streams.removeListener(self._listener)

    def _end_of_jvm(self) -> str:
        """What is known about a JVM that is gone."""
        left = sorted(crash_files(Path(self.setup.folder)) - self._crashed_before)
        return f"its JVM crashed and left {left[-1]}, which says where" if left else "its JVM is gone"

    def _spark_error(self, error: StreamingQueryException | None) -> LockstepError:
        reason = spark_reason(str(error)) if error else "it ended without an error"
        failed = SparkFailed(project=self.project, reason=reason)
        failed.__cause__ = error
        return failed


def spark_reason(words: str) -> str:
    """The line of Spark's many that says what went wrong: the end of the first Python traceback, else the first one."""
    return _python_error(words) or _lines(words)[0].rstrip(".")


def _python_error(words: str) -> str:
    errors = [line for line in _lines(words) if re.match(r"[\w.]+(Error|Exception|Trimmed|Damaged)\b.*:", line)]
    return errors[0].rstrip(".") if errors else ""


def _lines(words: str) -> list[str]:
    return [line.strip() for line in words.splitlines() if line.strip()]
