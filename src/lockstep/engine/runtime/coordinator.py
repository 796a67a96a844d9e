"""One engine among those of its project: the steps with which it leads, publishes, reports and answers.

No threads here: an engine calls these steps from its own.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from importlib import invalidate_caches
from math import inf
from pathlib import Path
from threading import Lock

from lockstep.engine.compute.port import Compute
from lockstep.engine.errors import BufferDamaged, BufferGap
from lockstep.engine.gates.urls import open_gate
from lockstep.engine.kernels.evaluator import Evaluator
from lockstep.engine.model.graph import Node
from lockstep.engine.model.plan import make_plan
from lockstep.engine.runtime.control.engine_control import EngineControl, Maintenance, ModelInForce
from lockstep.engine.runtime.control.leadership import (
    ACTIVE,
    Election,
    GatedElection,
    RoleChange,
    RoleController,
    StallDetector,
    buffer_too_small,
)
from lockstep.engine.runtime.control.options import EngineStatus
from lockstep.engine.runtime.control.parts import Assembly, divided_windows, report_of
from lockstep.engine.runtime.control.reports import NameCheck, Report, ReportBoard, write_report
from lockstep.engine.runtime.control.storage import FolderGauge
from lockstep.engine.runtime.output.spool import WorkerProgress
from lockstep.engine.runtime.requests.channel import RequestServer
from lockstep.engine.runtime.requests.handlers import RequestHandlers, standbys
from lockstep.engine.runtime.sequence.entries import Decision, SequencePosition, Statement
from lockstep.engine.runtime.sequence.model_statement import check_same_model, compiled, input_logs, statement_of
from lockstep.engine.runtime.sequence.streams import ProjectStreams, check_stream, sources, takes_records
from lockstep.engine.runtime.snapshots.staging import SnapshotStaging
from lockstep.errors import LockstepError
from lockstep.log.port import Bus
from lockstep.runtime import Waiter, logger


def why_not_runnable(states: Statement, shards: int, bus: Bus, streams: ProjectStreams) -> str:
    """Why this process can't run a model; empty: it can. Streams of others that it takes records of must be there."""
    invalidate_caches()  # a module may have been put there a moment ago
    try:
        graph, wanted = compiled(states), frozenset(states.publish)
        for shard in range(shards):
            Evaluator(graph, wanted=wanted, shard=shard, shards=shards)
        for node in sources(graph):
            if takes_records(node):
                check_stream(bus, streams, node)
    except LockstepError as error:
        return str(error)
    return ""


_POLL_S, _ENTRY_S, _DESK_S, _IDLE_S = 0.004, 0.01, 0.05, 0.1
_FOLLOW_S = 0.02
"""A standby looks less often than a leader for what is published, and both seldom if they are told of new parts."""
REPORT_S = 1.0
LOOK_S = 0.5
"""How often an engine reads what the others report."""
_IN_STEP_EVENTS = 300_000
"""An engine may lead that has no more than this to compute, or a batch if that is less: it is done within a second."""
_READY_KEPT = 4
STALL_S = 5.0
"""A leader that published nothing for so long, although a standby could, lets it."""
STARTING, RUNNING, STOPPING = "starting", "running", "stopping"


class Coordinator:
    """The engine as one of several. `state` is starting until it is in step with what is decided."""

    def __init__(
        self, assembly: Assembly, computing: Compute, changed: Waiter, on_role: Callable[[RoleChange], None]
    ) -> None:
        self._assembly, self._computing = assembly, computing
        self._bus, self._streams, self._runtime = assembly.bus, assembly.streams, assembly.runtime
        self._options = options = assembly.options
        self.in_force = ModelInForce(assembly.graph, assembly.wanted)
        start = assembly.published(computing.setup.known)
        self.sequencer = assembly.sequencer(computing.setup.incarnation, start)
        self.publisher = assembly.publisher(computing.spools, computing.setup.incarnation, start)
        self.election = self._make_election(changed)
        self._conductor = RoleController(
            self.election, self.sequencer, self.publisher, self._runtime, self._last_computed, on_role
        )
        self.books = Lock()
        self.state, self.http = STARTING, ""
        self.gap: BufferGap | BufferDamaged | None = None
        self.restore: Path | None = None
        """From where the state is to be taken anew, if it is."""
        self._new_nodes: list[Node] = []
        """Windows that a new model publishes, and below its divided ones: from the sequencer to the publisher."""
        self._new_divided: frozenset[str] = frozenset()
        self._handover = Lock()
        self._parts: Waiter | None = None
        self._to_turn: deque[tuple[SequencePosition, Decision]] = deque()
        self._peak = self._reported = 0
        self._warned, self._led_at = False, self._runtime.monotonic()
        self._reports = self._bus.open(self._streams.reports)
        self._name_check = NameCheck(self._reports, self._streams.project, options.name, self.election.me)
        self._board, self._looked_at = ReportBoard(self._reports, self._runtime), -inf
        self._proposed: list[tuple[str, Statement]] = []
        self._ready: dict[str, str] = {}
        """Of the last models that were proposed: why this engine can't run them, or nothing."""
        self._persister = SnapshotStaging(computing.setup, self._runtime)
        self._state_folder = FolderGauge(assembly.folder, self._runtime.monotonic)
        self._snapshots_folder = FolderGauge(assembly.persist_to(), self._runtime.monotonic)
        self._office = self._make_office(assembly.persist_to())
        self._desk = RequestHandlers(self._office, RequestServer(self._bus, self._streams, options.name, self._runtime))
        self._housekeeping = Maintenance(self._office, options)
        self._progress = StallDetector(max(STALL_S, 10 * options.lease_s))

    def _make_election(self, changed: Waiter) -> Election:
        bus, streams, runtime, options = self._bus, self._streams, self._runtime, self._options
        gate = open_gate(options.election, runtime, os.environ, group=f"{streams.cluster}.{streams.project}")
        lease_s, rank = options.lease_s, options.preference
        if gate is None:
            return Election(bus, streams, runtime, lease_s=lease_s, rank=rank, changed=changed)
        return GatedElection(bus, streams, runtime, gate, lease_s=lease_s, rank=rank, changed=changed)

    def _make_office(self, folder: Path | None) -> EngineControl:
        return EngineControl(
            name=self._options.name, runtime=self._runtime, bus=self._bus, streams=self._streams,
            in_force=self.in_force, sequencer=self.sequencer, publisher=self.publisher, computing=self._computing,
            election=self.election, books=self.books, report=self.report, folder=folder,
            restore_from=self._restore_from, board=self._board,
        )  # fmt: skip

    @property
    def role(self) -> str:
        """Active or standby."""
        return self._conductor.role

    def status(self) -> EngineStatus:
        """How far it is."""
        with self.books:
            publisher, computing = self.publisher, self._computing
            events = publisher.position.events if publisher.position else 0
            return EngineStatus(
                self.sequencer.position, publisher.published, events, dict(publisher.counts), dict(publisher.bad),
                publisher.seconds, computing.figures(), self.role, self.sequencer.epoch,
                computing.computed() or WorkerProgress(), computing.buffer(), self.election.gate(),
            )  # fmt: skip

    def report(self) -> Report:
        """What it says of itself."""
        status, last, held = self.status(), self._persister.last, self._state_folder.size()
        self._peak = max(self._peak, status.buffer.blocks)
        now, setup = self._runtime.wall_ns(), self._computing.setup
        told = report_of(status, self._options, setup, member=self.election.me, state=self.state, at_ns=now)
        return replace(
            told,
            buffer_peak_blocks=self._peak,
            snapshot_block=last.block if last else 0,
            snapshot_ns=last.made_ns if last else 0,
            takeovers=self._conductor.takeovers,
            http=self.http,
            election=self.election.gate(),
            persisted=dict(self._persister.outcomes),
            ready=dict(self._ready),
            state_files=held.files,
            state_bytes=held.bytes,
            snapshots_bytes=self._snapshots_folder.size().bytes,
            trims=int(self._options.trim and self._options.persist_every_s is not None and bool(self._office.folder)),
        )

    def heard(self, sure_s: float) -> dict[str, float]:
        """For how many seconds nothing came of the project's engines, on the clock of this one."""
        return self._board.heard(sure_s)

    def reports(self) -> dict[str, Report]:
        """The newest report of each engine of the project, by name."""
        return self._board.reports()

    def told_by(self, parts: Waiter | None) -> None:
        """What ends a pause of the publisher when there is a new part; None: nothing does, so it has to look often."""
        self._parts = parts

    def sequence(self) -> float:
        """A full entry is followed by the next at once; small ones are given time to grow, as each is a write."""
        with self.books:
            epoch = self._conductor.epoch
            self._conductor.lead()
            before = self.sequencer.position
            if self.sequencer.leads and before.stated_at < 0:
                self._state_model()
            self.sequencer.step()
            after = self.sequencer.position
            self._to_turn.extend(self.sequencer.turned())
            while self._to_turn:  # one stays until it is done: the bus may be away
                self._turn(*self._to_turn[0])
                self._to_turn.popleft()
        if epoch != self._conductor.epoch or (after is not before and after.block == before.block):
            self._wake_publisher()  # no part tells it
        self._step_back_if_unheard()
        self._join_when_in_step()
        if after is before:
            return _POLL_S
        return 0.0 if after.events - before.events >= self._options.entry_events // 2 else _ENTRY_S

    def publish(self) -> float:
        """Publish if it leads; let go of what is published if it does not."""
        with self._handover:
            nodes, divided = self._new_nodes, self._new_divided
        if nodes:
            self.publisher.use(nodes, divided)
            with self._handover:  # what came meanwhile is left for the next step; if the bus was away, all of it
                self._new_nodes = self._new_nodes[len(nodes) :]
        try:
            more = self._conductor.publish()
            return 0.0 if more else self._pause_s()
        except (BufferGap, BufferDamaged) as error:
            logger.warning("%s", error, extra={"action": "buffer"})
            self.gap = error
            self.election.step_back()
            return _IDLE_S

    def _pause_s(self) -> float:
        if self._parts is not None and not self.publisher.is_busy:
            return _IDLE_S
        return _POLL_S if self.publisher.epoch is not None else _FOLLOW_S

    def _wake_publisher(self) -> None:
        parts = self._parts
        if parts is not None:
            parts.wake()

    def serve(self) -> float:
        """What is asked of this engine while it leads, and snapshots that became complete."""
        self._hand_out_snapshot()
        self._look_around()
        self._try_proposals()
        if self.role == ACTIVE:
            self._desk.step()
            self._housekeeping.step()
            self._yield_if_stalled()
        else:
            self._desk.close()
            self._rejoin()
        return _DESK_S

    def tell(self) -> float:
        """Write a report; say once if the buffer is too small for what comes."""
        report, options = self.report(), self._options
        write_report(self._reports, report)
        self._name_check.check()
        rate, self._reported = (report.block - self._reported) / REPORT_S, report.block
        if not self._warned and buffer_too_small(rate, options.lease_s, options.buffer_blocks):
            self._warned = True
            words = "The buffer of %d blocks is less than what comes until a leader's silence is noticed"
            logger.warning(words, options.buffer_blocks, extra={"action": "buffer"})
        return REPORT_S

    def recomputed(self) -> None:
        """What is to be published and was not in the buffer any more comes into other spools."""
        self.publisher.take_from(self._computing.spools)
        self._persister = self._persister.go_on(self._computing.setup)
        self.gap, self.restore, self.state = None, None, STARTING

    def close(self) -> None:
        """Let a standby lead, and say goodbye."""
        self.election.close()
        write_report(self._reports, replace(self.report(), role="standby"))

    def _turn(self, position: SequencePosition, decision: Decision) -> None:
        """What an entry means to the engine itself; its windows are the workers' business."""
        if decision.prepare is not None and decision.request is not None:
            self._proposed.append((decision.request, decision.prepare))
        if decision.persist is not None:
            self._persister.expect(decision.persist, position)
        if decision.trim is not None and self.sequencer.leads:
            self._bus.open(self._streams.sequence).trim(decision.trim.sequence)
            for path, log in input_logs(self._bus, self._streams, self.in_force.graph, is_own=True).items():
                log.trim(decision.trim.inputs.get(path, 0))
        if decision.states is not None:
            self._restated(position, decision.states)

    def _restated(self, position: SequencePosition, states: Statement) -> None:
        """A model was stated: the first one of the project must be this engine's, a later one takes its place."""
        if position.number == 1 and not self._assembly.is_stated:
            check_same_model(states, self.in_force.graph, self.in_force.wanted, self._streams.sequence)
            return
        graph, wanted = compiled(states), frozenset(states.publish)
        self._computing.divided = divided = divided_windows(make_plan(graph))
        with self._handover:
            self._new_nodes = [*self._new_nodes, *(node for node in graph.nodes if node.path in wanted)]
            self._new_divided = divided
        self.in_force.graph, self.in_force.wanted = graph, wanted

    def _step_back_if_unheard(self) -> None:
        """A leader whose appends to the sequence log fail for a lease lets another try, whatever else it can reach."""
        if self.sequencer.unwritten_s() > self._options.lease_s:
            logger.warning("The sequence log can't be written: another engine is to lead", extra={"action": "role"})
            self.election.step_back()

    def _state_model(self) -> None:
        """Say first what everything that follows is to be computed with."""
        states = statement_of(self.in_force.graph, self.in_force.wanted)
        self.sequencer.ask(Decision({}, 0, 0, states=states, request="first"))

    def _join_when_in_step(self) -> None:
        """Whoever leads must be able to publish soon: not while the log is still replayed."""
        if self.state != STARTING or self.gap is not None or self.restore is not None:
            return
        computed, decided = self._computing.computed(), self.sequencer.position
        near = min(self._options.batch_events, _IN_STEP_EVENTS)
        if computed is not None and decided.events - computed.events <= near:
            self.election.join()
            self.state = RUNNING

    def _hand_out_snapshot(self) -> None:
        """A folder that can't be used now must not end the engine; the report says what became of the snapshot."""
        try:
            if self._persister.step(self.publisher.published) is not None:
                write_report(self._reports, self.report())
        except LockstepError as error:
            logger.warning("A snapshot could not be handed out: %s", error, extra={"action": "persist"})
            self._persister.give_up(str(error))
            write_report(self._reports, self.report())

    def _look_around(self) -> None:
        """Read reports also while nobody asks for them: how fresh they are is known only to one that looks."""
        now = self._runtime.monotonic()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._board.look()

    def _try_proposals(self) -> None:
        """Say of each model that is to come into force whether this engine could run it."""
        with self.books:
            proposed, self._proposed = self._proposed, []
        for request, states in proposed[-_READY_KEPT:]:
            reason = self._why_not_runnable(states)
            self._ready = dict([*self._ready.items(), (request, reason)][-_READY_KEPT:])
        if proposed:
            write_report(self._reports, self.report())

    def _why_not_runnable(self, states: Statement) -> str:
        return why_not_runnable(states, self._computing.setup.shards, self._bus, self._streams)

    def _yield_if_stalled(self) -> None:
        """A live beat over dead workers helps nobody: let a standby lead that is further."""
        now, sequenced = self._runtime.monotonic(), self.sequencer.position.block
        if self._progress.is_stalled(self.publisher.published, sequenced, now, lambda: standbys(self._office)):
            logger.warning("Nothing was published for a while: a standby is to lead", extra={"action": "role"})
            self._office.hand_over()

    def _rejoin(self) -> None:
        """An engine that stepped back stands for election again once another leads, or nobody does for a while."""
        now, leader = self._runtime.monotonic(), self.election.leader()
        if leader is not None:
            self._led_at = now
        is_free = now - self._led_at > 4 * self._options.lease_s
        if self.state == RUNNING and self.gap is None and (is_free or leader not in (None, self.election.me)):
            self.election.join()

    def _restore_from(self, folder: Path) -> None:
        self.restore = folder

    def _last_computed(self) -> int:
        computed = self._computing.computed()
        return computed.block if computed is not None else 0
