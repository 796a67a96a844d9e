"""Our own routes for crons: set up, list, look ahead and back, pause, trigger and backfill, and check expressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lockstep.core.agenda import Verdict
from lockstep.cron import Zone, parse
from lockstep.errors import BadArgument, CronInvalid
from lockstep.schedule.cron_ticks import count_ticks
from lockstep.schedule.requests import ALL_TYPES, PauseCron, PutCron, RemoveCron, Request, TriggerCron
from lockstep.schedule.rows import CronRow
from lockstep.schedule.times import parse_time, to_datetime
from lockstep.schedule.validation import CRON_FIELDS, checked_cron, cron_type
from lockstep.server.bodies import Reply, reply
from lockstep.server.routes import Call, Handle, Route, Work
from lockstep.server.schedule import examples
from lockstep.server.schedule.documents import CronNotFound, parse_object, payload_form, reason_of
from lockstep.server.schedule.site import ScheduleSite, parse_moment
from lockstep.server.schedule.views import cron_view, next_ticks, next_times, run_view

PATH = "/v2/crons/{tenant}/{id}"
NEXT_DEFAULT, NEXT_MAX = 5, 1000
RUNS_DEFAULT, RUNS_MAX = 100, 1000
LISTED_DEFAULT, LISTED_MAX = 100, 1000
DEFAULT_TYPE = "UNIX"
CHECK_FIELDS = frozenset({"expression", "type", "tz", "dst", "from", "count"})
BACKFILL_FIELDS = frozenset({"from", "to"})
OK = {"status": "OK"}


class CronRoutes:
    """The routes for crons; those that name no type cover the crons of all types of the tenant and id."""

    def __init__(self, site: ScheduleSite) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """All of them."""
        paging = {"tenant": "only of this tenant", "cursor": "`next` of the page before",
                  "limit": f"crons of a page, 1 to {LISTED_MAX}; {LISTED_DEFAULT} by default"}  # fmt: skip
        return [
            Route(method="GET", path="/v2/crons", handle=self.page, tag="crons", query=paging,
                  summary="Crons by tenant and id, in pages",
                  answers={200: {"crons": [examples.CRON_SHOWN], "next": None}}),
            Route(method="POST", path="/v2/crons/check", handle=self.check, tag="crons", body=examples.CRON_CHECK,
                  summary="Whether an expression is valid, what it means, and when it fires next",
                  answers={200: examples.CRON_CHECKED}),
            *self._both("PUT", "", self.put, "Set up a cron, or replace it", body=examples.CRON_PUT,
                        answers={200: examples.CRON_SHOWN}),
            *self._both("GET", "", self.get, "The crons of a tenant and id", work=Work.READ,
                        answers={200: {"crons": [examples.CRON_SHOWN]}, 404: examples.ERROR}),
            *self._both("DELETE", "", self.delete, "Remove a cron", answers={200: OK, 404: examples.ERROR}),
            *self._both("GET", "/next", self.next, "When a cron fires next", work=Work.READ,
                        query={"count": f"1 to {NEXT_MAX}; {NEXT_DEFAULT} by default", "from": "now by default"},
                        answers={200: examples.CRON_NEXT, 404: examples.ERROR}),
            *self._both("GET", "/runs", self.runs, "Logged runs, newest first", work=Work.READ,
                        query={"limit": f"1 to {RUNS_MAX}; {RUNS_DEFAULT} by default"},
                        answers={200: {"runs": [examples.RUN]}, 404: examples.ERROR}),
            *self._both("POST", "/pause", self._paused(True), "Skip a cron's ticks until it is resumed",
                        answers={200: OK, 404: examples.ERROR}),
            *self._both("POST", "/resume", self._paused(False), "Let a cron tick again",
                        answers={200: OK, 404: examples.ERROR}),
            *self._both("POST", "/trigger", self.trigger, "Fire a cron now, beside its ticks",
                        answers={200: OK, 404: examples.ERROR}),
            *self._both("POST", "/backfill", self.backfill, "Fire every nominal tick after `from` and up to `to`, now",
                        body=examples.BACKFILL,
                        answers={200: {**OK, "ticks": 7}, 400: examples.ERROR, 404: examples.ERROR}),
        ]  # fmt: skip

    def _both(
        self, method: str, end: str, handle: Handle, summary: str, *, work: Work = Work.CHANGE, **more: Any
    ) -> list[Route]:
        """A route without and with the type of the cron."""
        return [
            Route(method=method, path=f"{start}{end}", handle=handle, summary=summary, work=work, tag="crons", **more)
            for start in (PATH, f"{PATH}/{{type}}")
        ]

    def page(self, call: Call) -> Reply:
        """In the order of tenant, id and type."""
        limit, tenant = call.whole("limit", LISTED_DEFAULT, 1, LISTED_MAX), call.query.get("tenant")
        after = call.query.get("cursor", "")
        rows = [row for row in self._site.client.all_crons() if tenant in (None, row.tenant) and row.name > after]
        more = len(rows) > limit
        return reply({"crons": list(map(cron_view, rows[:limit])), "next": rows[limit - 1].name if more else None})

    def check(self, call: Call) -> Reply:
        """An expression that is not valid is an answer, not an error."""
        fields = parse_object(call.body, CHECK_FIELDS)
        expression, kind = _text(fields, "expression", None), _text(fields, "type", DEFAULT_TYPE)
        tz, dst = _text(fields, "tz", "UTC"), _text(fields, "dst", "once")
        if dst not in ("once", "literal"):
            raise BadArgument(name="dst", value=dst, reason="it must be one of once, literal")
        count = fields.get("count", NEXT_DEFAULT)
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= NEXT_MAX:
            raise BadArgument(name="count", value=count, reason=f"it must be a whole number from 0 to {NEXT_MAX}")
        start = self._site.now if fields.get("from") is None else parse_time(_text(fields, "from", None))
        Zone(tz)
        cron_type(kind)
        try:
            cron = parse(expression, kind)
        except CronInvalid as error:
            return reply({"valid": False, "message": reason_of(error)})
        times = next_times(expression, kind, tz, dst, to_datetime(start), count)
        return reply({"valid": True, "description": cron.describe(), "next": times})

    def put(self, call: Call) -> Reply:
        """The type is in the path or the body; UNIX by default."""
        fields = parse_object(call.body, CRON_FIELDS)
        for name, text in call.names.items():
            if fields.setdefault(name, text) != text:
                raise BadArgument(name=name, value=fields[name], reason="it is another one than in the path")
        fields.setdefault("type", DEFAULT_TYPE)
        form = payload_form(fields)
        row = replace(checked_cron(fields, self._site.client.tenants().__contains__), form=form)
        self._site.ask([PutCron(row)])
        stored = [one for one in self._site.client.crons(row.tenant, row.id) if one.type == row.type]
        return reply(cron_view(stored[0] if stored else row))

    def get(self, call: Call) -> Reply:
        """One cron if the type is named, else all of the id."""
        rows = self._rows(call)
        return reply(cron_view(rows[0]) if "type" in call.names else {"crons": list(map(cron_view, rows))})

    def delete(self, call: Call) -> Reply:
        """404 if there was none."""
        return self._ask(call, RemoveCron)

    def next(self, call: Call) -> Reply:
        """In UTC."""
        count = call.whole("count", NEXT_DEFAULT, 1, NEXT_MAX)
        start = parse_moment(call.query.get("from"), "from")
        start = self._site.now if start is None else start
        rows = self._rows(call)
        return reply({"crons": [{"type": row.type, "next": next_ticks(row, start, count)} for row in rows]})

    def runs(self, call: Call) -> Reply:
        """Only crons with a logGranularity have any."""
        limit = call.whole("limit", RUNS_DEFAULT, 1, RUNS_MAX)
        runs = [run for row in self._rows(call) for run in self._site.client.runs(row, limit)]
        newest = sorted(runs, key=lambda run: run.at, reverse=True)[:limit]
        return reply({"runs": list(map(run_view, newest))})

    def _paused(self, paused: bool) -> Handle:
        return lambda call: self._ask(call, lambda tenant, name, kind: PauseCron(tenant, name, kind, paused))

    def trigger(self, call: Call) -> Reply:
        """404 if there is none."""
        return self._ask(call, TriggerCron)

    def backfill(self, call: Call) -> Reply:
        """Times are instants in ISO 8601; 400 if there are more than 10,000 ticks."""
        fields = parse_object(call.body, BACKFILL_FIELDS)
        start, stop = (parse_time(_text(fields, name, None)) // 1000 for name in ("from", "to"))
        if start >= stop:
            raise BadArgument(name="to", value=fields["to"], reason="it must be after from")
        ticks = count_ticks(self._rows(call), start, stop, self._site.now, "to")
        self._ask(call, lambda tenant, name, kind: TriggerCron(tenant, name, kind, start, stop))
        return reply({**OK, "ticks": ticks})

    def _ask(self, call: Call, made: Callable[[str, str, str], Request]) -> Reply:
        kind = _type_of(call)
        [answer] = self._site.ask([made(call.names["tenant"], call.names["id"], kind)])
        if answer["verdict"] == Verdict.UNKNOWN:
            raise _missing(call)
        return reply(OK)

    def _rows(self, call: Call) -> list[CronRow]:
        kind = _type_of(call)
        rows = self._site.client.crons(call.names["tenant"], call.names["id"])
        rows = [row for row in rows if kind in (ALL_TYPES, row.type)]
        if not rows:
            raise _missing(call)
        return rows


def _type_of(call: Call) -> str:
    kind = call.names.get("type", ALL_TYPES)
    if "type" in call.names:
        cron_type(kind)
    return kind


def _missing(call: Call) -> CronNotFound:
    return CronNotFound(**{"type": ALL_TYPES, **call.names})


def _text(fields: dict[str, Any], name: str, default: str | None) -> str:
    value = fields.get(name, default)
    if not isinstance(value, str):
        raise BadArgument(name=name, value=value, reason="it must be text")
    return value
