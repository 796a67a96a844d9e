"""Sensu's routes: its paths, shapes and codes. docs/reference/monitor-http.md has where ours differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.errors import TimedOut
from lockstep.monitor.core.documents import MESSAGE_MAX, REDACTED_KEYS, redact
from lockstep.monitor.core.results import fault_of
from lockstep.monitor.settings.services import look_at_client
from lockstep.monitor.settings.validation import look_at
from lockstep.server.access import Role
from lockstep.server.bodies import Reply, check_tree, parse_json
from lockstep.server.errors import BadBody
from lockstep.server.monitor.site import PAGE, MonitorSite, answer, compact, empty
from lockstep.server.routes import Call, Handle, Route, Work

VERSION = "0.26.5"
"""Of Sensu, whose API this is: clients look at it."""
API_CLIENT = "sensu-api"
_RESULT_REST = 256
"""Bytes of a record of a result around its check."""
_ISSUED = {202: {"issued": 1_767_225_600}, 404: None}
"""What is done soon; 404 for what does not exist."""
_LIST: Mapping[int, Any] = {200: []}
_OBJECT: Mapping[int, Any] = {200: {}, 404: None}
SENSU = "sensu"
"""Marks Sensu's routes."""
ALWAYS = frozenset({"/info", "/health"})
"""Of them, those that answer while the bus is away."""
_KINDS: Mapping[type, str] = {str: "a text", list: "a list", dict: "an object"}
SEVERITIES = ("ok", "warning", "critical", "unknown")
_FILTERED = {**PAGE, "filter.ATTRIBUTE": "only those whose attribute has this value: filter.check.status=2"}


def parse_body(call: Call, **required: type) -> dict[str, Any]:
    """The object of a body, with these properties of these types at least."""
    tree = parse_json(call.body)
    if not isinstance(tree, dict):
        raise BadBody(reason="it must be a JSON object")
    check_tree(tree)
    for name, kind in required.items():
        if not isinstance(tree.get(name), kind) or isinstance(tree.get(name), bool):
            raise BadBody(reason=f"{name} must be {_KINDS[kind]}")
    return tree


def _or(value: Any, default: Any) -> Any:
    """A value that may be null as well as missing."""
    return default if value is None else value


def route(method: str, path: str, handle: Handle, summary: str, **more: Any) -> Route:
    """A route of Sensu's; parameters that are not known are ignored."""
    work = more.pop("work", Work.READ if method == "GET" else Work.CHANGE)
    return Route(method=method, path=path, handle=handle, summary=summary, work=work, tag=SENSU, strict=False, **more)


class ClientRoutes:
    """Clients, their results and histories, and requests for checks."""

    def __init__(self, site: MonitorSite) -> None:
        self._site, self._view = site, site.view

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            route("GET", "/clients", lambda call: self._site.page(call, "client"), "All clients", query=_FILTERED,
                  answers=_LIST),
            route("POST", "/clients", self.put, "Register a client, or change it",
                  body={"name": "web-1", "address": "10.0.0.1", "subscriptions": ["web"]},
                  answers={201: {"name": "web-1"}}),
            route("GET", "/clients/{client}", self.one, "A client", answers=_OBJECT),
            route("DELETE", "/clients/{client}", self.delete, "Resolve a client's events and forget it",
                  role=Role.ADMIN, answers=_ISSUED,
                  query={"invalidate": "true: ignore what it sends from now on",
                         "invalidate_expire": "for so many seconds"}),
            route("GET", "/clients/{client}/history", self.history, "The last statuses of a client's checks",
                  answers={**_LIST, 404: None}),
            route("GET", "/results", lambda call: self._site.page(call, "result"), "The last results", query=_FILTERED,
                  answers=_LIST),
            route("POST", "/results", self.result, "Send a result",
                  body={"name": "backup", "output": "done", "status": 0, "source": "web-1"},
                  answers={202: {"issued": 1}}),
            route("GET", "/results/{client}", self.results, "The last results of a client", query=_FILTERED,
                  answers={**_LIST, 404: None}),
            route("GET", "/results/{client}/{check}", self.one_result, "The last result of a check",
                  answers=_OBJECT),
            route("DELETE", "/results/{client}/{check}", self.delete_result, "Forget a result and its history",
                  answers={204: None, 404: None}),
        ]  # fmt: skip

    def one(self, call: Call) -> Reply:
        """GET /clients/:c."""
        found = self._view.row("client", call.names["client"])
        return empty(404) if found is None else answer(found)

    def put(self, call: Call) -> Reply:
        """POST /clients. What is secret stays out of the fleet, as agents leave it out of keepalives."""
        given = {"keepalives": False, "address": "unknown", **parse_body(call, name=str, subscriptions=list)}
        faults = look_at(look_at_client, {"client": given})
        if faults:
            raise BadBody(reason="; ".join(fault.sentence for fault in faults))
        return self._site.ask("client", client=redact(given, given.get("redact") or REDACTED_KEYS))

    def delete(self, call: Call) -> Reply:
        """DELETE /clients/:c."""
        expire = call.whole("invalidate_expire", 0, 0, 10**9 - 1)
        is_invalid = call.query.get("invalidate", "") not in ("", "false")
        more: dict[str, Any] = {"invalidate": True} if is_invalid else {}
        if more and expire:
            more["expire"] = expire
        return self._site.ask("client-delete", client=call.names["client"], **more)

    def history(self, call: Call) -> Reply:
        """GET /clients/:c/history."""
        name = call.names["client"]
        if self._view.row("client", name) is None:
            return empty(404)
        checks = [row["check"] for row in self._view.rows("result", name)]
        return answer([_history(each) for each in checks if each.get("history") and each.get("executed") is not None])

    def results(self, call: Call) -> Reply:
        """GET /results/:c."""
        name = call.names["client"]
        return empty(404) if self._view.row("client", name) is None else self._site.page(call, "result", name)

    def one_result(self, call: Call) -> Reply:
        """GET /results/:c/:k."""
        found = self._view.row("result", call.names["client"], call.names["check"])
        return empty(404) if found is None else answer(found)

    def result(self, call: Call) -> Reply:
        """POST /results. It is stored before anything else, so that it counts also if the fleet lags."""
        now = self._site.now
        given = parse_body(call, name=str, output=str)
        check = {**given, "status": _or(given.get("status"), 0), "issued": now, "executed": now}
        fault = fault_of(check)
        if fault is None and len(compact(check)) > MESSAGE_MAX - _RESULT_REST:
            fault = f"a result has at most {MESSAGE_MAX - _RESULT_REST} bytes"
        if fault is not None:
            raise BadBody(reason=fault)
        try:
            return self._site.ask("result", client=API_CLIENT, check=check)
        except TimedOut:
            return answer({"issued": now}, 202)

    def delete_result(self, call: Call) -> Reply:
        """DELETE /results/:c/:k."""
        return self._site.ask("result-delete", client=call.names["client"], check=call.names["check"])


def _history(check: Mapping[str, Any]) -> dict[str, Any]:
    history = check["history"]
    last = {name: value for name, value in check.items() if name != "history"}
    return {
        "check": check["name"],
        "history": history,
        "last_execution": check.get("executed"),
        "last_status": history[-1],
        "last_result": last,
    }


class EventRoutes:
    """Checks, events, aggregates, silences and stashes."""

    def __init__(self, site: MonitorSite) -> None:
        self._site, self._view = site, site.view

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            *self._of_checks(),
            *self._of_events(),
            *self._of_aggregates(),
            *self._of_silences(),
            *self._of_stashes(),
        ]

    def _of_checks(self) -> Iterator[Route]:
        yield route("GET", "/checks", self.checks, "The checks that are published", query=PAGE, answers=_LIST)
        yield route("GET", "/checks/{check}", self.check, "A check's definition", answers=_OBJECT)
        yield route(
            "DELETE",
            "/checks/{check}",
            self._deleted("check-delete", "check"),
            "Forget a check's results",
            answers=_ISSUED,
        )
        example = {"check": "disk", "subscribers": ["client:web-1"]}
        for path in ("/request", "/check/request"):
            yield route("POST", path, self.request, "Have a check run now", body=example, answers=_ISSUED)

    def _of_events(self) -> Iterator[Route]:
        for path in ("/events", "/incidents"):
            yield route(
                "GET",
                path,
                lambda call: self._site.page(call, "event"),
                "The open events",
                query=_FILTERED,
                answers=_LIST,
            )
            yield route(
                "GET",
                f"{path}/{{client}}",
                self.of_client,
                "The open events of a client",
                query=_FILTERED,
                answers=_LIST,
            )
            yield route("GET", f"{path}/{{client}}/{{check}}", self.event, "An open event", answers=_OBJECT)
            yield route(
                "DELETE",
                f"{path}/{{client}}/{{check}}",
                self._deleted("resolve", "client", "check"),
                "Resolve an event",
                answers=_ISSUED,
            )
        for path in ("/resolve", "/event/resolve"):
            yield route("POST", path, self.resolve, "Resolve an event", body={"client": "web-1", "check": "disk"},
                        answers=_ISSUED)  # fmt: skip

    def _of_aggregates(self) -> Iterator[Route]:
        age = {"max_age": "results that are older, in seconds, count as stale"}
        yield route(
            "GET", "/aggregates", self.aggregates, "The aggregates", query=PAGE, answers={200: [{"name": "disks"}]}
        )
        yield route(
            "GET", "/aggregates/{name}", self.aggregate, "How many results of each severity", query=age, answers=_OBJECT
        )
        yield route(
            "DELETE",
            "/aggregates/{name}",
            self._deleted("aggregate-delete", "name"),
            "Forget an aggregate",
            answers={204: None, 404: None},
        )
        yield route(
            "GET",
            "/aggregates/{name}/clients",
            self.aggregate_clients,
            "Members by client",
            answers={200: [{"name": "web-1", "checks": ["disk"]}], 404: None},
        )
        yield route(
            "GET",
            "/aggregates/{name}/checks",
            self.aggregate_checks,
            "Members by check",
            answers={200: [{"name": "disk", "clients": ["web-1"]}], 404: None},
        )
        yield route("GET", "/aggregates/{name}/results/{severity}", self.aggregate_results,
                    "Members of a severity, grouped by what they say", query=age,
                    answers={**_LIST, 400: None, 404: None})  # fmt: skip

    def _of_silences(self) -> Iterator[Route]:
        example = {"subscription": "client:web-1", "check": "disk", "expire": 3600, "reason": "new disk"}
        yield route("GET", "/silenced", self.silences, "The silences", query=PAGE, answers=_LIST)
        yield route(
            "POST",
            "/silenced",
            self.silence,
            "Silence a subscription, a check, or both",
            body=example,
            answers={201: {"id": "client:web-1:disk"}},
        )
        yield route(
            "POST",
            "/silenced/clear",
            self.clear,
            "End a silence",
            body={"id": "client:web-1:disk"},
            answers={204: None, 404: None},
        )
        yield route("GET", "/silenced/ids/{id}", self.silence_by_id, "A silence", answers=_OBJECT)
        yield route(
            "GET",
            "/silenced/subscriptions/{subscription}",
            self._silences_by("subscription"),
            "Of a subscription",
            query=PAGE,
            answers=_LIST,
        )
        yield route(
            "GET", "/silenced/checks/{check}", self._silences_by("check"), "Of a check", query=PAGE, answers=_LIST
        )

    def _of_stashes(self) -> Iterator[Route]:
        yield route("GET", "/stashes", self.stashes, "The stashes", query=PAGE, answers=_LIST)
        yield route("POST", "/stashes", self.put_stash, "Store a stash",
                    body={"path": "note", "content": {"by": "ann"}}, answers={201: {"path": "note"}})  # fmt: skip
        for path in ("/stash/{path*}", "/stashes/{path*}"):
            yield route("GET", path, self.stash, "A stash's content", answers=_OBJECT)
            yield route(
                "POST", path, self.put_stash_at, "Store a stash", body={"by": "ann"}, answers={201: {"path": "note"}}
            )
            yield route(
                "DELETE", path, self._deleted("stash-delete", "path"), "Remove a stash", answers={204: None, 404: None}
            )

    def _deleted(self, order: str, *names: str) -> Handle:
        return lambda call: self._site.ask(order, **{name: call.names[name] for name in names})

    # checks

    def _definitions(self) -> dict[str, Any]:
        settings = (self._view.row("settings") or {}).get("settings") or {}
        checks = settings.get("checks") or {}
        return {name: {"name": name, **check} for name, check in checks.items() if not check.get("standalone")}

    def checks(self, call: Call) -> Reply:
        """GET /checks."""
        return _paged(call, list(self._definitions().values()))

    def check(self, call: Call) -> Reply:
        """GET /checks/:k."""
        found = self._definitions().get(call.names["check"])
        return empty(404) if found is None else answer(found)

    def request(self, call: Call) -> Reply:
        """POST /request."""
        given = parse_body(call, check=str)
        wanted = {name: given[name] for name in ("subscribers", "reason", "creator") if given.get(name) is not None}
        return self._site.ask("request", check=given["check"], **wanted)

    # events

    def of_client(self, call: Call) -> Reply:
        """GET /events/:c."""
        return self._site.page(call, "event", call.names["client"])

    def event(self, call: Call) -> Reply:
        """GET /events/:c/:k."""
        found = self._view.row("event", call.names["client"], call.names["check"])
        return empty(404) if found is None else answer(found)

    def resolve(self, call: Call) -> Reply:
        """POST /resolve."""
        given = parse_body(call, client=str, check=str)
        return self._site.ask("resolve", client=given["client"], check=given["check"])

    # aggregates

    def aggregates(self, call: Call) -> Reply:
        """GET /aggregates."""
        rows = self._view.rows("aggregate")
        return _paged(call, [{"name": name} for name in sorted(row["name"] for row in rows)])

    def _members(self, call: Call) -> list[tuple[str, str]] | None:
        found = self._view.row("aggregate", "", call.names["name"])
        if found is None:
            return None
        members = (member.partition("/") for member in found["members"])
        return [(client, check) for client, _, check in members]

    def _checked(self, call: Call) -> tuple[list[dict[str, Any]], int] | None:
        """The results of the members that are not stale, and how many are."""
        members = self._members(call)
        if members is None:
            return None
        oldest = self._site.now - call.whole("max_age", 10**9 - 1, 0, 10**9 - 1)
        found = [self._view.row("result", client, check) for client, check in members]
        results = [row for row in found if row is not None]
        fresh = [row for row in results if (row["check"].get("executed") or oldest) >= oldest]
        return fresh, len(results) - len(fresh)

    def aggregate(self, call: Call) -> Reply:
        """GET /aggregates/:a."""
        found, members = self._checked(call), self._members(call)
        if found is None or members is None:
            return empty(404)
        fresh, stale = found
        severities = [_severity(row["check"]) for row in fresh]
        counts = {each: severities.count(each) for each in SEVERITIES}
        return answer({
            "clients": len({client for client, _ in members}),
            "checks": len({check for _, check in members}),
            "results": {**counts, "total": len(fresh), "stale": stale},
        })  # fmt: skip

    def aggregate_clients(self, call: Call) -> Reply:
        """GET /aggregates/:a/clients."""
        return self._grouped(call, "checks", lambda client, check: (client, check))

    def aggregate_checks(self, call: Call) -> Reply:
        """GET /aggregates/:a/checks."""
        return self._grouped(call, "clients", lambda client, check: (check, client))

    def _grouped(self, call: Call, name: str, pair: Any) -> Reply:
        members = self._members(call)
        if members is None:
            return empty(404)
        groups: dict[str, list[str]] = {}
        for client, check in members:
            key, value = pair(client, check)
            groups.setdefault(key, []).append(value)
        return answer([{"name": key, name: values} for key, values in groups.items()])

    def aggregate_results(self, call: Call) -> Reply:
        """GET /aggregates/:a/results/:severity."""
        severity = call.names["severity"]
        if severity not in SEVERITIES:
            return empty(400)
        found = self._checked(call)
        if found is None:
            return empty(404)
        groups: dict[str, dict[str, list[str]]] = {}
        for row in found[0]:
            if _severity(row["check"]) == severity:
                outputs = groups.setdefault(row["check"]["name"], {})
                outputs.setdefault(row["check"].get("output", ""), []).append(row["client"])
        return answer([
            {
                "check": check,
                "summary": [
                    {"output": output, "total": len(clients), "clients": clients} for output, clients in outputs.items()
                ],
            }
            for check, outputs in groups.items()
        ])  # fmt: skip

    # silences and stashes

    def _shown(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """A silence or stash with its remaining time, as Sensu shows it; -1: it does not expire."""
        shown = {name: value for name, value in entry.items() if name != "expire_at"}
        ends = entry.get("expire_at")
        return {**shown, "expire": -1 if ends is None else max(0, ends - self._site.now)}

    def silences(self, call: Call) -> Reply:
        """GET /silenced."""
        return _paged(call, [self._shown(entry) for entry in self._view.rows("silence")])

    def _silences_by(self, name: str) -> Handle:
        def handle(call: Call) -> Reply:
            rows = self._view.rows("silence")
            return _paged(call, [self._shown(entry) for entry in rows if entry.get(name) == call.names[name]])

        return handle

    def silence_by_id(self, call: Call) -> Reply:
        """GET /silenced/ids/:id."""
        found = self._view.row("silence", "", call.names["id"])
        return empty(404) if found is None else answer(self._shown(found))

    def silence(self, call: Call) -> Reply:
        """POST /silenced."""
        return self._site.ask("silence", entry=parse_body(call))

    def clear(self, call: Call) -> Reply:
        """POST /silenced/clear."""
        given = parse_body(call)
        wanted = {name: given[name] for name in ("id", "subscription", "check") if given.get(name)}
        if not wanted:
            raise BadBody(reason="id, subscription or check must be there")
        return self._site.ask("silence-clear", entry=wanted)

    def stashes(self, call: Call) -> Reply:
        """GET /stashes."""
        return _paged(call, [self._shown(each) for each in self._view.rows("stash")])

    def stash(self, call: Call) -> Reply:
        """GET /stashes/:path."""
        found = self._view.row("stash", "", call.names["path"])
        return empty(404) if found is None else answer(found["content"])

    def put_stash(self, call: Call) -> Reply:
        """POST /stashes."""
        given = parse_body(call, path=str, content=dict)
        expire = {"expire": given["expire"]} if given.get("expire") is not None else {}
        return self._site.ask("stash", path=given["path"], content=given["content"], **expire)

    def put_stash_at(self, call: Call) -> Reply:
        """POST /stashes/:path."""
        return self._site.ask("stash", path=call.names["path"], content=parse_body(call))


def _severity(check: Mapping[str, Any]) -> str:
    status = check.get("status", 0)
    return SEVERITIES[status] if isinstance(status, int) and 0 <= status < 3 else "unknown"


def _paged(call: Call, rows: list[Any]) -> Reply:
    """A short list, or a page of it."""
    if "limit" not in call.query:
        return answer(rows)
    limit, offset = call.whole("limit", 0, 0, 10**9 - 1), call.whole("offset", 0, 0, 10**9 - 1)
    pagination = compact({"limit": limit, "offset": offset, "total": len(rows)}).decode()
    return Reply(compact(rows[offset : offset + limit]), headers={"X-Pagination": pagination})


class OperationRoutes:
    """How the monitor itself does."""

    def __init__(self, site: MonitorSite) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """All of them."""
        limits = {"consumers": "at least so many on each queue", "messages": "at most so many waiting"}
        return [
            route("GET", "/info", self.info, "Version, transport and servers", answers={200: {}}),
            route(
                "GET",
                "/health",
                self.health,
                "204 if the queues are as asked, else 412",
                query=limits,
                answers={204: None, 412: ["results has 0 consumers"]},
            ),
            route(
                "GET",
                "/settings",
                self.settings,
                "The settings in force; what is secret is not shown",
                answers={200: {}},
            ),
        ]

    def info(self, _call: Call) -> Reply:
        """GET /info."""
        figures, settings = self._site.transport(), self._site.view.row("settings") or {}
        queues = {
            name: {"messages": queue.messages, "consumers": queue.consumers}
            for name, queue in (("keepalives", figures.keepalives), ("results", figures.results))
        }
        sensu = {"version": VERSION, "settings": {"hexdigest": settings.get("digest") or ""}}
        return answer({
            "sensu": sensu,
            "redis": {"connected": self._site.is_following()},
            "transport": {"name": figures.name, "connected": figures.connected, **queues},
            "servers": [self._server(each) for each in self._site.servers()],
        })  # fmt: skip

    def _server(self, status: Mapping[str, Any]) -> dict[str, Any]:
        """A server as Sensu shows it from 0.28 on, with what we say of it besides."""
        leads = status.get("role") == "active"
        named = {"id": status.get("name"), "hostname": status.get("name"), "address": "unknown"}
        return {**named, "is_leader": leads, "tasks": [], "timestamp": self._site.now, **status}

    def health(self, call: Call) -> Reply:
        """GET /health."""
        figures = self._site.transport()
        wrong = []
        if not self._site.is_following():
            wrong.append("the view does not follow the fleet")
        if not figures.connected:
            wrong.append("not connected to the transport")
        for name, queue in (("keepalives", figures.keepalives), ("results", figures.results)):
            if "consumers" in call.query and queue.consumers < call.whole("consumers", 0, 0, 10**9 - 1):
                wrong.append(f"{name} has {queue.consumers} consumers")
            if "messages" in call.query and queue.messages > call.whole("messages", 0, 0, 10**9 - 1):
                wrong.append(f"{name} has {queue.messages} messages")
        return answer(wrong, 412) if wrong else empty(204)

    def settings(self, _call: Call) -> Reply:
        """GET /settings."""
        found = self._site.view.row("settings") or {}
        return answer(found.get("settings") or {})
