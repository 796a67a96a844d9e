"""Aggregates: their members, and those that alert when too many members are not OK."""

from __future__ import annotations

from typing import Any

from lockstep.monitor.core import clients, results
from lockstep.monitor.core.documents import encode_text
from lockstep.monitor.core.rules import SHARE, positive, severity_of
from lockstep.monitor.core.state import FleetState

Json = dict[str, Any]
OWN_CLIENT = "lockstep"
"""The client of events that the monitor makes itself."""
DEFAULT_MAX_AGE_S, DEFAULT_INTERVAL_S = 86_400, 10
_OWN = ("warning", "critical", "severities", "interval")


def tell_members(fleet: FleetState) -> None:
    """The rows of aggregates whose members changed."""
    for name in sorted(fleet.grown):
        tell(fleet, name)
    if fleet.grown:
        fleet.grown = set()
        fleet.marked.add("clock")


def tell(fleet: FleetState, name: str) -> None:
    """The row of an aggregate; one without members is gone."""
    members = fleet.members.get(name)
    listed = [f"{client}/{check}" for client, check in sorted(members or ())]
    body = encode_text({"name": name, "members": listed}) if members else None
    fleet.row(f"aggregate/{name}", "aggregate", "", name, body)


def delete(fleet: FleetState, name: str) -> bool:
    """Take all members out; False if there is no such aggregate. Those that report again come back."""
    members = fleet.members.get(name)
    if not members:
        return False
    for client, check in sorted(members):
        leave(fleet, client, check, name)
    return True


def leave(fleet: FleetState, client: str, check: str, name: str) -> None:
    """Take a member out."""
    state = fleet.clients[client].checks[check]
    fleet.join(client, check, state, tuple(each for each in state.aggregates if each != name))
    fleet.mark(client)


def prune(fleet: FleetState, client: str) -> None:
    """Checks of a client that were silent for longer than `max_age` leave their aggregates."""
    for check, state in sorted(fleet.clients[client].checks.items()):
        age_s = (fleet.clock.listened_us - state.heard) // 1_000_000
        for name in state.aggregates:
            if age_s > _max_age(fleet, name):
                leave(fleet, client, check, name)


def _max_age(fleet: FleetState, name: str) -> int:
    return positive(fleet.rules.aggregates.get(name, {}).get("max_age")) or DEFAULT_MAX_AGE_S


def evaluate(fleet: FleetState, before_s: int) -> None:
    """Give the results of those aggregates that alert whose turn came after `before_s`."""
    for name, definition in sorted(fleet.rules.aggregates.items()):
        interval = positive(definition.get("interval")) or DEFAULT_INTERVAL_S
        is_due = fleet.now // interval > before_s // interval
        if is_due and name in fleet.members and results.AGGREGATE_NAME.fullmatch(name):
            _alert(fleet, name, definition)


def _alert(fleet: FleetState, name: str, definition: Json) -> None:
    wanted = definition.get("severities")
    severities = wanted if isinstance(wanted, list) else ["warning", "critical", "unknown"]
    counted: dict[str, int] = {}
    for client, check in fleet.members[name]:
        severity = severity_of(fleet.clients[client].checks[check].history[-1])
        counted[severity] = counted.get(severity, 0) + 1
    total = sum(counted.values())
    bad = sum(count for severity, count in counted.items() if severity in severities)
    status = (
        2
        if reached(definition.get("critical"), bad, total)
        else 1
        if reached(definition.get("warning"), bad, total)
        else 0
    )
    shown = ", ".join(f"{counted[each]} {each}" for each in ("ok", "warning", "critical", "unknown") if each in counted)
    own = {key: value for key, value in definition.items() if key not in _OWN}
    interval = positive(definition.get("interval")) or DEFAULT_INTERVAL_S
    made = {**own, "interval": interval, "output": f"{bad} of {total} members: {shown}", "status": status}
    own_result(fleet, f"aggregate-{name}", made)


def reached(rule: Any, count: int, total: int) -> bool:
    """Whether a number of members, or their share, is as a rule such as ">= 1" or ">= 50%" says."""
    found = SHARE.fullmatch(rule) if isinstance(rule, str) else None
    if found is None or not total:
        return False
    value, wanted = (100 * count, float(found[2]) * total) if found[3] else (float(count), float(found[2]))
    how = found[1]
    return (
        value > wanted if how == ">" else value < wanted if how == "<" else value == wanted if how == "=="
        else value >= wanted if how == ">=" else value <= wanted
    )  # fmt: skip


def own_result(fleet: FleetState, name: str, check: Json) -> None:
    """A result of the monitor's own client."""
    client = clients.make_client(fleet, OWN_CLIENT, is_proxy=False)
    made = {"type": "standard", **check, "name": name, "issued": fleet.now, "executed": fleet.now}
    results.apply_result(fleet, client, made)
