"""BigBen's routes: its paths, shapes, codes and messages. docs/reference/schedule-http.md has where ours differ."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from lockstep.core.agenda import Option, Upsert
from lockstep.errors import BadArgument
from lockstep.schedule import bodies
from lockstep.schedule.requests import ALL_TYPES, DryRun, PutCron, RemoveCron
from lockstep.schedule.times import java_text
from lockstep.schedule.validation import checked_cron, cron_type, event_id
from lockstep.server.access import Role
from lockstep.server.bodies import Reply, parse_json, reply, rows_reply
from lockstep.server.errors import BadBody
from lockstep.server.routes import ByName, Call, Route, Work
from lockstep.server.schedule import examples
from lockstep.server.schedule.documents import parse_duration, parse_object
from lockstep.server.schedule.site import EVENTS_MAX, ScheduleSite, items_status
from lockstep.server.schedule.views import bigben_cron, describe, minute_of

GENERATED_MAX = 100_000
TENANT_FIELDS = frozenset({"tenant", "type", "props"})
GENERATION_FIELDS = frozenset({"offset", "period", "numEvents", "tenant"})
OK = {"status": "OK"}
NOT_FOUND = {"status": "not found"}


class BigBenRoutes:
    """The routes that are compatible with BigBen."""

    def __init__(self, site: ScheduleSite) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """All of them."""
        found = {"id": "the event's id", "tenant": "its tenant"}
        return [
            Route(method="GET", path="/ping", handle=self.ping, work=Work.INLINE, strict=False,
                  summary="Whether the server answers", answers={200: OK}),
            Route(method="GET", path="/events/cluster", handle=self.cluster, strict=False,
                  summary="All nodes, and which of them is the Master", answers={200: ByName(examples.CLUSTER)}),
            Route(method="POST", path="/events/tenant/register", handle=self.register, work=Work.CHANGE, strict=False,
                  summary="Register a tenant, or give it other settings; answers with all tenants",
                  role=Role.ADMIN, body=examples.TENANT,
                  answers={200: ByName(mail=examples.TENANT_MASKED), 400: examples.NO_TENANT}),
            Route(method="GET", path="/events/tenants", handle=self.tenants, strict=False,
                  summary="All tenants, without their secrets", answers={200: ByName(mail=examples.TENANT_MASKED)}),
            Route(method="POST", path="/events/schedule", handle=self.schedule, work=Work.CHANGE, strict=False,
                  summary="Schedule, change and remove events: 206 if some were rejected, 400 if all were",
                  body=[examples.EVENT], answers={200: [examples.ACCEPTED], 206: [examples.ACCEPTED, examples.REJECTED],
                                                  400: [examples.REJECTED]}),
            Route(method="GET", path="/events/find", handle=self.find, query=found, strict=False,
                  summary="One event", answers={200: examples.FOUND, 404: NOT_FOUND, 400: {"message": "null id"}}),
            Route(method="POST", path="/events/dryrun", handle=self.dry_run, work=Work.CHANGE, query=found,
                  strict=False, summary="Deliver an event now, and change nothing",
                  answers={200: examples.FOUND, 404: NOT_FOUND}),
            Route(method="POST", path="/generation/random", handle=self.generate, work=Work.CHANGE, strict=False,
                  summary="Schedule events at random times, for load tests", body=examples.GENERATION,
                  answers={200: ByName({"2027-01-01T00:00Z": 600, "2027-01-01T00:01Z": 400})}),
            Route(method="POST", path="/cron", handle=self.put_cron, work=Work.CHANGE, strict=False,
                  summary="Set up a cron, or replace the one of the same tenant, id and type", body=examples.CRON,
                  answers={200: {"cron": examples.CRON, "description": "every 5 seconds"},
                           400: {"message": "unknown tenant: mail"}}),
            Route(method="GET", path="/cron/{tenant}/{id}", handle=self.crons, strict=False,
                  summary="The crons of a tenant and id, of all types",
                  answers={200: [{"cron": {**examples.CRON, "lastUpdated": "2026-12-31T23:58:07.250Z"},
                                  "description": "every 5 seconds"}]}),
            Route(method="DELETE", path="/cron/{tenant}/{id}/{type}", handle=self.remove_cron, work=Work.CHANGE,
                  strict=False, summary="Remove a cron of one type, or of all if the type is *",
                  answers={200: OK}),
        ]  # fmt: skip

    def ping(self, _call: Call) -> Reply:
        """Always OK."""
        return reply(OK)

    def cluster(self, _call: Call) -> Reply:
        """Nodes by address; the one that owns the stream of nodes is the Master."""
        found: dict[str, str] = {}
        for card in self._site.nodes():
            address = f"[{card['host']}]:{card['port']}"
            key = address if address not in found else f"{address} {card['node']}"
            found[key] = "Master" if card["master"] else "Slave"
        return reply(found)

    def register(self, call: Call) -> Reply:
        """A tenant is checked before anything is stored."""
        fields = parse_object(call.body, TENANT_FIELDS)
        self._site.scheduler.register(fields.get("tenant"), fields.get("type"), fields.get("props"))  # type: ignore[arg-type]
        return self.tenants(call)

    def tenants(self, _call: Call) -> Reply:
        """Secrets are masked."""
        return reply({name: tenant.masked() for name, tenant in self._site.client.tenants().items()})

    def schedule(self, call: Call) -> Reply:
        """The answers are in the order of the requests."""
        sent = parse_json(call.body)
        if not isinstance(sent, list):
            raise BadBody(reason="it must be a JSON array of events")
        items = self._site.carry_out(sent)
        return rows_reply(items, items_status(items))

    def find(self, call: Call) -> Reply:
        """Times are in UTC."""
        event = self._site.client.find(*_named(call))
        return reply(NOT_FOUND, 404) if event is None else reply(bodies.found(event))

    def dry_run(self, call: Call) -> Reply:
        """The delivery begins, and the answer does not wait for it; its failure is in the history."""
        tenant, name = _named(call)
        event = self._site.client.find(tenant, name)
        if event is None:
            return reply(NOT_FOUND, 404)
        if tenant not in self._site.client.tenants():
            raise _unknown_tenant(tenant)
        [answer] = self._site.ask([DryRun(tenant, name)])
        return reply(NOT_FOUND, 404) if answer["event"] is None else reply(bodies.found(event))

    def generate(self, call: Call) -> Reply:
        """Times are spread evenly over the period, which begins at the offset after the running minute's start."""
        fields = parse_object(call.body, GENERATION_FIELDS)
        tenant, count = fields.get("tenant"), fields.get("numEvents")
        offset, period = (parse_duration(fields.get(name), name) for name in ("offset", "period"))
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= GENERATED_MAX:
            reason = f"it must be a whole number from 0 to {GENERATED_MAX}"
            raise BadArgument(name="numEvents", value=count, reason=reason)
        if period < 0:
            raise BadArgument(name="period", value=fields.get("period"), reason="it must not be negative")
        if not isinstance(tenant, str) or tenant not in self._site.client.tenants():
            raise _unknown_tenant(tenant)
        now = self._site.now
        start = minute_of(now) + offset
        counts: Counter[int] = Counter()
        for first in range(0, count, EVENTS_MAX):
            size = min(EVENTS_MAX, count - first)
            asked = [self._random_event(tenant, start, period) for _ in range(size)]
            self._site.ask(asked)
            counts.update(minute_of(one.at) for one in asked)
        return reply({java_text(bucket): counts[bucket] for bucket in sorted(counts)})

    def _random_event(self, tenant: str, start: int, period: int) -> Upsert:
        runtime = self._site.runtime
        at = start + int(runtime.random() * period)
        name = str(UUID(bytes=runtime.new_id(), version=4))
        return Upsert(tenant, name, at, event_id(runtime.new_id, Option.FULL_EVENT))

    def put_cron(self, call: Call) -> Reply:
        """The answer describes when it fires."""
        row = checked_cron(parse_object(call.body), self._site.client.tenants().__contains__)
        self._site.ask([PutCron(row)])
        return reply({"cron": bigben_cron(row), "description": describe(row)})

    def crons(self, call: Call) -> Reply:
        """No crons are an empty array."""
        rows = self._site.client.crons(call.names["tenant"], call.names["id"])
        return reply([{"cron": bigben_cron(row, stored=True), "description": describe(row)} for row in rows])

    def remove_cron(self, call: Call) -> Reply:
        """OK also if there was none."""
        kind = call.names["type"]
        if kind != ALL_TYPES:
            cron_type(kind)
        self._site.ask([RemoveCron(call.names["tenant"], call.names["id"], kind)])
        return reply(OK)


def _named(call: Call) -> tuple[str, str]:
    for name in ("id", "tenant"):
        text = call.query.get(name, "").strip()
        if not text or "\0" in text:
            raise BadArgument(name=name, value=text, reason=f"null {name}")
    return call.query["tenant"], call.query["id"]


def _unknown_tenant(tenant: Any) -> BadArgument:
    return BadArgument(name="tenant", value=tenant, reason=f"unknown tenant: {tenant}")
