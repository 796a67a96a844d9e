"""`lockstep cron` for crons of a scheduler: set up, list, remove, pause, trigger, and what their ticks did."""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lockstep.cli.asking import confirm
from lockstep.cli.output import Output, plural
from lockstep.cli.schedulers import late_text, opened_scheduler, shown
from lockstep.errors import NotFound, UsageError

if TYPE_CHECKING:
    from lockstep.schedule.requests import CronRequest
    from lockstep.schedule.rows import CronRow
    from lockstep.schedule.scheduler import Scheduler

_TICKS = {"fired", "skipped", "missed", "failed", "triggered", "retry"}


def add(options: argparse.Namespace, output: Output) -> None:
    """Set up a cron."""
    with opened_scheduler(options) as scheduler:
        description = scheduler.every(
            options.expression, options.payload, id=options.id, tenant=options.tenant, type=options.type,
            tz=options.tz, dst=options.dst, misfire=options.misfire, grace=options.grace, catch_up=options.catch_up,
            jitter=options.jitter, overlap=options.overlap, log=options.log, keep=options.keep,
        )  # fmt: skip
        [row] = [row for row in scheduler.client.crons(options.tenant, options.id) if row.type == options.type]
    if output.json:
        output.json_line({**_row(row), "description": description})
        return
    output.line(f"{options.id}: {description}.")
    upcoming = _next(row)
    output.line(f"It fires next at {shown(upcoming)}." if upcoming else "It never fires.")


def rm(options: argparse.Namespace, output: Output) -> None:
    """Remove a cron."""
    from lockstep.schedule.requests import RemoveCron

    with opened_scheduler(options) as scheduler:
        types = [row.type for row in _rows(scheduler, options)]
    what = f"cron {options.id} of tenant {options.tenant} ({', '.join(types)})"
    if not options.dry_run:
        confirm(options, options.id, f"remove {what}; it fires no more")
        _change(options, output, RemoveCron(options.tenant, options.id, options.type or "*"), "is removed")
    elif output.json:
        about = {"tenant": options.tenant, "id": options.id, "type": options.type}
        output.json_line({**about, "done": False})
    else:
        output.line(f"Would remove {what}.")


def pause(options: argparse.Namespace, output: Output) -> None:
    """Have ticks skipped."""
    from lockstep.schedule.requests import PauseCron

    request = PauseCron(options.tenant, options.id, options.type or "*", paused=True)
    _change(options, output, request, "is paused: its ticks are skipped, and recorded as such")


def resume(options: argparse.Namespace, output: Output) -> None:
    """Let a cron tick again."""
    from lockstep.schedule.requests import PauseCron

    request = PauseCron(options.tenant, options.id, options.type or "*", paused=False)
    _change(options, output, request, "ticks again")


def trigger(options: argparse.Namespace, output: Output) -> None:
    """Fire a cron now."""
    from lockstep.schedule.requests import TriggerCron

    _change(options, output, TriggerCron(options.tenant, options.id, options.type or "*"), "fires now")


def backfill(options: argparse.Namespace, output: Output) -> None:
    """Fire the nominal ticks of a range."""
    from lockstep.schedule.times import to_datetime

    start = options.start // 10**6
    stop = (time.time_ns() if options.stop is None else options.stop) // 10**6
    if start >= stop:
        raise UsageError(reason=f"--from {shown(start)} must be before --to {shown(stop)}.")
    with opened_scheduler(options) as scheduler:
        _rows(scheduler, options)
        fill = scheduler.would_backfill if options.dry_run else scheduler.backfill
        count = fill(options.id, to_datetime(start), to_datetime(stop), tenant=options.tenant, type=options.type or "*")
    if output.json:
        about = {"tenant": options.tenant, "id": options.id, "type": options.type}
        output.json_line({**about, "ticks": count, "applied": not options.dry_run})
    else:
        span = f"from {shown(start)} until {shown(stop)}"
        fires = "would fire" if options.dry_run else "fires"
        output.line(f"Cron {options.id} {fires} for its {plural(count, 'tick')} {span}.")


def _change(options: argparse.Namespace, output: Output, request: CronRequest, done: str) -> None:
    with opened_scheduler(options) as scheduler:
        [answer] = scheduler.client.ask([request])
    if answer["verdict"] == "UNKNOWN":
        raise _missing(options)
    if output.json:
        output.json_line({"tenant": options.tenant, "id": options.id, "type": options.type, "done": True})
    else:
        output.line(f"Cron {options.id} {done}.")


def ls(options: argparse.Namespace, output: Output) -> None:
    """List the crons."""
    with opened_scheduler(options) as scheduler:
        rows = [row for row in scheduler.crons() if options.tenant in (None, row.tenant)]
    if output.json:
        for row in rows:
            output.json_line(_row(row))
    elif not rows:
        output.note("There are no crons. Set one up: lockstep cron add ID EXPRESSION")
    else:
        cells = [
            [row.tenant, row.id, row.type, row.expression, row.tz, shown(row.executed),
             "paused" if row.paused else shown(_next(row))]
            for row in rows
        ]  # fmt: skip
        output.table(["tenant", "id", "type", "expression", "zone", "last", "next"], cells)


def runs(options: argparse.Namespace, output: Output) -> None:
    """Show the ticks of a cron, newest first."""
    with opened_scheduler(options) as scheduler:
        rows = _rows(scheduler, options)
        found = [tick for row in rows for tick in _ticks(scheduler, row, options)]
    found = sorted(found, key=lambda tick: (tick["at"], tick["scheduled_for"]), reverse=True)[: options.limit]
    if output.json:
        for tick in found:
            output.json_line(tick)
    elif not found:
        output.note("It has no runs in the history yet.")
    else:
        headings = ["scheduled for", "ticks", "until", "fired at", "late by", "status", "reason"]
        output.table(headings, [_tick_cells(tick) for tick in found])


def _rows(scheduler: Scheduler, options: argparse.Namespace) -> list[CronRow]:
    """The crons that are meant; NotFound if there is none."""
    rows = scheduler.client.crons(options.tenant, options.id)
    chosen = [row for row in rows if options.type in (None, row.type)]
    if not chosen:
        raise _missing(options)
    return chosen


def _missing(options: argparse.Namespace) -> NotFound:
    kind = "Cron" if options.type is None else f"{options.type} cron"
    return NotFound(what=f"{kind} {options.id!r} of tenant", name=options.tenant)


def _ticks(scheduler: Scheduler, row: CronRow, options: argparse.Namespace) -> list[dict[str, Any]]:
    from lockstep.schedule.history import records_of

    records = records_of(scheduler.bus, scheduler.streams, row.tenant, row.name, scanned=options.history)
    return [
        {
            "type": row.type,
            "scheduled_for": shown(record["eventTime"]),
            "ticks": record.get("count", 1),
            "until": shown(record.get("lastTime", record["eventTime"])),
            "at": shown(record["at"]),
            "fired_at": shown(record.get("triggeredAt", record["at"])) if record["what"] == "fired" else None,
            "status": record["what"],
            "late_s": record["lateMs"] / 1000 if "lateMs" in record else None,
            "reason": record.get("reason") or record.get("error"),
            "node": record.get("node"),
        }
        for record in records
        if record["what"] in _TICKS
    ]


def _tick_cells(tick: dict[str, Any]) -> list[str | int | None]:
    late = None if tick["late_s"] is None else late_text(round(tick["late_s"] * 1000))
    until = tick["until"] if tick["ticks"] > 1 else None
    return [tick["scheduled_for"], tick["ticks"], until, tick["fired_at"], late, tick["status"], tick["reason"]]


def _row(row: CronRow) -> dict[str, Any]:
    return {
        "tenant": row.tenant, "id": row.id, "type": row.type, "expression": row.expression, "tz": row.tz,
        "dst": row.dst, "paused": row.paused, "misfire": row.policy.misfire.value, "last": shown(row.executed),
        "next": None if row.paused else shown(_next(row)),
    }  # fmt: skip


def _next(row: CronRow) -> int | None:
    """The next nominal tick, in milliseconds since 1970."""
    from lockstep.cron import Zone, parse

    zone = Zone(row.tz, "literal" if row.dst == "literal" else "once")
    found = parse(row.expression, row.type).next(datetime.now(UTC), zone)
    return None if found is None else round(found.timestamp()) * 1000
