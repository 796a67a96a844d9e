"""How a project stands, for people: who leads, how far behind the standbys are, what they hold, and what is off.

Everything comes from reports (by the engines' own word) and the newest beat; it costs a bounded number of reads. Lag is
told as of an engine's report, and as of now if it is silent:

- in blocks: those that were decided or published by then, and that it had not computed;
- in seconds: how long before that the leader published the first of these; 0 if none of them was published. Times are
  wall clocks of the machines. If neither beats nor reports reach back so far, it is at least the time shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any

from lockstep.engine.reference.operator import WindowCounts
from lockstep.engine.runtime.control.reports import Report, ReportBoard, all_reports, latest_reports
from lockstep.engine.runtime.control.storage import StreamSize, stream_sizes
from lockstep.engine.runtime.sequence.beats import Beat, last_beat
from lockstep.engine.runtime.sequence.model_statement import projects
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.errors import Trimmed
from lockstep.log.batch import BatchView
from lockstep.log.port import Bus, Log
from lockstep.runtime import Runtime


def first_published_ns(bus: Bus, streams: ProjectStreams, block: int) -> int | None:
    """When something after `block` was first seen to be published; None if nothing was."""
    found = _first_beat(bus.open(streams.control), block)
    if found is None:
        return None
    at_ns, is_oldest = found
    if is_oldest and streams.reports in set(bus.names()):  # beats do not reach back: reports may
        seen = (report.at_ns for report in all_reports(bus.open(streams.reports)) if report.published > block)
        return min([at_ns, *seen])
    return at_ns


def _first_beat(control: Log, block: int) -> tuple[int, bool] | None:
    """The time of the first beat that says more than `block` is out, and whether there is none before it.

    Beats say more and more, so it is found by halving: a few reads, however many beats there are.
    """
    bounds = control.bounds()
    low, high = bounds.first, bounds.next
    found: int | None = None
    while low < high:
        middle = (low + high) // 2
        beat = _beat_at(control, middle)
        if beat is None or beat[0] > block:
            found, high = (beat[1] if beat is not None else found), middle
        else:
            low = middle + 1
    return None if found is None else (found, low == bounds.first)


def _beat_at(control: Log, offset: int) -> tuple[int, int] | None:
    """What the beat at an offset, or the next one, says to be published, and when; None if there is none."""
    try:
        stored = control.read(offset, max_bytes=1)
    except Trimmed:
        stored = control.read(control.bounds().first, max_bytes=1)
    if not stored:
        return None
    view = BatchView(stored[0].base, stored[0].data, control.name)
    published = json.loads(view.values()[max(0, min(offset - view.base, view.count - 1))])["published"]
    return int(published), view.created_ns


SILENT_S = 5.0
"""An engine without a report for so long is shown as silent: it reports every second."""
IN_STEP_S = 5.0
"""A standby that lags longer is not in step."""
ACTIVE, STANDBY, SILENT, STOPPED = "active", "standby", "silent", "stopped"


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineRow:
    """One engine of a project."""

    engine: str
    role: str
    """active, standby, silent (no report for a while) or stopped (it said that it ends)."""
    said: str
    """The role in its newest report."""
    state: str
    epoch: int
    incarnation: str
    host: str
    pid: int
    http: str
    block: int
    events: int
    lag_blocks: int
    lag_s: float
    buffer_blocks: int
    buffer_bytes: int
    buffer_percent: float
    """Of its blocks or its bytes, whichever is fuller."""
    buffer_peak_blocks: int
    snapshot_block: int
    snapshot_age_s: float | None
    report_age_s: float
    takeovers: int
    model: str
    counts_equal: bool | None
    """Whether its counts are those of the others at the same block; None if no other is there."""
    election: str = ""
    """What says whether it may try to lead, as its newest report has it; empty: the group's log alone."""
    state_files: int = 0
    """Files in its state folder, and their bytes."""
    state_bytes: int = 0
    snapshots_bytes: int = 0
    """Bytes in the folder of its snapshots, which engines may share."""
    trims: bool = False
    """Whether it trims inputs and the sequence log after each snapshot while it leads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectStatus:
    """A project and its engines."""

    cluster: str
    project: str
    state: str
    """running, or stopped: nothing more is taken from its inputs until it is to run again."""
    active: str | None
    epoch: int
    sequenced: int
    published: int
    events: int
    snapshot_block: int
    snapshot_age_s: float | None
    takeovers: int
    """As the engines that are listed count them since they started."""
    counts_equal: bool | None
    engines: tuple[EngineRow, ...]
    problems: tuple[str, ...]
    counts: Mapping[str, Any]
    """Of the windows at block `published`, as WindowCounts.dump gives them."""
    streams: tuple[StreamSize, ...] = ()
    """What it occupies on the bus, and what trims that."""

    @property
    def has_silent(self) -> bool:
        """Whether an engine seems silent. By wall clocks, unless the caller has listened: look again to be sure."""
        return any(row.role == SILENT for row in self.engines)

    @property
    def is_well(self) -> bool:
        """An engine is active, every standby is in step, and all agree."""
        return not self.problems

    def tree(self) -> dict[str, Any]:
        """As plain values."""
        tree = asdict(self)
        del tree["counts"]
        return {**tree, "ok": self.is_well, "windows": self.windows()}

    def windows(self) -> list[dict[str, Any]]:
        """The counts of the windows at block `published`, by name."""
        found = {path: WindowCounts.load(dumped) for path, dumped in self.counts.items()}
        return [
            {"window": path, "rows": counts.rows, "in": counts.events_in, "out": counts.events_out,
             "bad": dict(sorted(counts.bad.items()))}
            for path, counts in found.items()
        ]  # fmt: skip


class ClusterWatcher:
    """How projects stand, looked at again and again by one process.

    An engine whose reports come while it looks is not silent, whatever the wall clocks of the two machines say.
    """

    def __init__(self, bus: Bus, cluster: str, runtime: Runtime) -> None:
        self._bus, self._cluster, self._runtime = bus, cluster, runtime
        self._boards: dict[str, ReportBoard] = {}

    def status(self, project: str | None = None) -> list[ProjectStatus]:
        """One project, or every project of the cluster in the order of their names."""
        names = projects(self._bus, self._cluster) if project is None else [project]
        return [self._project(name) for name in names]

    def listen(self, project: str) -> dict[str, Report] | None:
        """Read what its engines reported since the last look; their newest reports, None without a stream of them.

        Who does so more often than engines may be silent knows at any time which of them are.
        """
        reports = ProjectStreams(cluster=self._cluster, project=project).reports
        if project not in self._boards:
            if reports not in set(self._bus.names()):
                return None
            self._boards[project] = ReportBoard(self._bus.open(reports), self._runtime, pause_s=SILENT_S)
        return self._boards[project].look()

    def listen_to_all(self, project: str | None = None) -> None:
        """The same with every project of the cluster, or with one."""
        for name in projects(self._bus, self._cluster) if project is None else [project]:
            self.listen(name)

    def forget(self, gone: Iterable[str]) -> None:
        """Let go of projects that are no longer there."""
        for project in gone:
            self._boards.pop(project, None)

    def _project(self, name: str) -> ProjectStatus:
        reports = self.listen(name)
        heard = self._boards[name].heard(SILENT_S) if reports is not None else {}
        now_ns = self._runtime.wall_ns()
        return project_status(self._bus, self._cluster, name, now_ns, heard=heard, reports=reports)


def project_status(
    bus: Bus,
    cluster: str,
    project: str,
    now_ns: int,
    *,
    heard: Mapping[str, float] | None = None,
    reports: Mapping[str, Report] | None = None,
) -> ProjectStatus:
    """How one project stands at `now_ns` on this machine's wall clock.

    `heard` says how long engines have been silent where the caller knows it: there no clocks are compared. Infinite is
    one that was never heard in all the time that it takes to be sure. `reports` are the newest ones of a caller that
    follows them; without, they are read.
    """
    streams = ProjectStreams(cluster=cluster, project=project)
    beat = last_beat(bus.open(streams.control))
    if reports is None:
        has_reports = streams.reports in set(bus.names())  # a project of an older version has none
        reports = latest_reports(bus.open(streams.reports)) if has_reports else {}
    look = _ProjectView(bus, streams, beat, reports, now_ns, heard or {})
    rows = tuple(look.row(report) for report in reports.values())
    active = next((row for row in rows if row.role == ACTIVE), None)
    newest = max(reports.values(), key=lambda report: (report.snapshot_block, report.snapshot_ns), default=None)
    status = ProjectStatus(
        cluster=cluster, project=project, state=project_state(beat),
        active=active.engine if active else None, epoch=look.epoch,
        sequenced=max([beat.published, *(report.sequenced for report in reports.values())]),
        published=beat.published, events=int(beat.position["events"]) if beat.position else 0,
        snapshot_block=newest.snapshot_block if newest else 0,
        snapshot_age_s=_age_s(now_ns, newest.snapshot_ns) if newest and newest.snapshot_ns else None,
        takeovers=sum(row.takeovers for row in rows), counts_equal=_all_equal(row.counts_equal for row in rows),
        engines=rows, problems=(), counts=_counts(beat, reports.values()),
        streams=stream_sizes(bus, streams, engines_trim=any(row.trims for row in rows)),
    )  # fmt: skip
    return replace(status, problems=tuple(_problems(status)))


def project_state(beat: Beat) -> str:
    """Whether a project runs or is stopped, as of its newest beat."""
    return "running" if beat.position is None or beat.position.get("running", True) else "stopped"


class _ProjectView:
    """What is needed to tell of each engine how it stands."""

    def __init__(
        self,
        bus: Bus,
        streams: ProjectStreams,
        beat: Beat,
        reports: Mapping[str, Report],
        now_ns: int,
        heard: Mapping[str, float],
    ) -> None:
        self._heard = heard
        self._bus, self._streams, self._beat, self._reports, self._now_ns = bus, streams, beat, reports, now_ns
        self.epoch = max([beat.epoch, *(report.epoch for report in reports.values())])

    def row(self, report: Report) -> EngineRow:
        """One engine."""
        is_silent = self._is_silent(report)
        role = self._role(report, is_silent=is_silent)
        blocks, seconds = self._lag(report, is_silent=is_silent)
        return EngineRow(
            engine=report.engine, role=role, said=report.role, state=report.state, epoch=report.epoch,
            incarnation=report.incarnation, host=report.host, pid=report.pid, http=report.http, block=report.block,
            events=report.events, lag_blocks=blocks, lag_s=seconds, buffer_blocks=report.buffer_blocks,
            buffer_bytes=report.buffer_bytes, buffer_percent=_percent(report),
            buffer_peak_blocks=report.buffer_peak_blocks, snapshot_block=report.snapshot_block,
            snapshot_age_s=_age_s(self._now_ns, report.snapshot_ns) if report.snapshot_ns else None,
            report_age_s=self._report_age_s(report), takeovers=report.takeovers, model=report.model,
            counts_equal=self._counts_equal(report), election=report.election, state_files=report.state_files,
            state_bytes=report.state_bytes, snapshots_bytes=report.snapshots_bytes, trims=bool(report.trims),
        )  # fmt: skip

    def _is_silent(self, report: Report) -> bool:
        return self._heard.get(report.engine, (self._now_ns - report.at_ns) / 1e9) > SILENT_S

    def _report_age_s(self, report: Report) -> float:
        silence_s = self._heard.get(report.engine, inf)
        return _age_s(self._now_ns, report.at_ns) if silence_s == inf else round(silence_s, 3)

    def _role(self, report: Report, *, is_silent: bool) -> str:
        if report.state == "stopping" and (is_silent or report.role != ACTIVE):  # else it leads until it is gone
            return STOPPED
        if is_silent:
            return SILENT
        # One that was fenced may not know it yet: the highest epoch leads, and within it who wrote the beat.
        leads = report.role == ACTIVE and report.epoch == self.epoch and self._is_sole(report)
        return ACTIVE if leads else STANDBY

    def _is_sole(self, report: Report) -> bool:
        rivals = [
            other
            for other in self._reports.values()
            if other.role == ACTIVE and other.epoch == report.epoch and not self._is_silent(other)
        ]
        if len(rivals) < 2:
            return True
        by_beat = [rival for rival in rivals if rival.incarnation == self._beat.incarnation]
        return report is (by_beat or sorted(rivals, key=lambda rival: rival.at_ns))[-1]

    def _lag(self, report: Report, *, is_silent: bool) -> tuple[int, float]:
        as_of = self._now_ns if is_silent else report.at_ns
        decided = max(report.sequenced, report.published, self._beat.published if is_silent else 0)
        blocks = max(0, decided - report.block)
        if blocks == 0:
            return 0, 0.0
        published_ns = first_published_ns(self._bus, self._streams, report.block)
        return blocks, 0.0 if published_ns is None else _age_s(as_of, published_ns)

    def _counts_equal(self, report: Report) -> bool | None:
        others = [
            other.counts for other in self._reports.values() if other is not report and _same_place(other, report)
        ]
        if self._beat.published == report.block and self._beat.counts and not _is_emptied(report):
            others.append(self._beat.counts)
        return all(counts == report.counts for counts in others) if others and report.counts else None


def _counts(beat: Beat, reports: Iterable[Report]) -> Mapping[str, Any]:
    """The counts at the last published block. After a reset the beat still tells of before, until something comes."""
    emptied = (report.counts for report in reports if report.block == beat.published and _is_emptied(report))
    return next(emptied, beat.counts) if beat.counts else beat.counts


def _is_emptied(report: Report) -> bool:
    """Whether nothing was counted since windows were emptied last."""
    counted = [WindowCounts.load(dumped) for dumped in report.counts.values()]
    nothing = all(counts == WindowCounts() for counts in counted)
    return bool(counted) and nothing and report.block > 0 and report.state == "running"


def _same_place(one: Report, other: Report) -> bool:
    at_one_place = (one.number, one.block) == (other.number, other.block)
    return at_one_place and one.model == other.model and bool(one.counts)


def _percent(report: Report) -> float:
    shares = [
        100 * held / limit
        for held, limit in (
            (report.buffer_blocks, report.buffer_blocks_max),
            (report.buffer_bytes, report.buffer_bytes_max),
        )
        if limit > 0
    ]
    return round(max(shares, default=0.0), 1)


def _age_s(now_ns: int, then_ns: int) -> float:
    """Seconds between; a clock that is ahead makes nothing negative."""
    return round(max(0, now_ns - then_ns) / 1e9, 3)


def _all_equal(found: Iterable[bool | None]) -> bool | None:
    told = [item for item in found if item is not None]
    return all(told) if told else None


def _problems(status: ProjectStatus) -> Iterable[str]:
    """What is off, in sentences."""
    if status.active is None:
        yield "No engine is active."
    for row in status.engines:
        if row.role == SILENT:
            yield f"Engine {row.engine} was last heard of {row.report_age_s:,.0f} s ago."
        elif row.role == STANDBY and row.said == ACTIVE and row.state != "stopping":
            yield f"Engine {row.engine} says that it leads in epoch {row.epoch}; epoch {status.epoch} is in force."
        if row.role == STANDBY and row.state == "starting":
            yield f"Engine {row.engine} is starting, and can't take over yet."
        elif row.role == STANDBY and row.state != "stopping" and row.lag_s > IN_STEP_S:
            yield f"Engine {row.engine} is {row.lag_blocks:,} blocks, {row.lag_s:,.1f} s behind."
    if status.counts_equal is False:
        yield "Engines at the same block have different counts."
