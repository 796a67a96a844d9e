"""What a tick does: results are told, silences end, clients and TTLs are looked at, requests are given.

Ages count listened time. Each client has its turn once in 30 seconds, its keepalive before its TTLs; in lagging ticks
nobody has, and turns that were missed come with the next tick that does not lag.
"""

from __future__ import annotations

from typing import Any

from lockstep.monitor.core import aggregates, clients, repeats, requests, results, silences
from lockstep.monitor.core.documents import deep_merge
from lockstep.monitor.core.rules import CRITICAL_S, WARNING_S, positive
from lockstep.monitor.core.state import MONITOR_S, CheckState, ClientState, FleetState

Json = dict[str, Any]
LISTENED_MAX_US = 2_000_000
TTL_STATUS = 1
FORGET_S = 3600
"""Copies of messages of a client that is gone are known for so long."""
LAG_WARNING_S, LAG_CRITICAL_S = 10, 60


def tick(fleet: FleetState, time_us: int, *, lagging: bool) -> None:
    """Everything that follows from time."""
    clock = fleet.clock
    before_us, before_s = clock.now_us, fleet.now
    _move(fleet, time_us, lagging=lagging)
    silences.expire(fleet)
    _expire_stashes(fleet)
    if not lagging:
        for second in range(max(clock.monitored_s, fleet.now - MONITOR_S) + 1, fleet.now + 1):
            for name in sorted(fleet.turns[second % MONITOR_S]):
                _look_at(fleet, fleet.clients[name])
        clock.monitored_s = fleet.now
        aggregates.evaluate(fleet, before_s)
    _own_health(fleet, before_s)
    clients.let_go(fleet)
    if before_us:
        requests.publish_due(fleet, before_us)
    tell_results(fleet)
    aggregates.tell_members(fleet)
    repeats.tell_again(fleet, before_s)
    fleet.row("counters", "counters", "", "", clients.counted(fleet))
    fleet.marked.add("clock")


def _move(fleet: FleetState, time_us: int, *, lagging: bool) -> None:
    clock = fleet.clock
    if clock.now_us and not lagging:
        clock.listened_us += max(0, min(time_us - clock.now_us, LISTENED_MAX_US))
    clock.now_us = max(clock.now_us, time_us)
    fleet.now = clock.now_us // 1_000_000
    clock.ticks += 1
    if clock.ticks == 1:
        clock.monitored_s = fleet.now
    clock.lagging_ticks += lagging
    clock.lagging_since = (clock.lagging_since or fleet.now) if lagging else 0


def tell_results(fleet: FleetState) -> None:
    """A row for each client with results since the last tick: a line for each check, its name, a tab, and its JSON.

    Of very many or long ones there are several rows, as a record of the changelog has a bound.
    """
    for name in sorted(fleet.waiting):
        results.tell_of_client(fleet, name)


def _expire_stashes(fleet: FleetState) -> None:
    for path in [path for path, each in fleet.stashes.items() if each.get("expire_at", fleet.now + 1) <= fleet.now]:
        del fleet.stashes[path]
        fleet.marked.add("stashes")
        fleet.row(f"stash/{path}", "stash", "", path, None)


def _look_at(fleet: FleetState, client: ClientState) -> None:
    if client.doc is None:
        age_us = fleet.clock.listened_us - client.heard
        if age_us > FORGET_S * 1_000_000 and not client.invalid_until and not client.pending:
            fleet.forget(client.name)
        return
    if client.is_watched:
        _judge(fleet, client)
    for name in sorted(name for name, state in client.checks.items() if state.ttl):
        _judge_ttl(fleet, client, client.checks[name])
    aggregates.prune(fleet, client.name)


def _judge(fleet: FleetState, client: ClientState) -> None:
    """The result of the check `keepalive`: how long ago the client was heard."""
    age = (fleet.clock.listened_us - client.heard) // 1_000_000
    base: Json = {"thresholds": {"warning": WARNING_S, "critical": CRITICAL_S}}
    if "keepalive" in fleet.rules.handlers:
        base["handler"] = "keepalive"
    own = (client.doc or {}).get("keepalive")
    check = deep_merge(deep_merge(base, fleet.rules.keepalives), own if isinstance(own, dict) else {})
    limits = check.get("thresholds")
    limits = limits if isinstance(limits, dict) else {}
    critical = positive(limits.get("critical")) or CRITICAL_S
    warning = positive(limits.get("warning")) or WARNING_S
    if age >= critical:
        status, output = 2, f"No keepalive sent from client for {age} seconds (>={critical})"
    elif age >= warning:
        status, output = 1, f"No keepalive sent from client for {age} seconds (>={warning})"
    else:
        status, output = 0, f"Keepalive sent from client {age} seconds ago"
    forced = {"name": "keepalive", "output": output, "status": status, "issued": fleet.now, "executed": fleet.now}
    if not results.is_name(check.get("source")):
        check.pop("source", None)
    fault = clients.take_result(fleet, client.name, check | forced, client.signature)
    if fault is not None:
        fleet.refuse(f"k:{client.name}", fault)


def _judge_ttl(fleet: FleetState, client: ClientState, state: CheckState) -> None:
    """A check that was silent for longer than its TTL, unless its client is silent as a whole."""
    age = (fleet.clock.listened_us - state.heard) // 1_000_000
    if age < state.ttl or client.name in fleet.open.get("keepalive", ()) or state.body is None:
        return
    status = state.body.get("ttl_status", TTL_STATUS)
    made = {
        **state.body,
        "output": f"Last check execution was {age} seconds ago",
        "status": status if type(status) is int and abs(status) <= results.STATUS_MAX else TTL_STATUS,
        "interval": MONITOR_S,
    }
    results.apply_result(fleet, client, made, is_copy=True)


def _own_health(fleet: FleetState, before_s: int) -> None:
    """Results of the monitor's own client, as long as something is wrong, and once when it is right again."""
    if fleet.now // MONITOR_S == before_s // MONITOR_S:
        return
    since = fleet.clock.lagging_since
    lag = fleet.now - since if since else 0
    status = 2 if lag >= LAG_CRITICAL_S else 1 if lag >= LAG_WARNING_S else 0
    _tell_health(
        fleet, "lag", status, f"Input has waited to be taken for {lag} seconds" if lag else "Input is taken as it comes"
    )
    ahead = sorted(fleet.skewed.items())
    shown = ", ".join(f"{name} by {seconds} s" for name, seconds in ahead[:10])
    text = f"{len(ahead)} clients have clocks that are ahead: {shown}" if ahead else "No client's clock is ahead"
    _tell_health(fleet, "clock-skew", 1 if ahead else 0, text)


def _tell_health(fleet: FleetState, name: str, status: int, output: str) -> None:
    if status or aggregates.OWN_CLIENT in fleet.open.get(name, ()):
        check = {"status": status, "output": output, "interval": MONITOR_S}
        aggregates.own_result(fleet, name, check)
