"""One engine's parts, what it says of itself, and what its threads and its operators can have it do."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

from lockstep.engine.compute.port import Compute
from lockstep.engine.errors import BufferDamaged, BufferGap
from lockstep.engine.gates.urls import open_gate
from lockstep.engine.model.graph import Graph
from lockstep.engine.runtime.control.leadership import Election, GatedElection, RoleChange, RoleController
from lockstep.engine.runtime.control.options import EngineStatus
from lockstep.engine.runtime.control.reports import FRESH_S, Report, ReportBoard
from lockstep.engine.runtime.control.spec import EngineSpec, report_of
from lockstep.engine.runtime.control.storage import FolderGauge
from lockstep.engine.runtime.output.spool import WorkerProgress
from lockstep.engine.runtime.sequence.entries import Decision, PersistPoint, SequencePosition, Statement
from lockstep.engine.runtime.sequence.model_statement import input_logs, last_reset, statement_of
from lockstep.engine.runtime.sequence.outages import BUS_AWAY
from lockstep.engine.runtime.snapshots.checkpoint import check_restorable
from lockstep.engine.runtime.snapshots.retention import trim_point
from lockstep.engine.runtime.snapshots.staging import SnapshotStaging
from lockstep.engine.runtime.worker.replacement import ShardContext
from lockstep.errors import LockstepError
from lockstep.log.port import Log
from lockstep.runtime import Waiter, logger

STARTING, RUNNING, STOPPING = "starting", "running", "stopping"


@dataclass(slots=True)
class ModelInForce:
    """The model that runs now, and the windows that it publishes."""

    graph: Graph
    wanted: frozenset[str]


class EngineControl:
    """One engine among those of its project.

    The coordinator's steps and the request handlers use its parts from their threads. What the sequence log decides on
    is changed under `decision_lock`. `state` is starting until the engine is in step with what is decided.
    """

    def __init__(
        self, spec: EngineSpec, compute: Compute, changed: Waiter, on_role: Callable[[RoleChange], None]
    ) -> None:
        """`changed` is woken when another engine may have begun or stopped leading."""
        self.spec, self.compute, self.options = spec, compute, spec.options
        self.name, self.runtime, self.bus, self.streams = spec.options.name, spec.runtime, spec.bus, spec.streams
        self.model = ModelInForce(spec.graph, spec.wanted)
        incarnation, start = compute.setup.incarnation, spec.start_position(compute.setup.known)
        self.sequencer = spec.sequencer(incarnation, start)
        self.publisher = spec.publisher(compute.spools, incarnation, start)
        self.election = open_election(spec, changed)
        self.roles = RoleController(
            self.election, self.sequencer, self.publisher, self.runtime, self.computed_block, on_role
        )
        self.decision_lock = Lock()
        self.report_log = self.bus.open(self.streams.reports)
        self.board = ReportBoard(self.report_log, self.runtime)
        self.snapshots, self.snapshot_folder = SnapshotStaging(compute.setup, self.runtime), spec.persist_to()
        self.state, self.http = STARTING, ""
        self.gap: BufferGap | BufferDamaged | None = None
        """What the buffer lost, until it is computed again."""
        self.restore_folder: Path | None = None
        """From where the state is to be taken anew, if it is."""
        self.ready: dict[str, str] = {}
        """Of the last models that were proposed: why this engine can't run them; empty: it can."""
        self._peak = 0
        self._state_size = FolderGauge(spec.folder, self.runtime.monotonic)
        self._snapshots_size = FolderGauge(self.snapshot_folder, self.runtime.monotonic)

    @property
    def role(self) -> str:
        """Active or standby."""
        return self.roles.role

    @property
    def decided(self) -> SequencePosition:
        """What is decided, as this engine read it back."""
        return self.sequencer.position

    @property
    def published(self) -> SequencePosition | None:
        """What is out."""
        return self.publisher.position

    def status(self) -> EngineStatus:
        """How far it is."""
        with self.decision_lock:
            publisher, compute = self.publisher, self.compute
            events = publisher.position.events if publisher.position else 0
            return EngineStatus(
                self.decided, publisher.published, events, dict(publisher.counts), dict(publisher.bad),
                publisher.seconds, compute.figures(), self.role, self.sequencer.epoch,
                compute.computed() or WorkerProgress(), compute.buffer(), self.election.gate(),
            )  # fmt: skip

    def report(self) -> Report:
        """What it says of itself."""
        status, last, held = self.status(), self.snapshots.last, self._state_size.size()
        self._peak = max(self._peak, status.buffer.blocks)
        now, setup, options = self.runtime.wall_ns(), self.compute.setup, self.options
        return replace(
            report_of(status, options, setup, member=self.election.me, state=self.state, at_ns=now),
            buffer_peak_blocks=self._peak,
            snapshot_block=last.block if last else 0,
            snapshot_ns=last.made_ns if last else 0,
            takeovers=self.roles.takeovers,
            http=self.http,
            election=self.election.gate(),
            persisted=dict(self.snapshots.outcomes),
            ready=dict(self.ready),
            state_files=held.files,
            state_bytes=held.bytes,
            snapshots_bytes=self._snapshots_size.size().bytes,
            trims=int(options.trim and options.persist_every_s is not None and bool(self.snapshot_folder)),
        )

    def all_reports(self) -> dict[str, Report]:
        """The newest report of each engine by name, read now, and its own as of now."""
        return {**self.board.look(), self.name: self.report()}

    def standbys(self) -> list[Report]:
        """The newest reports of other engines that were heard of a moment ago and are in step."""
        found = [report for name, report in self.board.look().items() if name != self.name]
        return [
            report
            for report in found
            if report.state == "running" and report.role == "standby" and self.board.silence_s(report.engine) < FRESH_S
        ]

    def computed_block(self) -> int:
        """The last block that it has computed."""
        computed = self.compute.computed()
        return computed.block if computed is not None else 0

    def computed_fingerprint(self) -> str:
        """The model that it computes with; empty before it has computed anything."""
        computed = self.compute.computed()
        return computed.fingerprint if computed is not None else ""

    def shard_context(self) -> ShardContext:
        """The context of its first shard."""
        return ShardContext(bus=self.bus, streams=self.streams, shards=self.compute.setup.shards)

    def inputs(self, *, is_own: bool = False) -> Mapping[str, Log]:
        """The inputs of the model in force by name; with `is_own` only the project's own."""
        return input_logs(self.bus, self.streams, self.model.graph, is_own=is_own)

    def outputs(self) -> dict[str, Log]:
        """The out streams of the model in force, by the paths of their windows."""
        nodes = [node for node in self.model.graph.nodes if node.path in self.model.wanted]
        return {node.path: self.bus.open(self.streams.output(node)) for node in nodes}

    def statement(self) -> Statement:
        """The model in force and what it publishes, as the log states it."""
        return statement_of(self.model.graph, self.model.wanted)

    def last_reset(self) -> SequencePosition | None:
        """Where windows were emptied last; None if the sequence log does not tell any more."""
        found = last_reset(self.bus.open(self.streams.sequence))
        return None if found is None else found[0]

    def decide(self, decision: Decision) -> None:
        """Have something decided next; its ends and counts are filled in then."""
        with self.decision_lock:
            self.sequencer.ask(decision)

    def hand_over(self) -> None:
        """Let a standby lead."""
        self.election.step_back()

    def restore(self, folder: Path) -> int:
        """Begin again with the newest snapshot in a folder, and return its block; meanwhile a standby leads."""
        found = check_restorable(self.compute.setup, folder)
        if self.standbys():
            self.hand_over()
        self.restore_folder = folder
        return found.block

    def begin_anew(self) -> None:
        """Everything that is not out is computed again, into other spools."""
        self.publisher.take_from(self.compute.spools)
        self.snapshots = self.snapshots.go_on(self.compute.setup)
        self.gap, self.restore_folder, self.state = None, None, STARTING

    def purge(self, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> None:
        """Trim the project's own inputs and the out streams below these offsets."""
        for logs, ends in ((self.inputs(is_own=True), inputs), (self.outputs(), outputs)):
            for path, log in logs.items():
                log.trim(ends.get(path, 0))

    def trim(self) -> Mapping[str, Any]:
        """Have every log trimmed to what snapshots need; the answer says to which offsets, or why not."""
        if self.snapshot_folder is None:
            return {"trimmed": False, "reason": "the engine has no --persist-to folder"}
        inputs, sequence = self.inputs(is_own=True), self.bus.open(self.streams.sequence)
        published, belongs = self.published or SequencePosition(), self.compute.setup.belongs
        point = trim_point(self.snapshot_folder, belongs, sequence, list(inputs), self.decided, published)
        if point is None:
            return {"trimmed": False, "reason": "two complete snapshots of the model in force are needed"}
        self.decide(Decision(trim=point))
        offsets = {log.name: point.inputs[path] for path, log in inputs.items()}
        return {"trimmed": True, "sequence": point.sequence, "inputs": offsets}


def open_election(spec: EngineSpec, changed: Waiter) -> Election:
    """The election in which an engine stands, with the gate that its options name, if they name one."""
    bus, streams, runtime, options = spec.bus, spec.streams, spec.runtime, spec.options
    gate = open_gate(options.election, runtime, os.environ, group=f"{streams.cluster}.{streams.project}")
    lease_s, rank = options.lease_s, options.preference
    if gate is None:
        return Election(bus, streams, runtime, lease_s=lease_s, rank=rank, changed=changed)
    return GatedElection(bus, streams, runtime, gate, lease_s=lease_s, rank=rank, changed=changed)


class Maintenance:
    """What an engine that leads does by itself: snapshots now and then, and trimming what they make needless."""

    def __init__(self, control: EngineControl) -> None:
        self._control, self._every = control, control.options.persist_every_s
        self._due = control.runtime.monotonic() + (self._every or 0.0)
        self._persisted = control.decided.block

    def step(self) -> None:
        """Have the next snapshot decided on when it is due, and something has happened since the last."""
        control = self._control
        if self._every is None or control.snapshot_folder is None or control.runtime.monotonic() < self._due:
            return
        self._due = control.runtime.monotonic() + self._every
        try:
            self._persist(control.snapshot_folder)
        except BUS_AWAY:
            raise
        except LockstepError as error:  # a folder that can't be used now, perhaps later: that must not end the engine
            logger.warning("Nothing was persisted or trimmed: %s", error, extra={"action": "persist"})

    def _persist(self, folder: Path) -> None:
        control, decided = self._control, self._control.decided
        if decided.block > self._persisted:
            self._persisted = decided.block
            by = next(iter(control.standbys()), control.report())
            control.decide(
                Decision(persist=PersistPoint(control.runtime.new_id().hex()[:16], by.incarnation, str(folder)))
            )
            if control.options.trim:
                control.trim()
                control.decide(Decision(states=control.statement()))  # so that the next one reaches further
