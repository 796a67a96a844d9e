"""The fleet: what is wrong, hosts, checks, silences, and what each gate said of an event."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.console.fleet_rows import (
    ANY,
    check_row,
    checks_of,
    counted,
    event_row,
    facts_of,
    group_row,
    grouped,
    host_row,
    is_wanted,
    page_of,
    preview_rows,
    rank_of,
    result_row,
    silence_row,
    transition_row,
    verdict_rows,
)
from lockstep.console.fleets import CLUSTER, MONITOR, STALE_S, Fleet, Fleets, OpenEvent, hides
from lockstep.console.pages import link, noun, part_of_path
from lockstep.console.port import (
    PAGE,
    PAGED,
    SIZE,
    Act,
    Asked,
    Kind,
    Parameter,
    Pillar,
    Problem,
    Site,
    Tree,
    View,
    paged,
)
from lockstep.errors import BadArgument, NotFound
from lockstep.monitor.core.documents import REDACTED_KEYS, redact
from lockstep.schedule.times import java_text, span_s
from lockstep.server.access import Role

SEVERITIES, SILENCED = (ANY, "critical", "warning", "unknown"), (ANY, "no", "yes")
GROUPS_MAX, PROBLEMS_MAX = 100, 50
RESULTS_MAX, HISTORY_MAX = 500, 50
MONITORS_LOOKED_AT = 8
EXPIRE_MAX_S = 366 * 86_400

Q = Parameter(name="q", label="Search", help="events whose host, check or output has this text")
SEVERITY = Parameter(name="severity", label="Severity", kind=Kind.CHOICE, choices=SEVERITIES, default=ANY,
                     help="of the last result")  # fmt: skip
OF_CHECK = Parameter(name="check", label="Check", help="events of this check")
OF_HOST = Parameter(name="host", label="Host", help="events of this host")
IS_SILENCED = Parameter(name="silenced", label="Silenced", kind=Kind.CHOICE, choices=SILENCED, default=ANY,
                        help="whether a silence hides it")  # fmt: skip
SUBSCRIPTION = Parameter(
    name="subscription", label="Hosts", characters_max=1000,
    help="client:NAME for one host, a subscription, or a pattern as client:web-*; all if empty",
    option="--subscription",
)  # fmt: skip
CHECK = Parameter(name="check", label="Check", characters_max=1000, help="a check, or a pattern; all if empty",
                  option="--check")  # fmt: skip
REASON = Parameter(name="reason", label="Reason", required=True, characters_max=1000, help="why, for those who wonder")
EXPIRE = Parameter(name="expire", label="Ends after", default="1h", characters_max=32,
                   help="as 30m, 1h or 7d; every silence ends, after a year at the latest")  # fmt: skip
UNTIL_OK = Parameter(name="until_resolved", label="Ends when resolved", kind=Kind.FLAG, default=False,
                     help="also as soon as an event that it hides is resolved", option="--until-resolved")  # fmt: skip
WHY_OPTIONAL = Parameter(name="reason", label="Reason", characters_max=1000, help="for those who wonder",
                         option="--reason")  # fmt: skip
INVALIDATE = Parameter(name="invalidate", label="Ignore it from now on", kind=Kind.FLAG, default=False,
                       help="else an agent that still runs registers it again", option="--invalidate")  # fmt: skip


class FleetViews:
    """What the console shows of monitors, and changes."""

    def __init__(self, site: Site, fleets: Fleets) -> None:
        self._site, self._fleets = site, fleets

    def pillar(self) -> Pillar:
        """All of it."""
        return Pillar("fleet", "Fleet", self._views(), self._acts(), self.problems, self.figures)

    def close(self) -> None:
        """Follow no more."""
        self._fleets.close()

    def _views(self) -> list[View]:
        return [
            View(path="/fleet", title="Events", summary="Open events, the worst first, grouped by check",
                 load=self.events, template="fleet.html", cli="lockstep monitor events",
                 parameters=(MONITOR, Q, SEVERITY, OF_CHECK, OF_HOST, IS_SILENCED, PAGE, SIZE)),
            View(path="/fleet/hosts", title="Hosts", summary="Hosts, those with the worst events first",
                 load=self.hosts, template="hosts.html", parameters=(MONITOR, *PAGED), cli="lockstep monitor clients"),
            View(path="/fleet/hosts/{host}", title="Host", summary="One host: its checks, last results and history",
                 load=self.host, template="host.html", parameters=(MONITOR,), cli="lockstep monitor show {host}"),
            View(path="/fleet/checks", title="Checks", summary="The checks that are published",
                 load=self.checks, template="checks.html", parameters=(MONITOR, *PAGED), cli="lockstep monitor checks"),
            View(path="/fleet/checks/{check}", title="Check", summary="One check and the hosts where it fails",
                 load=self.check, template="check.html", parameters=(MONITOR,), cli="lockstep monitor checks {check}"),
            View(path="/fleet/silences", title="Silences", summary="What is silenced, why and until when",
                 load=self.silences, template="silences.html", parameters=(MONITOR, *PAGED),
                 cli="lockstep monitor silence"),
            View(path="/fleet/silences/{id}", title="Silence", summary="One silence and the events that it hides",
                 load=self.silence, template="silence.html", parameters=(MONITOR,),
                 cli="lockstep monitor silence --show {id}"),
            View(path="/fleet/why/{client}/{check}", title="Why", summary="What each gate said of an event",
                 load=self.why, template="why.html", parameters=(MONITOR,),
                 cli="lockstep monitor why {client} {check}"),
        ]  # fmt: skip

    def _acts(self) -> list[Act]:
        event = "/fleet/why/{client}/{check}"
        return [
            Act(path="/fleet/silence", title="Silence", summary="Have nobody told of some events for a time",
                fields=(MONITOR, SUBSCRIPTION, CHECK, REASON, EXPIRE, UNTIL_OK), run=self.add_silence,
                preview=self._would_silence, done="/fleet/silences",
                cli="lockstep monitor silence --expire {expire} --reason {reason}"),
            Act(path="/fleet/silences/{id}/end", title="End", summary="End a silence", fields=(MONITOR,),
                run=self.end_silence, preview=self._would_end, done="/fleet/silences",
                cli="lockstep monitor silence --end {id}"),
            Act(path=f"{event}/acknowledge", title="Acknowledge", summary="Silence an event until it is resolved",
                fields=(MONITOR, WHY_OPTIONAL), run=self.acknowledge, preview=self._would_acknowledge, done=event,
                cli="lockstep monitor ack {client} {check}"),
            Act(path=f"{event}/resolve", title="Resolve", summary="Close an event as if its check were OK",
                fields=(MONITOR,), run=self.resolve, preview=self._would_resolve, done=event,
                cli="lockstep monitor resolve {client} {check}"),
            Act(path=f"{event}/request", title="Run the check", summary="Have a check run on this host now",
                fields=(MONITOR,), run=self.request_here, preview=self._would_request_here, done=event,
                cli="lockstep monitor request {check} --subscriber client:{client}"),
            Act(path="/fleet/checks/{check}/request", title="Run now", summary="Have a check run on all its hosts now",
                fields=(MONITOR,), run=self.request, preview=self._would_request, done="/fleet/checks/{check}",
                cli="lockstep monitor request {check}"),
            Act(path="/fleet/hosts/{host}/delete", title="Delete", fields=(MONITOR, INVALIDATE), run=self.delete,
                summary="Forget a host, its results and its events", preview=self._would_delete, role=Role.ADMIN,
                confirm="host", done="/fleet/hosts", cli="lockstep monitor delete {host}"),
        ]  # fmt: skip

    def _about(self, asked: Asked) -> tuple[Fleet | None, dict[str, Any]]:
        """The monitor that is meant, None where there is none, and what all pages say of it."""
        name = self._fleets.name_of(asked.values["monitor"])
        if name is None:
            return None, {"monitors": [], "monitor": None, "as_of_ms": None, "stale": None}
        fleet = self._fleets.open(name)
        return fleet, {"monitors": self._fleets.names(), "monitor": name, "as_of_ms": fleet.as_of_ms,
                       "stale": stale_reason(fleet)}  # fmt: skip

    # events

    def events(self, asked: Asked) -> Tree:
        """Open events that fit the filters: counts, groups by check, and a page of them."""
        fleet, about = self._about(asked)
        known = () if fleet is None else fleet.events().events
        found = [event for event in known if is_wanted(event, asked.values)]
        shown, page = page_of(found, len(known), asked)
        groups = grouped(found)
        return {
            **about, "counts": counted(found), "groups": [group_row(group) for group in groups[:GROUPS_MAX]],
            "groups_left_out": max(0, len(groups) - GROUPS_MAX), "page": page,
            "left_out": 0 if fleet is None else fleet.events().left_out,
            "events": [] if fleet is None else [event_row(fleet, event) for event in shown],
        }  # fmt: skip

    def why(self, asked: Asked) -> Tree:
        """The verdict of each gate on the last event of a check of a host; NotFound if there was no result of it."""
        fleet, about = self._about(asked)
        client, check = asked.names["client"], asked.names["check"]
        rows = {kind: None if fleet is None else fleet.view.row(kind, client, check)
                for kind in ("event", "why", "result")}  # fmt: skip
        if fleet is None or not any(rows.values()):
            raise NotFound(what=f"Result of host {client!r} of check", name=check)
        event = None if rows["event"] is None else event_row(fleet, OpenEvent.of(rows["event"]))
        return {
            **about, "client": client, "check": check, "event": event,
            "result": None if rows["result"] is None else result_row(rows["result"]["check"]),
            "verdicts": verdict_rows(rows["why"]),
            "decided_ms": None if rows["why"] is None else rows["why"]["time"] * 1000,
            "history": [transition_row(row) for row in fleet.view.transitions(client, check, limit=HISTORY_MAX)],
        }  # fmt: skip

    # hosts

    def hosts(self, asked: Asked) -> Tree:
        """One page of hosts; only the rows of the page are read."""
        fleet, about = self._about(asked)
        if fleet is None:
            return {**about, "hosts": [], "page": paged([], asked)[1]}
        open_events = fleet.events()
        shown, page = paged(open_events.hosts, asked)
        rows = [(name, fleet.view.row("client", name)) for name in shown]
        return {**about, "page": page, "hosts": [
            host_row(row, open_events.counts.get(name, 0), open_events.worst.get(name, 0))
            for name, row in rows if row is not None
        ]}  # fmt: skip

    def host(self, asked: Asked) -> Tree:
        """One host; NotFound if it is not registered."""
        fleet, about = self._about(asked)
        name = asked.names["host"]
        row = None if fleet is None else fleet.view.row("client", name)
        if fleet is None or row is None:
            raise NotFound(what="Host", name=name)
        own = [event for event in fleet.events().events if event.client == name]
        results = [result_row(found["check"]) for found in fleet.view.rows("result", name)]
        results.sort(key=lambda result: (-rank_of(result["status"]), result["check"]))
        return {
            **about, **host_row(row, len(own), own[0].rank if own else 0), "facts": facts_of(row),
            "events": [event_row(fleet, event) for event in own[:RESULTS_MAX]],
            "results": results[:RESULTS_MAX], "results_left_out": max(0, len(results) - RESULTS_MAX),
            "history": [transition_row(one) for one in fleet.view.transitions(name, limit=HISTORY_MAX)],
        }  # fmt: skip

    # checks

    def checks(self, asked: Asked) -> Tree:
        """One page of the checks of the settings in force."""
        fleet, about = self._about(asked)
        known = {} if fleet is None else checks_of(fleet)
        shown, page = paged(sorted(known), asked)
        groups = {} if fleet is None else {group[0].check: group for group in grouped(fleet.events().events)}
        return {**about, "page": page, "checks": [check_row(name, known[name], groups.get(name, ())) for name in shown]}

    def check(self, asked: Asked) -> Tree:
        """One check of the settings in force; NotFound if they have none of this name."""
        fleet, about = self._about(asked)
        name = asked.names["check"]
        known = {} if fleet is None else checks_of(fleet)
        if fleet is None or name not in known:
            raise NotFound(what="Check in the settings in force", name=name)
        failing = [event for event in fleet.events().events if event.check == name]
        asked_last = fleet.view.row("request", "", name)
        return {
            **about, **check_row(name, known[name], failing), "definition": redact(known[name], REDACTED_KEYS),
            "requested_ms": None if asked_last is None else int(asked_last["issued"]) * 1000,
            "requested": None if asked_last is None else asked_last.get("count"),
            "events": [event_row(fleet, event) for event in failing[:RESULTS_MAX]],
            "events_left_out": max(0, len(failing) - RESULTS_MAX),
        }  # fmt: skip

    # silences

    def silences(self, asked: Asked) -> Tree:
        """One page of silences, with how many open events each hides."""
        fleet, about = self._about(asked)
        if fleet is None:
            return {**about, "silences": [], "page": paged([], asked)[1]}
        known = {str(row["id"]): row for row in fleet.view.rows("silence")}
        shown, page = paged(sorted(known), asked)
        hidden: dict[str, int] = {}
        for event in fleet.events().events:
            for id_ in event.silenced_by:
                hidden[id_] = hidden.get(id_, 0) + 1
        rows = [{**silence_row(known[id_], id_), "hides": hidden.get(id_, 0)} for id_ in shown]
        return {**about, "silences": rows, "page": page}

    def silence(self, asked: Asked) -> Tree:
        """One silence; NotFound if it has ended."""
        fleet, about = self._about(asked)
        if fleet is None:
            raise NotFound(what="Silence", name=asked.names["id"])
        row, hidden = self._silence_of(fleet, asked)
        return {**about, **silence_row(row, asked.names["id"]), "hides": len(hidden),
                "events": [event_row(fleet, event) for event in hidden[:RESULTS_MAX]]}  # fmt: skip

    def _silence_of(self, fleet: Fleet, asked: Asked) -> tuple[Mapping[str, Any], list[OpenEvent]]:
        id_ = asked.names["id"]
        row = fleet.view.row("silence", "", id_)
        if row is None:
            raise NotFound(what="Silence", name=id_)
        return row, [event for event in fleet.events().events if id_ in event.silenced_by]

    def add_silence(self, asked: Asked) -> Tree:
        """Silence what fits for a time."""
        entry = {**_entry(asked), "creator": asked.principal.name}
        return self._fleets.chosen(asked).ask("silence", "Silence", entry=entry)

    def _would_silence(self, asked: Asked) -> Tree:
        fleet, entry = self._fleets.chosen(asked), _entry(asked)
        hidden = [event for event in fleet.events().events if hides(entry["subscription"], entry["check"], event)]
        already = sum(bool(event.silenced_by) for event in hidden)
        said = [f"It hides {_many(len(hidden), 'open event')}"]
        said.append(f", {already} of which are silenced already." if already else ".")
        ends = f" It ends after {asked.values['expire']}"
        said.append(f"{ends}{_at_text(fleet, entry['expire'])}"
                    f"{', or when an event that it hides is resolved' if entry['expire_on_resolve'] else ''}."
                    " New events that fit are hidden as well.")  # fmt: skip
        return {"effect": "".join(said), "rows": preview_rows(hidden), "hides": len(hidden)}

    def end_silence(self, asked: Asked) -> Tree:
        """End a silence."""
        fleet = self._fleets.chosen(asked)
        fleet.ask("silence-clear", "Silence", entry={"id": asked.names["id"]})
        return {"ended": asked.names["id"]}

    def _would_end(self, asked: Asked) -> Tree:
        fleet = self._fleets.chosen(asked)
        row, hidden = self._silence_of(fleet, asked)
        told = [event for event in hidden if event.silenced_by == (asked.names["id"],)]
        why = f" It was made by {row.get('creator') or 'somebody'}: {row.get('reason') or 'no reason was given'}."
        effect = (f"It hides {_many(len(hidden), 'open event')} now; {_many(len(told), 'event')} of these that nothing"
                  f" else silences are told again.{why}")  # fmt: skip
        return {"effect": effect, "rows": preview_rows(told)}

    # acts on an event, a check and a host

    def acknowledge(self, asked: Asked) -> Tree:
        """Silence an event until it is resolved."""
        more = {"reason": asked.values["reason"]} if asked.values["reason"] else {}
        return self._of_event(asked, "ack", by=asked.principal.name, **more)

    def _would_acknowledge(self, asked: Asked) -> Tree:
        event = self._open_event(asked)
        said = f"Nobody is told of {event.check} on {event.client} until it is resolved."
        if event.silenced_by:
            said += f" It is silenced already by {', '.join(event.silenced_by)}."
        return {"effect": said, "rows": preview_rows([event])}

    def resolve(self, asked: Asked) -> Tree:
        """Close an event."""
        return self._of_event(asked, "resolve")

    def _would_resolve(self, asked: Asked) -> Tree:
        event = self._open_event(asked)
        said = (f"The event of {event.check} on {event.client} is closed as if its check were OK, and handlers are"
                " told. It opens again with the next result that is not OK.")  # fmt: skip
        return {"effect": said, "rows": preview_rows([event])}

    def _of_event(self, asked: Asked, order: str, **more: Any) -> Tree:
        names = {"client": asked.names["client"], "check": asked.names["check"]}
        return self._fleets.chosen(asked).ask(
            order, f"Open event of host {names['client']!r} of check", **names, **more
        )

    def _open_event(self, asked: Asked) -> OpenEvent:
        client, check = asked.names["client"], asked.names["check"]
        row = self._fleets.chosen(asked).view.row("event", client, check)
        if row is None:
            raise NotFound(what=f"Open event of host {client!r} of check", name=check)
        return OpenEvent.of(row)

    def request(self, asked: Asked) -> Tree:
        """Have a check run on all its hosts."""
        return self._requested(asked)

    def request_here(self, asked: Asked) -> Tree:
        """Have a check run on one host."""
        return self._requested(asked, subscribers=[f"client:{asked.names['client']}"])

    def _requested(self, asked: Asked, **more: Any) -> Tree:
        fleet = self._fleets.chosen(asked)
        return fleet.ask("request", "Published check", check=asked.names["check"], creator=asked.principal.name, **more)

    def _would_request(self, asked: Asked) -> Tree:
        check = self._published(asked)
        subscribers = ", ".join(map(str, check.get("subscribers") or ())) or "nobody"
        return {"effect": f"Check {asked.names['check']} is asked for now of its subscribers: {subscribers}."
                          " Its schedule goes on as before."}  # fmt: skip

    def _would_request_here(self, asked: Asked) -> Tree:
        self._published(asked)
        return {"effect": f"Host {asked.names['client']} is asked to run check {asked.names['check']} now, if its agent"
                          " is connected. Its schedule goes on as before."}  # fmt: skip

    def _published(self, asked: Asked) -> Mapping[str, Any]:
        name = asked.names["check"]
        found = checks_of(self._fleets.chosen(asked)).get(name)
        if found is None or found.get("standalone") is True:
            error = NotFound(what="Published check", name=name)
            error.add_note("Only checks of the servers' settings can be asked for; agents run standalone ones alone.")
            raise error
        return found

    def delete(self, asked: Asked) -> Tree:
        """Forget a host."""
        more = {"invalidate": True} if asked.values["invalidate"] else {}
        return self._fleets.chosen(asked).ask("client-delete", "Host", client=asked.names["host"], **more)

    def _would_delete(self, asked: Asked) -> Tree:
        fleet, name = self._fleets.chosen(asked), asked.names["host"]
        if fleet.view.row("client", name) is None:
            raise NotFound(what="Host", name=name)
        own = [event for event in fleet.events().events if event.client == name]
        results = fleet.view.listing("result", name, limit=0).total
        after = "What it sends from now on is ignored." if asked.values["invalidate"] else \
            "If its agent still runs, it registers again with its next keepalive."  # fmt: skip
        said = f"{_many(len(own), 'open event')} are resolved, and {_many(results, 'result')} are forgotten. {after}"
        return {"effect": said.replace("1 open event are", "1 open event is").replace("1 result are", "1 result is"),
                "rows": preview_rows(own)}  # fmt: skip

    # the home page

    def figures(self) -> list[tuple[str, str, str]]:
        """Hosts and open events of each monitor."""
        found: list[tuple[str, str, str]] = []
        for name in self._fleets.names()[:MONITORS_LOOKED_AT]:
            fleet = self._fleets.open(name)
            counters, of = fleet.view.row("counters"), "" if name == "monitor" else f" of {name}"
            hosts = None if counters is None else counters["clients"]
            events = None if counters is None else len(fleet.events().events)
            rows = ((hosts, "host", "/fleet/hosts"), (events, "open event", "/fleet"))
            found += [(f"{noun(count, one)}{of}", "unknown" if count is None else f"{count:,}",
                       link(path, {"monitor": name})) for count, one, path in rows]  # fmt: skip
        return found

    def problems(self) -> list[Problem]:
        """Return views that lag, and events that are not silenced, by check."""
        found: list[Problem] = []
        for name in self._fleets.names()[:MONITORS_LOOKED_AT]:
            fleet = self._fleets.open(name)
            found += _stale_problem(fleet)
            loud = [event for event in fleet.events().events if not event.silenced_by]
            found += [_group_problem(name, group) for group in grouped(loud)[:PROBLEMS_MAX]]
        return found


def stale_reason(fleet: Fleet) -> str | None:
    """Why what is shown may be old, in a sentence; None if it follows the fleet."""
    if fleet.error is not None:
        return f"The view can't follow the fleet: {fleet.error}"
    if fleet.is_stale:
        return (f"Nothing has come from the fleet for {fleet.silent_s():.0f} s (it tells its counters once a second):"
                " no server of the monitor computes.")  # fmt: skip
    return None


def _stale_problem(fleet: Fleet) -> list[Problem]:
    reason = stale_reason(fleet)
    if reason is None:
        return []
    return [Problem(
        severity="critical", title=f"Monitor {fleet.name} is not heard", reason=reason, area="fleet",
        since_ms=fleet.as_of_ms, link=link("/fleet", {"monitor": fleet.name}),
        command=f"lockstep engine status --cluster {CLUSTER} --project {shlex.quote(fleet.name)}",
    )]  # fmt: skip


def _group_problem(monitor: str, group: Sequence[OpenEvent]) -> Problem:
    first, count = max(group, key=lambda event: event.rank), len(group)
    since = [event.since_ms for event in group if event.since_ms is not None]
    page = {"monitor": monitor, "check": first.check, "silenced": "no"}
    return Problem(
        severity="critical" if first.severity == "critical" else "warning", title=_state_text(group), area="fleet",
        reason=f"{first.client}: {first.output or 'no output'}", since_ms=min(since) if since else None,
        link=f"/fleet/why/{part_of_path(first.client)}/{part_of_path(first.check)}?monitor={monitor}" if count == 1
        else link("/fleet", page),
        command=f"lockstep monitor why {shlex.quote(first.client)} {shlex.quote(first.check)}",
    )  # fmt: skip


def _state_text(group: Sequence[OpenEvent]) -> str:
    """As 'disk is critical on web-1', or 'disk fails on 3 hosts: 2 critical, 1 warning'."""
    counts = {name: count for name, count in counted(group).items() if count and name != "silenced"}
    check, hosts = group[0].check, f"{len(group):,} hosts" if len(group) > 1 else group[0].client
    if len(counts) == 1:
        return f"{check} is {next(iter(counts))} on {hosts}"
    return f"{check} fails on {hosts}: {', '.join(f'{count:,} {name}' for name, count in counts.items())}"


def _entry(asked: Asked) -> dict[str, Any]:
    """A silence as the fleet takes it; BadArgument if it would hide everything, or never end."""
    given = asked.values
    subscription, check = given["subscription"].strip() or None, given["check"].strip() or None
    if subscription is None and check is None:
        raise BadArgument(name="subscription", value="", reason="give hosts or a check: a silence can't hide all")
    seconds = span_s("expire", given["expire"], least=1)
    if seconds > EXPIRE_MAX_S:
        raise BadArgument(name="expire", value=given["expire"], reason="a silence ends after 366 days at the latest")
    return {"subscription": subscription, "check": check, "reason": given["reason"], "expire": seconds,
            "expire_on_resolve": given["until_resolved"]}  # fmt: skip


def _at_text(fleet: Fleet, seconds: int) -> str:
    now = fleet.as_of_ms
    return "" if now is None else f", at {java_text(now + seconds * 1000)}"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


__all__ = ["STALE_S", "FleetViews"]
