"""Check requests: when a check is due, to whom its request goes, and what it says.

Schedules follow from names and the model's clock alone: nothing about them is kept but what waits to be spread.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lockstep.cron import Zone
from lockstep.errors import ZoneUnknown
from lockstep.monitor.core.conditions import difference, in_time_windows
from lockstep.monitor.core.documents import encode_text, substitute_all
from lockstep.monitor.core.rules import Rules, cron_of, positive, splay_of
from lockstep.monitor.core.state import FleetState

Json = dict[str, Any]
SHARED = ("roundrobin:", "direct:")
"""Subscriptions of which each request goes to one member."""
DEFAULT_COVERAGE = 90
NOT_SENT = ("subscribers", "interval")
SHOWN_MAX, HEADER_MAX = 100, 1000


def publish_due(fleet: FleetState, before_us: int) -> None:
    """Give the requests that became due after `before_us`. A gap of any length gives one for each check."""
    now_ms, before_ms = fleet.clock.now_us // 1000, before_us // 1000
    for name, check in fleet.rules.published.items():
        if _is_due(fleet.rules, name, check, before_ms, now_ms) and not _is_subdued(fleet, check):
            _publish_scheduled(fleet, name, check)
    due = [each for each in fleet.delayed if each[0] <= now_ms]
    if due:
        fleet.delayed = [each for each in fleet.delayed if each[0] > now_ms]
        fleet.marked.add("requests")
        _publish_delayed(fleet, due)


def _is_due(rules: Rules, name: str, check: Json, before_ms: int, now_ms: int) -> bool:
    if isinstance(check.get("cron"), str):
        return _is_cron_due(rules, check, before_ms, now_ms)
    interval_ms = (positive(check.get("interval")) or 1) * 1000
    splay = splay_of(name)
    return (now_ms - splay) // interval_ms > (before_ms - splay) // interval_ms


def _is_cron_due(rules: Rules, check: Json, before_ms: int, now_ms: int) -> bool:
    cron = cron_of(check["cron"])
    if cron is None or now_ms // 60_000 == before_ms // 60_000:
        return False
    following = cron.next(_utc(before_ms), _zone_of(rules, check))
    return following is not None and following <= _utc(now_ms)


def _utc(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC)


def _zone_of(rules: Rules, check: Json) -> Zone:
    name = check.get("timezone")
    try:
        return Zone(name) if isinstance(name, str) else rules.zone
    except ZoneUnknown:
        return rules.zone


def _is_subdued(fleet: FleetState, check: Json) -> bool:
    return isinstance(check.get("subdue"), dict) and in_time_windows(check["subdue"], fleet.rules.moment(fleet.now))


def publish(
    fleet: FleetState,
    name: str,
    check: Json,
    *,
    subscribers: list[str] | None = None,
    more: Json | None = None,
    tag: str = "",
) -> None:
    """Give the requests of a check that was asked for, at once, to its subscribers or others.

    `more` is added to what is sent; `tag` tells the ids apart from those of other requests of this second.
    """
    if subscribers is not None:
        check = {**check, "subscribers": subscribers}
    if isinstance(check.get("proxy_requests"), dict):
        _publish_for(fleet, name, check, _proxies(fleet, check["proxy_requests"]), more or {}, tag)
        return
    request = {**_payload(check), "name": name, "issued": fleet.now, **(more or {})}
    _give(fleet, name, [(request, each, "") for each in _subscribers(check)], tag)


def _publish_scheduled(fleet: FleetState, name: str, check: Json) -> None:
    proxy = check.get("proxy_requests")
    if isinstance(proxy, dict):
        _publish_proxies(fleet, name, check, proxy)
    else:
        publish(fleet, name, check)


def _payload(check: Json) -> Json:
    return {key: value for key, value in check.items() if key not in NOT_SENT}


def _subscribers(check: Json) -> list[str]:
    names = check.get("subscribers")
    return [each for each in names if isinstance(each, str)] if isinstance(names, list) else []


def _proxies(fleet: FleetState, proxy: Json) -> list[str]:
    """The clients that a check with proxy requests is asked for; without attributes none, as in Sensu."""
    attributes = proxy.get("client_attributes")
    if not isinstance(attributes, dict) or not attributes:
        return []
    moment = fleet.rules.moment(fleet.now)
    return [
        name
        for name, client in sorted(fleet.clients.items())
        if client.doc is not None and difference(attributes, client.doc, client.doc, moment) is None
    ]


def _publish_proxies(fleet: FleetState, name: str, check: Json, proxy: Json) -> None:
    """A request for each client that fits, at once or spread over most of the interval."""
    found = _proxies(fleet, proxy)
    if proxy.get("splay") is not True or len(found) < 2:
        _publish_for(fleet, name, check, found, {}, "")
        return
    coverage = min(positive(proxy.get("splay_coverage")) or DEFAULT_COVERAGE, 100)
    span_ms = _interval_s(fleet, check) * coverage * 10
    now_ms = fleet.clock.now_us // 1000
    held = [each for each in fleet.delayed if each[1] != name]
    made = [[now_ms + span_ms * place // len(found), name, each] for place, each in enumerate(found)]
    fleet.delayed = sorted([*held, *made[1:]])
    fleet.marked.add("requests")
    _publish_for(fleet, name, check, found[:1], {}, "")


def _interval_s(fleet: FleetState, check: Json) -> int:
    """How long it is until a check is due again."""
    cron = cron_of(check["cron"]) if isinstance(check.get("cron"), str) else None
    if cron is None:
        return positive(check.get("interval")) or 60
    following = cron.next(_utc(fleet.now * 1000), _zone_of(fleet.rules, check))
    return 60 if following is None else min(int(following.timestamp()) - fleet.now, 86_400)


def _publish_delayed(fleet: FleetState, due: list[list[Any]]) -> None:
    """Requests for proxy clients whose turn has come, unless the settings have their check no more."""
    waiting: dict[str, list[str]] = {}
    for _, name, client in due:
        waiting.setdefault(name, []).append(client)
    for name, found in sorted(waiting.items()):
        check = fleet.rules.published.get(name)
        if check is not None:
            _publish_for(fleet, name, check, found, {}, "")


def _publish_for(fleet: FleetState, name: str, check: Json, found: list[str], more: Json, tag: str) -> None:
    """Requests for proxy clients; those whose tokens have no value are left out, and that is told."""
    made: list[tuple[Json, str, str]] = []
    skipped: Json = {}
    for client in found:
        holder = fleet.registered(client)
        if holder is None:
            continue
        filled, missing = substitute_all(_payload(check), holder.doc or {})
        if missing:
            skipped[client] = missing
            continue
        source = filled.get("source") or client
        request = {**filled, "name": name, "issued": fleet.now, "source": source, **more}
        made += [(request, each, client) for each in _subscribers(check)]
    if made or skipped:
        _give(fleet, name, made, tag, skipped)


def _give(
    fleet: FleetState, name: str, wanted: list[tuple[Json, str, str]], tag: str, skipped: Json | None = None
) -> None:
    """The notices of requests (what is sent, subscriber, proxy client), and the row that says what was asked last."""
    ids, keys = [], []
    for request, subscriber, proxy in wanted:
        key = _address(fleet, subscriber)
        ids.append(".".join(filter(None, ("request", name, str(fleet.now), subscriber, proxy, tag))))
        keys.append(key)
        headers = {"subscription": subscriber} if len(subscriber.encode()) <= HEADER_MAX else {}
        fleet.notice(ids[-1], "request", key, encode_text(request), headers)
    fleet.count("requests")
    told: Json = {"issued": fleet.now, "subscribers": keys[:SHOWN_MAX], "ids": ids[:SHOWN_MAX], "count": len(ids)}
    if skipped:
        told["skipped"] = dict(list(skipped.items())[:SHOWN_MAX])
    fleet.row(f"request/{name}", "request", "", name, encode_text(told))


def _address(fleet: FleetState, subscriber: str) -> str:
    """Who gets a request: all subscribers, or of a shared subscription the next member that is alive."""
    if not subscriber.startswith(SHARED):
        return subscriber
    members = [name for name in _ring(fleet).get(subscriber, []) if name not in fleet.open.get("keepalive", ())]
    if not members:
        return subscriber
    last = fleet.turn_of.get(subscriber, "")
    chosen = next((name for name in members if name > last), members[0])
    fleet.turn_of[subscriber] = chosen
    fleet.marked.add("clock")
    return f"client:{chosen}"


def _ring(fleet: FleetState) -> dict[str, list[str]]:
    if fleet.ring is None:
        fleet.ring = {}
        for name, client in sorted(fleet.clients.items()):
            for each in dict.fromkeys(client.subscriptions):
                if each.startswith(SHARED):
                    fleet.ring.setdefault(each, []).append(name)
    return fleet.ring
