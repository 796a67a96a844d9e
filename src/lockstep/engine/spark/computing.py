"""Spark at work for one engine: a session, a query for each shard, and the spools they write to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lockstep.engine.errors import SparkFailed
from lockstep.engine.run.publishing import merge_counts
from lockstep.engine.run.setup import EngineSetup
from lockstep.engine.run.spool import Fill, Progress, Spool
from lockstep.engine.spark.listener import BatchFigures, FigureListener
from lockstep.engine.spark.query import start_query
from lockstep.engine.spark.session import start_session, stop_session
from lockstep.errors import LockstepError


class Computing:
    """Evaluates what is decided, into spools. Starting takes seconds, and must come before there are threads."""

    def __init__(self, setup: EngineSetup, project: str, divided: frozenset[str]) -> None:
        self.setup, self._project, self._divided = setup, project, divided
        self._listener = FigureListener()
        self._queries: list[StreamingQuery] = []
        self._spark: SparkSession | None = None
        self.spools = self._new_spools()

    def start_spark(self, *, master: str | None, own: Mapping[str, str], inherit: Sequence[int], verbose: bool) -> None:
        """Start the JVM; before there are threads, as a process with threads is better not forked."""
        folder = Path(self.setup.folder)
        self._spark = start_session(folder, master=master, own=own, inherit=inherit, verbose=verbose)
        self._spark.streams.addListener(self._listener)

    def start(self) -> None:
        """Begin to evaluate."""
        assert self._spark is not None
        for shard in range(self.setup.shards):
            checkpoint = str(Path(self.setup.folder) / "checkpoint" / str(shard))
            self._queries.append(start_query(self._spark, self.setup, shard, checkpoint))

    def restart(self, incarnation: str) -> None:
        """Throw hot state away and evaluate again from the last snapshot, into new spools."""
        self.stop_queries()
        self.setup = replace(self.setup, incarnation=incarnation)
        self.spools = self._new_spools()
        self.start()

    def check(self) -> None:
        """Raise what stopped it, if anything did."""
        try:
            failed = [query.exception() for query in self._queries]
            ended = [query for query in self._queries if not query.isActive]
        except (OSError, Py4JError) as error:
            raise SparkFailed(project=self._project, reason="its JVM is gone") from error
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

    def computed(self) -> Progress | None:
        """How far all shards are; None before each of them has said so."""
        found = [spool.progress() for spool in self.spools]
        if not all(progress.fingerprint for progress in found):
            return None
        slowest = min(found, key=lambda progress: progress.number)
        counts = merge_counts([progress.counts for progress in found], self._divided)
        return replace(slowest, counts={path: one.dump() for path, one in counts.items()})

    def buffer(self) -> Fill:
        """What waits to be published, over all shards."""
        fills = [spool.fill() for spool in self.spools]
        used = [fill for fill in fills if fill.files]
        first, last = min((fill.first for fill in used), default=0), max((fill.last for fill in used), default=0)
        return Fill(first, last, sum(fill.files for fill in used), sum(fill.size for fill in used))

    def stop_queries(self) -> None:
        """Begin no new batches."""
        for query in self._queries:
            with suppress(OSError, Py4JError):  # a JVM that was told to end with us has nothing left to stop
                query.stop()
        self._queries = []

    def stop(self) -> None:
        """End Spark."""
        self.stop_queries()
        if self._spark is not None:
            stop_session(self._spark)

    def _new_spools(self) -> list[Spool]:
        return [Spool(self.setup.spool(shard)) for shard in range(self.setup.shards)]

    def _spark_error(self, error: StreamingQueryException | None) -> LockstepError:
        reason = _reason(str(error)) if error else "it ended without an error"
        failed = SparkFailed(project=self._project, reason=reason)
        failed.__cause__ = error
        return failed


def _reason(words: str) -> str:
    """The line of Spark's many that says what went wrong: the end of the first Python traceback, else the first one."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Trimmed|Damaged)\b.*:", line)]
    return (errors or lines)[0].rstrip(".")
