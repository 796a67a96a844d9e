"""The steps of an engine's threads: it follows or leads the sequence log, publishes, reports, and answers requests.

No threads here: an engine calls these steps from its own.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from importlib import invalidate_caches
from math import inf
from threading import Lock

from lockstep.engine.columns.evaluator import Evaluator
from lockstep.engine.errors import BufferDamaged, BufferGap
from lockstep.engine.model.graph import Node
from lockstep.engine.model.plan import make_plan
from lockstep.engine.runtime.control.engine_control import RUNNING, STARTING, EngineControl, Maintenance
from lockstep.engine.runtime.control.leadership import ACTIVE, StallDetector, buffer_too_small
from lockstep.engine.runtime.control.reports import NameCheck, write_report
from lockstep.engine.runtime.control.spec import divided_windows
from lockstep.engine.runtime.requests.channel import RequestServer
from lockstep.engine.runtime.requests.handlers import RequestHandlers
from lockstep.engine.runtime.sequence.entries import Decision, SequencePosition, Statement
from lockstep.engine.runtime.sequence.model_statement import check_same_model, compiled
from lockstep.engine.runtime.sequence.streams import ProjectStreams, check_stream, sources, takes_records
from lockstep.errors import LockstepError
from lockstep.log.port import Bus
from lockstep.runtime import Waiter, logger

_POLL_S, _ENTRY_S, _SERVE_S, _IDLE_S = 0.004, 0.01, 0.05, 0.1
_FOLLOW_S = 0.02
"""A standby looks less often than a leader for what is published, and both seldom if they are notified of new parts."""
REPORT_S = 1.0
LOOK_S = 0.5
"""How often an engine reads what the others report."""
_IN_STEP_EVENTS = 300_000
"""An engine may lead that has no more than this to compute, or a batch if that is less: it is done within a second."""
_READY_KEPT = 4
STALL_S = 5.0
"""A leader that published nothing for so long, although a standby could, lets it."""


class Coordinator:
    """Runs one engine as one of several, step by step: each method is the step of one thread."""

    def __init__(self, control: EngineControl) -> None:
        self._control, self._options, self._runtime = control, control.options, control.runtime
        self._new_nodes: list[Node] = []
        """Windows that a new model publishes, and below its divided ones: from the sequencer to the publisher."""
        self._new_divided: frozenset[str] = frozenset()
        self._handover = Lock()
        self._parts: Waiter | None = None
        self._to_carry_out: deque[tuple[SequencePosition, Decision]] = deque()
        self._proposed: list[tuple[str, Statement]] = []
        self._reported, self._warned = 0, False
        self._looked_at, self._led_at = -inf, self._runtime.monotonic()
        self._name_check = NameCheck(control.report_log, control.streams.project, control.name, control.election.me)
        server = RequestServer(control.bus, control.streams, control.name, self._runtime)
        self._handlers, self._maintenance = RequestHandlers(control, server), Maintenance(control)
        self._stall = StallDetector(max(STALL_S, 10 * self._options.lease_s))

    def told_by(self, parts: Waiter | None) -> None:
        """What ends a pause of the publisher when there is a new part; None: nothing does, so it has to look often."""
        self._parts = parts

    def sequence(self) -> float:
        """Follow the sequence log, or lead it.

        A full entry is followed by the next at once; small ones are given time to grow, as each is a write.
        """
        control, sequencer, roles = self._control, self._control.sequencer, self._control.roles
        with control.decision_lock:
            epoch = roles.epoch
            roles.follow_election()
            before = sequencer.position
            if sequencer.leads and before.stated_at < 0:
                self._state_model()
            sequencer.step()
            after = sequencer.position
            self._to_carry_out.extend(sequencer.take_control_entries())
            while self._to_carry_out:  # one stays until it is done: the bus may be away
                self._carry_out(*self._to_carry_out[0])
                self._to_carry_out.popleft()
        if epoch != roles.epoch or (after is not before and after.block == before.block):
            self._wake_publisher()  # no part tells it
        self._step_back_if_unheard()
        self._join_when_in_step()
        if after is before:
            return _POLL_S
        return 0.0 if after.events - before.events >= self._options.entry_events // 2 else _ENTRY_S

    def publish(self) -> float:
        """Publish if it leads; let go of what is published if it does not."""
        control = self._control
        with self._handover:
            nodes, divided = self._new_nodes, self._new_divided
        if nodes:
            control.publisher.use(nodes, divided)
            with self._handover:  # what came meanwhile is left for the next step; if the bus was away, all of it
                self._new_nodes = self._new_nodes[len(nodes) :]
        try:
            more = control.roles.publish()
            return 0.0 if more else self._pause_s()
        except (BufferGap, BufferDamaged) as error:
            logger.warning("%s", error, extra={"action": "buffer"})
            control.gap = error
            control.election.step_back()
            return _IDLE_S

    def serve(self) -> float:
        """Hand out snapshots that became complete, and answer what is asked of this engine while it leads."""
        self._hand_out_snapshot()
        self._read_reports()
        self._try_proposals()
        if self._control.role == ACTIVE:
            self._handlers.step()
            self._maintenance.step()
            self._hand_over_if_stalled()
        else:
            self._handlers.close()
            self._rejoin()
        return _SERVE_S

    def report(self) -> float:
        """Write a report; say once if the buffer is too small for what comes."""
        report, options = self._control.report(), self._options
        write_report(self._control.report_log, report)
        self._name_check.check()
        rate, self._reported = (report.block - self._reported) / REPORT_S, report.block
        if not self._warned and buffer_too_small(rate, options.lease_s, options.buffer_blocks):
            self._warned = True
            words = "The buffer of %d blocks is less than what comes until a leader's silence is noticed"
            logger.warning(words, options.buffer_blocks, extra={"action": "buffer"})
        return REPORT_S

    def close(self) -> None:
        """Let a standby lead, and report for the last time."""
        self._control.election.close()
        write_report(self._control.report_log, replace(self._control.report(), role="standby"))

    def _pause_s(self) -> float:
        publisher = self._control.publisher
        if self._parts is not None and not publisher.is_busy:
            return _IDLE_S
        return _POLL_S if publisher.epoch is not None else _FOLLOW_S

    def _wake_publisher(self) -> None:
        parts = self._parts
        if parts is not None:
            parts.wake()

    def _carry_out(self, position: SequencePosition, decision: Decision) -> None:
        """Do what an entry asks of the engine itself; its windows are the workers' business."""
        control = self._control
        if decision.prepare is not None and decision.request is not None:
            self._proposed.append((decision.request, decision.prepare))
        if decision.persist is not None:
            control.snapshots.expect(decision.persist, position)
        if decision.trim is not None and control.sequencer.leads:
            control.bus.open(control.streams.sequence).trim(decision.trim.sequence)
            for path, log in control.inputs(is_own=True).items():
                log.trim(decision.trim.inputs.get(path, 0))
        if decision.states is not None:
            self._restate(position, decision.states)

    def _restate(self, position: SequencePosition, states: Statement) -> None:
        """A model was stated: the first one of the project must be this engine's, a later one takes its place."""
        control, model = self._control, self._control.model
        if position.number == 1 and not control.spec.is_stated:
            check_same_model(states, model.graph, model.wanted, control.streams.sequence)
            return
        graph, wanted = compiled(states), frozenset(states.publish)
        control.compute.divided = divided = divided_windows(make_plan(graph))
        with self._handover:
            self._new_nodes = [*self._new_nodes, *(node for node in graph.nodes if node.path in wanted)]
            self._new_divided = divided
        model.graph, model.wanted = graph, wanted

    def _state_model(self) -> None:
        """Say first what everything that follows is to be computed with."""
        self._control.sequencer.ask(Decision(states=self._control.statement(), request="first"))

    def _step_back_if_unheard(self) -> None:
        """A leader whose appends to the sequence log fail for a lease lets another try, whatever else it can reach."""
        if self._control.sequencer.unwritten_s() > self._options.lease_s:
            logger.warning("The sequence log can't be written: another engine is to lead", extra={"action": "role"})
            self._control.election.step_back()

    def _join_when_in_step(self) -> None:
        """A leader must be able to publish soon: an engine joins when it has computed about all that is decided."""
        control = self._control
        if control.state != STARTING or control.gap is not None or control.restore_folder is not None:
            return
        computed, decided = control.compute.computed(), control.decided
        near = min(self._options.batch_events, _IN_STEP_EVENTS)
        if computed is not None and decided.events - computed.events <= near:
            control.election.join()
            control.state = RUNNING

    def _hand_out_snapshot(self) -> None:
        """A folder that can't be used now must not end the engine; the report says what became of the snapshot."""
        control = self._control
        try:
            if control.snapshots.step(control.publisher.published) is not None:
                write_report(control.report_log, control.report())
        except LockstepError as error:
            logger.warning("A snapshot could not be handed out: %s", error, extra={"action": "persist"})
            control.snapshots.give_up(str(error))
            write_report(control.report_log, control.report())

    def _read_reports(self) -> None:
        """Read reports also while nobody asks for them: how fresh they are is known only to one that looks."""
        now = self._runtime.monotonic()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._control.board.look()

    def _try_proposals(self) -> None:
        """Say of each model that is to come into force whether this engine could run it."""
        control = self._control
        with control.decision_lock:
            proposed, self._proposed = self._proposed, []
        for request, states in proposed[-_READY_KEPT:]:
            reason = self._why_not_runnable(states)
            control.ready = dict([*control.ready.items(), (request, reason)][-_READY_KEPT:])
        if proposed:
            write_report(control.report_log, control.report())

    def _why_not_runnable(self, states: Statement) -> str:
        control = self._control
        return why_not_runnable(states, control.compute.setup.shards, control.bus, control.streams)

    def _hand_over_if_stalled(self) -> None:
        """A leader that beats over dead workers helps nobody: let a standby lead that is further."""
        control, now = self._control, self._runtime.monotonic()
        if self._stall.is_stalled(control.publisher.published, control.decided.block, now, control.standbys):
            logger.warning("Nothing was published for a while: a standby is to lead", extra={"action": "role"})
            control.hand_over()

    def _rejoin(self) -> None:
        """An engine that stepped back stands for election again once another leads, or nobody does for a while."""
        control, now, leader = self._control, self._runtime.monotonic(), self._control.election.leader()
        if leader is not None:
            self._led_at = now
        is_free = now - self._led_at > 4 * self._options.lease_s
        if control.state == RUNNING and control.gap is None and (is_free or leader not in (None, control.election.me)):
            control.election.join()


def why_not_runnable(states: Statement, shards: int, bus: Bus, streams: ProjectStreams) -> str:
    """Why this process can't run a model that is about to come into force; empty: it can.

    It is compiled, its Python code imported, and the streams that it takes records of must be there.
    """
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
