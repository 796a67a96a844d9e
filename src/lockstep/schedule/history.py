"""What happened to events and ticks; and why an event fired, did not fire, or has not fired yet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.core.agenda import Event, Status
from lockstep.errors import GroupNotFound
from lockstep.log.batch import BatchView
from lockstep.log.offsets import step_back
from lockstep.log.port import Log
from lockstep.schedule.scheduler import Scheduler
from lockstep.schedule.streams import SchedulerStreams
from lockstep.schedule.tenants import Tenant
from lockstep.schedule.times import java_text
from lockstep.streams.client import Lockstep

__all__ = ["Explanation", "explain", "owner_of"]

SCANNED = 1_000_000
"""How many of the newest records are read by default."""


def records_of(
    bus: Lockstep, streams: SchedulerStreams, tenant: str, name: str, *, scanned: int = SCANNED
) -> list[dict[str, Any]]:
    """Return the records of an event, or of a cron's ticks, in the order in which they were written."""
    wanted = json.dumps(name, ensure_ascii=False).encode()
    found = (json.loads(value) for value in _values(bus.logs(streams.history)[0], scanned) if wanted in value)
    return [record for record in found if record.get("id") == name and record.get("tenant") == tenant]


def _values(log: Log, scanned: int) -> Iterator[bytes]:
    bounds = log.bounds()
    start = step_back(log, bounds.next, scanned, bounds.first)
    while start < bounds.next and (entries := log.read(start)):
        for entry in entries:
            view = BatchView(entry.base, entry.data, log.name)
            values = view.values()
            yield from values[max(start - view.base, 0) :]
            start = view.end


_ENDS = ("fired", "failed", "missed", "replayed", "removed")


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """What is known of an event: `event` is None if it is not stored, `node` if its shard has no owner."""

    tenant: str
    id: str
    shard: int
    node: str | None
    event: Event | None
    history: Sequence[Mapping[str, Any]]
    winner: str | None
    """`cancel` or `fire`, whichever decided the event's fate; None while it is open."""
    sentences: Sequence[str]

    @property
    def is_known(self) -> bool:
        """Whether the event is stored, or was."""
        return self.event is not None or bool(self.history)


def explain(scheduler: Scheduler, name: str, tenant: str, *, scanned: int = SCANNED) -> Explanation:
    """Return what the store, the nodes and the newest records of the history say about an event."""
    client = scheduler.client
    event = client.find(tenant, name)
    shard = client.shard_of(tenant, name)
    node = owner_of(scheduler, shard)
    history = records_of(scheduler.bus, scheduler.streams, tenant, name, scanned=scanned)
    now = scheduler.bus.runtime.wall_ns() // 10**6
    sentences = [
        *_about_event(event, history, now),
        *_about_tenant(event, client.tenants().get(tenant), tenant, now),
        *_about_owner(shard, node, is_waiting=event is not None and event.status is not Status.DONE),
    ]
    return Explanation(
        tenant=tenant, id=name, shard=shard, node=node, event=event, history=history,
        winner=_winner(event, history), sentences=sentences,
    )  # fmt: skip


def heard_nodes(scheduler: Scheduler) -> list[Mapping[str, Any]]:
    """The newest cards of the nodes that are heard.

    When all nodes have ended their cards stay the newest, so the group that shares the shards says who is silent.
    """
    try:
        silent = scheduler.bus.groups.describe(scheduler.streams.group).silent
    except GroupNotFound:  # no node has run yet
        return []
    return [card for card in scheduler.client.nodes() if card["member"] not in silent]


def owner_of(scheduler: Scheduler, shard: int) -> str | None:
    """Return the name of the node that owns a shard; None if no node that was heard lately does."""
    log = scheduler.bus.logs(scheduler.streams.requests)[shard]
    group = scheduler.bus.groups.describe(scheduler.streams.group)
    owner = next((part.owner for part in group.streams if part.stream == log.name), None)
    if owner is None or owner in group.silent:
        return None
    names = {card["member"]: str(card["node"]) for card in scheduler.client.nodes()}
    return names.get(owner, owner)


def _winner(event: Event | None, history: Sequence[Mapping[str, Any]]) -> str | None:
    if event is not None:
        return "fire" if event.status in (Status.FIRING, Status.DONE) else None
    fates = [str(record["what"]) for record in _fates(history)]
    if "fired" in fates:
        return "fire"
    return "cancel" if "removed" in fates else None


def _fates(history: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return how an event that is gone ended: the last record of its end, and the one before if it was removed then."""
    ends = [record for record in history if record["what"] in _ENDS]
    same = [record for record in ends if record.get("eventId") == ends[-1].get("eventId")]
    if same and same[-1]["what"] == "removed":
        return [record for record in same[-2:-1] if record["what"] != "replayed"] + same[-1:]
    return same[-1:]


def _about_event(event: Event | None, history: Sequence[Mapping[str, Any]], now: int) -> list[str]:
    if event is None:
        return _about_gone(history)
    said = [_state(event, now)]
    if event.attempt > 1 or (event.attempt and event.status is not Status.DONE):
        said.append(f"It was tried {_times(event.attempt)}.")
    if event.error is not None:
        said.append(f"The last error: {event.error.rstrip('.')}.")
    if event.lapsed:
        said.append("Its time had passed when it was requested, so it was due at once.")
    return said


def _state(event: Event, now: int) -> str:
    at = java_text(event.at)
    triggered = None if event.triggered is None else java_text(event.triggered)
    match event.status:
        case Status.WAITING if event.due > now:
            return f"It waits for {at}, in {_span(event.due - now)}."
        case Status.WAITING:
            return f"It has been due since {java_text(event.due)} and has not fired yet."
        case Status.FIRING:
            return f"It is being delivered: first tried at {triggered}, and there is no result yet. The fire won."
        case Status.RETRY:
            return f"Its delivery failed; the next try is due at {java_text(event.due)}."
        case Status.DONE:
            since = "it was requested" if event.lapsed else f"its time {at}"
            return f"It fired at {triggered}, {_span(_late(event))} after {since}. The fire won."
    ended = "an unknown time" if event.ended is None else java_text(event.ended)
    return f"It failed for good at {ended}; its time was {at}. Fire it again with 'lockstep schedule replay'."


def _about_gone(history: Sequence[Mapping[str, Any]]) -> list[str]:
    if not history:
        return ["There is no such event, and the history does not mention it."]
    match [(str(record["what"]), java_text(int(record["at"]))) for record in _fates(history)]:
        case [("fired", fired), ("removed", removed)]:
            return [f"It fired at {fired}, and was removed at {removed}, after that. The fire won."]
        case [(_, failed), ("removed", removed)]:
            return [f"It failed for good at {failed}, and was removed at {removed}, after that. The cancel won."]
        case [("removed", removed)]:
            return [f"It was cancelled at {removed}, before it fired. The cancel won."]
        case [("fired", fired)]:
            return [f"It fired at {fired}, and its row was removed when its keep time had passed. The fire won."]
    last = history[-1]
    return [f"It is no longer stored; its last record in the history is '{last['what']}' at {java_text(last['at'])}."]


def _about_tenant(event: Event | None, tenant: Tenant | None, name: str, now: int) -> list[str]:
    if event is None or event.status not in (Status.WAITING, Status.RETRY):
        return []
    if tenant is None:
        return [f"Tenant {name!r} is not registered, so its events wait."]
    if tenant.paused:
        return [f"Tenant {name!r} is paused, so its events wait: 'lockstep tenant resume {name}'."]
    if tenant.rate is not None and event.due <= now:
        return [f"Tenant {name!r} may fire {tenant.rate:g} events a second, so others may come before it."]
    return []


def _about_owner(shard: int, node: str | None, *, is_waiting: bool) -> list[str]:
    if node is not None:
        return [f"Its shard {shard} is owned by node {node}."]
    return [f"No node owns its shard {shard}: start one with 'lockstep schedule serve'."] if is_waiting else []


def _late(event: Event) -> int:
    return 0 if event.triggered is None else event.late_ms(event.triggered)


def _times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count} times"


def _span(ms: int) -> str:
    if ms < 1000:
        return f"{ms} ms"
    seconds = ms // 1000
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}s"
    return f"{seconds} s"
