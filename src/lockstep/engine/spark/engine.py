"""One engine: it sequences its inputs, has Spark evaluate them, and publishes what comes out."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lockstep.engine.errors import NotShardable, SparkFailed
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.guard import clock_dependence
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.model.plan import Plan, make_plan
from lockstep.engine.model.windows import NotificationWindow
from lockstep.engine.run.beats import last_beat
from lockstep.engine.run.folder import EngineFolder
from lockstep.engine.run.mail import MailSender
from lockstep.engine.run.mailing import Mailer
from lockstep.engine.run.position import Position
from lockstep.engine.run.publishing import Publisher
from lockstep.engine.run.sequencing import Sequencer, SequencerOptions
from lockstep.engine.run.setup import EngineSetup
from lockstep.engine.run.spool import Spool
from lockstep.engine.run.streams import CONTROL_STREAM, ProjectStreams, sources
from lockstep.engine.spark.listener import BatchFigures, FigureListener
from lockstep.engine.spark.query import start_query
from lockstep.engine.spark.session import start_session, stop_session
from lockstep.engine.windows.counts import WindowCounts
from lockstep.errors import LockstepError, TimedOut
from lockstep.log.port import Bus
from lockstep.runtime import Runtime, Task

_POLL_S = 0.004
_ENTRY_S = 0.01
_IDLE_S = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineOptions:
    """How an engine runs; what it answers does not depend on any of this."""

    cluster: str = "local"
    shards: int = 1
    batch_events: int = 300_000
    entry_events: int = 50_000
    snapshot_every_s: float = 10.0
    spool_files_max: int = 8
    master: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    """Spark settings of your own; they win."""
    warm_batches: int = 0
    """Empty micro-batches before it is ready: the first ones of a new JVM are slow, and nobody should wait for them."""
    ticks: bool = True
    """Let the model's clock follow this machine's; without, it stands still."""
    verbose: bool = False
    """Let Spark's own words through."""


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """How far an engine is."""

    sequenced: Position
    published: int
    """The last block that is on the out streams."""
    published_events: int
    counts: Mapping[str, WindowCounts]
    bad: Mapping[str, int]
    busy_s: float
    """Seconds that workers spent on windows."""
    spark: Mapping[str, BatchFigures]

    @property
    def lag(self) -> int:
        """Blocks that are decided and not yet out."""
        return self.sequenced.block - self.published


Progress = Callable[[EngineStatus], None]


def _silent(_: EngineStatus) -> None:
    """Say nothing."""


class Engine:
    """Runs a project until it is stopped. Use as a context manager, or call `start` and `stop`."""

    def __init__(
        self,
        graph: Graph,
        wanted: frozenset[str],
        bus: Bus,
        folder: Path,
        runtime: Runtime,
        options: EngineOptions | None = None,
    ) -> None:
        self._graph, self._wanted, self._bus, self._runtime = graph, wanted, bus, runtime
        self._options = options or EngineOptions()
        self._path = folder
        self._plan = make_plan(graph)
        check_shards(self._plan, self._options.shards)
        self.streams = ProjectStreams(cluster=self._options.cluster, project=graph.project.name)
        self._crash: BaseException | None = None
        self._listener = FigureListener()
        self._tasks: list[Task] = []
        self._queries: list[StreamingQuery] = []
        self._spark: SparkSession | None = None
        self._folder: EngineFolder | None = None
        self._is_publishing = False
        self._books = threading.Lock()

    def start(self) -> None:
        """Lock the folder, begin to sequence and publish, and start Spark."""
        folder = self._folder = EngineFolder.open(self._path, self._runtime)
        self.streams.create(self._bus, self._graph, self._wanted)
        folder.bind(self._identity())
        self._setup = self._make_setup()
        self._spools = [Spool(self._setup.spool(shard)) for shard in range(self._options.shards)]
        self._sequencer, self._publisher = self._make_sequencer(), self._make_publisher()
        if self._publisher.published < self._sequencer.position.block:
            self._sequencer.nudge()  # Spark may have committed what was never published, and would do nothing more
        self._spark = start_session(  # before there are threads: a process with threads is better not forked
            self._path,
            master=self._options.master,
            own=self._options.spark,
            inherit=(folder.descriptor,),
            verbose=self._options.verbose,
        )
        self._spawn("publisher", self._publish)
        if any(isinstance(node.window, NotificationWindow) for node in self._graph.nodes):
            sender = MailSender(os.environ, self._pause)
            self._spawn("mailer", Mailer(self._bus, self.streams, sender).step)
        self._is_publishing = True
        self._spark.streams.addListener(self._listener)
        for shard in range(self._options.shards):
            checkpoint = str(self._path / "checkpoint" / str(shard))
            self._queries.append(start_query(self._spark, self._setup, shard, checkpoint))
        self._warm_up()
        self._spawn("sequencer", self._sequence)

    def status(self) -> EngineStatus:
        """How far it is."""
        with self._books:
            publisher = self._publisher
            events = publisher.position.events if publisher.position else 0
            return EngineStatus(
                self._sequencer.position, publisher.published, events, dict(publisher.counts), dict(publisher.bad),
                publisher.seconds, self._listener.figures(),
            )  # fmt: skip

    def check(self) -> None:
        """Raise what stopped the engine, if anything did."""
        for spool in self._spools:
            failure = spool.failure()
            if failure is not None and any(query.exception() for query in self._queries):
                raise failure
        if self._crash is not None:
            raise self._crash
        for query in self._queries:
            error = query.exception()
            if error is not None or not query.isActive:
                raise self._spark_error(error)

    def run_until(
        self,
        done: Callable[[EngineStatus], bool],
        *,
        timeout: float = float("inf"),
        progress: Progress = _silent,
    ) -> EngineStatus:
        """Wait until a condition holds, saying now and then how far it is."""
        waiter, end = self._runtime.waiter(), self._runtime.monotonic() + timeout
        while True:
            self.check()
            status = self.status()
            progress(status)
            if done(status):
                return status
            if self._runtime.monotonic() > end:
                raise TimedOut(what=f"Waiting for {self._graph.project.name}", seconds=timeout)
            waiter.wait(_IDLE_S)

    def drain(
        self, *, timeout: float = float("inf"), progress: Callable[[EngineStatus], None] = lambda _: None
    ) -> None:
        """Wait until everything that is on the inputs now is out."""
        self.run_until(lambda status: self._is_caught_up() and status.lag == 0, timeout=timeout, progress=progress)

    def stop(self) -> None:
        """Stop in order: no new batches, publish what is there, let go of everything."""
        for query in self._queries:
            with suppress(OSError, Py4JError):  # a JVM that was told to end with us has nothing left to stop
                query.stop()
        for task in self._tasks:
            task.stop()
        if self._is_publishing and self._crash is None:
            while self._publisher.step():
                pass
        if self._spark is not None:
            stop_session(self._spark)
        if self._folder is not None:
            self._folder.close()

    def __enter__(self) -> Engine:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _warm_up(self) -> None:
        """Have Spark run batches in which nothing is decided, one after the other."""
        waiter = self._runtime.waiter()
        for number in range(1, self._options.warm_batches + 1):
            before = self._sequencer.position.number
            self._sequencer.nudge()
            while self._sequencer.position.number == before:
                self._sequencer.step()
            while self._batches_done() < number:
                self.check()
                waiter.wait(0.005)

    def _batches_done(self) -> int:
        """Micro-batches that every query has finished since the start."""
        figures = self._listener.figures()
        return min((figures[query.name].batches if query.name in figures else 0) for query in self._queries)

    def _is_caught_up(self) -> bool:
        with self._books:
            return self._sequencer.is_caught_up()

    def _make_setup(self) -> EngineSetup:
        options = self._options
        return EngineSetup(
            url=self._bus.url,
            cluster=options.cluster,
            model=to_yaml(self._graph.project),
            wanted=tuple(sorted(self._wanted)),
            folder=str(self._path.resolve()),
            host=socket.gethostname(),
            incarnation=self._runtime.new_id().hex(),
            shards=options.shards,
            batch_events=options.batch_events,
            snapshot_every_s=options.snapshot_every_s,
            spool_files_max=options.spool_files_max,
        )

    def _identity(self) -> dict[str, str]:
        return {
            "model": self._graph.fingerprint,
            "shards": str(self._options.shards),
            "sequence": self._bus.create(self.streams.sequence, CONTROL_STREAM).identity,
            "published": ",".join(sorted(self._wanted)),
        }

    def _make_sequencer(self) -> Sequencer:
        beat = last_beat(self._bus.open(self.streams.control))
        inputs = [self._bus.open(self.streams.input(node)) for node in sources(self._graph)]
        position = Position.of(beat.position) if beat.position else Position(ends=tuple(0 for _ in inputs))
        ticking = self._options.ticks and clock_dependence(self._graph)
        tick_us = self._graph.project.heartbeat_us if ticking else None
        entry_events = min(self._options.entry_events, self._options.batch_events)
        options = SequencerOptions(entry_events=entry_events, tick_us=tick_us)
        return Sequencer(self._bus.open(self.streams.sequence), inputs, self._runtime, options, position)

    def _make_publisher(self) -> Publisher:
        nodes = [node for node in self._graph.nodes if node.path in self._wanted]
        divided = frozenset(self._graph.nodes[index].path for split in self._plan.splits for index in split.divided)
        return Publisher(self._bus, self.streams, nodes, self._spools, self._runtime, self._setup.incarnation, divided)

    def _spawn(self, name: str, step: Callable[[], float | None]) -> None:
        waiter = self._runtime.waiter()
        self._tasks.append(self._runtime.spawn(f"lockstep-{name}", step, waiter, self._crashed))

    def _sequence(self) -> float:
        """A full entry is followed by the next at once; small ones are given time to grow, as each is a write."""
        with self._books:
            before = self._sequencer.position
            self._sequencer.step()
            grown = self._sequencer.position.events - before.events
            is_idle = self._sequencer.position is before
        if is_idle:
            return _POLL_S
        return 0.0 if grown >= self._options.entry_events // 2 else _ENTRY_S

    def _publish(self) -> float:
        return 0.0 if self._publisher.step() else _POLL_S

    def _pause(self, seconds: float) -> None:
        self._runtime.waiter().wait(seconds)

    def _crashed(self, error: BaseException) -> None:
        self._crash = error

    def _spark_error(self, error: StreamingQueryException | None) -> LockstepError:
        reason = _reason(str(error)) if error else "it ended without an error"
        failed = SparkFailed(project=self._graph.project.name, reason=reason)
        failed.__cause__ = error
        return failed


def check_shards(plan: Plan, shards: int) -> None:
    """Refuse more shards than give the same answer."""
    if shards < 1 or (plan.max_shards is not None and shards > plan.max_shards):
        raise NotShardable(name=plan.graph.project.name, shards=shards, reason=plan.reason)


def _reason(words: str) -> str:
    """The line of Spark's many that says what went wrong: the end of the first Python traceback, else the first one."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Trimmed|Damaged)\b.*:", line)]
    return (errors or lines)[0].rstrip(".")
