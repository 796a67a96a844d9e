"""One engine of a project: it computes what is decided on the sequence log, and publishes it while it leads."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from lockstep.engine.errors import BufferGap, NotShardable
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.plan import Plan, make_plan
from lockstep.engine.model.windows import NotificationWindow
from lockstep.engine.run.asking import Answerer
from lockstep.engine.run.catalog import compiled
from lockstep.engine.run.conducting import ACTIVE, Conductor, RoleChange
from lockstep.engine.run.decisions import Decision, Statement
from lockstep.engine.run.desk import Desk
from lockstep.engine.run.election import Election
from lockstep.engine.run.folder import EngineFolder
from lockstep.engine.run.mail import MailSender
from lockstep.engine.run.mailing import Mailer
from lockstep.engine.run.persister import Persister
from lockstep.engine.run.position import Position
from lockstep.engine.run.reports import Report, write_report
from lockstep.engine.run.setup import EngineSetup
from lockstep.engine.run.spool import Progress as Computed
from lockstep.engine.run.standing import check_stated, compare, input_logs, statement_of
from lockstep.engine.run.streams import ProjectStreams
from lockstep.engine.spark.assembly import Assembly, divided_windows, report_of
from lockstep.engine.spark.computing import Computing
from lockstep.engine.spark.office import Housekeeping, InForce, Office
from lockstep.engine.spark.options import EngineOptions, EngineStatus, Progress, silent
from lockstep.errors import TimedOut
from lockstep.log.port import Bus
from lockstep.runtime import Runtime, Task

__all__ = ["Engine", "EngineOptions", "EngineStatus", "check_shards"]

_POLL_S = 0.004
_ENTRY_S = 0.01
_IDLE_S = 0.1
_REPORT_S = 1.0
_DESK_S = 0.05
_DRAIN_S = 10.0
"""When an engine stops, what it has computed is published for at most so long."""

OnRole = Callable[[RoleChange], None]


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
        on_role: OnRole = lambda _: None,
    ) -> None:
        self._graph, self._wanted, self._bus, self._runtime = graph, wanted, bus, runtime
        options = options or EngineOptions()
        self._options = replace(options, name=options.name or f"{socket.gethostname()}-{os.getpid()}")
        self._path, self._on_role = folder, on_role
        self._plan = make_plan(graph)
        check_shards(self._plan, options.shards)
        self.streams = ProjectStreams(cluster=options.cluster, project=graph.project.name)
        self._crash: BaseException | None = None
        self._gap: BufferGap | None = None
        self._in_force = InForce(graph, wanted)
        self._new_nodes: list[Node] = []
        self._state, self._peak, self.http = "starting", 0, ""
        self._tasks: dict[str, Task] = {}
        self._folder: EngineFolder | None = None
        self._computing: Computing | None = None
        self._election: Election | None = None
        self._conductor: Conductor | None = None
        self._books = threading.Lock()

    @property
    def graph(self) -> Graph:
        """The model in force."""
        return self._graph

    @property
    def wanted(self) -> frozenset[str]:
        """The windows that are published."""
        return self._wanted

    @property
    def name(self) -> str:
        """How it is called among the engines of its project."""
        return self._options.name

    def start(self) -> None:
        """Lock the folder, start Spark, and follow what is decided; it stands for election when it is in step."""
        folder = self._folder = EngineFolder.open(self._path, self._runtime)
        self.streams.create(self._bus, self._graph, self._wanted)
        check_stated(self._bus, self.streams, self._graph, self._wanted)
        assembly = Assembly(
            self._graph, self._wanted, self._bus, self.streams, self._path, self._runtime, self._options
        )
        identity = assembly.identity()
        folder.bind(identity)
        setup = assembly.setup(identity)
        computing = self._computing = Computing(setup, self._graph.project.name, divided_windows(self._plan))
        options = self._options
        computing.start_spark(
            master=options.master, own=options.spark, inherit=(folder.descriptor,), verbose=options.verbose
        )
        self._sequencer = assembly.sequencer(setup.incarnation)
        self._publisher = assembly.publisher(computing.spools, setup.incarnation)
        computing.start()
        self._begin(assembly.persist_to())
        self._warm_up()

    def _begin(self, persist_to: Path | None) -> None:
        """Start the threads."""
        waiter = self._runtime.waiter()
        options = self._options
        self._election = Election(
            self._bus, self.streams, self._runtime, lease_s=options.lease_s, rank=options.preference, changed=waiter
        )
        self._conductor = Conductor(
            self._election, self._sequencer, self._publisher, self._runtime, self._last_computed, self._role_changed
        )
        self._reports = self._bus.open(self.streams.reports)
        self._persister = Persister(self._setup, self._runtime)
        office = Office(
            name=self.name, runtime=self._runtime, bus=self._bus, streams=self.streams, in_force=self._in_force,
            sequencer=self._sequencer, publisher=self._publisher, computing=self._require(), election=self._election,
            books=self._books, report=self.report, folder=persist_to,
        )  # fmt: skip
        self._desk = Desk(office, Answerer(self._bus, self.streams, self.name, self._runtime))
        self._housekeeping = Housekeeping(office, options)
        self._tasks["sequencer"] = self._runtime.spawn("lockstep-sequencer", self._sequence, waiter, self._crashed)
        self._spawn("publisher", self._publish)
        self._spawn("reporter", self._report)
        self._spawn("desk", self._serve)
        if any(isinstance(node.window, NotificationWindow) for node in self._graph.nodes):
            mailer = Mailer(self._bus, self.streams, MailSender(os.environ, self._pause))
            self._spawn("mailer", lambda: mailer.step() if self.role == ACTIVE else _IDLE_S)

    @property
    def _setup(self) -> EngineSetup:
        assert self._computing is not None
        return self._computing.setup

    @property
    def role(self) -> str:
        """Active or standby."""
        return self._conductor.role if self._conductor is not None else "standby"

    def status(self) -> EngineStatus:
        """How far it is."""
        assert self._computing is not None
        with self._books:
            publisher, computing = self._publisher, self._computing
            events = publisher.position.events if publisher.position else 0
            return EngineStatus(
                self._sequencer.position, publisher.published, events, dict(publisher.counts), dict(publisher.bad),
                publisher.seconds, computing.figures(), self.role, self._sequencer.epoch,
                computing.computed() or Computed(), computing.buffer(),
            )  # fmt: skip

    def report(self) -> Report:
        """What it says of itself."""
        status, last = self.status(), self._persister.last
        self._peak = max(self._peak, status.buffer.blocks)
        told = report_of(
            status,
            self._options,
            self._setup,
            member=self._election.me if self._election else "",
            state=self._state,
            at_ns=self._runtime.wall_ns(),
        )
        return replace(
            told,
            buffer_peak_blocks=self._peak,
            snapshot_block=last.block if last else 0,
            snapshot_ns=last.made_ns if last else 0,
            takeovers=self._conductor.takeovers if self._conductor else 0,
            http=self.http,
        )

    def check(self) -> None:
        """Raise what stopped the engine, if anything did; what its buffer lost is computed again."""
        assert self._computing is not None
        self._computing.check()
        if self._crash is not None:
            raise self._crash
        if self._election is not None:
            self._election.check()
        if self._gap is not None:
            self._recompute()

    def run_until(
        self,
        done: Callable[[EngineStatus], bool],
        *,
        timeout: float = float("inf"),
        progress: Progress = silent,
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

    def drain(self, *, timeout: float = float("inf"), progress: Progress = silent) -> None:
        """Wait until everything that is on the inputs now is out."""
        self.run_until(lambda status: self._is_caught_up() and status.lag == 0, timeout=timeout, progress=progress)

    def stop(self) -> None:
        """Stop in order: no new batches, publish what is there, let a standby lead, let go of everything."""
        self._state = "stopping"
        if self._computing is not None:
            self._computing.stop_queries()
        self._stop_tasks()
        if self._election is not None:
            self._election.close()
            self._say_goodbye()
        if self._computing is not None:
            self._computing.stop()
        if self._folder is not None:
            self._folder.close()

    def _stop_tasks(self) -> None:
        for task in self._tasks.values():
            task.stop()
        end = self._runtime.monotonic() + _DRAIN_S
        if self.role == ACTIVE and self._crash is None:
            while self._publisher.step() and self._runtime.monotonic() < end:
                pass

    def _say_goodbye(self) -> None:
        if self._crash is None:
            write_report(self._reports, replace(self.report(), role="standby"))

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
        """Have Spark run batches in which nothing is decided, one after the other, once this engine leads."""
        assert self._computing is not None
        waiter, done = self._runtime.waiter(), self._computing.batches_done()
        for number in range(1, self._options.warm_batches + 1):
            with self._books:
                self._sequencer.nudge()
            while self._computing.batches_done() < done + number:
                self.check()
                waiter.wait(0.005)

    def _is_caught_up(self) -> bool:
        with self._books:
            return self._sequencer.is_caught_up()

    def _require(self) -> Computing:
        assert self._computing is not None
        return self._computing

    def _spawn(self, name: str, step: Callable[[], float | None]) -> None:
        waiter = self._runtime.waiter()
        self._tasks[name] = self._runtime.spawn(f"lockstep-{name}", step, waiter, self._crashed)

    def _sequence(self) -> float:
        """A full entry is followed by the next at once; small ones are given time to grow, as each is a write."""
        assert self._conductor is not None
        with self._books:
            self._conductor.lead()
            before = self._sequencer.position
            if self._sequencer.leads and before.stated_at < 0:
                self._state_model()
            self._sequencer.step()
            after = self._sequencer.position
            for position, decision in self._sequencer.turned():
                self._turn(position, decision)
        self._join_when_in_step()
        if after is before:
            return _POLL_S
        return 0.0 if after.events - before.events >= self._options.entry_events // 2 else _ENTRY_S

    def _turn(self, position: Position, decision: Decision) -> None:
        """What an entry means to the engine itself; its windows are the workers' business."""
        if decision.persist is not None:
            self._persister.expect(decision.persist)
        if decision.trim is not None and self._sequencer.leads:
            self._bus.open(self.streams.sequence).trim(decision.trim.sequence)
            for log, offset in zip(input_logs(self._bus, self.streams, self._graph), decision.trim.inputs, strict=True):
                log.trim(offset)
        if decision.states is not None:
            self._restated(position, decision.states)

    def _restated(self, position: Position, states: Statement) -> None:
        """A model was stated: the first one must be this engine's, a later one takes its place."""
        if position.number == 1:
            compare(states, self._graph, self._wanted, self.streams.sequence)
            return
        graph, wanted = compiled(states), frozenset(states.publish)
        self._new_nodes = [node for node in graph.nodes if node.path in wanted]
        self._graph, self._wanted = graph, wanted
        self._in_force.graph, self._in_force.wanted = graph, wanted

    def _state_model(self) -> None:
        """Say first what everything that follows is to be computed with."""
        states = statement_of(self._graph, self._wanted)
        self._sequencer.ask(Decision((), 0, 0, states=states, request="first"))

    def _join_when_in_step(self) -> None:
        """Whoever leads must be able to publish soon: not while the log is still replayed."""
        assert self._election is not None
        if self._state != "starting" or self._gap is not None:
            return
        computed, decided = self._computed(), self._sequencer.position
        if computed is not None and decided.events - computed.events <= self._options.batch_events:
            self._election.join()
            self._state = "running"

    def _publish(self) -> float:
        assert self._conductor is not None
        if self._new_nodes:
            nodes, self._new_nodes = self._new_nodes, []
            self._publisher.use(nodes, divided_windows(make_plan(self._graph)))
        try:
            return 0.0 if self._conductor.publish() else _POLL_S
        except BufferGap as error:
            self._gap = error
            assert self._election is not None
            self._election.step_back()
            return _IDLE_S

    def _recompute(self) -> None:
        """What is to be published and is not in the buffer any more comes from the last snapshot and the log."""
        assert self._computing is not None
        self._tasks["publisher"].stop()
        self._computing.restart(self._runtime.new_id().hex())
        self._publisher.take_from(self._computing.spools)
        self._gap, self._state = None, "starting"
        self._spawn("publisher", self._publish)

    def _serve(self) -> float:
        """What is asked of this engine while it leads, and snapshots that became complete."""
        if self._persister.step(self._publisher.published) is not None:
            self._tasks["reporter"].wake()
        if self.role == ACTIVE:
            self._desk.step()
            self._housekeeping.step()
        else:
            self._desk.close()
            self._rejoin()
        return _DESK_S

    def _rejoin(self) -> None:
        """An engine that stepped back stands for election again once somebody else leads, or nobody would."""
        assert self._election is not None
        if self._state == "running" and self._gap is None and self._election.leader() != self._election.me:
            self._election.join()

    def _report(self) -> float:
        write_report(self._reports, self.report())
        return _REPORT_S

    def _role_changed(self, change: RoleChange) -> None:
        self._tasks["reporter"].wake()
        self._on_role(change)

    def _computed(self) -> Computed | None:
        return self._computing.computed() if self._computing is not None else None

    def _last_computed(self) -> int:
        computed = self._computed()
        return computed.block if computed is not None else 0

    def _pause(self, seconds: float) -> None:
        self._runtime.waiter().wait(seconds)

    def _crashed(self, error: BaseException) -> None:
        self._crash = error


def check_shards(plan: Plan, shards: int) -> None:
    """Refuse more shards than give the same answer."""
    if shards < 1 or (plan.max_shards is not None and shards > plan.max_shards):
        raise NotShardable(name=plan.graph.project.name, shards=shards, reason=plan.reason)
