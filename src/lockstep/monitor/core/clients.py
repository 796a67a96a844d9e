"""Clients: keepalives and registration, signatures, clients that the server makes, and their end."""

from __future__ import annotations

from typing import Any

from lockstep.monitor.core import results
from lockstep.monitor.core.documents import deep_merge, encode_text
from lockstep.monitor.core.gates import handlers_of
from lockstep.monitor.core.rules import WHOLE_MAX
from lockstep.monitor.core.state import ClientState, FleetState

Json = dict[str, Any]
REGISTRATION, DEREGISTRATION = "registration", "deregistration"
RESOLVED_BY_API = "Resolving on request of the API"


def take_keepalive(fleet: FleetState, client: ClientState, document: Json) -> str | None:
    """Take a client's definition; or say why not."""
    signature = document.get("signature") or ""
    if fault := _fault_of(document, client.name):
        return fault
    if fault := ignored(fleet, client, signature):
        return fault
    if client.signature != signature:
        client.signature, client.prefix = signature, ""
    client.heard = fleet.clock.listened_us
    _note_skew(fleet, client, document)
    register(fleet, client, {name: value for name, value in document.items() if not name.startswith("_")})
    return None


def _fault_of(document: Json, name: str) -> str | None:
    if document.get("name") != name:
        return f"the name of the client is {str(document.get('name'))[:80]!r}, but the record is one of {name}"
    if not results.is_name(name):
        return "the name of a client must be 1 to 128 letters, digits, dots, dashes or underscores"
    subscriptions = document.get("subscriptions", [])
    if not isinstance(subscriptions, list) or not all(isinstance(each, str) for each in subscriptions):
        return "subscriptions must be a list of texts"
    if not isinstance(document.get("signature", ""), str | None):
        return "signature must be a text"
    return None


def ignored(fleet: FleetState, client: ClientState, signature: Any) -> str | None:
    """Why messages with this signature are not taken: the client has another one, or was made invalid."""
    if client.invalid_until:
        if client.invalid_until < 0 or fleet.now < client.invalid_until:
            return "the client was deleted and made invalid"
        client.invalid_until = 0
        fleet.mark(client.name)
    if client.signature and signature != client.signature:
        return "its signature is not the one that the client registered with"
    return None


def register(fleet: FleetState, client: ClientState, document: Json) -> None:
    """Take a definition; the first one is a registration."""
    is_new = client.doc is None
    before = client.subscriptions
    own = f"client:{client.name}"
    subscriptions = document.get("subscriptions") or []
    if own not in subscriptions:
        document = {**document, "subscriptions": [*subscriptions, own]}
    client.set_doc(document)
    if is_new or before != client.subscriptions:
        fleet.ring = None
    fleet.direct[f"r:{client.name}".encode()] = client
    tell_client(fleet, client)
    if is_new:
        fleet.count("registrations")
        _tell_registration(fleet, client, document)


def tell_client(fleet: FleetState, client: ClientState, age_s: int = 0) -> None:
    """The row of a client that was heard so many seconds ago."""
    body = f'{client.text[:-1]},"_heard":{fleet.now - age_s}}}'
    fleet.row(f"client/{client.name}", "client", client.name, "", body)
    fleet.mark(client.name)


def _tell_registration(fleet: FleetState, client: ClientState, document: Json) -> None:
    own = document.get(REGISTRATION)
    if not isinstance(own, dict) and REGISTRATION not in fleet.rules.handlers:
        return
    check: Json = {"status": 1, "handler": REGISTRATION}
    if isinstance(own, dict):
        check = deep_merge(check, own)
    forced = {"name": REGISTRATION, "output": "new client registration", "issued": fleet.now, "executed": fleet.now}
    check |= forced
    if results.fault_of(check):
        check["status"] = 1
    results.tell_once(fleet, client, {**check, "type": "standard"})


def take_result(fleet: FleetState, origin: str, check: Json, signature: Any) -> str | None:
    """Take a result as one of its source, else of who sent it, who is made if nobody registered him; or say why not."""
    source = check.get("source")
    client = fleet.client(source or origin)
    if fault := ignored(fleet, client, signature):
        return fault
    if client.doc is None:
        client = make_client(fleet, client.name, is_proxy=bool(source))
    results.apply_result(fleet, client, results.merged(fleet, check, origin))
    return None


def make_client(fleet: FleetState, name: str, *, is_proxy: bool) -> ClientState:
    """The client of a result that nobody registered."""
    client = fleet.client(name)
    if client.doc is None:
        document: Json = {
            "name": name,
            "address": "unknown",
            "subscriptions": [f"client:{name}"],
            "keepalives": False,
            "version": results.VERSION,
            "timestamp": fleet.now,
        }
        client.heard = fleet.clock.listened_us
        register(fleet, client, {**document, "type": "proxy"} if is_proxy else document)
    return client


def _note_skew(fleet: FleetState, client: ClientState, document: Json) -> None:
    """Remember clients whose clock is ahead of the model's: what is late may as well have waited."""
    timestamp = document.get("timestamp")
    skew = timestamp - fleet.now if type(timestamp) is int else 0
    if skew > SKEW_S and fleet.now:
        fleet.skewed[client.name] = min(skew, WHOLE_MAX)
        fleet.marked.add("skew")
    elif fleet.skewed.pop(client.name, None) is not None:
        fleet.marked.add("skew")


SKEW_S = 60


def delete_client(fleet: FleetState, client: ClientState, *, invalid_until: int = 0) -> None:
    """Resolve its events, then forget it. Copies of what it sent are still known, until it is pruned."""
    for name in sorted(client.checks):
        resolve_event(fleet, client, name)
    for name in sorted(client.checks):
        results.forget_result(fleet, client, name)
    client.pending.clear()
    fleet.waiting.discard(client.name)
    client.doc, client.text, client.signature, client.prefix = None, "", "", ""
    client.heard, client.invalid_until = fleet.clock.listened_us, invalid_until
    fleet.direct.pop(f"r:{client.name}".encode(), None)
    fleet.skewed.pop(client.name, None)
    fleet.marked.add("skew")
    fleet.ring = None
    fleet.row(f"results/{client.name}", "results", client.name, "", None)
    fleet.row(f"client/{client.name}", "client", client.name, "", None)
    fleet.mark(client.name)


def resolve_event(fleet: FleetState, client: ClientState, check: str, output: str = RESOLVED_BY_API) -> bool:
    """Resolve an event on request: its last result once more, with status 0. False if there is none."""
    state = client.checks.get(check)
    if state is None or state.event is None:
        return False
    forced = {"output": output, "status": 0, "issued": fleet.now, "executed": fleet.now, "force_resolve": True}
    results.apply_result(fleet, client, {**state.event.check, **forced})
    return True


def let_go(fleet: FleetState) -> None:
    """Clients that deregistered go, unless the settings have a handler of their own for that."""
    leaving, fleet.leaving = fleet.leaving, []
    for name in leaving:
        client = fleet.registered(name)
        state = None if client is None else client.checks.get(DEREGISTRATION)
        if client is None or state is None or state.event is None:
            continue
        names = [handler for handler, _, _ in handlers_of(fleet.rules, state.event.check)]
        if DEREGISTRATION in names and DEREGISTRATION not in fleet.rules.handlers:
            delete_client(fleet, client)


def counted(fleet: FleetState) -> str:
    """The totals, as the row `counters` has them."""
    registered = sum(1 for client in fleet.clients.values() if client.doc is not None)
    events = dict(zip(("warning", "critical", "unknown"), fleet.severities[1:], strict=True))
    told = {
        **fleet.counters,
        "clients": registered,
        "events": events,
        "listened_s": fleet.clock.listened_us // 1_000_000,
        "ticks": fleet.clock.ticks,
        "lagging_ticks": fleet.clock.lagging_ticks,
        "time": fleet.now,
    }
    return encode_text(told)


def take_message(fleet: FleetState, sender: ClientState, document: Json) -> str | None:
    """Take a result as it was sent; or say what is wrong with it."""
    origin, check = document.get("client", sender.name), document.get("check")
    if not results.is_name(origin):
        return "client must be a name of 1 to 128 letters, digits, dots, dashes or underscores"
    fault = results.fault_of(check)
    if fault is not None or not isinstance(check, dict):
        return fault
    fault = take_result(fleet, origin, check, document.get("signature") or "")
    if fault is None:
        let_go(fleet)
    return fault
