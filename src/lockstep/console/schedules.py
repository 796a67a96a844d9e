"""Scheduled events, tenants and scheduler nodes; crons are in `crons`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.console.crons import CronViews
from lockstep.console.pages import link, noun, part_of_path
from lockstep.console.port import PAGED, Act, Asked, Kind, Parameter, Pillar, Problem, Site, Tree, View, paged
from lockstep.console.schedulers import (
    COUNTED_MAX,
    SCHEDULER,
    TRIES_TOLD,
    Backlog,
    Health,
    Schedulers,
    count_of,
    cron_of_tick,
)
from lockstep.core.agenda import UNFIRED, Event, Status
from lockstep.errors import BadArgument, LockstepError, NotFound
from lockstep.schedule.bodies import payload_text
from lockstep.schedule.history import Explanation, explain, owner_of
from lockstep.schedule.scheduler import Cancelled, Scheduler, TooLate
from lockstep.schedule.store.port import Filter
from lockstep.schedule.tenants import Tenant
from lockstep.schedule.times import java_text, parse_time, span_ms

ANY, OVERDUE, UNFIRED_WORD = "any", "overdue", "unfired"
STATUSES = (ANY, OVERDUE, UNFIRED_WORD, *(status.name.lower() for status in Status))
BEGIN = "begin"
HISTORY, HISTORY_MAX = 20_000, 1_000_000
SOON_MS = 3_600_000
PAYLOAD_SHOWN = 16_384
SCHEDULERS_LOOKED_AT = 16
_SPAN = re.compile(r"[0-9.]+[a-z][0-9.a-z]*")

STATUS = Parameter(name="status", label="Status", kind=Kind.CHOICE, choices=STATUSES, default=ANY,
                   help="overdue: due by now and not fired; unfired: waiting or to be tried again",
                   option="--status")  # fmt: skip
TENANT = Parameter(name="tenant", label="Tenant", help="events of this tenant; of all if empty", option="--tenant")
FROM = Parameter(name="from", label="From", default="1h",
                 help="scheduled at or after: a time as 2027-01-31T04:00Z, 1h (ago), or 'begin'")  # fmt: skip
TO = Parameter(name="to", label="To", help="scheduled before: a time, or 1h (ago); no limit if empty", option="--to")
CURSOR = Parameter(name="cursor", label="Page", help="`next` of the page before", option="--cursor")
ROWS = Parameter(name="size", label="Rows", kind=Kind.WHOLE, default=50, least=1, most=500, help="rows of a page")
SCANNED = Parameter(name="history", label="History", kind=Kind.WHOLE, default=HISTORY, least=1, most=HISTORY_MAX,
                    help="records of the history to look at, from its end", option="--history")  # fmt: skip


class ScheduleViews:
    """What the console shows of schedulers, and changes. Close it."""

    def __init__(self, site: Site, stores: Mapping[str, str] | None = None) -> None:
        self._site = site
        self.schedulers = Schedulers(site, stores)
        self._crons = CronViews(site, self.schedulers)

    def pillar(self) -> Pillar:
        """All of it."""
        views, acts = [*self._views(), *self._crons.views()], [*self._acts(), *self._crons.acts()]
        return Pillar("schedules", "Schedules", views, acts, self.problems, self.figures)

    def close(self) -> None:
        """Close the schedulers that were opened."""
        self.schedulers.close()

    def _views(self) -> list[View]:
        return [
            View(path="/schedules", title="Schedules", summary="Events: when they are scheduled, fired, and how late",
                 load=self.events, template="schedules.html", cli="lockstep schedule ls --from {from} --limit {size}",
                 parameters=(SCHEDULER, STATUS, TENANT, FROM, TO, CURSOR, ROWS)),
            View(path="/schedules/{tenant}/{id}", title="Event", summary="What became of one event, and why",
                 load=self.event, template="schedule.html", parameters=(SCHEDULER, SCANNED),
                 cli="lockstep schedule why {id} --tenant {tenant}"),
            View(path="/tenants", title="Tenants", summary="Tenants: where their events go",
                 load=self.tenants, template="tenants.html", parameters=(SCHEDULER, *PAGED), cli="lockstep tenant ls"),
            View(path="/tenants/{tenant}", title="Tenant", summary="One tenant and what is due for it",
                 load=self.tenant, template="tenant.html", parameters=(SCHEDULER,),
                 cli="lockstep tenant show {tenant}"),
            View(path="/nodes", title="Nodes", summary="Scheduler nodes, and who owns which shard",
                 load=self.nodes, template="nodes.html", parameters=(SCHEDULER,),
                 cli="lockstep schedule nodes"),
        ]  # fmt: skip

    def _acts(self) -> list[Act]:
        return [
            Act(path="/schedules/{tenant}/{id}/cancel", title="Cancel", summary="Cancel an event, and tell who won",
                run=self.cancel, preview=self._would_cancel, fields=(SCHEDULER,), done="/schedules/{tenant}/{id}",
                cli="lockstep schedule cancel {id} --tenant {tenant}"),
            Act(path="/schedules/{tenant}/{id}/replay", title="Replay", summary="Fire a FAILED event again",
                run=self.replay, preview=self._would_replay, fields=(SCHEDULER,), done="/schedules/{tenant}/{id}",
                cli="lockstep schedule replay {id} --tenant {tenant}"),
            Act(path="/tenants/{tenant}/pause", title="Pause tenant", summary="Have the events of a tenant wait",
                run=self.pause, preview=self._would_pause, fields=(SCHEDULER,), done="/tenants/{tenant}",
                cli="lockstep tenant pause {tenant}"),
            Act(path="/tenants/{tenant}/resume", title="Resume tenant", summary="Let the events of a tenant fire again",
                run=self.resume, preview=self._would_resume, fields=(SCHEDULER,), done="/tenants/{tenant}",
                cli="lockstep tenant resume {tenant}"),
        ]  # fmt: skip

    # events

    def events(self, asked: Asked) -> Tree:
        """A page of events in the order of their times. Where no scheduler is, there are none."""
        names = self.schedulers.names()
        if not names and not asked.values["scheduler"]:
            return {"schedulers": [], "scheduler": None, "events": [], "next": None, "from_ms": None, "to_ms": None}
        scheduler = self.schedulers.chosen(asked)
        now, given = self._site.now_ms, asked.values
        start, stop = moment(given["from"], now, "from"), moment(given["to"], now, "to")
        if given["status"] == OVERDUE:
            stop = min(now, stop if stop is not None else now)
        chosen = Filter(tenant=given["tenant"] or None, status=_statuses(given["status"]), start=start, stop=stop)
        page = scheduler.client.events(chosen, given["size"], given["cursor"] or None)
        rows = [event_row(event, now) for event in page.events if given["status"] != OVERDUE or event.due <= now]
        return {
            "schedulers": names, "scheduler": scheduler.name, "events": rows, "next": page.next,
            "from_ms": start, "to_ms": stop,
        }  # fmt: skip

    def event(self, asked: Asked) -> Tree:
        """One event's story; NotFound if neither the store nor the newest part of the history knows it."""
        scheduler, found = self._explained(asked, asked.values["history"])
        now = self._site.now_ms
        event = None if found.event is None else {**event_row(found.event, now), **_details(found.event)}
        return {
            "scheduler": scheduler.name, "tenant": found.tenant, "id": found.id, "shard": found.shard,
            "node": found.node, "winner": found.winner, "sentences": list(found.sentences), "event": event,
            "history": [history_row(record) for record in reversed(found.history)][:500],
            "scanned": asked.values["history"],
        }  # fmt: skip

    def _explained(self, asked: Asked, scanned: int) -> tuple[Scheduler, Explanation]:
        scheduler = self.schedulers.chosen(asked)
        tenant, name = asked.names["tenant"], asked.names["id"]
        found = explain(scheduler, name, tenant, scanned=scanned)
        if found.is_known:
            return scheduler, found
        error = NotFound(what=f"Event of tenant {tenant!r}", name=name)
        error.add_note(f"The newest {scanned:,} records of the history do not mention it either.")
        if scheduler.client.crons(tenant, name):
            error.add_note(f"There is a cron of that id: /crons/{tenant}/{name}.")
        raise error

    def _stored(self, asked: Asked) -> tuple[Scheduler, Event]:
        scheduler = self.schedulers.chosen(asked)
        event = scheduler.client.find(asked.names["tenant"], asked.names["id"])
        if event is None:
            raise NotFound(what=f"Event of tenant {asked.names['tenant']!r}", name=asked.names["id"])
        return scheduler, event

    def cancel(self, asked: Asked) -> Tree:
        """Cancel an event, and say who won."""
        found = self.schedulers.chosen(asked).cancel(asked.names["id"], tenant=asked.names["tenant"])
        if isinstance(found, Cancelled):
            return {"won": "cancel", "event_id": found.event_id, "fired_ms": None}
        if isinstance(found, TooLate):
            return {"won": "fire", "event_id": None, "fired_ms": int(found.triggered_at.timestamp() * 1000)}
        raise NotFound(what=f"Event of tenant {asked.names['tenant']!r}", name=asked.names["id"])

    def _would_cancel(self, asked: Asked) -> Tree:
        scheduler, event = self._stored(asked)
        node = owner_of(scheduler, scheduler.client.shard_of(event.tenant, event.id))
        sentences = [cancel_outlook(event, self._site.now_ms), _carried_out(scheduler, node)]
        return {"effect": " ".join(filter(None, sentences)), "rows": [_fact_row(event, self._site.now_ms)]}

    def replay(self, asked: Asked) -> Tree:
        """Fire a FAILED event again."""
        is_replayed = self.schedulers.chosen(asked).replay(asked.names["id"], tenant=asked.names["tenant"])
        if not is_replayed:
            _, event = self._stored(asked)
            raise BadArgument(name="id", value=event.id, reason=f"it is {event.status.name}, and only a FAILED event"
                              " can be fired again")  # fmt: skip
        return {"replayed": True}

    def _would_replay(self, asked: Asked) -> Tree:
        scheduler, event = self._stored(asked)
        node = owner_of(scheduler, scheduler.client.shard_of(event.tenant, event.id))
        if event.status is not Status.FAILED:
            effect = f"Nothing: it is {event.status.name}, and only a FAILED event can be fired again."
        else:
            effect = f"It is delivered again, from the first try. Its last error was: {event.error or 'not told'}."
        return {"effect": f"{effect} {_carried_out(scheduler, node)}".strip(),
                "rows": [_fact_row(event, self._site.now_ms)]}  # fmt: skip

    # tenants

    def tenants(self, asked: Asked) -> Tree:
        """One page of tenants."""
        names = self.schedulers.names()
        if not names and not asked.values["scheduler"]:
            _, page = paged([], asked)
            return {"schedulers": [], "scheduler": None, "tenants": [], "page": page}
        scheduler = self.schedulers.chosen(asked)
        known = scheduler.tenants()
        shown, page = paged(sorted(known), asked)
        rows = [tenant_row(known[name]) for name in shown]
        return {"schedulers": names, "scheduler": scheduler.name, "tenants": rows, "page": page}

    def tenant(self, asked: Asked) -> Tree:
        """One tenant, and how many of its events are due."""
        scheduler, tenant = self._tenant(asked)
        now = self._site.now_ms
        due, more = count_of(scheduler, tenant.tenant, now)
        soon, more_soon = count_of(scheduler, tenant.tenant, now + SOON_MS)
        return {
            **tenant_row(tenant), "scheduler": scheduler.name, "due": due, "due_has_more": more,
            "soon": soon, "soon_has_more": more_soon,
        }  # fmt: skip

    def _tenant(self, asked: Asked) -> tuple[Scheduler, Tenant]:
        scheduler, name = self.schedulers.chosen(asked), asked.names["tenant"]
        known = scheduler.tenants()
        if name not in known:
            raise NotFound(what="Tenant", name=name)
        return scheduler, known[name]

    def pause(self, asked: Asked) -> Tree:
        """Have events wait."""
        self.schedulers.chosen(asked).pause_tenant(asked.names["tenant"])
        return {"paused": True}

    def resume(self, asked: Asked) -> Tree:
        """Let events fire."""
        self.schedulers.chosen(asked).resume_tenant(asked.names["tenant"])
        return {"paused": False}

    def _would_pause(self, asked: Asked) -> Tree:
        scheduler, tenant = self._tenant(asked)
        if tenant.paused:
            return {"effect": f"Nothing: tenant {tenant.tenant} is paused already."}
        soon = _counted(*count_of(scheduler, tenant.tenant, self._site.now_ms + SOON_MS))
        return {"effect": f"Events of tenant {tenant.tenant} wait from now on, and fire when it is resumed."
                          f" {soon} due within the next hour. Deliveries that have begun go on."}  # fmt: skip

    def _would_resume(self, asked: Asked) -> Tree:
        scheduler, tenant = self._tenant(asked)
        if not tenant.paused:
            return {"effect": f"Nothing: tenant {tenant.tenant} is not paused."}
        due = _counted(*count_of(scheduler, tenant.tenant, self._site.now_ms))
        limit = "" if tenant.rate is None else f", {tenant.rate:g} a second at most"
        return {"effect": f"Events of tenant {tenant.tenant} fire again. {due} due by now and fire at once{limit};"
                          " those that are older than the backlog limit fail."}  # fmt: skip

    # nodes

    def nodes(self, asked: Asked) -> Tree:
        """Return the cards of the live nodes, and the shards without owner."""
        names = self.schedulers.names()
        if not names and not asked.values["scheduler"]:
            return {"schedulers": [], "scheduler": None, "nodes": [], "shards": 0, "unowned": [], "skew": None}
        scheduler = self.schedulers.chosen(asked)
        health = self.schedulers.health(scheduler.name)
        return {
            "schedulers": names, "scheduler": scheduler.name, "nodes": [node_row(card) for card in health.nodes],
            "shards": health.shards, "unowned": list(health.unowned), "skew": _skew_sentence(health),
        }  # fmt: skip

    # the home page

    def figures(self) -> list[tuple[str, str, str]]:
        """Counts of what is known anyway."""
        found: list[tuple[str, str, str]] = []
        for name in self.schedulers.names()[:SCHEDULERS_LOOKED_AT]:
            health = self.schedulers.health(name)
            of = "" if name == "default" else f" of {name}"
            found.append(
                (
                    f"{noun(len(health.nodes), 'scheduler node')}{of}",
                    f"{len(health.nodes):,}",
                    f"/nodes?scheduler={name}",
                )
            )
            overdue = link("/schedules", {"scheduler": name, "status": "overdue", "from": "begin"})
            found.append((f"overdue events{of}", _overdue_text(health), overdue))
            found.append((f"{noun(health.tenants, 'tenant')}{of}", f"{health.tenants:,}", f"/tenants?scheduler={name}"))
        return found

    def problems(self) -> list[Problem]:
        """Return the problems of each scheduler."""
        return [one for name in self.schedulers.names()[:SCHEDULERS_LOOKED_AT] for one in self._problems_of(name)]

    def _problems_of(self, name: str) -> list[Problem]:
        try:
            return problems_of(name, self.schedulers.health(name))
        except LockstepError as error:
            return [Problem(severity="critical", title=f"Scheduler {name} can't be read", reason=str(error),
                            link=f"/nodes?scheduler={name}", command="lockstep bus check", area="nodes")]  # fmt: skip


def _overdue_text(health: Health) -> str:
    count = sum(backlog.count for backlog in health.backlogs)
    return f"more than {count:,}" if any(backlog.has_more for backlog in health.backlogs) else f"{count:,}"


def problems_of(name: str, health: Health) -> list[Problem]:
    """What is wrong with a scheduler, from what was looked up."""
    found = _node_problems(name, health)
    for backlog in health.backlogs:
        found.append(_backlog_problem(name, backlog))
    if health.failed:
        first = health.failed[0]
        count = len(health.failed)
        title = f"{count:,} {'event' if count == 1 else 'events'} of scheduler {name} failed for good in the last day"
        reason = f"The newest, {first['id']} of tenant {first['tenant']}: {first.get('error', 'no error was told')}"
        found.append(Problem(
            severity="warning", title=title, reason=reason, area="schedules", since_ms=int(health.failed[-1]["at"]),
            link=link("/schedules", {"scheduler": name, "status": "failed", "from": "1d"}),
            command=f"lockstep schedule ls --name {name} --status FAILED",
        ))  # fmt: skip
    if health.retried:
        found.append(_retry_problem(name, health.retried))
    return found + [_tick_problem(name, record) for record in health.failed_ticks]


def _retry_problem(name: str, records: Sequence[Mapping[str, Any]]) -> Problem:
    first, tenants = records[0], sorted({str(record["tenant"]) for record in records})
    many = "1 delivery" if len(records) == 1 else f"{len(records):,} deliveries"
    return Problem(
        severity="warning", title=f"{many} of scheduler {name} failed {TRIES_TOLD} times or more", area="schedules",
        reason=f"They are tried again. The newest, {first['id']} of tenant {first['tenant']}, try {first['attempt']}:"
        f" {first.get('error', 'no error was told')}",
        link=link("/schedules", {"scheduler": name, "status": "retry", "from": BEGIN, "tenant": tenants[0]}
                  if len(tenants) == 1 else {"scheduler": name, "status": "retry", "from": BEGIN}),
        command=f"lockstep schedule ls --name {name} --status RETRY",
    )  # fmt: skip


def _tick_problem(name: str, record: Mapping[str, Any]) -> Problem:
    tenant, cron = str(record["tenant"]), cron_of_tick(str(record["tenant"]), str(record["id"])) or str(record["id"])
    return Problem(
        severity="warning", title=f"The last tick of cron {cron} of tenant {tenant} failed", area="crons",
        reason=str(record.get("error") or record.get("reason") or "No error was told."), since_ms=int(record["at"]),
        link=link(f"/crons/{part_of_path(tenant)}/{part_of_path(cron)}", {"scheduler": name}),
        command=f"lockstep cron runs {shlex.quote(cron)} --tenant {shlex.quote(tenant)} --name {name}",
    )  # fmt: skip


def _node_problems(name: str, health: Health) -> list[Problem]:
    page, serve = f"/nodes?scheduler={name}", f"lockstep schedule serve --name {name}"
    found = []
    if health.unowned:
        many, all_ = len(health.unowned), len(health.unowned) == health.shards
        reason = "No node was heard in the last seconds." if not health.nodes else \
            "Their events wait; a node that starts or takes over claims them within seconds."  # fmt: skip
        title = f"No node runs for scheduler {name}: nothing fires" if all_ else \
            f"{many} of {health.shards} shards of scheduler {name} have no owner"  # fmt: skip
        found.append(Problem(severity="critical", title=title, reason=reason, link=page, command=serve, area="nodes"))
    sentence = _skew_sentence(health)
    if sentence:
        found.append(Problem(severity="warning", title=f"Clocks of nodes of scheduler {name} differ", reason=sentence,
                             link=page, command="timedatectl status", area="nodes"))  # fmt: skip
    return found


def _backlog_problem(name: str, backlog: Backlog) -> Problem:
    many, tenant = backlog.count_text, backlog.tenant
    page = link("/schedules", {"scheduler": name, "status": OVERDUE, "from": BEGIN, "tenant": tenant})
    shown = shlex.quote(tenant)
    if backlog.is_paused:
        return Problem(severity="warning", title=f"Tenant {tenant} is paused: {many} due",
                       reason="They wait until it is resumed, or registered again.", since_ms=backlog.since,
                       link=link(f"/tenants/{part_of_path(tenant)}", {"scheduler": name}), area="tenants",
                       command=f"lockstep tenant resume {shown} --name {name}")  # fmt: skip
    return Problem(severity="critical", since_ms=backlog.since,
                   title=f"{many} of tenant {tenant} {noun(backlog.count, 'is', 'are')} overdue",
                   reason="They were to fire and have not: no node owns their shards, deliveries fail and are tried"
                   " again, or the tenant's rate is too low.", link=page, area="schedules",
                   command=f"lockstep schedule ls --name {name} --tenant {shown} --status WAITING,RETRY")  # fmt: skip


def _skew_sentence(health: Health) -> str | None:
    if health.skew is None:
        return None
    ahead, after, seconds = health.skew
    return (f"The clock of node {ahead} is about {seconds:.0f} s ahead of that of node {after}. Events fire by the"
            " clock of the node that owns them: synchronize the clocks.")  # fmt: skip


# rows


def event_row(event: Event, now: int) -> dict[str, Any]:
    """An event in a list."""
    cron = cron_of_tick(event.tenant, event.id) if event.tick else None
    return {
        "tenant": event.tenant, "id": event.id, "cron": cron, "status": event.status.name,
        "state": state_words(event, now), "scheduled_ms": event.at, "fired_ms": event.triggered,
        "ended_ms": event.ended, "late_s": late_s(event), "attempt": event.attempt,
        "next_try_ms": event.due if event.status is Status.RETRY else None, "error": event.error,
    }  # fmt: skip


def _details(event: Event) -> dict[str, Any]:
    payload = payload_text(event)
    return {
        "event_id": event.event_id, "delivery": event.option.name, "lapsed": event.lapsed, "due_ms": event.due,
        "payload": None if payload is None else payload[:PAYLOAD_SHOWN],
        "payload_is_cut": payload is not None and len(payload) > PAYLOAD_SHOWN,
    }  # fmt: skip


def _fact_row(event: Event, now: int) -> dict[str, Any]:
    fired = None if event.triggered is None else java_text(event.triggered)
    return {"event": event.id, "tenant": event.tenant, "state": state_words(event, now),
            "scheduled for": java_text(event.at), "fired at": fired, "tries": event.attempt}  # fmt: skip


def late_s(event: Event) -> float | None:
    """Seconds from its time, or from its request if that came later, to its first try; None before that."""
    if event.triggered is None:
        return None
    return max(event.triggered - (event.accepted if event.lapsed else event.at), 0) / 1000


def state_words(event: Event, now: int) -> str:
    """Where an event is in its life, in words."""
    match event.status:
        case Status.WAITING:
            return "waiting for its time" if event.due > now else "due, has not fired yet"
        case Status.FIRING:
            return "being delivered"
        case Status.RETRY:
            return f"try {event.attempt} failed, is tried again"
        case Status.DONE:
            return "fired"
    return "failed for good"


def cancel_outlook(event: Event, now: int) -> str:
    """Whether a cancel can still win."""
    fired = "" if event.triggered is None else java_text(event.triggered)
    match event.status:
        case Status.WAITING if event.due > now:
            return f"It waits for {java_text(event.at)}. The cancel wins if it is carried out before then."
        case Status.WAITING:
            return f"It is due since {java_text(event.due)} and may fire at any moment: the cancel or the fire wins."
        case Status.RETRY:
            return (f"Its delivery failed {event.attempt} times; the next try is due at {java_text(event.due)}."
                    " The cancel wins unless that try begins first.")  # fmt: skip
        case Status.FIRING:
            return f"The fire has won: its delivery began at {fired}, and the cancel changes nothing."
        case Status.DONE:
            return f"The fire has won: it fired at {fired}. Only its stored row is removed."
    return "It failed for good. Its row is removed, and then it can't be fired again."


def history_row(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record of the history."""
    more = [f"next try at {java_text(record['next'])}"] if "next" in record else []
    more += [str(record[name]) for name in ("reason", "error") if name in record]
    return {
        "at_ms": record["at"], "what": record["what"], "scheduled_ms": record.get("eventTime"),
        "attempt": record.get("attempt"), "node": record.get("node"),
        "late_s": record["lateMs"] / 1000 if "lateMs" in record else None, "more": "; ".join(more) or None,
    }  # fmt: skip


def tenant_row(tenant: Tenant) -> dict[str, Any]:
    """A tenant without its secrets."""
    shown = tenant.masked()
    return {"name": tenant.tenant, "type": shown["type"], "properties": shown["props"], "paused": tenant.paused,
            "rate": tenant.rate, "stream": tenant.stream}  # fmt: skip


def node_row(card: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node's row from its card."""
    return {
        "node": card["node"], "host": card["host"], "port": card["port"], "is_master": card["master"],
        "shards": sorted(card["shards"]), "under_way": card["underWay"], "clock_ms": card["wall"],
    }  # fmt: skip


# what is asked


def moment(text: str, now: int, name: str) -> int | None:
    """Milliseconds since 1970 of a time, or of a span before now; None for no limit."""
    text = text.strip()
    if text in ("", BEGIN):
        return None
    if _SPAN.fullmatch(text):
        return now - span_ms(text, name)
    try:
        return parse_time(text)
    except BadArgument as error:
        raise BadArgument(name=name, value=text, reason=error.params["reason"]) from None


def _statuses(word: str) -> frozenset[Status] | None:
    if word == ANY:
        return None
    return UNFIRED if word in (OVERDUE, UNFIRED_WORD) else frozenset({Status[word.upper()]})


def _counted(count: int, has_more: bool) -> str:
    many = f"More than {COUNTED_MAX:,} events are" if has_more else f"{count:,} events are"
    return "1 event is" if count == 1 and not has_more else many


def _carried_out(scheduler: Scheduler, node: str | None) -> str:
    if node is not None:
        return ""
    return (f"No node owns its shard now, so the request is stored and waits until one does:"
            f" lockstep schedule serve --name {scheduler.name}.")  # fmt: skip


__all__: Sequence[str] = ["ScheduleViews", "problems_of"]
