"""Crons: the list, one with its next fires and its ticks, and an expression that is tried while it is typed."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from lockstep.console.port import PAGED, Act, Asked, Kind, Parameter, Site, Tree, View, paged
from lockstep.console.records import time_ns
from lockstep.console.schedulers import SCHEDULER, Schedulers
from lockstep.cron import Cron, Zone, parse
from lockstep.errors import BadArgument, CronInvalid, LockstepError, NotFound, ZoneUnknown
from lockstep.schedule.history import owner_of, records_of
from lockstep.schedule.requests import ALL_TYPES, CRON_TYPES, PauseCron, RemoveCron, TriggerCron
from lockstep.schedule.rows import CronRow, Run
from lockstep.schedule.scheduler import Scheduler
from lockstep.schedule.times import from_datetime, java_text, to_datetime, zone_of
from lockstep.server.access import Role

ALL, UNIX = "all", "UNIX"
NEXT, TRIED = 10, 5
TICKS, RUNS = 100, 50
HISTORY, HISTORY_MAX = 20_000, 1_000_000
NOTES_MAX = 4
NAMES_S, NAMES_COST = 3.0, 10.0
"""The names of all crons are read again after so many seconds, or after so many times as long as reading took."""
FIRST_S, AT_ONCE = 0.4, 10_000
"""Until all are known, a page waits so long, and then shows what is known; that grows in steps of so many."""
SKIPPED_SHOWN = 3
_TICKS = frozenset({"fired", "skipped", "missed", "failed", "triggered", "retry"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

SCANNED = Parameter(name="history", label="History", kind=Kind.WHOLE, default=HISTORY, least=1, most=HISTORY_MAX,
                    help="records of the history to look at, from its end", option="--history")  # fmt: skip
OF_TYPE = Parameter(name="type", label="Type", kind=Kind.CHOICE, choices=(ALL, *CRON_TYPES), default=ALL,
                    help="of several crons of this id, the one of this dialect", option="--type")  # fmt: skip
TYPE = Parameter(name="type", label="Dialect", kind=Kind.CHOICE, choices=CRON_TYPES, default=UNIX,
                 help="of the expression")  # fmt: skip
EXPRESSION = Parameter(name="expression", label="Expression", characters_max=1024, help="as '0 9 * * MON-FRI'")
FROM = Parameter(name="from", label="From", required=True, characters_max=64,
                 help="ticks at or after: a time as 2027-01-31T04:00Z, or 7d (ago)")  # fmt: skip
TO = Parameter(name="to", label="To", characters_max=64, option="--to", help="ticks before: a time; now if empty")
TZ = Parameter(name="tz", label="Zone", default="UTC", characters_max=64, help="as Europe/Berlin")
DST = Parameter(name="dst", label="When clocks change", kind=Kind.CHOICE, choices=("once", "literal"), default="once",
                help="once: a fixed local time fires once; literal: whenever the clock shows it")  # fmt: skip


class CronViews:
    """The console's pages about crons."""

    def __init__(self, site: Site, schedulers: Schedulers) -> None:
        self._site, self._schedulers = site, schedulers
        self._names: dict[str, CronNames] = {}
        self._lock = threading.Lock()

    def views(self) -> list[View]:
        """All of them."""
        return [
            View(path="/crons", title="Crons", summary="Crons: expression, zone, last and next fire",
                 load=self.crons, template="crons.html", parameters=(SCHEDULER, *PAGED), cli="lockstep cron ls"),
            View(path="/crons/try", title="Try a cron", summary="What an expression means and when it fires next",
                 load=self.tried, template="cron_try.html", parameters=(TYPE, EXPRESSION, TZ, DST),
                 cli="lockstep cron check {expression} --type {type} --tz {tz} --dst {dst}", is_live=False),
            View(path="/crons/{tenant}/{id}", title="Cron", summary="One cron: next fires, ticks with outcome, runs",
                 load=self.cron, template="cron.html", parameters=(SCHEDULER, SCANNED),
                 cli="lockstep cron runs {id} --tenant {tenant}"),
        ]  # fmt: skip

    def acts(self) -> list[Act]:
        """All of them."""
        fields, page = (SCHEDULER, OF_TYPE), "/crons/{tenant}/{id}"
        return [
            Act(path=f"{page}/run", title="Run now", summary="Fire a cron now, beside its ticks", run=self.run,
                preview=self._would_run, fields=fields, done=page,
                cli="lockstep cron trigger {id} --tenant {tenant}"),
            Act(path=f"{page}/backfill", title="Backfill", summary="Fire a cron for ticks of a time that has passed",
                run=self.backfill, preview=self._would_backfill, fields=(*fields, FROM, TO), done=page,
                cli="lockstep cron backfill {id} --from {from} --tenant {tenant}"),
            Act(path=f"{page}/pause", title="Pause ticks", summary="Have the ticks of a cron skipped", run=self.pause,
                preview=self._would_pause, fields=fields, done=page, cli="lockstep cron pause {id} --tenant {tenant}"),
            Act(path=f"{page}/resume", title="Resume ticks", summary="Let a cron tick again", run=self.resume,
                preview=self._would_resume, fields=fields, done=page,
                cli="lockstep cron resume {id} --tenant {tenant}"),
            Act(path=f"{page}/remove", title="Remove", summary="Remove a cron", run=self.remove,
                preview=self._would_remove, fields=fields, done="/crons", role=Role.ADMIN, confirm="id",
                cli="lockstep cron rm {id} --tenant {tenant}"),
        ]  # fmt: skip

    # views

    def crons(self, asked: Asked) -> Tree:
        """One page of crons; only the rows of the page are read."""
        names = self._schedulers.names()
        if not names and not asked.values["scheduler"]:
            _, page = paged([], asked)
            return {"schedulers": [], "scheduler": None, "crons": [], "page": page, "is_complete": True}
        scheduler = self._schedulers.chosen(asked)
        known = self._names_of(scheduler).look()
        shown, page = paged(known.names, asked)
        now = self._now()
        rows = [cron_row(row, now) for name in shown if (row := _row(scheduler, known.parts[name])) is not None]
        return {"schedulers": names, "scheduler": scheduler.name, "crons": rows, "page": page,
                "is_complete": known.is_complete}  # fmt: skip

    def _names_of(self, scheduler: Scheduler) -> CronNames:
        with self._lock:
            known = self._names.get(scheduler.name)
            if known is None or known.scheduler is not scheduler:
                known = self._names[scheduler.name] = CronNames(scheduler)
        return known

    def cron(self, asked: Asked) -> Tree:
        """One cron, or those of several dialects that share its id."""
        scheduler, rows = self._rows(asked)
        tenant = scheduler.tenants().get(rows[0].tenant)
        return {
            "scheduler": scheduler.name, "tenant": rows[0].tenant, "id": rows[0].id,
            "scanned": asked.values["history"], "tenant_is_paused": tenant is not None and tenant.paused,
            "node": owner_of(scheduler, scheduler.client.shard_of(rows[0].tenant, rows[0].id)),
            "crons": [self._detail(scheduler, row, asked.values["history"]) for row in rows],
        }  # fmt: skip

    def _detail(self, scheduler: Scheduler, row: CronRow, scanned: int) -> dict[str, Any]:
        now, zone, cron = self._now(), zone_of(row), parse(row.expression, row.type)
        fires = next_fires(cron, zone, now, NEXT)
        records = records_of(scheduler.bus, scheduler.streams, row.tenant, row.name, scanned=scanned)
        ticks = [tick_row(record) for record in reversed(records) if record["what"] in _TICKS]
        runs = scheduler.client.runs(row, RUNS) if row.log_granularity else []
        return {
            **cron_row(row, now), "description": cron.describe(), "next": fires,
            "notes": zone_notes(cron, zone, now, [fire["at_ms"] for fire in fires]),
            "misfire": row.policy.misfire.value, "grace_s": row.policy.grace_s, "catch_up_s": row.policy.catch_up_s,
            "jitter_s": row.jitter_s, "dst": row.dst, "running": row.running, "updated_ms": row.updated,
            "log": row.log_granularity, "payload": None if row.payload is None else row.payload.decode(),
            "ticks": ticks[:TICKS], "ticks_left_out": max(0, len(ticks) - TICKS),
            "runs": [run_row(run) for run in runs],
        }  # fmt: skip

    def tried(self, asked: Asked) -> Tree:
        """What an expression means and when it fires next, or what is wrong with it."""
        given = asked.values
        return tried(given["expression"].strip(), given["type"], given["tz"].strip(), given["dst"], self._now())

    def _now(self) -> int:
        return self._site.now_ms

    def _rows(self, asked: Asked) -> tuple[Scheduler, list[CronRow]]:
        scheduler = self._schedulers.chosen(asked)
        tenant, name, kind = asked.names["tenant"], asked.names["id"], asked.values.get("type", ALL)
        rows = [row for row in scheduler.client.crons(tenant, name) if kind in (ALL, row.type)]
        if not rows:
            raise NotFound(what=f"{'Cron' if kind == ALL else f'{kind} cron'} of tenant {tenant!r}", name=name)
        return scheduler, rows

    # acts

    def run(self, asked: Asked) -> Tree:
        """Fire now."""
        return self._ask(asked, TriggerCron)

    def backfill(self, asked: Asked) -> Tree:
        """Fire for the nominal ticks of a range."""
        scheduler, _, start, stop = self._range(asked)
        kind = asked.values["type"]
        kind, tenant = (ALL_TYPES if kind == ALL else kind), asked.names["tenant"]
        return {"ticks": scheduler.backfill(asked.names["id"], start, stop, tenant=tenant, type=kind)}

    def _range(self, asked: Asked) -> tuple[Scheduler, list[CronRow], datetime, datetime]:
        """The crons that are meant, and the range of a backfill; BadArgument for an empty one."""
        scheduler, rows = self._rows(asked)
        now = self._now()
        start = time_ns(asked.values["from"], now, "from") // 10**6
        stop = time_ns(asked.values["to"], now, "to") // 10**6 if asked.values["to"] else now
        if start >= stop:
            raise BadArgument(name="from", value=asked.values["from"], reason=f"it must be before {java_text(stop)}")
        return scheduler, rows, to_datetime(start), to_datetime(stop)

    def _would_backfill(self, asked: Asked) -> Tree:
        scheduler, rows, start, stop = self._range(asked)
        shown, total = [], 0
        for row in rows:
            count = scheduler.would_backfill(row.id, start, stop, tenant=row.tenant, type=row.type)
            first = next_fires(parse(row.expression, row.type), zone_of(row), from_datetime(start) - 1, SKIPPED_SHOWN)
            total += count
            times = [fire["local"] for fire in first if fire["at_ms"] < from_datetime(stop)]
            shown.append({"cron": row.id, "type": row.type, "ticks": count, "the first": ", ".join(times) or "none"})
        many = "1 event fires" if total == 1 else f"{total:,} events fire"
        span = f"from {java_text(from_datetime(start))} until {java_text(from_datetime(stop))}"
        return {"effect": f"{many} now, one for each tick {span}, also for ticks that fired already.", "rows": shown}

    def pause(self, asked: Asked) -> Tree:
        """Have ticks skipped."""
        return self._ask(asked, partial(PauseCron, paused=True))

    def resume(self, asked: Asked) -> Tree:
        """Let it tick."""
        return self._ask(asked, partial(PauseCron, paused=False))

    def remove(self, asked: Asked) -> Tree:
        """Remove it."""
        done = self._ask(asked, RemoveCron)
        self._names_of(self._schedulers.chosen(asked)).forget()
        return done

    def _ask(self, asked: Asked, request: Any) -> Tree:
        scheduler, rows = self._rows(asked)
        kind = asked.values["type"]
        wanted = request(asked.names["tenant"], asked.names["id"], ALL_TYPES if kind == ALL else kind)
        [answer] = scheduler.client.ask([wanted])
        if answer["verdict"] == "UNKNOWN":
            raise NotFound(what=f"Cron of tenant {asked.names['tenant']!r}", name=asked.names["id"])
        return {"types": [row.type for row in rows]}

    def _would_run(self, asked: Asked) -> Tree:
        scheduler, rows = self._rows(asked)
        tenant = scheduler.tenants().get(rows[0].tenant)
        said = [f"An event for tenant {rows[0].tenant} fires now, beside the ticks, which go on as before."]
        if tenant is None:
            said.append("The tenant is not registered, so the event waits until it is.")
        elif tenant.paused:
            said.append("The tenant is paused, so the event waits until it is resumed.")
        running = [row for row in rows if row.running is not None]
        if running:
            said.append("An earlier tick is still being delivered.")
        return self._effect(scheduler, rows, said)

    def _would_pause(self, asked: Asked) -> Tree:
        scheduler, rows = self._rows(asked)
        if all(row.paused for row in rows):
            return {"effect": "Nothing: it is paused already."}
        said = ["Its ticks are skipped from now on, and the history says so; they are not made up for later."]
        return self._effect(scheduler, rows, said)

    def _would_resume(self, asked: Asked) -> Tree:
        scheduler, rows = self._rows(asked)
        if not any(row.paused for row in rows):
            return {"effect": "Nothing: it is not paused."}
        return self._effect(scheduler, rows, ["It fires again from its next tick on; skipped ticks stay skipped."])

    def _would_remove(self, asked: Asked) -> Tree:
        scheduler, rows = self._rows(asked)
        said = ["It is removed for good and fires no more. Events that it has fired, and its history, stay."]
        return self._effect(scheduler, rows, said)

    def _effect(self, scheduler: Scheduler, rows: Sequence[CronRow], said: list[str]) -> Tree:
        shard = scheduler.client.shard_of(rows[0].tenant, rows[0].id)
        if owner_of(scheduler, shard) is None:
            said.append("No node owns its shard now, so the request waits until one does:"
                        f" lockstep schedule serve --name {scheduler.name}.")  # fmt: skip
        now = self._now()
        shown = []
        for row in rows:
            following = next_fires(parse(row.expression, row.type), zone_of(row), now, SKIPPED_SHOWN)
            shown.append({
                "cron": row.id, "type": row.type, "expression": row.expression, "zone": row.tz,
                "paused": "yes" if row.paused else "no",
                "next ticks": ", ".join(java_text(fire["at_ms"]) for fire in following) or "never",
            })  # fmt: skip
        return {"effect": " ".join(said), "rows": shown}


@dataclass(frozen=True, slots=True)
class Names:
    """The names of crons in order, and the tenant, id and type of each. Not complete while they are being read."""

    names: Sequence[str] = ()
    parts: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    is_complete: bool = False


class CronNames:
    """The names of all crons of a scheduler, some seconds old.

    A store has them in no order, so all rows are read for them, by a thread of their own: the first page is shown
    before all of a hundred thousand are known.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._changed = threading.Condition()
        self._known = Names()
        self._error: LockstepError | None = None
        self._until = 0.0
        self._is_reading = False

    def look(self) -> Names:
        """What is known by now; the first look waits a moment for all of it."""
        runtime = self.scheduler.bus.runtime
        with self._changed:
            if not self._is_reading and (not self._known.is_complete or runtime.monotonic() >= self._until):
                self._is_reading, self._error = True, None
                threading.Thread(target=self._read, name="lockstep-cron-names", daemon=True).start()
            self._changed.wait_for(lambda: self._known.is_complete or not self._is_reading, FIRST_S)
            if self._error is not None:
                raise self._error
            return self._known

    def forget(self) -> None:
        """Have the next look read them again."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_reading, FIRST_S)
            self._known = Names()

    def _read(self) -> None:
        runtime = self.scheduler.bus.runtime
        begun, found, error = runtime.monotonic(), None, None
        try:
            found = self._all()
        except LockstepError as fault:
            error = fault
        finally:
            now = runtime.monotonic()
            with self._changed:
                self._known = self._known if found is None else found
                self._error, self._is_reading = error, False
                self._until = now + max(NAMES_S, NAMES_COST * (now - begun))
                self._changed.notify_all()

    def _all(self) -> Names:
        parts: dict[str, tuple[str, str, str]] = {}
        for shard in range(len(self.scheduler.bus.logs(self.scheduler.streams.requests))):
            for row in self.scheduler.store.crons(shard):
                parts[row.name] = (row.tenant, row.id, row.type)
                if len(parts) % AT_ONCE == 0 and not self._known.is_complete:
                    self._known = Names(sorted(parts), dict(parts))
        return Names(sorted(parts), parts, is_complete=True)


def _row(scheduler: Scheduler, parts: tuple[str, str, str]) -> CronRow | None:
    """A cron as it is now; None if it was removed meanwhile."""
    tenant, name, kind = parts
    return next((row for row in scheduler.client.crons(tenant, name) if row.type == kind), None)


def cron_row(row: CronRow, now: int) -> dict[str, Any]:
    """A cron in a list. A paused one has no next fire."""
    following = None if row.paused else parse(row.expression, row.type).next(to_datetime(now), zone_of(row))
    return {
        "tenant": row.tenant, "id": row.id, "type": row.type, "expression": row.expression, "zone": row.tz,
        "next_ms": None if following is None else from_datetime(following), "last_ms": row.executed,
        "paused": row.paused, "overlap": row.policy.overlap.value,
    }  # fmt: skip


def next_fires(cron: Cron, zone: Zone, now: int, count: int) -> list[dict[str, Any]]:
    """The next times, and what the clock of the zone shows then."""
    found: list[dict[str, Any]] = []
    at = cron.next(to_datetime(now), zone)
    while at is not None and len(found) < count:
        local = at.astimezone(UTC if zone.is_utc else zone.info)
        found.append({"at_ms": from_datetime(at), "local": f"{local:%a %Y-%m-%d %H:%M:%S} {local.tzname()}"})
        at = cron.next(at, zone)
    return found


def zone_notes(cron: Cron, zone: Zone, now: int, fires: Sequence[int]) -> list[str]:
    """What changes of the clock mean for the next fires, or when the clock changes next."""
    if zone.is_utc:
        return ["UTC: the clock never changes."]
    until = (fires[-1] if fires else now) // 1000
    period = zone.period(now // 1000)
    found: list[str] = []
    while period.stop <= until and len(found) < NOTES_MAX:
        period = zone.period(period.stop)
        if period.before != period.offset:
            found.append(_change_note(cron, zone, period.start, period.before, period.offset))
    if not found and period.stop - now // 1000 < 366 * 86_400:
        following = zone.period(period.stop)
        if following.before != following.offset:
            date = _at(following.start)
            way = "forward" if following.has_gap else "back"
            return [f"The clock of {zone.name} goes {way} on {date:%Y-%m-%d %H:%M} UTC, after these fires."]
    return found or [f"The clock of {zone.name} does not change until then."]


def _change_note(cron: Cron, zone: Zone, start: int, before: int, after: int) -> str:
    old, new = _at(start + before), _at(start + after)
    way = "forward" if after > before else "back"
    said = f"On {_at(start):%Y-%m-%d at %H:%M} UTC the clock of {zone.name} goes {way} from {old:%H:%M} to {new:%H:%M}"
    return f"{said}: {_dst_rule(cron, zone, is_gap=after > before)}."


def _dst_rule(cron: Cron, zone: Zone, *, is_gap: bool) -> str:
    if zone.dst == "literal":
        return "times in between never come and do not fire" if is_gap else "times in between come and fire twice"
    if cron.hours.bit_count() == 24:
        return "this cron names every hour and goes on in real time"
    if is_gap:
        return "a time in between fires once, at the first instant after the change"
    return "a time in between fires at its first pass only"


def _at(second: int) -> datetime:
    return _EPOCH + timedelta(seconds=second)


def tried(expression: str, kind: str, tz: str, dst: str, now: int) -> dict[str, Any]:
    """What can be said of an expression; `is_valid` is None where none was given."""
    about: dict[str, Any] = {"expression": expression, "type": kind, "tz": tz, "dst": dst, "is_valid": None,
                             "reason": None, "description": None, "next": [], "notes": []}  # fmt: skip
    if not expression:
        return about
    try:
        zone, cron = Zone(tz, "literal" if dst == "literal" else "once"), parse(expression, kind)
    except CronInvalid as error:
        return {**about, "is_valid": False, "reason": str(error.params["reason"])}
    except (ZoneUnknown, BadArgument) as error:
        said = f"{type(error).template} {type(error).advice}".format(**error.params)
        return {**about, "is_valid": False, "reason": said.strip()}
    fires = next_fires(cron, zone, now, TRIED)
    notes = zone_notes(cron, zone, now, [fire["at_ms"] for fire in fires])
    if len(fires) < TRIED:
        notes.append("It does not fire again within 100 years." if fires else "It never fires within 100 years.")
    return {**about, "is_valid": True, "description": cron.describe(), "next": fires, "notes": notes}


def tick_row(record: Mapping[str, Any]) -> dict[str, Any]:
    """A tick, or several in a row that were skipped for one reason."""
    return {
        "scheduled_ms": record["eventTime"], "ticks": record.get("count", 1),
        "until_ms": record.get("lastTime"), "at_ms": record["at"], "outcome": record["what"],
        "late_s": record["lateMs"] / 1000 if "lateMs" in record else None, "node": record.get("node"),
        "attempt": record.get("attempt"), "next_try_ms": record.get("next"),
        "reason": record.get("reason") or record.get("error"),
    }  # fmt: skip


def run_row(run: Run) -> dict[str, Any]:
    """A logged run."""
    return {"bucket_ms": run.bucket, "at_ms": run.at, "event": json.loads(run.event)}
