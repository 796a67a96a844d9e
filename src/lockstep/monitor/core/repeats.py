"""Rows that are told again every six hours, so that the changelog of two days makes a whole view.

Results, keepalives and requests tell themselves. What may stay as it is for longer has its turn here: clients and
their open events, settings, silences, stashes and aggregates. A turn that falls into a gap comes six hours later.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from lockstep.monitor.core import aggregates, clients, events, silences
from lockstep.monitor.core.documents import encode_text, redact
from lockstep.monitor.core.results import total_state_change
from lockstep.monitor.core.state import MONITOR_S, ClientState, FleetState

PERIOD_S = 6 * 3600
_TURNS = PERIOD_S // MONITOR_S


def tell_again(fleet: FleetState, before_s: int) -> None:
    """Tell that part again whose turn came after `before_s`: of each kind about one row in `PERIOD_S` a second."""
    for second in range(max(before_s, fleet.now - MONITOR_S) + 1, fleet.now + 1):
        turn = second // MONITOR_S % _TURNS
        for name in _due(fleet.turns[second % MONITOR_S], turn):
            _tell_client(fleet, fleet.clients[name])
        if second % MONITOR_S == 0:
            _tell_rest(fleet, turn)


def _due(names: Iterable[str], turn: int) -> list[str]:
    return sorted(name for name in names if crc32(name.encode()) // MONITOR_S % _TURNS == turn)


def _tell_client(fleet: FleetState, client: ClientState) -> None:
    if client.doc is None:
        return
    clients.tell_client(fleet, client, (fleet.clock.listened_us - client.heard) // 1_000_000)
    for check, state in sorted(client.checks.items()):
        if state.event is not None:
            flap = total_state_change(state.history)
            _, text = events.document(client, state.event, state.history, flap, state.last_ok)
            fleet.row(f"event/{client.name}/{check}", "event", client.name, check, text)


def _tell_rest(fleet: FleetState, turn: int) -> None:
    if turn == 0 and fleet.rules.time:
        tell_settings(fleet)
    for id_ in _due(fleet.silences, turn):
        silences.tell(fleet, id_)
    for path in _due(fleet.stashes, turn):
        tell_stash(fleet, path)
    for name in _due(fleet.members, turn):
        aggregates.tell(fleet, name)


def tell_settings(fleet: FleetState) -> None:
    """The row of the settings, without what is secret."""
    rules = fleet.rules
    told = {"settings": redact(rules.document), "digest": rules.digest, "by": rules.by, "time": rules.time}
    fleet.row("settings", "settings", "", "", encode_text(told))


def tell_stash(fleet: FleetState, path: str) -> None:
    """The row of a stash."""
    fleet.row(f"stash/{path}", "stash", "", path, encode_text(fleet.stashes[path]))
