"""Projects as the console sees them: looked at again and again, so that who is silent is known without wall clocks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from lockstep.console.count_rates import CountRates, Counts, Look, Rates
from lockstep.console.lead_history import LeadHistory, PastLead
from lockstep.console.port import Problem, Site
from lockstep.console.project_problems import problems_of
from lockstep.engine.model.graph import Graph
from lockstep.engine.reference.operator import WindowCounts
from lockstep.engine.runtime.control.leaders import LeaderEpoch, leader_epochs
from lockstep.engine.runtime.control.reports import Report, all_reports
from lockstep.engine.runtime.control.status import SILENT_S, ClusterWatcher, ProjectStatus
from lockstep.engine.runtime.sequence.beats import last_beat
from lockstep.engine.runtime.sequence.entries import Statement
from lockstep.engine.runtime.sequence.model_statement import check_project, compiled, known_statement, projects_among
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.errors import LockstepError, StreamNotFound
from lockstep.log.port import Bus
from lockstep.runtime import Task, logger

KEPT_S = 1.0
"""How long a status is cached, in seconds."""
LISTEN_S = 1.0
LISTENED_MAX = 50
"""How many projects are watched in the background; others are watched once a page shows them."""
LEADS_MAX = 50
"""Epochs that the history of a project shows."""
NAMES_MAX = 1_000
MODELS_MAX = 32


@dataclass(frozen=True, slots=True)
class Model:
    """The model in force of a project, ready to be used, and what is published."""

    statement: Statement
    graph: Graph


@dataclass(frozen=True, slots=True)
class Past:
    """An engine of one incarnation, as its last report that was seen has it."""

    engine: str
    host: str
    state: str


@dataclass(slots=True)
class _Known:
    """The cached state of one project."""

    status: ProjectStatus | None = None
    looked_s: float = 0.0
    looked_ms: int = 0
    """When the status was read, on this machine's wall clock."""
    idle_ms: int | None = None
    """When it was first seen without an active engine, if it was seen with one shortly before."""
    rates: CountRates = field(default_factory=CountRates)
    leads: tuple[str, int, tuple[LeaderEpoch, ...]] = ("", -1, ())
    """The newest epochs; the identity of the sequence log and the epoch for which they were read."""
    names: OrderedDict[str, Past] = field(default_factory=OrderedDict)


class ProjectWatch:
    """How projects stand. May be asked by several threads; they share what was read within a second."""

    def __init__(self, site: Site) -> None:
        self._bus, self._cluster, self._runtime = site.client.bus, site.cluster, site.runtime
        self._names = site.names
        self._listening = ClusterWatcher(self._bus, self._cluster, self._runtime)
        self._known: dict[str, _Known] = {}
        self._models: OrderedDict[Statement, Graph] = OrderedDict()
        self._past = LeadHistory(self._bus, self._runtime)
        self._lock, self._models_lock = threading.Lock(), threading.Lock()
        self._task: Task | None = None

    @property
    def bus(self) -> Bus:
        """Where the projects are."""
        return self._bus

    def start(self) -> None:
        """Listen in the background, so that the first page that is opened knows already who is silent."""
        self._task = self._runtime.spawn("lockstep-console-projects", self._step, self._runtime.waiter(), _crashed)

    def close(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.stop()

    def names(self) -> list[str]:
        """All projects of the cluster, in the order of their names."""
        return list(self._names.derived("projects", lambda logs: projects_among(logs, self._cluster)))

    def streams(self, project: str) -> ProjectStreams:
        """The streams of a project."""
        return ProjectStreams(cluster=self._cluster, project=project)

    def status(self, project: str) -> ProjectStatus:
        """Return a project's status, at most a second old; raises NotFound for an unknown name."""
        with self._lock:
            known = self._known.get(project) or _Known()
            now = self._runtime.monotonic()
            if known.status is not None and now - known.looked_s < KEPT_S:
                return known.status
            self._check(project)
            self._known[project] = known
            before, (known.status,) = known.status, self._listening.status(project)
            known.looked_ms = self._runtime.wall_ns() // 10**6
            if known.status.active is not None:
                known.idle_ms = None
            elif before is not None and before.active is not None and now - known.looked_s < SILENT_S:
                known.idle_ms = known.looked_ms
            known.looked_s = now
            _note(known, now, known.status.published, known.status.events, known.status.counts)
            return known.status

    def problems(self, project: str) -> list[Problem]:
        """Return the problems of a project."""
        status = self.status(project)
        with self._lock:
            known = self._known.get(project) or _Known(looked_ms=self._runtime.wall_ns() // 10**6)
            return list(problems_of(status, known.looked_ms, known.idle_ms))

    def rates(self, project: str) -> Rates | None:
        """What its windows took and gave in the last seconds; None before it was looked at twice."""
        with self._lock:
            known = self._known.get(project)
            return None if known is None else known.rates.rates()

    def model(self, project: str) -> Model:
        """The model in force; ProjectNotStated before a leader has stated one."""
        self._check(project)
        statement = known_statement(self._bus, self._cluster, project)
        with self._models_lock:
            graph = self._models.pop(statement, None) or compiled(statement)
            self._models[statement] = graph
            while len(self._models) > MODELS_MAX:
                self._models.popitem(last=False)
        return Model(statement, graph)

    def history(self, status: ProjectStatus) -> tuple[list[PastLead], Mapping[str, Past]]:
        """The newest epochs of a project, the newest first, and the engines by their incarnations.

        Marks and reports are trimmed; what a server has seen of them is kept on a stream of its own.
        """
        with self._lock:
            known = self._known.setdefault(status.project, _Known())
            self._read_leads(status.project, known, status.epoch)
            _name(known, (self._listening.listen(status.project) or {}).values())
            sequence, found, names = known.leads[0], _past(known), dict(known.names)
        return self._past.merged(sequence, found, LEADS_MAX), names

    def _read_leads(self, project: str, known: _Known, epoch: int) -> None:
        """Read the marks again if an epoch has come since."""
        streams = self.streams(project)
        sequence = self._bus.open(streams.sequence)
        if known.leads[0] != sequence.identity or known.leads[1] < epoch:
            self._remember(known, streams)
            known.leads = (sequence.identity, epoch, tuple(leader_epochs(sequence, LEADS_MAX)))

    def listen(self) -> None:
        """One round over all projects: read what engines reported, and what is counted."""
        names = self.names()
        with self._lock:
            gone = self._known.keys() - set(names)
            self._listening.forget(gone)
            for project in gone:
                del self._known[project]
        for project in names[:LISTENED_MAX]:
            with suppress(LockstepError):  # it was deleted meanwhile, or can't be read: pages say so
                self._listen_to(project)

    def _listen_to(self, project: str) -> None:
        with self._lock:
            known = self._known.setdefault(project, _Known())
            _name(known, (self._listening.listen(project) or {}).values())
            beat = last_beat(self._bus.open(self.streams(project).control))
            events = int(beat.position["events"]) if beat.position else 0
            _note(known, self._runtime.monotonic(), beat.published, events, beat.counts)
            self._read_leads(project, known, beat.epoch)
            sequence, found = known.leads[0], _past(known)
        self._past.merged(sequence, found, LEADS_MAX)

    def _check(self, project: str) -> None:
        if project not in self.names():  # else the names of all logs are not read for it
            check_project(self._bus, self._cluster, project)

    def _remember(self, known: _Known, streams: ProjectStreams) -> None:
        with suppress(StreamNotFound):  # a project of an older version has no reports
            _name(known, all_reports(self._bus.open(streams.reports)))

    def _step(self) -> float:
        with suppress(LockstepError):  # the bus is away; who opens a page is told
            self.listen()
        return LISTEN_S


def _note(known: _Known, now: float, published: int, events: int, counts: Mapping[str, object]) -> None:
    windows = {path: counts_of(dumped) for path, dumped in counts.items()}
    known.rates.add(Look(now, published, events, windows))


def _past(known: _Known) -> list[PastLead]:
    """Return the epochs on the sequence log, with the names from reports."""
    found = []
    for lead in known.leads[2]:
        past = known.names.get(lead.incarnation)
        found.append(PastLead(
            epoch=lead.epoch, incarnation=lead.incarnation, at_ns=lead.at_ns,
            engine=None if past is None else past.engine, host=None if past is None else past.host,
        ))  # fmt: skip
    return found


def counts_of(dumped: object) -> Counts:
    """The counts of a window, from a beat or a report."""
    found = WindowCounts.load(dumped)
    return Counts(found.rows, found.events_in, found.events_out, found.bad)


def _name(known: _Known, reports: Iterable[Report]) -> None:
    for report in reports:
        known.names.pop(report.incarnation, None)
        known.names[report.incarnation] = Past(report.engine, report.host, report.state)
    while len(known.names) > NAMES_MAX:
        known.names.popitem(last=False)


def _crashed(error: BaseException) -> None:
    logger.error("The console no longer listens to projects", exc_info=error, extra={"action": "project_watch_ended"})
