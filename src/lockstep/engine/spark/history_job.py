"""The same model over everything that a project's logs hold, as one batch job: the same bytes as live."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lockstep.core.sequence import SequenceState
from lockstep.engine.errors import SparkFailed
from lockstep.engine.events.csv_format import CsvOutput
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.model.plan import Plan, make_plan
from lockstep.engine.runtime.control.options import EngineOptions, EngineStatus, OnStatus, silent
from lockstep.engine.runtime.control.spec import check_shards, divided_windows
from lockstep.engine.runtime.files import FileOutcome, first_refused, output_files, window_of
from lockstep.engine.runtime.output.event_streams import write_outputs
from lockstep.engine.runtime.output.publisher import Publisher
from lockstep.engine.runtime.output.spool import Spool, WorkerProgress
from lockstep.engine.runtime.sequence.entries import Decision, SequencePosition, counted
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.engine.runtime.setup import EngineSetup
from lockstep.engine.spark.compute import spark_reason
from lockstep.engine.spark.query import RESULT
from lockstep.engine.spark.session import check_engine, check_shared, lent_session, start_session, stop_session
from lockstep.log.port import Bus
from lockstep.log.urls import open_bus, reopened_by
from lockstep.runtime import Runtime, logger

_TELL_S = 0.25


def run_history(
    graph: Graph,
    bus: Bus,
    outputs: Mapping[str, Path],
    output: CsvOutput,
    folder: Path,
    runtime: Runtime,
    options: EngineOptions,
    progress: OnStatus = silent,
) -> FileOutcome:
    """Evaluate every entry of a project's sequence log from the first one on; nothing is written to its streams.

    What comes out waits in `folder`.
    """
    plan = make_plan(graph)
    check_shards(plan, options.shards)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = frozenset(window_of(graph, name).path for name in outputs)
    streams = ProjectStreams(cluster=options.cluster, project=graph.project.name)
    orders = cut_orders(bus, streams, options.batch_events)
    setup = EngineSetup(
        url=reopened_by(bus),
        cluster=options.cluster,
        model=to_yaml(graph.project),
        wanted=tuple(sorted(wanted)),
        folder=str(folder.resolve()),
        host=socket.gethostname(),
        incarnation=runtime.new_id().hex(),
        shards=options.shards,
        is_history=True,
    )
    with output_files(graph, outputs, output) as files:
        began, parts = runtime.monotonic(), dict[str, float]()
        spools = [Spool(setup.spool(shard)) for shard in range(options.shards)]
        job = _Job(setup, graph.project.name, orders, _end(bus, streams), spools)
        started = _run_job(job, options, runtime, parts, progress)
        with TemporaryDirectory(prefix="results-", dir=folder) as place:
            results = open_bus(f"lmdb:{place}?durability=relaxed", runtime)
            publisher = _publish(job, plan, results, streams, runtime)
            lines = write_outputs(results, streams, files, output)
            refused = first_refused(results.open(streams.bad), graph)
            results.close()
    events, seconds = publisher.position.events if publisher.position else 0, runtime.monotonic() - started
    ready_s = started - began
    return FileOutcome(publisher.counts, lines, events, publisher.published, seconds, ready_s, parts, refused)


def _publish(job: _Job, plan: Plan, results: Bus, streams: ProjectStreams, runtime: Runtime) -> Publisher:
    """Put what the shards left together, as an engine does."""
    graph, wanted = plan.graph, frozenset(job.setup.wanted)
    streams.create(results, graph, wanted)
    nodes = [node for node in graph.nodes if node.path in wanted]
    publisher = Publisher(
        results, streams, nodes, list(job.spools), runtime, job.setup.incarnation, divided_windows(plan)
    )
    publisher.lead(1)
    while publisher.step() or not publisher.is_open:
        pass
    return publisher


def _end(bus: Bus, streams: ProjectStreams) -> SequencePosition:
    """The position after the last entry of the sequence log, as the log says."""
    end = SequencePosition()
    for state, entry in counted(bus.open(streams.sequence), SequenceState()):
        decision = Decision.of(entry)
        end = SequencePosition(state, decision.ends, decision.blocks, decision.events)
    return end


def cut_orders(bus: Bus, streams: ProjectStreams, max_events: int) -> list[tuple[int, int]]:
    """The whole sequence log in orders of about `max_events`."""
    orders: list[tuple[int, int]] = []
    start = number = taken = events = 0
    for state, entry in counted(bus.open(streams.sequence), SequenceState()):
        number, events = state.number, Decision.of(entry).events
        if events - taken >= max_events:
            orders.append((start, number))
            start, taken = number, events
    return [*orders, (start, number)] if number > start else orders


@dataclass(frozen=True, slots=True)
class _Job:
    """What is evaluated, and where the results are left."""

    setup: EngineSetup
    project: str
    orders: Sequence[tuple[int, int]]
    end: SequencePosition
    """The position after the last entry."""
    spools: Sequence[Spool]

    def done(self) -> WorkerProgress:
        """How far all shards are."""
        return min((spool.progress() for spool in self.spools), key=lambda progress: progress.number)


def _run_job(job: _Job, options: EngineOptions, runtime: Runtime, parts: dict[str, float], progress: OnStatus) -> float:
    """Run it and return when Spark was ready; `parts` gets the seconds of its start."""
    spark = _session(job, options, parts)
    try:
        started = runtime.monotonic()
        if job.orders:
            with _telling(job, runtime, progress):
                _evaluate(spark, job)
        parts["job"] = runtime.monotonic() - started
        return started
    finally:
        if options.session is None:
            stop_session(spark)


def _session(job: _Job, options: EngineOptions, parts: dict[str, float]) -> SparkSession:
    if options.session is not None:
        return lent_session(options.session)
    check_engine(options.spark)
    return start_session(
        Path(job.setup.folder), app=f"lockstep {job.project}", master=options.master, own=options.spark,
        verbose=options.verbose, took_s=parts,
    )  # fmt: skip


def _evaluate(spark: SparkSession, job: _Job) -> None:
    """One task for each shard. An error of a window is raised as what it was."""
    check_shared(spark, Path(job.setup.folder))
    shards = spark.range(0, job.setup.shards, 1, job.setup.shards)  # one partition each
    try:
        shards.mapInArrow(_evaluation(job.setup.text(), job.orders), RESULT).write.format("noop").mode(
            "overwrite"
        ).save()
    except (PySparkException, Py4JError) as error:
        for failure in filter(None, (spool.failure() for spool in job.spools)):
            raise failure from error
        raise SparkFailed(project=job.project, reason=spark_reason(str(error))) from error


@contextmanager
def _telling(job: _Job, runtime: Runtime, progress: OnStatus) -> Iterator[None]:
    """Say now and then how far the job is."""

    def tell() -> float:
        done = job.done()
        progress(EngineStatus(job.end, done.block, done.events, {}, {}, done.seconds, {}, computed=done))
        return _TELL_S

    def failed(error: BaseException) -> None:
        logger.warning("The progress can't be shown: %s", error, extra={"action": "progress"})

    task = runtime.spawn("lockstep-progress", tell, runtime.waiter(), failed)
    try:
        yield
    finally:
        task.stop()


def _evaluation(setup: str, orders: Sequence[tuple[int, int]]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What a task does with the shards of its partition: nothing is kept, so no state of Spark's is needed."""

    def evaluate(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from lockstep.engine.runtime.setup import EngineSetup
        from lockstep.engine.spark.worker_process import run_orders_patiently

        for shard in [shard for batch in batches for shard in batch.column("id").to_pylist()]:
            _, done = run_orders_patiently(EngineSetup.of(setup), shard, orders, dict, lambda: None)
            row = (shard, orders[-1][1], done.first, done.last, done.events, done.output_bytes, 0, 0)
            kinds = {"int": pa.int32(), "bigint": pa.int64()}
            fields = [(name, kinds[kind]) for name, kind in (field.split() for field in RESULT.split(","))]
            arrays = [pa.array([value], kind) for value, (_, kind) in zip(row, fields, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    return evaluate
