"""The same model over everything that a project's logs hold, as one batch job: the same bytes as live."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.core.sequence import SequenceState
from lockstep.engine.events.csvform import CsvOutput, write_csv
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.model.plan import make_plan
from lockstep.engine.run.decisions import Decision, counted
from lockstep.engine.run.feeding import out_batches
from lockstep.engine.run.files import FileOutcome, output_files, window_of
from lockstep.engine.run.publishing import Publisher
from lockstep.engine.run.setup import EngineSetup
from lockstep.engine.run.spool import Spool
from lockstep.engine.run.streams import ProjectStreams
from lockstep.engine.spark.engine import EngineOptions, check_shards
from lockstep.engine.spark.processor import RESULT
from lockstep.engine.spark.session import lent_session, start_session, stop_session
from lockstep.engine.spark.settings import check_engine
from lockstep.log.port import Bus
from lockstep.log.urls import open_bus, reopened_by
from lockstep.runtime import Runtime


def run_history(
    graph: Graph,
    bus: Bus,
    outputs: Mapping[str, Path],
    output: CsvOutput,
    folder: Path,
    runtime: Runtime,
    options: EngineOptions,
) -> FileOutcome:
    """Evaluate every entry of a project's sequence log from the first one on; nothing is written to its streams."""
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
        began = runtime.monotonic()
        started = _run_job(setup, orders, folder, options, runtime)
        seconds = runtime.monotonic() - started
        results = open_bus(f"memory:{setup.incarnation}", runtime)
        streams.create(results, graph, wanted)
        nodes = [node for node in graph.nodes if node.path in wanted]
        spools = [Spool(setup.spool(shard)) for shard in range(options.shards)]
        divided = frozenset(graph.nodes[index].path for split in plan.splits for index in split.divided)
        publisher = Publisher(results, streams, nodes, spools, runtime, setup.incarnation, divided)
        publisher.lead(1)
        while publisher.step() or not publisher.is_open:
            pass
        lines = {
            path: sum(
                write_csv(batch, file, output) for batch in out_batches(results.open(streams.output(node)), node.schema)
            )
            for path, (node, file) in files.items()
        }
        results.close()
    events = publisher.position.events if publisher.position else 0
    return FileOutcome(publisher.counts, lines, events, publisher.published, seconds, started - began)


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


def _run_job(
    setup: EngineSetup, orders: Sequence[tuple[int, int]], folder: Path, options: EngineOptions, runtime: Runtime
) -> float:
    """Run it and return when Spark was ready."""
    if options.session is not None:
        spark = lent_session(options.session)
    else:
        check_engine(options.spark)
        app = f"lockstep history of {setup.graph().project.name}"
        spark = start_session(folder, app=app, master=options.master, own=options.spark, verbose=options.verbose)
    try:
        started = runtime.monotonic()
        if orders:
            shards = spark.range(0, setup.shards, 1, setup.shards)  # one partition each
            results = shards.mapInArrow(_evaluation(setup.text(), orders), RESULT)
            results.write.format("noop").mode("overwrite").save()
        return started
    finally:
        if options.session is None:
            stop_session(spark)


def _evaluation(setup: str, orders: Sequence[tuple[int, int]]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What a task does with the shards of its partition: nothing is kept, so no state of Spark's is needed."""

    def evaluate(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from lockstep.engine.run.setup import EngineSetup
        from lockstep.engine.spark.hot import run_orders_patiently

        for shard in [shard for batch in batches for shard in batch.column("id").to_pylist()]:
            _, done = run_orders_patiently(EngineSetup.of(setup), shard, orders, dict, lambda: None)
            row = (shard, orders[-1][1], done.first, done.last, done.events, done.output_bytes, 0, 0)
            kinds = {"int": pa.int32(), "bigint": pa.int64()}
            fields = [(name, kinds[kind]) for name, kind in (field.split() for field in RESULT.split(","))]
            arrays = [pa.array([value], kind) for value, (_, kind) in zip(row, fields, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    return evaluate
