"""`lockstep cron`: what an expression means and when it fires; and the crons of a scheduler."""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lockstep.cli import values as kinds
from lockstep.cli.output import Output, confirm, plural
from lockstep.cli.parser import Noun, Verb
from lockstep.cli.schedule import CRON_VERBS, TYPES
from lockstep.cli.schedule_events import late_text, opened_scheduler, shown
from lockstep.cli.values import SECOND_NS
from lockstep.errors import CronInvalid, NotFound, UsageError

if TYPE_CHECKING:
    from lockstep.cron import Cron, Zone
    from lockstep.schedule.requests import CronRequest
    from lockstep.schedule.rows import CronRow
    from lockstep.schedule.scheduler import Scheduler

DST = ("once", "literal")
VALID, INVALID = 0, 1
COUNT_MAX, _CHECK_COUNT = 10_000, 5
_FAR = datetime(9999, 12, 31, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _expression(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("expression", metavar="EXPRESSION", help="in quotes, as '0 0/5 14,18 * * ?'")
    parser.add_argument("--type", type=str.upper, choices=TYPES, default="UNIX", metavar="TYPE",
                        help=f"the dialect: {', '.join(TYPES)} (UNIX)")  # fmt: skip


def _times(parser: argparse.ArgumentParser) -> None:
    _expression(parser)
    parser.add_argument("--tz", default="UTC", metavar="ZONE", help="whose clock it follows, as Europe/Berlin (UTC)")
    parser.add_argument("--dst", choices=DST, default="once",
                        help="in nights when clocks change: docs/reference/cron.md (once)")  # fmt: skip
    parser.add_argument("--from", dest="start", type=kinds.moment_ns, metavar="TIME",
                        help="look after this time: ISO 8601, 5m (ago), @SECONDS since 1970 (now)")  # fmt: skip


def _next(parser: argparse.ArgumentParser) -> None:
    _times(parser)
    parser.add_argument("--count", type=kinds.positive, default=1, metavar="N", help="how many times, up to 10,000 (1)")


CRON = Noun(
    name="cron",
    purpose="Cron expressions, what they mean and when they fire; and the crons of a scheduler.",
    verbs=(
        *CRON_VERBS,
        Verb(
            name="describe",
            purpose="Say in English what an expression means.",
            run="lockstep.cli.cron:describe",
            arguments=_expression,
            examples=(
                "lockstep cron describe --type QUARTZ '0 0/5 14,18 * * ?'",
                "lockstep cron describe '30 11 * * MON-FRI' --json",
            ),
        ),
        Verb(
            name="next",
            purpose="Print when an expression fires next, in UTC.",
            run="lockstep.cli.cron:next_times",
            arguments=_next,
            examples=(
                "lockstep cron next '*/15 * * * *'",
                "lockstep cron next --type QUARTZ '0 30 2 ? * 1L' --tz Europe/Berlin --count 4",
                "lockstep cron next '0 0 13 * 5' --from 2026-01-01T00:00Z --count 3 --tz Europe/Berlin --json",
            ),
        ),
        Verb(
            name="check",
            purpose="Say whether an expression is valid (else exit code 1), what it means and when it fires.",
            run="lockstep.cli.cron:check",
            arguments=_times,
            examples=(
                "lockstep cron check '0 9 * * MON-FRI' --tz America/New_York",
                "lockstep cron check --type CRON4J '0 0 L * *' --json",
            ),
        ),
    ),
)


def describe(options: argparse.Namespace, output: Output) -> None:
    """Print the sentence."""
    from lockstep.cron import parse

    sentence = parse(options.expression, options.type).describe()
    if output.json:
        output.json_line({"expression": options.expression, "type": options.type, "description": sentence})
    else:
        output.line(sentence)


def next_times(options: argparse.Namespace, output: Output) -> None:
    """Print the next times; in a zone also as its clock shows them."""
    from lockstep.cron import Zone, parse

    if options.count > COUNT_MAX:
        raise UsageError(reason=f"--count may be {COUNT_MAX:,} at most.")
    cron, zone = parse(options.expression, options.type), Zone(options.tz, options.dst)
    found = _after(cron, zone, _start(options), options.count)
    if output.json:
        output.json_line({"next": [_iso(each) for each in found]})
        return
    _show_times(output, found, zone)
    if len(found) < options.count:
        output.note("It does not fire again within 100 years." if found else "It does not fire within 100 years.")


def check(options: argparse.Namespace, output: Output) -> int:
    """Print all that can be said of an expression."""
    from lockstep.cron import Zone, parse

    zone = Zone(options.tz, options.dst)
    about = {"expression": options.expression, "type": options.type, "tz": zone.name, "dst": zone.dst}
    try:
        cron = parse(options.expression, options.type)
    except CronInvalid as error:
        return _refused(error, about, output)
    found = _after(cron, zone, _start(options), _CHECK_COUNT)
    warnings = _warnings(cron, found)
    if output.json:
        times = [_iso(each) for each in found]
        output.json_line({**about, "valid": True, "description": cron.describe(), "next": times, "warnings": warnings})
        return VALID
    output.line(f"Valid: {cron.describe()}.")
    _show_times(output, found, zone)
    for warning in warnings:
        output.warn(warning)
    return VALID


def _refused(error: CronInvalid, about: dict[str, str], output: Output) -> int:
    if output.json:
        output.json_line({**about, "valid": False, "reason": error.params["reason"]})
    else:
        output.line(str(error).removeprefix(f"[{error.code}] ").removesuffix(f" {error.advice}"))
    return INVALID


def _warnings(cron: Cron, found: list[datetime]) -> list[str]:
    counts = [mask.bit_count() for mask in (cron.seconds, cron.minutes, cron.hours)]
    warnings = []
    if not found:
        warnings.append("It never fires: no time within 100 years fits.")
    elif len(found) < _CHECK_COUNT:
        warnings.append(f"It fires for the last time at {_iso(found[-1])}.")
    if counts == [60, 60, 24]:
        warnings.append("It fires every second of the days that it names.")
    return warnings


def _start(options: argparse.Namespace) -> datetime:
    nanos = time.time_ns() if options.start is None else options.start
    return _EPOCH + timedelta(seconds=nanos // SECOND_NS)


def _after(cron: Cron, zone: Zone, start: datetime, count: int) -> list[datetime]:
    return list(cron.occurrences(start, _FAR, zone, limit=count))


def _iso(at: datetime) -> str:
    return f"{at.replace(tzinfo=None).isoformat()}Z"


def _show_times(output: Output, found: list[datetime], zone: Zone) -> None:
    for at in found:
        local = "" if zone.is_utc else f"  {_local(at, zone)}"
        output.line(_iso(at) + local)


def _local(at: datetime, zone: Zone) -> str:
    local = at.astimezone(zone.info)
    return f"{local.replace(tzinfo=None).isoformat(' ')} {local.tzname()}"


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
    upcoming = _next_of_stored(row)
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
             "paused" if row.paused else shown(_next_of_stored(row))]
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
        "next": None if row.paused else shown(_next_of_stored(row)),
    }  # fmt: skip


def _next_of_stored(row: CronRow) -> int | None:
    """The next nominal tick, in milliseconds since 1970."""
    from lockstep.cron import Zone, parse

    zone = Zone(row.tz, "literal" if row.dst == "literal" else "once")
    found = parse(row.expression, row.type).next(datetime.now(UTC), zone)
    return None if found is None else round(found.timestamp()) * 1000
