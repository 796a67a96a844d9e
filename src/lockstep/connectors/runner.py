"""The connectors of an engine: they run while it leads, each in its own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from lockstep.connectors.factory import Workshop
from lockstep.connectors.plan import FINISHED, RUNNING, STARTED, STOPPED, Planned, may_start, plan_connectors
from lockstep.connectors.port import Halted, Pace
from lockstep.connectors.publisher import Feeding
from lockstep.connectors.subscriber import Sending, prepare
from lockstep.engine.model.graph import Graph
from lockstep.engine.runtime.sequence.beats import last_beat
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.errors import Conflict, LockstepError, NotFound, Unavailable
from lockstep.events.connection import ProjectEvents
from lockstep.runtime import Task, logger
from lockstep.streams.client import Lockstep

FAILED = "failed"
_IDLE_S = 0.1
_AGAIN_S, _AGAIN_S_MAX = 0.5, 15.0
"""Between attempts, growing."""


class Connectors:
    """Use as a context manager around an engine: made before it starts, started when it runs, stopped before it ends.

    `leads` says whether this engine leads now.
    """

    def __init__(
        self,
        graph: Graph,
        connection: Lockstep,
        cluster: str,
        environ: Mapping[str, str],
        *,
        bound: Iterable[str] = (),
    ) -> None:
        self._graph = graph
        self._workshop = Workshop(ProjectEvents(connection, cluster, graph), environ)
        all_of_them = plan_connectors(graph, bound, environ)
        self.planned: Sequence[Planned] = [planned for planned in all_of_them if not planned.is_bound]
        for planned in all_of_them:
            self._workshop.check(planned)
            if planned.without_effect:
                words, names = "Connector %s: no effect here has %s", ", ".join(planned.without_effect)
                logger.info(words, planned.path, names, extra={"action": "connector"})
        self._runtime = connection.runtime
        self._states = dict.fromkeys((planned.path for planned in self.planned), STOPPED)
        self._sent: dict[str, int] = {}
        self._books = threading.Lock()
        self._stopping = False
        self._tasks: list[tuple[Task, _Runner]] = []

    def prepare(self, wanted: frozenset[str]) -> None:
        """Before the engine starts: note where out streams end that no connector has read yet."""
        project = self._workshop.project
        if any(not planned.properties.publishes for planned in self.planned):
            _create(project.streams, project, wanted)
        for planned in self.planned:
            if not planned.properties.publishes:
                prepare(project, planned.node.path, self._workshop.notes(planned))

    def start(self, leads: Callable[[], bool]) -> None:
        """Begin; each connector works whenever this engine leads and its group may run."""
        for number, planned in enumerate(self.planned):
            runner = _Runner(planned, self, leads)
            waiter = self._runtime.waiter()
            name = f"lockstep-connector-{number}"
            self._tasks.append((self._runtime.spawn(name, runner.step, waiter, runner.crashed), runner))

    def stop(self) -> None:
        """End all of them."""
        self._stopping = True
        tasks, self._tasks = self._tasks, []
        for task, runner in tasks:
            task.stop()
            runner.close()

    @property
    def states(self) -> dict[str, str]:
        """Each connector's state."""
        with self._books:
            return dict(self._states)

    @property
    def have_read(self) -> bool:
        """Whether every source that has an end was read to it, or can't be."""
        states = self.states
        return all(
            states[planned.path] in (FINISHED, FAILED) for planned in self.planned if self._workshop.has_end(planned)
        )

    def published(self) -> dict[str, int]:
        """The last block of each window from which a connector takes events."""
        beat = last_beat(self._workshop.project.connection.bus.open(self._workshop.project.streams.control))
        return {
            planned.path: beat.last.get(planned.node.path, 0)
            for planned in self.planned
            if not planned.properties.publishes
        }

    def have_sent(self, published: Mapping[str, int]) -> bool:
        """Whether every connector has sent everything up to a block, or can't."""
        with self._books:
            return all(
                self._sent.get(path, 0) >= block or self._states[path] == FAILED for path, block in published.items()
            )

    def is_sent(self, path: str, block: int) -> None:
        """A connector has dealt with everything up to a block."""
        with self._books:
            self._sent[path] = block

    def may_run(self, path: str) -> bool:
        """Whether the groups before a connector's are there."""
        if self._stopping:
            return False
        states = {known: STOPPED if state == FAILED else state for known, state in self.states.items()}
        return path in may_start(self._graph.project, states)

    def is_at(self, path: str, state: str) -> None:
        """A connector reached a state."""
        with self._books:
            self._states[path] = state

    @property
    def is_stopping(self) -> bool:
        """Whether all are to end."""
        return self._stopping

    @property
    def workshop(self) -> Workshop:
        """Return the factory of connectors."""
        return self._workshop


def _create(streams: ProjectStreams, project: ProjectEvents, wanted: frozenset[str]) -> None:
    streams.create(project.connection.bus, project.graph, wanted)


class _Runner:
    """One connector: opened when this engine leads, closed when it does not, tried again when it failed."""

    def __init__(self, planned: Planned, all_of_them: Connectors, leads: Callable[[], bool]) -> None:
        self._planned, self._all, self._leads = planned, all_of_them, leads
        runtime = all_of_them.workshop.project.connection.runtime
        self._pace = Pace(self._goes_on, runtime.waiter().wait, runtime.monotonic)
        self._work: Feeding | Sending | None = None
        self._again_s = _AGAIN_S
        self._is_over = False

    def step(self) -> float | None:
        """Do what is due, and return how many seconds to wait then."""
        path = self._planned.path
        if not self._goes_on():
            self.close()
            self._is_over = False  # once this engine leads again, it looks again
            if not self._all.is_stopping:
                self._all.is_at(path, STOPPED)
            return None if self._all.is_stopping else _IDLE_S
        if self._is_over or (self._work is None and not self._all.may_run(path)):
            return _IDLE_S
        try:
            return self._do(path)
        except Halted:
            self.close()
            return 0.0
        except (Unavailable, NotFound, Conflict) as error:
            return self._failed(error)
        except LockstepError as error:
            self.close()
            self._is_over = True
            self._all.is_at(path, FAILED)
            logger.error("Connector %s has failed: %s", path, error, extra={"action": "connector"})
            return _IDLE_S

    def crashed(self, error: BaseException) -> None:
        """Record an unexpected exception: the connector stops, and the engine goes on."""
        self._all.is_at(self._planned.path, FAILED)
        self._work = None
        words = "Connector %s has failed: %s"
        logger.error(words, self._planned.path, type(error).__name__, extra={"action": "connector"})

    def _do(self, path: str) -> float:
        if self._work is None:
            self._all.is_at(path, STARTED)
            self._work = self._all.workshop.work(self._planned, self._pace)
            self._all.is_at(path, RUNNING)
            logger.info("Connector %s is running", path, extra={"action": "connector"})
        is_over = self._work.step()
        if isinstance(self._work, Sending):
            self._all.is_sent(path, self._work.read)
        self._again_s = _AGAIN_S
        if is_over:
            self.close()
            self._is_over = True
            self._all.is_at(path, FINISHED)
            logger.info("Connector %s has finished", path, extra={"action": "connector"})
        return 0.0

    def _failed(self, error: LockstepError) -> float:
        words, path = "Connector %s is tried again in %.1f s: %s", self._planned.path
        logger.warning(words, path, self._again_s, error, extra={"action": "connector"})
        self.close()
        self._all.is_at(path, STARTED)
        rest, self._again_s = self._again_s, min(self._again_s * 2, _AGAIN_S_MAX)
        return rest

    def close(self) -> None:
        """Close the source or target that it has open."""
        work, self._work = self._work, None
        if work is None:
            return
        try:
            work.close()
        except LockstepError as error:  # what it could not send is sent again by the next leader
            words = "Connector %s could not end well: %s"
            logger.warning(words, self._planned.path, error, extra={"action": "connector"})

    def _goes_on(self) -> bool:
        return self._leads() and not self._all.is_stopping
