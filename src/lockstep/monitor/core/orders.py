"""Orders: what people and servers ask of the fleet. Each is answered by a row, with the code of Sensu's HTTP API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lockstep.monitor.core import aggregates, clients, repeats, requests, results, silences
from lockstep.monitor.core.documents import encode_text
from lockstep.monitor.core.rules import Rules, positive
from lockstep.monitor.core.state import FleetState

Json = dict[str, Any]
ORDERS_KEPT = 1000
"""Ids of so many orders are remembered; an order that comes again is left alone."""
ID_MAX, PATH_MAX, STASHES_MAX = 200, 500, 10_000
CATEGORIES = ("checks", "filters", "handlers", "mutators", "aggregates", "sensu")


class Answer(NamedTuple):
    """What became of an order."""

    status: int
    body: Any = None


def take_order(fleet: FleetState, order: Json) -> str | None:
    """Carry an order out and answer it; or say why it is none."""
    id_ = order.get("id")
    if not isinstance(id_, str) or not 0 < len(id_) <= ID_MAX:
        return f"an order needs an id, a text of at most {ID_MAX} characters"
    if id_ in fleet.orders:
        fleet.count("copies")
        return None
    fleet.orders[id_] = None
    while len(fleet.orders) > ORDERS_KEPT:
        del fleet.orders[next(iter(fleet.orders))]
    kind = order.get("order")
    function = _KINDS.get(kind) if isinstance(kind, str) else None
    answer = bad(f"there is no order {str(kind)[:80]!r}") if function is None else function(fleet, order)
    body = encode_text({"status": answer.status, "body": answer.body, "time": fleet.now})
    fleet.row(f"answer/{id_}", "answer", "", id_, body)
    return None


def bad(reason: str) -> Answer:
    """The order can't be carried out as it is."""
    return Answer(400, {"error": reason})


_GONE = Answer(404)


def _settings(fleet: FleetState, order: Json) -> Answer:
    document = order.get("settings")
    if not isinstance(document, dict):
        return bad("settings must be an object")
    for category in CATEGORIES:
        if not isinstance(document.get(category, {}), dict):
            return bad(f"{category} must be an object")
        for name, value in document.get(category, {}).items():
            if category != "sensu" and not isinstance(value, dict):
                return bad(f"{category} {name} must be an object")
    by, digest = str(order.get("by") or ""), str(order.get("digest") or "")
    fleet.rules = Rules(document, digest, by, fleet.now)
    fleet.delayed = [each for each in fleet.delayed if each[1] in fleet.rules.published]
    fleet.marked |= {"settings", "requests"}
    repeats.tell_settings(fleet)
    return Answer(200, {"digest": digest})


def _silence(fleet: FleetState, order: Json) -> Answer:
    entry = order.get("entry")
    fault = silences.fault_of(entry)
    if fault is not None or not isinstance(entry, dict):
        return bad(fault or "entry must be an object")
    if silences.id_of(entry) not in fleet.silences and len(fleet.silences) >= silences.SILENCES_MAX:
        return bad(f"there are {silences.SILENCES_MAX} entries already")
    return Answer(201, {"id": silences.put(fleet, entry)})


def _silence_clear(fleet: FleetState, order: Json) -> Answer:
    entry = order.get("entry")
    if not isinstance(entry, dict) or not any(entry.get(name) for name in ("id", "subscription", "check")):
        return bad("entry must be an object with id, subscription or check")
    id_ = entry.get("id") or silences.id_of(entry)
    return Answer(204) if isinstance(id_, str) and silences.remove(fleet, id_) else _GONE


def _event_of(fleet: FleetState, order: Json) -> tuple[str, str] | None:
    """Client and check of an open event that an order names."""
    name, check = order.get("client"), order.get("check")
    if not isinstance(name, str) or not isinstance(check, str) or name not in fleet.open.get(check, ()):
        return None
    return name, check


def _has_names(order: Json, *names: str) -> Answer | None:
    wrong = next((name for name in names if not isinstance(order.get(name), str) or not order[name]), None)
    return None if wrong is None else bad(f"{wrong} must be a text")


def _resolve(fleet: FleetState, order: Json) -> Answer:
    if fault := _has_names(order, "client", "check"):
        return fault
    found = _event_of(fleet, order)
    if found is None:
        return _GONE
    clients.resolve_event(fleet, fleet.clients[found[0]], found[1])
    return Answer(202, {"issued": fleet.now})


def _ack(fleet: FleetState, order: Json) -> Answer:
    if fault := _has_names(order, "client", "check"):
        return fault
    found = _event_of(fleet, order)
    if found is None:
        return _GONE
    entry = {
        "subscription": f"client:{found[0]}",
        "check": found[1],
        "reason": order.get("reason"),
        "creator": order.get("by"),
        "expire_on_resolve": True,
        "acknowledged": True,
    }
    fault_ = silences.fault_of(entry)
    return Answer(201, {"id": silences.put(fleet, entry)}) if fault_ is None else bad(fault_)


def _client(fleet: FleetState, order: Json) -> Answer:
    document = order.get("client")
    if not isinstance(document, dict) or not results.is_name(document.get("name")):
        return bad("client must be an object with a name of 1 to 128 letters, digits, dots, dashes or underscores")
    subscriptions = document.get("subscriptions")
    if not isinstance(subscriptions, list) or not all(isinstance(each, str) for each in subscriptions):
        return bad("client subscriptions must be a list of texts")
    client = fleet.client(document["name"])
    own = {"keepalives": False, "version": results.VERSION, **document, "timestamp": fleet.now}
    signature = document.get("signature") or ""
    if not isinstance(signature, str):
        return bad("client signature must be a text")
    client.invalid_until, client.heard = 0, fleet.clock.listened_us
    client.signature, client.prefix = signature or client.signature, ""
    clients.register(fleet, client, own)
    return Answer(201, {"name": client.name})


def _client_delete(fleet: FleetState, order: Json) -> Answer:
    if fault := _has_names(order, "client"):
        return fault
    client = fleet.registered(order["client"])
    if client is None:
        return _GONE
    expire = positive(order.get("expire"))
    until = 0 if order.get("invalidate") is not True else -1 if expire is None else fleet.now + expire
    clients.delete_client(fleet, client, invalid_until=until)
    return Answer(202, {"issued": fleet.now})


def _result_delete(fleet: FleetState, order: Json) -> Answer:
    if fault := _has_names(order, "client", "check"):
        return fault
    client = fleet.registered(order["client"])
    return Answer(204) if client is not None and results.forget_result(fleet, client, order["check"]) else _GONE


def _check_delete(fleet: FleetState, order: Json) -> Answer:
    """All results and events of a check go, of every client."""
    if fault := _has_names(order, "check"):
        return fault
    name, found = order["check"], name_is_known(fleet, order["check"])
    for client in [client for _, client in sorted(fleet.clients.items()) if name in client.checks]:
        clients.resolve_event(fleet, client, name)
        results.forget_result(fleet, client, name)
        found = True
    return Answer(202, {"issued": fleet.now}) if found else _GONE


def name_is_known(fleet: FleetState, check: str) -> bool:
    """Whether the settings have a check of this name that is not a standalone one."""
    return check in fleet.rules.checks and fleet.rules.checks[check].get("standalone") is not True


def _aggregate_delete(fleet: FleetState, order: Json) -> Answer:
    if fault := _has_names(order, "name"):
        return fault
    return Answer(204) if aggregates.delete(fleet, order["name"]) else _GONE


def _request(fleet: FleetState, order: Json) -> Answer:
    if fault := _has_names(order, "check"):
        return fault
    subscribers = order.get("subscribers")
    if subscribers is not None and not (
        isinstance(subscribers, list) and subscribers and all(isinstance(each, str) for each in subscribers)
    ):
        return bad("subscribers must be a list of texts")
    if not name_is_known(fleet, order["check"]):
        return _GONE
    asked = {name: order[name] for name in ("reason", "creator") if isinstance(order.get(name), str)}
    definition = fleet.rules.checks[order["check"]]
    requests.publish(
        fleet, order["check"], definition, subscribers=subscribers, more={"api_requested": asked}, tag=order["id"]
    )
    return Answer(202, {"issued": fleet.now})


def _stash(fleet: FleetState, order: Json) -> Answer:
    path, content, expire = order.get("path"), order.get("content"), order.get("expire")
    if not isinstance(path, str) or not 0 < len(path) <= PATH_MAX:
        return bad(f"path must be a text of 1 to {PATH_MAX} characters")
    if not isinstance(content, dict):
        return bad("content must be an object")
    seconds = positive(expire)
    if expire is not None and seconds is None:
        return bad("expire must be a whole number of seconds above 0")
    if path not in fleet.stashes and len(fleet.stashes) >= STASHES_MAX:
        return bad(f"there are {STASHES_MAX} stashes already")
    kept: Json = {"path": path, "content": content, "timestamp": fleet.now}
    if seconds is not None:
        kept["expire_at"] = fleet.now + seconds
    fleet.stashes[path] = kept
    fleet.marked.add("stashes")
    repeats.tell_stash(fleet, path)
    return Answer(201, {"path": path})


def _stash_delete(fleet: FleetState, order: Json) -> Answer:
    if fault := _has_names(order, "path"):
        return fault
    if fleet.stashes.pop(order["path"], None) is None:
        return _GONE
    fleet.marked.add("stashes")
    fleet.row(f"stash/{order['path']}", "stash", "", order["path"], None)
    return Answer(204)


def _result(fleet: FleetState, order: Json) -> Answer:
    """A result that came over HTTP. Its row does not wait for the tick, so that the answer comes when it is shown."""
    if fault := _has_names(order, "client"):
        return fault
    if not results.is_name(order["client"]):
        return bad("client must be a name of 1 to 128 letters, digits, dots, dashes or underscores")
    fleet.count("results")
    fault_ = clients.take_message(fleet, fleet.client(order["client"]), order)
    if fault_ is not None:
        return bad(fault_)
    name = order["check"].get("source") or order["client"]
    if name in fleet.waiting:
        results.tell_of_client(fleet, name)
    return Answer(202, {"issued": order["check"].get("issued", fleet.now)})


def _health(fleet: FleetState, order: Json) -> Answer:
    """A result of a server about itself, as one of the monitor's own client."""
    check = order.get("check")
    fault = results.fault_of(check)
    if fault is not None or not isinstance(check, dict):
        return bad(fault or "check must be an object")
    aggregates.own_result(fleet, check["name"], {"status": 0, "output": "", **check})
    return Answer(202, {"issued": fleet.now})


_KINDS: dict[str, Callable[[FleetState, Json], Answer]] = {
    "settings": _settings,
    "silence": _silence,
    "silence-clear": _silence_clear,
    "resolve": _resolve,
    "ack": _ack,
    "client": _client,
    "client-delete": _client_delete,
    "result-delete": _result_delete,
    "check-delete": _check_delete,
    "aggregate-delete": _aggregate_delete,
    "request": _request,
    "stash": _stash,
    "stash-delete": _stash_delete,
    "health": _health,
    "result": _result,
}
