"""What an engine is given, and its parts, made from that and from what its bus says."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lockstep.engine.errors import LogTooShort, NotShardable
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.model.plan import Plan, make_plan
from lockstep.engine.runtime.control.options import EngineOptions, EngineStatus
from lockstep.engine.runtime.control.reports import Report
from lockstep.engine.runtime.output.publisher import Publisher
from lockstep.engine.runtime.output.spool import Spool
from lockstep.engine.runtime.sequence.beats import whole_position
from lockstep.engine.runtime.sequence.entries import SequencePosition
from lockstep.engine.runtime.sequence.model_statement import (
    compiled,
    graph_at,
    inputs_of,
    inputs_opener,
    published_nodes,
    statements_since,
)
from lockstep.engine.runtime.sequence.outages import LengthCheck
from lockstep.engine.runtime.sequence.sequencer import Sequencer, SequencerOptions
from lockstep.engine.runtime.sequence.streams import CONTROL_STREAM, ProjectStreams
from lockstep.engine.runtime.setup import EngineSetup
from lockstep.engine.runtime.snapshots.checkpoint import begin_with_newest
from lockstep.log.port import Bus
from lockstep.log.urls import reopened_by
from lockstep.runtime import Runtime


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What an engine is given: a project, its bus, a folder and options; and its parts as they follow from that."""

    graph: Graph
    wanted: frozenset[str]
    bus: Bus
    streams: ProjectStreams
    folder: Path
    runtime: Runtime
    options: EngineOptions
    is_stated: bool = True
    """Whether the sequence log stated the model when the engine started; else the first statement must be this one."""

    def identity(self) -> dict[str, str]:
        """What the state in the engine's folder belongs to."""
        sequence = self.bus.create(self.streams.sequence, CONTROL_STREAM).identity
        return {"shards": str(self.options.shards), "sequence": sequence}

    def persist_to(self) -> Path | None:
        """Where snapshots are: as the option says, or the model."""
        restore = self.graph.project.restore
        return self.options.persist_to or (Path(restore) if restore else None)

    def setup(self, identity: Mapping[str, str]) -> EngineSetup:
        """What workers must know."""
        options = self.options
        setup = EngineSetup(
            url=reopened_by(self.bus),
            cluster=options.cluster,
            model=to_yaml(self.graph.project),
            wanted=tuple(sorted(self.wanted)),
            folder=str(self.folder.resolve()),
            host=socket.gethostname(),
            incarnation=self.runtime.new_id().hex(),
            shards=options.shards,
            batch_events=options.batch_events,
            snapshot_every_s=options.snapshot_every_s,
            buffer_blocks=options.buffer_blocks,
            buffer_bytes=options.buffer_bytes,
            belongs=identity["sequence"],
        )
        setup = begin_with_newest(setup, self.persist_to())
        self._check_reach(SequencePosition.of(setup.known) if setup.known else SequencePosition())
        return setup

    def _check_reach(self, known: SequencePosition) -> None:
        """Refuse to start if the sequence log no longer holds what led to this engine's state, or what follows it."""
        log = self.bus.open(self.streams.sequence)
        needed, bounds = known.sequence.upto + 1, log.bounds()
        if needed < bounds.first:
            raise LogTooShort(window=self.graph.project.name, stream=log.name, needed=needed, first=bounds.first)
        LengthCheck(log, self.runtime.monotonic, 0.0).check(needed, known.block, bounds)

    def start_position(self, known: Mapping[str, Any] | None = None) -> SequencePosition:
        """Where an engine starts: where everything is published, as a beat says, or at its own state if that is newer.

        Both name all clients; without either it counts from the first entry.
        """
        found = whole_position(self.bus.open(self.streams.control))
        positions = [SequencePosition.of(tree) for tree in (found, known) if tree]
        return max(positions, key=lambda position: position.number, default=SequencePosition())

    def sequencer(self, me: str, start: SequencePosition) -> Sequencer:
        """It begins at a position, with the model that was in force there."""
        ticks, graph = self.options.ticks, graph_at(self.bus, self.streams, start) or self.graph
        inputs = inputs_of(self.bus, self.streams, graph, ticks=ticks)
        return Sequencer(
            self.bus.open(self.streams.sequence),
            inputs,
            self.runtime,
            SequencerOptions(entry_events=min(self.options.entry_events, self.options.batch_events)),
            start if start.ends else replace(start, ends=inputs.begin()),
            me=me,
            restate=inputs_opener(self.bus, self.streams, ticks=ticks),
        )

    def publisher(self, spools: list[Spool], me: str, start: SequencePosition) -> Publisher:
        """It follows until it becomes the leader. What models since `start` published may still have to go out."""
        nodes: dict[str, Node] = {}
        for states in statements_since(self.bus, self.streams, start):
            nodes |= {node.path: node for node in published_nodes(states, compiled(states))}
        nodes |= {node.path: node for node in self.graph.nodes if node.path in self.wanted}
        divided = divided_windows(make_plan(self.graph))
        return Publisher(self.bus, self.streams, list(nodes.values()), spools, self.runtime, me, divided)


def divided_windows(plan: Plan) -> frozenset[str]:
    """The windows whose rows are divided over shards."""
    return frozenset(plan.graph.nodes[index].path for split in plan.splits for index in split.divided)


def check_shards(plan: Plan, shards: int) -> None:
    """Refuse more shards than give the same answer."""
    if shards < 1 or (plan.max_shards is not None and shards > plan.max_shards):
        raise NotShardable(name=plan.graph.project.name, shards=shards, reason=plan.reason)


def report_of(
    status: EngineStatus, options: EngineOptions, setup: EngineSetup, *, member: str, state: str, at_ns: int
) -> Report:
    """What an engine says of itself, but for its snapshots and its REST."""
    return Report(
        engine=options.name, incarnation=setup.incarnation, member=member, pid=os.getpid(), host=setup.host,
        role=status.role, epoch=status.epoch, state=state,
        number=status.computed.number, block=status.computed.block, events=status.computed.events,
        sequenced=status.sequenced.block, published=status.published,
        buffer_blocks=status.buffer.blocks, buffer_bytes=status.buffer.size,
        buffer_blocks_max=options.buffer_blocks, buffer_bytes_max=options.buffer_bytes,
        buffer_peak_blocks=status.buffer.blocks, snapshot_block=0, snapshot_ns=0,
        model=status.computed.fingerprint, counts=status.computed.counts, at_ns=at_ns,
    )  # fmt: skip
