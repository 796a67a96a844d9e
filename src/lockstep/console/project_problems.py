"""What is wrong with a project, with the reason, since when, and what to do next. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from lockstep.console.port import Problem
from lockstep.engine.runtime.control.status import (
    ACTIVE,
    IN_STEP_S,
    SILENT,
    STANDBY,
    STOPPED,
    EngineRow,
    ProjectStatus,
)

CRITICAL, WARNING = "critical", "warning"


def problems_of(status: ProjectStatus, now_ms: int, idle_ms: int | None = None) -> Iterator[Problem]:
    """All of one project; nothing is asked of the bus. `idle_ms`: since when no engine is active, where it is known."""
    found = _Found(status, now_ms, idle_ms)
    if status.active is None:
        yield found.no_engine()
    elif status.state == "stopped":
        reason = "Nothing is taken from its inputs until it is told to run again."
        yield found.problem(WARNING, "is stopped", reason, f"lockstep engine state running --project {status.project}")
    for row in status.engines:
        yield from found.of_engine(row)
    if status.counts_equal is False:
        reason = "At the same block engines have counted different events: one of them computed something else."
        yield found.problem(CRITICAL, "has engines with different counts", reason)


class _Found:
    def __init__(self, status: ProjectStatus, now_ms: int, idle_ms: int | None) -> None:
        self._status, self._now_ms, self._idle_ms = status, now_ms, idle_ms
        self._link = f"/projects/{quote(status.project, safe='')}"

    def problem(
        self, severity: str, what: str, reason: str, command: str = "", *, for_s: float | None = None
    ) -> Problem:
        """`for_s`: how long it has been so, where that is known."""
        status = self._status
        return Problem(
            severity=severity, title=f"Project {status.project} {what}", reason=reason, link=self._link,
            command=command or f"lockstep status --project {status.project}", area="projects",
            since_ms=None if for_s is None else (self._now_ms - int(for_s * 1000)) // 1000 * 1000,
        )  # fmt: skip

    def no_engine(self) -> Problem:
        """Report that no engine leads: all were stopped, all are silent, or none has taken over yet."""
        rows, what = self._status.engines, "has no active engine"
        start = "lockstep engine run MODEL"
        if not rows:
            return self.problem(CRITICAL, what, "No engine has reported. Start one with its model.", start)
        last = min(rows, key=lambda row: row.report_age_s)
        if all(row.role == STOPPED for row in rows):
            reason = f"Its engines ended in order, {last.engine} the last of them. What comes in waits on its inputs."
            return self.problem(WARNING, what, reason, start, for_s=last.report_age_s)
        heard = [row.engine for row in rows if row.role == STANDBY]
        if heard:
            reason = f"{_names(heard)} {'runs' if len(heard) == 1 else 'run'}, and did not take over yet."
            for_s = None if self._idle_ms is None else (self._now_ms - self._idle_ms) / 1000
            return self.problem(CRITICAL, what, reason, for_s=for_s)
        silent = [row.engine for row in rows if row.role == SILENT]
        reason = f"{_names(silent)} did not report: killed, paused or cut off from the bus."
        return self.problem(CRITICAL, what, reason, start, for_s=last.report_age_s)

    def of_engine(self, row: EngineRow) -> Iterator[Problem]:
        """Return the problems of one engine."""
        if row.role == SILENT:
            reason = (
                f"Nothing was heard of it on host {row.host}, pid {row.pid}: killed, paused or cut off from the bus."
            )
            yield self.problem(WARNING, f"has a silent engine: {row.engine}", reason, for_s=row.report_age_s)
        elif row.role == STANDBY:
            yield from self._of_standby(row)

    def _of_standby(self, row: EngineRow) -> Iterator[Problem]:
        epoch = self._status.epoch
        if row.said == ACTIVE and row.state != "stopping":
            reason = (
                f"It says that it leads in epoch {row.epoch}; epoch {epoch} is in force, so nobody takes its blocks."
            )
            yield self.problem(WARNING, f"has an engine that was replaced: {row.engine}", reason)
        if row.state == "starting":
            yield self.problem(WARNING, f"has a standby that is starting: {row.engine}", "It can't take over yet.")
        elif row.state != "stopping" and row.lag_s > IN_STEP_S:
            reason = f"It is {row.lag_blocks:,} blocks, {row.lag_s:,.1f} s behind the active engine."
            what = f"has a standby that is not in step: {row.engine}"
            yield self.problem(WARNING, what, reason, for_s=row.lag_s)


def _names(engines: list[str]) -> str:
    shown = ", ".join(engines[:3])
    return f"{shown} and {len(engines) - 3} more" if len(engines) > 3 else shown
