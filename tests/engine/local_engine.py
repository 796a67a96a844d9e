"""An engine in one process without Spark: the same workers, spool and publisher, cut and killed as a test likes."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from lockstep.engine.model.graph import Graph
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.model.plan import make_plan
from lockstep.engine.runtime.output.event_streams import EventPublisher, out_batches
from lockstep.engine.runtime.output.publisher import Publisher
from lockstep.engine.runtime.output.spool import Spool
from lockstep.engine.runtime.sequence.beats import last_beat
from lockstep.engine.runtime.sequence.entries import SequencePosition
from lockstep.engine.runtime.sequence.model_statement import inputs_of
from lockstep.engine.runtime.sequence.sequencer import Sequencer, SequencerOptions
from lockstep.engine.runtime.sequence.streams import ProjectStreams, own_sources
from lockstep.engine.runtime.setup import EngineSetup
from lockstep.engine.runtime.worker.shard_worker import ShardWorker
from lockstep.log.config import StreamConfig
from lockstep.log.port import Bus
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.streams.client import Lockstep


class LocalEngine:
    """A project on a bus in memory; `stored` stands for Spark's state store, one for each shard."""

    def __init__(
        self,
        graph: Graph,
        wanted: frozenset[str],
        folder: Path,
        *,
        shards: int = 1,
        entry_events: int = 1,
        others: Mapping[str, StreamConfig] = MappingProxyType({}),
    ) -> None:
        """`others`: streams that are not the project's own, whose records it takes."""
        self.graph, self.wanted, self.folder, self.shards = graph, wanted, folder, shards
        self.runtime = ThreadRuntime()
        self.connection = Lockstep(open_bus(f"memory:{folder.name}-{id(self)}", self.runtime), self.runtime)
        self.bus = self.connection.bus
        self.streams = ProjectStreams(cluster="test", project=graph.project.name)
        for name, config in others.items():
            self.connection.create(name, config)
        self.streams.create(self.bus, graph, wanted)
        self.publishers = {
            node.path: EventPublisher(self.connection, self.streams.input(node), node.schema)
            for node in own_sources(graph)
        }
        inputs = inputs_of(self.bus, self.streams, graph)
        options = SequencerOptions(entry_events=entry_events)
        start = SequencePosition(ends=dict.fromkeys(inputs.logs, 0))
        self.sequencer = Sequencer(self.bus.open(self.streams.sequence), inputs, self.runtime, options, start)
        self.sequencer.lead()
        self.stored: list[dict[str, bytes]] = [{} for _ in range(shards)]
        self.committed = 0
        self.starts = 0
        self.restart()

    def settle(self) -> None:
        """Have everything sequenced that was published."""
        for publisher in self.publishers.values():
            publisher.flush()
        while not self.sequencer.is_caught_up():
            self.sequencer.step()

    def restart(self, *, snapshot_every_s: float = 0.0) -> None:
        """As after kill -9: hot state and spool are gone; what Spark committed and the logs are there."""
        self.starts += 1
        self.setup = EngineSetup(
            url=self.bus.url,
            cluster="test",
            model=to_yaml(self.graph.project),
            wanted=tuple(sorted(self.wanted)),
            folder=str(self.folder),
            host=socket.gethostname(),
            incarnation=f"start{self.starts}",
            shards=self.shards,
            snapshot_every_s=snapshot_every_s,
        )
        self.workers: list[ShardWorker | None] = [None] * self.shards
        self.publisher = self.new_publisher(self.bus)
        while not self.publisher.is_open:
            self.publisher.step()
        if self.starts > 1:  # each start has a first batch, in which what was committed and not published is made again
            self.run_batch(self.committed)

    def new_publisher(self, bus: Bus) -> Publisher:
        """One that leads, with the spools of the engine as it runs now."""
        nodes = [node for node in self.graph.nodes if node.path in self.wanted]
        spools = [Spool(self.setup.spool(shard)) for shard in range(self.shards)]
        splits = make_plan(self.graph).splits
        divided = frozenset(self.graph.nodes[index].path for split in splits for index in split.divided)
        publisher = Publisher(bus, self.streams, nodes, spools, self.runtime, self.setup.incarnation, divided)
        publisher.lead(self.starts)
        return publisher

    def publish(self) -> None:
        """Everything that can be published."""
        while self.publisher.step() or not self.publisher.is_open:
            pass

    def run_batch(self, stop: int, *, commit: bool = True, publish: bool = True) -> None:
        """One micro-batch up to entry `stop`, on every shard."""
        for shard in range(self.shards):
            worker = self.workers[shard] or ShardWorker(self.setup, shard, self.bus, self.runtime, self.stored[shard])
            pages = worker.run(self.committed, stop, lambda shard=shard: self.stored[shard])
            self.workers[shard] = worker if commit else None
            if commit:
                kept = {name: page for name, page in {**self.stored[shard], **pages}.items() if page is not None}
                self.stored[shard] = kept
        self.committed = stop if commit else self.committed
        if publish:
            self.publish()

    def out(self, path: str) -> list[tuple[int, list[object]]]:
        """The blocks on a window's out stream."""
        node = self.graph.find(path)
        assert node is not None
        blocks: list[tuple[int, list[object]]] = []
        for batch in out_batches(self.bus.open(self.streams.output(node)), node.schema):
            blocks += batch.blocks()
        return blocks

    def published(self) -> int:
        """The last block that a beat says is out."""
        return last_beat(self.bus.open(self.streams.control)).published
