"""What each part says of itself: families of metrics, and who leads in which epoch. Bounded in work and in labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from lockstep.console.metrics import counter, gauge, histogram
from lockstep.console.sampler import Sampler, elects
from lockstep.errors import LockstepError
from lockstep.log.offsets import records_between
from lockstep.streams.client import Lockstep
from lockstep.streams.deadletters import SUFFIX, dead_letter_streams

if TYPE_CHECKING:
    from lockstep.console.fleets import Fleets
    from lockstep.console.project_watch import ProjectWatch
    from lockstep.console.schedulers import Schedulers
    from lockstep.engine.runtime.control.status import EngineRow, ProjectStatus

STREAMS_MAX = GROUPS_MAX = 500
PROJECTS_MAX, ENGINES_MAX, WINDOWS_MAX = 50, 16, 100
SCHEDULERS_MAX, TENANTS_MAX, MONITORS_MAX = 16, 100, 8
ROLES = ("active", "standby", "silent", "stopped")
SEVERITIES = ("warning", "critical", "unknown")
Part = dict[str, Any]


def left_out(kind: str, known: int, most: int) -> Any:
    """How many of a kind have no metrics, because there are too many."""
    family = gauge("left_out", "Names that have no metrics, as there are more than are looked at", "kind")
    family.add_metric([kind], max(0, known - most))
    return family


class StreamFigures:
    """Metrics of streams, groups and dead letters, for the first ones by name."""

    def __init__(self, client: Lockstep, sampler: Sampler) -> None:
        self._client, self._sampler = client, sampler

    def families(self) -> Iterator[Any]:
        """All of them."""
        names = self._client.streams()
        yield from self._of_streams(names[:STREAMS_MAX])
        groups = self._client.groups.names()
        yield from self._of_groups(groups[:GROUPS_MAX])
        omitted = left_out("streams", len(names), STREAMS_MAX)
        omitted.add_metric(["groups"], max(0, len(groups) - GROUPS_MAX))
        yield omitted

    def _of_streams(self, names: list[str]) -> Iterator[Any]:
        records = gauge("stream_records", "Records that can be read", "stream")
        end = counter("stream_appended", "The offset after the last record: its rate is that of records", "stream")
        stored = gauge("stream_bytes", "Stored bytes, where the bus says", "stream")
        letters = gauge("dead_letters", "Records of a stream of dead letters, by the stream they came from", "stream")
        dead = set(dead_letter_streams(self._client))
        for name in names:
            try:
                found = [(log, log.bounds()) for log in self._client.logs(name)]
                count = sum(records_between(log, bounds.first, bounds.next) for log, bounds in found)
            except LockstepError:  # deleted meanwhile
                continue
            records.add_metric([name], count)
            end.add_metric([name], sum(bounds.next for _, bounds in found))
            sizes = [ask() for log, _ in found if (ask := getattr(log, "stored_bytes", None)) is not None]
            if sizes:
                stored.add_metric([name], sum(sizes))
            if name in dead:
                letters.add_metric([name.removesuffix(SUFFIX)], count)
        return iter((records, end, stored, letters))

    def _of_groups(self, names: list[str]) -> Iterator[Any]:
        lag = gauge("group_lag_records", "Records that a group has before it", "group", "stream")
        late = gauge("group_lag_seconds", "Age of the first record that a group has before it", "group", "stream")
        members = gauge("group_members", "Members of a group", "group")
        silent = gauge("group_silent_members", "Members that were not heard within their lease", "group")
        for name in names:
            try:
                found = self._client.groups.describe(name)
            except LockstepError:  # deleted meanwhile
                continue
            members.add_metric([name], len(found.members))
            silent.add_metric([name], len(found.silent))
            for progress in () if elects(found) else found.streams:
                lag.add_metric([name, progress.stream], progress.lag)
                late.add_metric([name, progress.stream], progress.lag_s)
        return iter((lag, late, members, silent))


class ProjectFigures:
    """Metrics of projects: the active engine, the lag of the others, and the counters of windows."""

    def __init__(self, watch: ProjectWatch) -> None:
        self._watch = watch

    def _statuses(self) -> Iterator[ProjectStatus]:
        for name in self._watch.names()[:PROJECTS_MAX]:
            try:
                yield self._watch.status(name)
            except LockstepError:  # deleted meanwhile, or not readable: the home page says so
                continue

    def parts(self) -> Iterator[Part]:
        """One a project."""
        for status in self._statuses():
            why = None if status.active else "no engine is active"
            yield {"kind": "project", "name": status.project, "role": "led" if status.active else "waiting",
                   "leader": status.active, "epoch": status.epoch, "reason": why}  # fmt: skip

    def families(self) -> Iterator[Any]:
        """All of them."""
        values: tuple[tuple[Any, Callable[[ProjectStatus], float]], ...] = (
            (gauge("project_up", "Whether an engine is active", "project"), lambda one: one.active is not None),
            (gauge("project_ok", "Whether nothing is wrong with it", "project"), lambda one: one.is_well),
            (gauge("project_epoch", "The epoch in force", "project"), lambda one: one.epoch),
            (gauge("project_sequenced_block", "The last block that is decided", "project"), lambda one: one.sequenced),
            (gauge("project_published_block", "The last block that is out", "project"), lambda one: one.published),
            (counter("project_events", "Events since the project began", "project"), lambda one: one.events),
            (counter("project_takeovers", "Failovers that its engines count", "project"), lambda one: one.takeovers),
        )
        rate = gauge("project_events_per_second", "Events a second of the last seconds", "project")
        engines, windows = _EngineFamilies(), _WindowFamilies()
        for status in self._statuses():
            for family, value in values:
                family.add_metric([status.project], value(status))
            rates = self._watch.rates(status.project)
            if rates is not None:
                rate.add_metric([status.project], rates.events)
            for row in status.engines[:ENGINES_MAX]:
                engines.add(status.project, row)
            for found in status.windows()[:WINDOWS_MAX]:
                windows.add(status.project, found)
        yield from (family for family, _ in values)
        yield rate
        yield from (*engines.all, *windows.all, left_out("projects", len(self._watch.names()), PROJECTS_MAX))


class _EngineFamilies:
    def __init__(self) -> None:
        labels = ("project", "engine")
        self._role = gauge("engine_role", "1 for the role that an engine has", *labels, "role")
        self._blocks = gauge("engine_lag_blocks", "Blocks that an engine has to compute", *labels)
        self._seconds = gauge("engine_lag_seconds", "For how long it has had to", *labels)
        self._buffer = gauge("engine_buffer_ratio", "How full its buffer is, from 0 to 1", *labels)
        self._silent = gauge("engine_report_age_seconds", "Since its last report", *labels)
        self.all = (self._role, self._blocks, self._seconds, self._buffer, self._silent)

    def add(self, project: str, row: EngineRow) -> None:
        for role in ROLES:
            self._role.add_metric([project, row.engine, role], row.role == role)
        self._blocks.add_metric([project, row.engine], row.lag_blocks)
        self._seconds.add_metric([project, row.engine], row.lag_s)
        self._buffer.add_metric([project, row.engine], row.buffer_percent / 100)
        self._silent.add_metric([project, row.engine], row.report_age_s)


class _WindowFamilies:
    def __init__(self) -> None:
        labels = ("project", "window")
        self._rows = gauge("window_rows", "Rows that a window holds", *labels)
        self._taken = counter("window_events_in", "Events that came to a window", *labels)
        self._made = counter("window_events_out", "Events that a window made", *labels)
        self._bad = counter("window_bad_events", "Events that a window refused", *labels)
        self.all = (self._rows, self._taken, self._made, self._bad)

    def add(self, project: str, found: dict[str, Any]) -> None:
        labels = [project, found["window"]]
        self._rows.add_metric(labels, found["rows"])
        self._taken.add_metric(labels, found["in"])
        self._made.add_metric(labels, found["out"])
        self._bad.add_metric(labels, sum(found["bad"].values()))


class ScheduleFigures:
    """Of schedulers: nodes, what is due, and what was fired since this server looks at their histories."""

    def __init__(self, schedulers: Schedulers) -> None:
        self._schedulers = schedulers

    def parts(self) -> Iterator[Part]:
        """One a scheduler."""
        for name in self._schedulers.names()[:SCHEDULERS_MAX]:
            health = self._schedulers.health(name)
            leader = next((str(card["node"]) for card in health.nodes if card["master"]), None)
            unowned = len(health.unowned)
            why = f"{unowned} of {health.shards} shards have no owner" if unowned else None
            yield {"kind": "scheduler", "name": name, "role": "led" if leader else "waiting", "leader": leader,
                   "epoch": self._schedulers.epoch(name), "reason": why}  # fmt: skip

    def families(self) -> Iterator[Any]:
        """All of them."""
        nodes = gauge("schedule_nodes", "Nodes that are heard", "scheduler")
        unowned = gauge("schedule_unowned_shards", "Shards whose events wait, as nobody owns them", "scheduler")
        tenants = gauge("schedule_tenants", "Tenants", "scheduler")
        due = gauge("schedule_due_events", "Unfired events that are overdue; at most 1000 are counted",
                    "scheduler", "tenant")  # fmt: skip
        oldest = gauge("schedule_due_seconds", "For how long the first of them is due", "scheduler", "tenant")
        failed = gauge("schedule_failed_events", "Events that failed within a day and were not replayed", "scheduler")
        retried = gauge("schedule_retried_events", "Events that failed several times and are tried again", "scheduler")
        ended = counter("schedule_outcomes", "Records of the history by what happened", "scheduler", "outcome")
        names, late, now = self._schedulers.names(), {}, self._schedulers.now_ms
        for name in names[:SCHEDULERS_MAX]:
            health = self._schedulers.health(name)
            for family, value in ((nodes, health.nodes), (unowned, health.unowned), (failed, health.failed),
                                  (retried, health.retried)):  # fmt: skip
                family.add_metric([name], len(value))
            tenants.add_metric([name], health.tenants)
            for backlog in health.backlogs[:TENANTS_MAX]:
                due.add_metric([name, backlog.tenant], backlog.count)
                oldest.add_metric([name, backlog.tenant], max(0, now - backlog.since) / 1000)
            tail = self._schedulers.tail(name)
            late[name] = tail.late
            for outcome, count in sorted(tail.outcomes.items()):
                ended.add_metric([name, outcome], count)
        yield from (nodes, unowned, tenants, due, oldest, failed, retried, ended)
        yield histogram("schedule_late_seconds", "How late events fired", "scheduler", late)
        yield left_out("schedulers", len(names), SCHEDULERS_MAX)


class FleetFigures:
    """Metrics of monitors: their counters and problems."""

    def __init__(self, fleets: Fleets) -> None:
        self._fleets = fleets

    def parts(self) -> Iterator[Part]:
        """One a monitor."""
        for name in self._fleets.names()[:MONITORS_MAX]:
            fleet, lead = self._fleets.open(name), self._fleets.lead(name)
            why = f"it has told nothing for {fleet.silent_s():.0f} s" if fleet.is_stale else None
            yield {"kind": "monitor", "name": name, "role": "waiting" if fleet.is_stale else "led",
                   "leader": None if lead is None else lead.incarnation,
                   "epoch": None if lead is None else lead.epoch, "reason": why}  # fmt: skip

    def families(self) -> Iterator[Any]:
        """All of them."""
        totals = {name: counter(f"monitor_{name}", text, "monitor") for name, text in (
            ("results", "Results that were taken"), ("keepalives", "Keepalives that were taken"),
            ("refused", "Results and orders that were refused"))}  # fmt: skip
        clients = gauge("monitor_clients", "Clients that are registered", "monitor")
        events = gauge("monitor_events", "Open events by severity", "monitor", "severity")
        silenced = gauge("monitor_silenced_events", "Open events that a silence hides", "monitor")
        silences = gauge("monitor_silences", "Silences", "monitor")
        following = gauge("monitor_following", "Whether the view is in step with the fleet", "monitor")
        names = self._fleets.names()
        for name in names[:MONITORS_MAX]:
            fleet = self._fleets.open(name)
            row = fleet.view.row("counters") or {}
            for key, family in totals.items():
                family.add_metric([name], row.get(key, 0))
            clients.add_metric([name], row.get("clients", 0))
            for severity in SEVERITIES:
                events.add_metric([name, severity], (row.get("events") or {}).get(severity, 0))
            silenced.add_metric([name], sum(1 for event in fleet.events().events if event.silenced_by))
            silences.add_metric([name], sum(1 for _ in fleet.view.rows("silence")))
            following.add_metric([name], not fleet.is_stale)
        yield from (*totals.values(), clients, events, silenced, silences, following)
        yield left_out("monitors", len(names), MONITORS_MAX)
