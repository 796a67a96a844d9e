"""A result becomes history, an event if something is wrong or was, and what handlers are told of it.

An OK result of a check without an event goes another way, in `lockstep.monitor.core.fast`, to the same answer.
"""

from __future__ import annotations

import re
from typing import Any

from lockstep.monitor.core import events, silences
from lockstep.monitor.core.documents import encode_text, stored_output
from lockstep.monitor.core.rules import positive
from lockstep.monitor.core.state import (
    HISTORY,
    CheckState,
    ClientState,
    EventState,
    FleetState,
    History,
    pushed,
)

Json = dict[str, Any]
ROW_MAX = 1 << 20
"""Characters of results in one row of the changelog, whose records have a bound."""
NAME = re.compile(r"[\w.\-]{1,128}")
"""Sensu's rule for names of clients and checks, with a bound."""
AGGREGATE_NAME = re.compile(r"[\w.:|\-]{1,128}")
STATUS_MAX = 2**31
VERSION = "0.26.5"
"""Of Sensu: what clients that the server makes say they have."""
CHECKS_MAX = 10_000
"""Of one client: a script that makes up names would fill the state."""
_WEIGHT, _GROWTH = 0.8, 0.02
AGGREGATES_MAX = 20


def fault_of(check: Any) -> str | None:
    """Return the error in the check of a result; None if it is valid."""
    if not isinstance(check, dict):
        return "check must be an object"
    name, status, output = check.get("name"), check.get("status", 0), check.get("output", "")
    if not is_name(name):
        return f"check name {str(name)[:80]!r} must be 1 to 128 letters, digits, dots, dashes or underscores"
    if type(status) is not int or abs(status) > STATUS_MAX:
        return f"status {str(status)[:80]!r} of check {name} must be a whole number"
    if not isinstance(output, str):
        return f"output of check {name} must be a text"
    source = check.get("source")
    if source is not None and not is_name(source):
        return (
            f"source {str(source)[:80]!r} of check {name} must be 1 to 128 letters, digits, dots, dashes or underscores"
        )
    return None


def is_name(value: Any) -> bool:
    """Whether a client or check may be called so."""
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def merged(fleet: FleetState, check: Json, origin: str) -> Json:
    """A result's check over the definition that the settings have of it, unless it is a standalone one."""
    made: Json = {}
    if check.get("standalone") is not True:
        made |= fleet.rules.checks.get(check["name"], {})
    made |= check
    made |= {"status": check.get("status", 0), "output": check.get("output", "")}
    if not isinstance(made.get("type"), str):
        made["type"] = "standard"
    if made.get("source"):
        made["origin"] = origin
    made.pop("history", None)
    made.pop("total_state_change", None)
    return made


def apply_result(fleet: FleetState, client: ClientState, check: Json, *, is_copy: bool = False) -> None:
    """Take a result of a registered client; `check` is merged with its definition.

    `is_copy`: it is the last result once more, with another status, as the TTL monitor makes it.
    """
    name, status = check["name"], check["status"]
    state = client.checks.get(name)
    if state is None:
        if len(client.checks) >= CHECKS_MAX and name != "keepalive":
            fleet.refuse(f"r:{client.name}", f"the client has {CHECKS_MAX} checks already, and {name} is another one")
            return
        state = client.checks[name] = CheckState()
    state.history = pushed(state.history, status)
    flap = total_state_change(state.history)
    _store(fleet, client, check, state, is_copy=is_copy)
    action, event = _next_event(fleet, client, check, state, flap)
    if status == 0 and action == "create" and check["type"] != "metric":
        return
    event.silenced_by = silences.silenced_by(fleet, client, check, status, action)
    event.timestamp = fleet.now
    _take_event(fleet, client, state, action, event, flap)


def _store(fleet: FleetState, client: ClientState, check: Json, state: CheckState, *, is_copy: bool) -> None:
    """Keep what the result says of its check, and tell it with the next tick."""
    executed = check.get("executed")
    state.executed = int(executed) if isinstance(executed, int | float) else None
    if check["status"] == 0:
        state.last_ok = state.executed if state.executed is not None else fleet.now
    names = aggregate_names(check)
    if names != state.aggregates:
        fleet.join(client.name, check["name"], state, names)
    if not is_copy:
        state.heard = fleet.clock.listened_us
        is_timed = state.executed is not None and check.get("force_resolve") is not True
        state.ttl = (positive(check.get("ttl")) or 0) if is_timed else 0
        state.body = check if state.ttl else None
    fleet.pend(client, check["name"], _result_text(check, state.history))
    fleet.mark(client.name)


def _result_text(check: Json, history: History) -> str:
    return encode_text({**check, "output": stored_output(check), "history": list(history)})


def aggregate_names(check: Json) -> tuple[str, ...]:
    """The aggregates that a check is a member of."""
    names, one = check.get("aggregates"), check.get("aggregate")
    if not isinstance(names, list):
        names = [check["name"]] if one is True else [one]
    found = [each for each in names if isinstance(each, str) and AGGREGATE_NAME.fullmatch(each)]
    return tuple(dict.fromkeys(found[:AGGREGATES_MAX]))


def total_state_change(history: History) -> int:
    """How much the last 21 statuses changed, in percent; newer changes weigh more. 0 with fewer."""
    if len(history) < HISTORY or history.count(history[0]) == HISTORY:
        return 0
    total, weight, previous = 0.0, _WEIGHT, history[0]
    for status in history:
        if status != previous:
            total += weight
        weight += _GROWTH
        previous = status
    return int(total / (HISTORY - 1) * 100)


def is_flapping(check: Json, flap: int, was: bool) -> bool:
    """Whether a check flaps: both thresholds are set, and the high one is reached, or the low one not yet left."""
    low, high = check.get("low_flap_threshold"), check.get("high_flap_threshold")
    if not isinstance(low, int | float) or not isinstance(high, int | float) or check.get("force_resolve") is True:
        return False
    return bool(flap > low if was else flap >= high)


def _next_event(
    fleet: FleetState, client: ClientState, check: Json, state: CheckState, flap: int
) -> tuple[str, EventState]:
    """The event after a result: a new one, or the next state of the one that is open."""
    stored, history, status = state.event, state.history, check["status"]
    flapping = is_flapping(check, flap, stored is not None and stored.action == "flapping")
    action = "flapping" if flapping else "create"
    if stored is None:
        event = EventState(fleet.event_id(client.name, check["name"]), check)
    else:
        event = EventState(
            stored.id, check, stored.revision, stored.occurrences, stored.watermark, action,
            stored.last_state_change, [], 0, dict(stored.told),
        )  # fmt: skip
    if status != 0 or flapping:
        if len(history) > 1 and history[-1] == history[-2]:
            event.occurrences += 1
            event.watermark = max(event.watermark, event.occurrences)
        else:
            event.occurrences, event.last_state_change = 1, fleet.now
    elif stored is not None:
        action, event.last_state_change = "resolve", fleet.now
    event.action = action
    return action, event


def _take_event(
    fleet: FleetState, client: ClientState, state: CheckState, action: str, event: EventState, flap: int
) -> None:
    """Add an event to the registry or remove it, and notify the handlers."""
    check, stored = event.check, state.event
    name = check["name"]
    before = None if stored is None else (stored.status, stored.action)
    resolves = action == "resolve" and (check.get("auto_resolve") is not False or check.get("force_resolve") is True)
    is_kept = check["status"] != 0 or action == "flapping"
    if not (is_kept or resolves or check["type"] == "metric"):
        return
    found, text = events.document(client, event, state.history, flap, state.last_ok)
    made = events.handle(fleet, client, found, text, event)
    id_ = f"event/{client.name}/{name}"
    if is_kept:
        fleet.open_event(client.name, state, name, event)
        fleet.row(id_, "event", client.name, name, text)
    elif resolves:
        fleet.close_event(client.name, state, name)
        fleet.row(id_, "event", client.name, name, None)
    is_change = before != (check["status"], action) or any(each.is_handled for each in made)
    if is_change and (is_kept or resolves):
        events.transition(fleet, client, found, event, made)
    if name == "deregistration" and is_kept:
        fleet.leaving.append(client.name)


def tell_once(fleet: FleetState, client: ClientState, check: Json) -> None:
    """An event that handlers are told and the registry does not keep: a registration."""
    event = EventState(fleet.event_id(client.name, check["name"]), check, last_state_change=fleet.now)
    event.timestamp = fleet.now
    event.silenced_by = silences.silenced_by(fleet, client, check, check["status"], "create")
    found, text = events.document(client, event, (check["status"],), 0, fleet.now)
    made = events.handle(fleet, client, found, text, event)
    events.transition(fleet, client, found, event, made)


def forget_result(fleet: FleetState, client: ClientState, check: str) -> bool:
    """A result and its history go, its event stays away without a word; False if there is none."""
    state = client.checks.pop(check, None)
    if state is None:
        return False
    fleet.join(client.name, check, state, ())
    if state.event is not None:
        fleet.close_event(client.name, state, check)
        fleet.row(f"event/{client.name}/{check}", "event", client.name, check, None)
    fleet.pend(client, check, "")
    fleet.mark(client.name)
    return True


def tell_of_client(fleet: FleetState, name: str) -> None:
    """Rows of the results of a client since they were told last: of very many or long ones there are several."""
    client = fleet.clients[name]
    lines: list[str] = []
    size = 0
    for check, text in client.pending.items():
        if lines and size + len(text) > ROW_MAX:
            fleet.row(f"results/{name}", "results", name, "", "\n".join(lines))
            lines, size = [], 0
        lines.append(f"{check}\t{text}")
        size += len(text)
    fleet.row(f"results/{name}", "results", name, "", "\n".join(lines))
    client.pending = {}
    fleet.waiting.discard(name)
    fleet.mark(name)
