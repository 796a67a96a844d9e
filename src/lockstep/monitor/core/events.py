"""What an event becomes: its row, its transition, its verdicts, and a notice for each handler whose gates are open."""

from __future__ import annotations

from typing import Any

from lockstep.monitor.core.documents import encode_text
from lockstep.monitor.core.gates import Decision, decisions
from lockstep.monitor.core.state import ClientState, EventState, FleetState, History

Json = dict[str, Any]
TRANSITION_OUTPUT = 256
BODY_BYTES_MAX = 240_000
"""Room is left for what a notice has besides its body."""
SHORT_OUTPUT = 10_000


def document(
    client: ClientState, state: EventState, history: History, flap: int, last_ok: int | None
) -> tuple[Json, str]:
    """An event as Sensu writes it, and the same as JSON."""
    check = {**state.check, "history": [str(status) for status in history], "total_state_change": flap}
    rest = {
        "occurrences": state.occurrences,
        "occurrences_watermark": state.watermark,
        "action": state.action,
        "timestamp": state.timestamp,
        "last_state_change": state.last_state_change,
        "last_ok": last_ok,
        "silenced": bool(state.silenced_by),
        "silenced_by": state.silenced_by,
    }
    event = {"id": state.id, "client": client.doc or {}, "check": check, **rest}
    text = f'{{"id":"{state.id}","client":{client.text},"check":{encode_text(check)},{encode_text(rest)[1:]}'
    return event, text


def handle(fleet: FleetState, client: ClientState, event: Json, text: str, state: EventState) -> list[Decision]:
    """Go through the gates, and give what follows: notices, and the verdicts for `why`."""
    state.revision += 1
    made = decisions(fleet, event, state)
    check = event["check"]
    name = check["name"]
    for decision in made:
        if not decision.is_handled:
            continue
        state.told[decision.handler] = [check["status"], event["action"], fleet.now]
        fleet.count("handled")
        fleet.notice(
            f"{state.id}.{state.revision}.{decision.handler}",
            "handle",
            f"{client.name}/{name}/{decision.handler}",
            _body(decision, event, text),
            {"handler": decision.handler},
        )
    why = {
        "id": state.id,
        "revision": state.revision,
        "status": check["status"],
        "action": event["action"],
        "occurrences": event["occurrences"],
        "time": fleet.now,
        "handlers": [decision.told() for decision in made],
    }
    fleet.row(f"why/{client.name}/{name}", "why", client.name, name, encode_text(why))
    return made


def transition(fleet: FleetState, client: ClientState, event: Json, state: EventState, made: list[Decision]) -> None:
    """A row of the history of transitions."""
    check = event["check"]
    output = check.get("output")
    told = {
        "id": state.id,
        "revision": state.revision,
        "client": client.name,
        "check": check["name"],
        "status": check["status"],
        "action": event["action"],
        "occurrences": event["occurrences"],
        "time": fleet.now,
        "output": output[:TRANSITION_OUTPUT] if isinstance(output, str) else "",
        "silenced": event["silenced"],
        "verdicts": [[each.handler, each.is_handled, each.verdicts[-1].gate] for each in made],
    }
    id_ = f"transition/{fleet.block}/{fleet.transitions}"
    fleet.transitions += 1
    fleet.row(id_, "transition", client.name, check["name"], encode_text(told))


def _body(decision: Decision, event: Json, text: str) -> str:
    handler, verdicts = encode_text(decision.handler), encode_text(decision.told()["gates"])
    later = f',"filters":{encode_text(decision.later)}' if decision.later else ""
    body = f'{{"handler":{handler},"event":{text},"verdicts":{verdicts}{later}}}'
    if len(body) * 4 <= BODY_BYTES_MAX or len(body.encode()) <= BODY_BYTES_MAX:
        return body
    return f'{{"handler":{handler},"event":{encode_text(_short(event))},"verdicts":{verdicts}{later}}}'


def _short(event: Json) -> Json:
    """An event that is too large for a notice, with what tells it apart; the view has all of it."""
    check = event["check"]
    kept = ("name", "status", "issued", "executed", "duration", "type", "source", "handlers", "handler", "history")
    short = {name: check[name] for name in kept if name in check and len(encode_text(check[name])) < SHORT_OUTPUT}
    output = check.get("output")
    short["output"] = output[:SHORT_OUTPUT] if isinstance(output, str) else ""
    client = {name: value for name, value in event["client"].items() if len(encode_text(value)) < 1000}
    return {**event, "client": dict(list(client.items())[:30]), "check": short, "shortened": True}
