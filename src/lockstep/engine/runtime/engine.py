"""One engine of a project: it computes what is decided on the sequence log, and publishes it while it leads."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from lockstep.engine.compute.local import LocalCompute
from lockstep.engine.compute.port import Compute, ComputeFactory
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.plan import make_plan
from lockstep.engine.reference.custom import check_classes
from lockstep.engine.runtime.control.engine_control import STOPPING, EngineControl
from lockstep.engine.runtime.control.leadership import ACTIVE, STANDBY, RoleChange
from lockstep.engine.runtime.control.options import EngineOptions, EngineStatus, OnStatus, silent
from lockstep.engine.runtime.control.reports import Report
from lockstep.engine.runtime.control.spec import EngineSpec, check_shards, divided_windows
from lockstep.engine.runtime.coordinator import Coordinator
from lockstep.engine.runtime.output.spool import SpoolWaiter
from lockstep.engine.runtime.sequence.model_statement import model_to_run
from lockstep.engine.runtime.sequence.outages import BUS_AWAY, through_outages
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.engine.runtime.setup import EngineFolder, EngineSetup
from lockstep.engine.runtime.snapshots.checkpoint import begin_with_newest
from lockstep.errors import BadArgument, TimedOut
from lockstep.log.port import Bus
from lockstep.runtime import Runtime, Task, ThreadRuntime, Waiter, logger

__all__ = ["Engine", "EngineOptions", "EngineStatus", "check_shards"]

_IDLE_S = 0.1
_DRAIN_S = 10.0
"""When an engine stops, what it has computed is published for at most so long."""
_TASKS_S = 10.0
"""And its threads are waited for so long, all together."""

RUNNERS = ("spark", "local")

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
        compute: ComputeFactory | None = None,
    ) -> None:
        options = options or EngineOptions()
        if options.runner not in RUNNERS:
            raise BadArgument(name="runner", value=options.runner, reason=f"it must be one of {', '.join(RUNNERS)}")
        self._options = replace(options, name=options.name or f"{socket.gethostname()}-{os.getpid()}")
        self.streams = ProjectStreams(cluster=options.cluster, project=graph.project.name)
        self._spec = EngineSpec(graph, wanted, bus, self.streams, folder, runtime, self._options)
        self._bus, self._path, self._runtime, self._on_role = bus, folder, runtime, on_role
        self._new_compute = compute or self._chosen_compute
        self._plan = make_plan(graph)
        check_shards(self._plan, options.shards)
        self._crash: BaseException | None = None
        self._tasks: dict[str, Task] = {}
        self._folder: EngineFolder | None = None
        self._compute: Compute | None = None
        self._control: EngineControl | None = None
        self._coordinator: Coordinator | None = None
        self._spools: SpoolWaiter | None = None

    @property
    def name(self) -> str:
        """How it is called among the engines of its project."""
        return self._options.name

    @property
    def graph(self) -> Graph:
        """The model in force."""
        return self._control.model.graph if self._control is not None else self._spec.graph

    @property
    def wanted(self) -> frozenset[str]:
        """The windows that are published."""
        return self._control.model.wanted if self._control is not None else self._spec.wanted

    @property
    def started_s(self) -> dict[str, float]:
        """Seconds that the parts of the last start took: with Spark `jvm`, `context`, `queries` and `first_batch`."""
        if self._compute is None:
            return {}
        first = [figures.first_ms.get("triggerExecution", 0) for figures in self._compute.figures().values()]
        return {**self._compute.started_s, **({"first_batch": max(first) / 1_000} if any(first) else {})}

    @property
    def role(self) -> str:
        """Active or standby."""
        return self._control.role if self._control is not None else STANDBY

    @property
    def http(self) -> str:
        """Where its REST is, as its reports say."""
        return self._running().http

    @http.setter
    def http(self, url: str) -> None:
        self._running().http = url

    def start(self) -> None:
        """Lock the folder, start Spark, and follow what is decided; it stands for election when it is in step."""
        folder = self._folder = EngineFolder.open(self._path, self._runtime)
        spec = self._take_model_in_force()
        check_classes(spec.graph)
        identity = spec.identity()
        folder.bind(identity)
        compute = self._compute = self._new_compute(
            spec.setup(identity), spec.graph.project.name, divided_windows(self._plan)
        )
        compute.open(inherit=(folder.descriptor,))  # before there are threads
        compute.start()
        self._begin(compute)
        self._warm_up(compute)

    def _chosen_compute(self, setup: EngineSetup, project: str, divided: frozenset[str]) -> Compute:
        options = self._options
        if options.runner == "local":
            return LocalCompute(setup, project, divided, self._bus, self._runtime)
        from lockstep.engine.spark.compute import SparkCompute  # only who uses Spark needs it

        return SparkCompute(
            setup, project, divided, master=options.master, own=options.spark, session=options.session,
            verbose=options.verbose,
        )  # fmt: skip

    def _take_model_in_force(self) -> EngineSpec:
        """Start with the model that the sequence log states, if it states one."""
        given = self._spec
        self.streams.create(self._bus, given.graph, given.wanted)
        found = model_to_run(self._bus, self.streams, given.graph, given.wanted)
        self.streams.create(self._bus, found.graph, found.wanted)
        self._spec = replace(given, graph=found.graph, wanted=found.wanted, is_stated=found.is_stated)
        self._plan = make_plan(found.graph)
        check_shards(self._plan, self._options.shards)
        return self._spec

    def _begin(self, compute: Compute) -> None:
        """Start the threads."""
        waiter = self._runtime.waiter()
        self._control = EngineControl(self._spec, compute, waiter, self._role_changed)
        steps = self._coordinator = Coordinator(self._control)
        self._spawn("sequencer", steps.sequence, waiter)
        self._spawn("publisher", steps.publish, self._spool_waiter(compute, steps))
        self._spawn("reporter", steps.report)
        self._spawn("request-handler", steps.serve)

    def status(self) -> EngineStatus:
        """How far it is."""
        return self._running().status()

    def report(self) -> Report:
        """What it says of itself."""
        return self._running().report()

    def heard(self, sure_s: float) -> dict[str, float]:
        """For how many seconds nothing came of the project's engines, on the clock of this one."""
        return self._running().board.heard(sure_s)

    def reports(self) -> dict[str, Report]:
        """The newest report of each engine of the project, by name; `heard` says how old they are."""
        return self._running().board.reports()

    def check(self) -> None:
        """Raise what stopped the engine, if anything did; what its buffer lost is computed again."""
        assert self._compute is not None
        self._compute.check()
        if self._crash is not None:
            raise self._crash
        control = self._running()
        control.election.check()
        if control.gap is not None or control.restore_folder is not None:
            self._recompute(self._compute, control)

    def run_until(
        self,
        done: Callable[[EngineStatus], bool],
        *,
        timeout: float = float("inf"),
        progress: OnStatus = silent,
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
                raise TimedOut(what=f"Waiting for {self.streams.project}", seconds=timeout)
            waiter.wait(_IDLE_S)

    def drain(self, *, timeout: float = float("inf"), progress: OnStatus = silent) -> None:
        """Wait until everything that is on the inputs now is out."""
        # First whether all is decided, then whether that is out: an older status would not know of the last blocks.
        self.run_until(lambda _: self._is_caught_up() and self.status().lag == 0, timeout=timeout, progress=progress)

    def stop(self) -> None:
        """Stop in order: no new batches, publish what is there, let a standby lead, let go of everything."""
        if self._control is not None:
            self._control.state = STOPPING
        if self._compute is not None:
            self._compute.stop_queries()
        are_stopped = self._stop_tasks()
        self._close_spool_waiter()
        if self._control is not None and self._coordinator is not None:
            self._publish_last(self._control, may_publish=are_stopped)
            self._coordinator.close()
        if self._compute is not None:
            self._compute.stop()
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

    def _stop_tasks(self) -> bool:
        """Whether all threads have ended. One that waits for a bus that is away must not keep an engine from ending."""
        end, are_stopped = self._runtime.monotonic() + _TASKS_S, True
        for name, task in self._tasks.items():
            try:
                task.stop(max(0.0, end - self._runtime.monotonic()))
            except TimedOut:
                are_stopped = False
                words = "The %s still waits for the bus: the engine ends without it"
                logger.warning(words, name, extra={"action": "stop"})
        return are_stopped

    def _publish_last(self, control: EngineControl, *, may_publish: bool) -> None:
        """Publish what is in the buffer, if this engine leads."""
        end = self._runtime.monotonic() + _DRAIN_S
        with suppress(*BUS_AWAY):  # another engine publishes it
            if control.role == ACTIVE and self._crash is None and may_publish:
                while control.publisher.step() and self._runtime.monotonic() < end:
                    pass

    def _warm_up(self, compute: Compute) -> None:
        """Have Spark run batches in which nothing is decided, one after the other, once this engine leads."""
        waiter, done, control = self._runtime.waiter(), compute.batches_done(), self._running()
        for number in range(1, self._options.warm_batches + 1):
            with control.decision_lock:
                control.sequencer.nudge()
            while compute.batches_done() < done + number:
                self.check()
                waiter.wait(0.005)

    def _is_caught_up(self) -> bool:
        control = self._running()
        try:
            with control.decision_lock:
                return control.sequencer.is_caught_up()
        except BUS_AWAY:  # nobody knows
            return False

    def _recompute(self, compute: Compute, control: EngineControl) -> None:
        """What is to be published and is not in the buffer any more comes from the last snapshot and the log."""
        assert self._coordinator is not None
        self._tasks["publisher"].stop()
        compute.stop_queries()
        if control.restore_folder is not None:
            compute.setup = begin_with_newest(compute.setup, control.restore_folder, throw_away=True)
        compute.restart(self._runtime.new_id().hex())
        control.begin_anew()
        self._spawn("publisher", self._coordinator.publish, self._spool_waiter(compute, self._coordinator))

    def _spool_waiter(self, compute: Compute, coordinator: Coordinator) -> Waiter:
        """What the publisher waits on: parts in the spools, if the kernel can tell of them."""
        self._close_spool_waiter()
        if not (isinstance(self._runtime, ThreadRuntime) and compute.works_here()):
            return self._runtime.waiter()
        waiter = self._spools = SpoolWaiter([spool.folder for spool in compute.spools])
        coordinator.told_by(waiter if waiter.is_told else None)
        return waiter

    def _close_spool_waiter(self) -> None:
        if self._coordinator is not None:
            self._coordinator.told_by(None)
        if self._spools is not None:
            self._spools.close()
        self._spools = None

    def _running(self) -> EngineControl:
        """The control of an engine that was started."""
        assert self._control is not None
        return self._control

    def _spawn(self, name: str, step: Callable[[], float | None], waiter: Waiter | None = None) -> None:
        patient, waiter = through_outages(name, step), waiter or self._runtime.waiter()
        self._tasks[name] = self._runtime.spawn(f"lockstep-{name}", patient, waiter, self._crashed)

    def _role_changed(self, change: RoleChange) -> None:
        reporter = self._tasks.get("reporter")
        if reporter is not None:
            reporter.wake()
        self._on_role(change)

    def _crashed(self, error: BaseException) -> None:
        self._crash = error
