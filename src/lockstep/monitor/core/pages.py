"""The state of the fleet in pages: one for each client, and a few for all else. A page is one JSON text.

Indexes (open events, members of aggregates, severities) are not kept: they follow from the clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockstep.monitor.core.documents import encode_text
from lockstep.monitor.core.output import State
from lockstep.monitor.core.rules import Rules
from lockstep.monitor.core.state import (
    CheckState,
    ClientState,
    Clock,
    EventState,
    FleetState,
    history_of,
    history_state,
    json_of,
)

CLIENT = "c/"


def dump_page(fleet: FleetState, page: str) -> State:
    """What a page holds now; None: it is gone."""
    if page.startswith(CLIENT):
        client = fleet.clients.get(page.removeprefix(CLIENT))
        return None if client is None else encode_text(_client_state(client))
    if page == "early":
        return [list(each) for each in fleet.early] or None
    made = _SMALL[page][0](fleet)
    return encode_text(made) if made else None


def load_page(fleet: FleetState, page: str, state: Any) -> None:
    """Take a page over, in a new object; pages come in any order."""
    if page.startswith(CLIENT):
        _load_client(fleet, page.removeprefix(CLIENT), json_of(state))
    elif page == "early":
        fleet.early = [list(each) for each in state]
    else:
        _SMALL[page][1](fleet, json_of(state))


def _client_state(client: ClientState) -> list[Any]:
    checks = [
        [
            name,
            history_state(check.history),
            check.last_ok,
            check.executed,
            check.heard,
            check.ttl,
            check.aggregates,
            check.body,
            None if check.event is None else _event_state(check.event),
        ]
        for name, check in sorted(client.checks.items())
    ]
    own = [client.doc, client.signature, client.heard, client.invalid_until, client.digests]
    return [*own, list(client.agents.items()), list(client.pending.items()), checks]


def _event_state(event: EventState) -> list[Any]:
    return [getattr(event, name) for name in EventState.__slots__]


def _load_client(fleet: FleetState, name: str, state: list[Any]) -> None:
    client = fleet.client(name)
    doc, client.signature, client.heard, client.invalid_until, client.digests, agents, pending, checks = state
    client.agents, client.pending = dict(map(tuple, agents)), dict(map(tuple, pending))
    if doc is not None:
        client.set_doc(doc)
        fleet.direct[f"r:{name}".encode()] = client
    if client.pending:
        fleet.waiting.add(name)
    for check, history, last_ok, executed, heard, ttl, aggregates, body, event in checks:
        made = CheckState(history_of(history), last_ok, executed, heard, ttl, (), body)
        client.checks[check] = made
        for aggregate in aggregates:
            fleet.members.setdefault(aggregate, set()).add((name, check))
        made.aggregates = tuple(aggregates)
        if event is not None:
            fleet.open_event(name, made, check, EventState(*event))


def _clock_state(fleet: FleetState) -> list[Any]:
    clock = [getattr(fleet.clock, name) for name in Clock.__slots__]
    return [clock, fleet.counters, sorted(fleet.grown), fleet.turn_of, list(fleet.orders)]


def _load_clock(fleet: FleetState, state: list[Any]) -> None:
    clock, fleet.counters, grown, fleet.turn_of, orders = state
    fleet.clock, fleet.grown, fleet.orders = Clock(*clock), set(grown), dict.fromkeys(orders)
    fleet.now = fleet.clock.now_us // 1_000_000


def _settings_state(fleet: FleetState) -> list[Any]:
    rules = fleet.rules
    return [rules.document, rules.digest, rules.by, rules.time] if rules.time or rules.document else []


def _load_settings(fleet: FleetState, state: list[Any]) -> None:
    fleet.rules = Rules(*state)


def _load_silences(fleet: FleetState, state: dict[str, Any]) -> None:
    fleet.silences = state


def _load_stashes(fleet: FleetState, state: dict[str, Any]) -> None:
    fleet.stashes = state


def _load_skew(fleet: FleetState, state: dict[str, Any]) -> None:
    fleet.skewed = state


def _load_delayed(fleet: FleetState, state: list[Any]) -> None:
    fleet.delayed = state


_SMALL: dict[str, tuple[Callable[[FleetState], Any], Callable[[FleetState, Any], None]]] = {
    "clock": (_clock_state, _load_clock),
    "settings": (_settings_state, _load_settings),
    "silences": (lambda fleet: fleet.silences, _load_silences),
    "stashes": (lambda fleet: fleet.stashes, _load_stashes),
    "requests": (lambda fleet: fleet.delayed, _load_delayed),
    "skew": (lambda fleet: fleet.skewed, _load_skew),
}
