"""Rows of the fleet's pages: events and their groups, hosts, checks, results, silences and verdicts as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lockstep.console.fleets import Fleet, OpenEvent
from lockstep.console.port import Asked
from lockstep.monitor.core.documents import REDACTED_KEYS, redact

ANY = "any"
OUTPUT_MAX, PREVIEW_ROWS = 16_384, 20
_NAMES = ("ok", "warning", "critical")
_OWN = frozenset(
    {"name", "address", "subscriptions", "version", "timestamp", "keepalives", "type", "_heard", "signature"}
)


def event_row(fleet: Fleet, event: OpenEvent) -> dict[str, Any]:
    """An open event in a list."""
    return {
        "client": event.client, "check": event.check, "severity": event.severity, "status": event.status,
        "is_flapping": event.action == "flapping", "occurrences": event.occurrences, "since_ms": event.since_ms,
        "output": event.output, "runbook": event.runbook, "silences": silences_of(fleet, event.silenced_by),
    }  # fmt: skip


def is_wanted(event: OpenEvent, values: Mapping[str, Any]) -> bool:
    """Whether an event fits the filters of a request."""
    text = values["q"].lower()
    return (
        (not text or any(text in each.lower() for each in (event.client, event.check, event.output)))
        and values["severity"] in (ANY, event.severity)
        and values["check"] in ("", event.check)
        and values["host"] in ("", event.client)
        and values["silenced"] in (ANY, "yes" if event.silenced_by else "no")
    )


def page_of(rows: Sequence[Any], total: int, asked: Asked) -> tuple[Sequence[Any], dict[str, Any]]:
    """The rows of one page, and what the page says of itself."""
    size = asked.values["size"]
    pages = max(1, -(-len(rows) // size))
    page = min(asked.values["page"], pages)
    shown = rows[(page - 1) * size : page * size]
    return shown, {"page": page, "pages": pages, "size": size, "total": len(rows), "all": total}


def counted(events: Iterable[OpenEvent]) -> dict[str, int]:
    """How many events of each severity, and how many are silenced."""
    found = {"critical": 0, "unknown": 0, "warning": 0, "silenced": 0}
    for event in events:
        found[event.severity] += 1
        found["silenced"] += bool(event.silenced_by)
    return found


def grouped(events: Iterable[OpenEvent]) -> list[list[OpenEvent]]:
    """Events by check; first the check whose worst event is the worst, then the one that fails on most hosts."""
    found: dict[str, list[OpenEvent]] = {}
    for event in events:
        found.setdefault(event.check, []).append(event)
    return sorted(found.values(), key=lambda group: (-max(event.rank for event in group), -len(group), group[0].check))


def group_row(group: Sequence[OpenEvent]) -> dict[str, Any]:
    """The open events of one check."""
    since = [event.since_ms for event in group if event.since_ms is not None]
    worst = max(group, key=lambda event: event.rank)
    return {
        "check": group[0].check, **counted(group), "hosts": len(group), "severity": worst.severity,
        "since_ms": min(since) if since else None, "occurrences": max(event.occurrences for event in group),
        "output": worst.output, "is_flapping": any(event.action == "flapping" for event in group),
    }  # fmt: skip


def silences_of(fleet: Fleet, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Why an event is silenced, by whom and until when."""
    return [silence_row(fleet.view.row("silence", "", id_) or {}, id_) for id_ in ids[:PREVIEW_ROWS]]


def silence_row(row: Mapping[str, Any], id_: str) -> dict[str, Any]:
    """A silence. `until` says in words what ends it besides its time."""
    ends = row.get("expire_at")
    return {
        "id": id_, "subscription": row.get("subscription"), "check": row.get("check"), "match": row.get("match"),
        "reason": row.get("reason"), "creator": row.get("creator"),
        "begins_ms": None if row.get("begin") is None else row["begin"] * 1000,
        "ends_ms": None if ends is None else ends * 1000, "until_resolved": bool(row.get("expire_on_resolve")),
        "is_acknowledgement": bool(row.get("acknowledged")), "is_planned": bool(row.get("planned")),
        "when": row.get("when"),
    }  # fmt: skip


def severity_name(status: Any) -> str:
    """The name of a status."""
    return _NAMES[status] if isinstance(status, int) and 0 <= status < len(_NAMES) else "unknown"


def rank_of(status: Any) -> int:
    """How bad a status is: critical, then unknown, then warning."""
    return {0: 0, 1: 1, 2: 3}.get(status, 2)


def host_row(row: Mapping[str, Any], events: int, rank: int) -> dict[str, Any]:
    """A host in a list."""
    heard, subscriptions = row.get("_heard"), row.get("subscriptions")
    return {
        "name": row.get("name"), "address": row.get("address"), "version": row.get("version"),
        "subscriptions": [str(each) for each in subscriptions] if isinstance(subscriptions, list) else [],
        "heard_ms": None if heard is None else int(heard) * 1000, "is_watched": row.get("keepalives") is not False,
        "is_proxy": row.get("type") == "proxy", "events": events,
        "worst": {3: "critical", 2: "unknown", 1: "warning"}.get(rank % 10, "ok"), "is_hidden": 0 < rank < 10,
    }  # fmt: skip


def facts_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """What else a host says of itself, without secrets."""
    own = row.get("redact")
    keys = REDACTED_KEYS | {str(each) for each in own} if isinstance(own, list) else REDACTED_KEYS
    return {name: value for name, value in redact(row, keys).items() if name not in _OWN}


def result_row(check: Mapping[str, Any]) -> dict[str, Any]:
    """The last result of a check of a host."""
    executed, history = check.get("executed"), check.get("history")
    return {
        "check": check.get("name"), "status": check.get("status"), "severity": severity_name(check.get("status")),
        "executed_ms": executed * 1000 if isinstance(executed, int | float) else None,
        "duration_s": check.get("duration"), "output": str(check.get("output") or "")[:OUTPUT_MAX],
        "history": [severity_name(int(each)) for each in history if str(each).isdecimal()] if history else [],
    }  # fmt: skip


def transition_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A change of an event, and the handlers that were notified."""
    return {
        "at_ms": row["time"] * 1000, "check": row["check"], "severity": severity_name(row["status"]),
        "action": row["action"], "occurrences": row["occurrences"], "output": row["output"],
        "silenced": row["silenced"],
        "told": [{"handler": handler, "is_told": is_told, "gate": gate} for handler, is_told, gate in row["verdicts"]],
    }  # fmt: skip


def verdict_rows(why: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """For each handler: whether it was notified, and the result of each gate up to the one that blocked."""
    handlers = () if why is None else why["handlers"]
    return [{"handler": one["handler"], "is_told": one["handled"], "gates": one["gates"]} for one in handlers]


def checks_of(fleet: Fleet) -> Mapping[str, Mapping[str, Any]]:
    """The checks of the settings in force."""
    settings = (fleet.view.row("settings") or {}).get("settings") or {}
    found: Mapping[str, Mapping[str, Any]] = settings.get("checks") or {}
    return found


def check_row(name: str, check: Mapping[str, Any], failing: Sequence[OpenEvent]) -> dict[str, Any]:
    """A check in a list, with how many hosts it fails on."""
    handlers = check.get("handlers") or check.get("handler") or []
    return {
        "name": name, "command": check.get("command"), "interval_s": check.get("interval"), "cron": check.get("cron"),
        "subscribers": [str(each) for each in check.get("subscribers") or []],
        "handlers": [str(each) for each in (handlers if isinstance(handlers, list) else [handlers])],
        "is_standalone": check.get("standalone") is True, **counted(failing),
    }  # fmt: skip


def preview_rows(events: Sequence[OpenEvent]) -> list[dict[str, Any]]:
    """Some events that an act would concern, and how many more there are."""
    rows = [{"host": event.client, "check": event.check, "severity": event.severity,
             "silenced": "yes" if event.silenced_by else "no", "output": event.output}
            for event in events[:PREVIEW_ROWS]]  # fmt: skip
    if len(events) > PREVIEW_ROWS:
        rows.append({"host": f"and {len(events) - PREVIEW_ROWS:,} more", "check": "", "severity": "", "silenced": "",
                     "output": ""})  # fmt: skip
    return rows
