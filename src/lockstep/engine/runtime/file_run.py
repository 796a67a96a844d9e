"""A model over files: the files go to streams, the streams through the engine, the results to files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from lockstep.engine.events.csv_format import CsvOutput
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.runtime.engine import Engine, EngineOptions, EngineStatus
from lockstep.engine.runtime.files import (
    BadLines,
    FileInputs,
    FileOutcome,
    InputPiece,
    first_refused,
    input_pieces,
    output_files,
    over_files,
    window_of,
)
from lockstep.engine.runtime.output.event_streams import EventPublisher, write_outputs
from lockstep.engine.runtime.sequence.entries import SequencePosition
from lockstep.engine.runtime.sequence.model_statement import inputs_of
from lockstep.engine.runtime.sequence.sequencer import Sequencer, SequencerOptions
from lockstep.engine.runtime.sequence.streams import ProjectStreams, sources
from lockstep.log.urls import open_bus
from lockstep.runtime import Runtime
from lockstep.streams.client import Lockstep

_FRAME_EVENTS = 4_096


class Ingest:
    """Puts pieces of input on the streams of a project, and sequences them in exactly this order."""

    def __init__(self, graph: Graph, streams: ProjectStreams, connection: Lockstep, runtime: Runtime, cut: int) -> None:
        self._frame_events = -(-cut // -(-cut // _FRAME_EVENTS))  # so that whole frames fill a cut
        self._publishers = {
            node.path: EventPublisher(connection, streams.input(node), node.schema) for node in sources(graph)
        }
        inputs = inputs_of(connection.bus, streams, graph)
        position = SequencePosition(ends=dict.fromkeys(inputs.logs, 0))
        options = SequencerOptions(entry_events=cut)
        self._sequencer = Sequencer(connection.bus.open(streams.sequence), inputs, runtime, options, position)
        self._sequencer.lead()
        self._last: Node | None = None

    @property
    def position(self) -> SequencePosition:
        """How far it is."""
        return self._sequencer.position

    def take(self, piece: InputPiece) -> None:
        """Add a piece."""
        if piece.node is not self._last:
            self.settle()
        if piece.tick_us is not None:
            self._sequencer.tick(piece.tick_us, lagging=piece.lagging)
            self.settle()
        elif piece.node is not None and piece.batch is not None:
            self._publishers[piece.node.path].publish_batch(
                piece.batch,
                frame_events=self._frame_events,
                numbers=piece.numbers,
                transactional=piece.transactional,
            )
        self._last = piece.node

    def settle(self) -> None:
        """Have everything sequenced that was given."""
        for publisher in self._publishers.values():
            publisher.flush()
        while not self._sequencer.is_caught_up():
            self._sequencer.step()

    def close(self) -> None:
        """Settle and let go."""
        self.settle()
        for publisher in self._publishers.values():
            publisher.close()


def run_job(
    graph: Graph,
    inputs: FileInputs,
    outputs: Mapping[str, Path],
    output: CsvOutput,
    bad: BadLines,
    folder: Path,
    runtime: Runtime,
    options: EngineOptions,
    cut: int,
    progress: Callable[[EngineStatus], None],
) -> FileOutcome:
    """Run it as one batch job of Spark, which keeps no state, with a store of its own in `folder`."""
    from lockstep.engine.spark.history_job import run_history  # an engine in this process needs no pyspark

    graph = over_files(graph)
    with Lockstep(open_bus(f"lmdb:{folder / 'bus'}?durability=relaxed", runtime), runtime) as connection:
        streams = ProjectStreams(cluster=options.cluster, project=graph.project.name)
        streams.create(connection.bus, graph, frozenset())
        _ingested(graph, streams, connection, runtime, inputs, bad, cut)
        wish = replace(options, batch_events=cut)
        return run_history(graph, connection.bus, outputs, output, folder, runtime, wish, progress)


def _ingested(
    graph: Graph,
    streams: ProjectStreams,
    connection: Lockstep,
    runtime: Runtime,
    inputs: FileInputs,
    bad: BadLines,
    cut: int,
) -> SequencePosition:
    """Where the sequence log ends when all files are on the streams."""
    ingest = Ingest(graph, streams, connection, runtime, cut)
    for piece in input_pieces(graph, inputs, bad):
        ingest.take(piece)
    ingest.close()
    bad.check_some_taken(ingest.position.events)
    return ingest.position


def run_engine(
    graph: Graph,
    inputs: FileInputs,
    outputs: Mapping[str, Path],
    output: CsvOutput,
    bad: BadLines,
    folder: Path,
    runtime: Runtime,
    options: EngineOptions,
    cut: int,
    progress: Callable[[EngineStatus], None],
) -> FileOutcome:
    """Run it in an engine with a store of its own in `folder`."""
    graph = over_files(graph)
    wanted = frozenset(window_of(graph, name).path for name in outputs)
    with (
        output_files(graph, outputs, output) as files,
        Lockstep(open_bus(f"lmdb:{folder / 'bus'}?durability=relaxed", runtime), runtime) as connection,
    ):
        streams = ProjectStreams(cluster=options.cluster, project=graph.project.name)
        streams.create(connection.bus, graph, wanted)
        position = _ingested(graph, streams, connection, runtime, inputs, bad, cut)
        engine = Engine(
            graph,
            wanted,
            connection.bus,
            folder,
            runtime,
            replace(options, batch_events=cut, entry_events=cut, ticks=False),
        )
        began = runtime.monotonic()
        with engine:
            started = runtime.monotonic()
            engine.drain(progress=progress)
            seconds = runtime.monotonic() - started
            counts, parts = engine.status().counts, engine.started_s
        lines = write_outputs(connection.bus, streams, files, output)
        refused = first_refused(connection.bus.open(streams.bad), graph)
    ready_s = started - began
    return FileOutcome(counts, lines, position.events, position.block, seconds, ready_s, parts, refused)
