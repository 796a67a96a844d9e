"""The silencing registry: entries by subscription and check, by glob, by attributes, for a time or recurring.

An acknowledgement is an entry for one client and check that ends when its event resolves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.monitor.core.conditions import in_time_windows, is_time_windows
from lockstep.monitor.core.documents import attribute_at, encode_text
from lockstep.monitor.core.methods import ruby_text
from lockstep.monitor.core.patterns import fits_glob, is_glob
from lockstep.monitor.core.state import ClientState, FleetState

Json = dict[str, Any]
SILENCES_MAX = 10_000
SECONDS_MAX = 10**12
_ALL = "*"


def id_of(entry: Mapping[str, Any]) -> str:
    """The id of an entry: its own, or subscription:check with * for what it leaves open."""
    own = entry.get("id")
    if isinstance(own, str) and own and isinstance(entry.get("match"), dict):
        return own
    return f"{entry.get('subscription') or _ALL}:{entry.get('check') or _ALL}"


def fault_of(entry: Any) -> str | None:
    """Return the error in an entry; None if it is valid."""
    if not isinstance(entry, dict):
        return "entry must be an object"
    texts = [name for name in ("id", "subscription", "check", "reason", "creator") if entry.get(name) is not None]
    if wrong := next((name for name in texts if not isinstance(entry[name], str) or len(entry[name]) > 1000), None):
        return f"{wrong} must be a text of at most 1000 characters"
    if not (entry.get("subscription") or entry.get("check") or entry.get("match")):
        return "subscription, check or match must be there"
    for name in ("expire", "begin"):
        value = entry.get(name)
        least = 1 if name == "expire" else 0
        if value is not None and (type(value) is not int or not least <= value <= SECONDS_MAX):
            return f"{name} must be a whole number of seconds, {least} to {SECONDS_MAX}"
    match = entry.get("match")
    if match is not None and not (
        isinstance(match, dict) and match and all(isinstance(v, str) for v in match.values())
    ):
        return "match must be an object of attributes and patterns"
    if match is not None and not entry.get("id"):
        return "an entry with match needs an id"
    if entry.get("when") is not None and not is_time_windows(entry["when"]):
        return "when must be an object with days, such as {'days': {'all': [{'begin': '22:00', 'end': '06:00'}]}}"
    flags = ("expire_on_resolve", "planned")
    return next(
        (f"{name} must be true or false" for name in flags if not isinstance(entry.get(name, False), bool)), None
    )


def put(fleet: FleetState, entry: Json) -> str:
    """Take an entry over the one with its id."""
    id_ = id_of(entry)
    kept = {
        "id": id_,
        "subscription": entry.get("subscription") or None,
        "check": entry.get("check") or None,
        "reason": entry.get("reason"),
        "creator": entry.get("creator"),
        "begin": entry.get("begin"),
        "expire_on_resolve": entry.get("expire_on_resolve", False),
        "timestamp": fleet.now,
    }
    expire = entry.get("expire")
    if expire is not None:
        kept["expire_at"] = max(fleet.now, entry.get("begin") or 0) + expire
    kept |= {name: entry[name] for name in ("match", "when", "planned", "acknowledged") if entry.get(name)}
    fleet.silences[id_] = kept
    fleet.marked.add("silences")
    tell(fleet, id_)
    return id_


def tell(fleet: FleetState, id_: str) -> None:
    """The row of an entry."""
    fleet.row(f"silence/{id_}", "silence", "", id_, encode_text(fleet.silences[id_]))


def remove(fleet: FleetState, id_: str) -> bool:
    """Take an entry away; False if there is none."""
    if fleet.silences.pop(id_, None) is None:
        return False
    fleet.marked.add("silences")
    fleet.row(f"silence/{id_}", "silence", "", id_, None)
    return True


def expire(fleet: FleetState) -> None:
    """Entries whose time is over go."""
    for id_ in [id_ for id_, entry in fleet.silences.items() if entry.get("expire_at", fleet.now + 1) <= fleet.now]:
        remove(fleet, id_)


def silenced_by(fleet: FleetState, client: ClientState, check: Json, status: int, action: str) -> list[str]:
    """The ids of the entries that silence an event. One that ends with the event goes when it resolves."""
    if not fleet.silences or (status == 0 and action == "create"):
        return []
    found = []
    for id_ in _fitting(fleet, client, check):
        entry = fleet.silences[id_]
        if (entry["begin"] or 0) > fleet.now:
            continue
        if entry.get("when") and not in_time_windows(entry["when"], fleet.rules.moment(fleet.now)):
            continue
        if action == "resolve" and entry["expire_on_resolve"]:
            remove(fleet, id_)
        else:
            found.append(id_)
    return found


def _fitting(fleet: FleetState, client: ClientState, check: Json) -> Iterator[str]:
    """Exact entries are looked up; only those with patterns are gone through."""
    name, subscriptions = str(check["name"]), client.subscriptions
    ids = [f"{each}:{end}" for each in subscriptions for end in (_ALL, name)]
    exact = [id_ for id_ in dict.fromkeys([*ids, f"{_ALL}:{name}"]) if id_ in fleet.silences]
    yield from (id_ for id_ in exact if not _has_pattern(fleet.silences[id_]))
    for id_, entry in list(fleet.silences.items()):
        if _has_pattern(entry) and _fits(entry, client, check, subscriptions):
            yield id_


def _has_pattern(entry: Json) -> bool:
    return "match" in entry or is_glob(entry["subscription"] or "") or is_glob(entry["check"] or "")


def _fits(entry: Json, client: ClientState, check: Json, subscriptions: list[str]) -> bool:
    wanted, name = entry["subscription"], entry["check"]
    if wanted is not None and not any(fits_glob(each, wanted) for each in subscriptions):
        return False
    if name is not None and not fits_glob(str(check["name"]), name):
        return False
    event = {"client": client.doc or {}, "check": check}
    for path, pattern in entry.get("match", {}).items():
        value = attribute_at(event, path.split("."))
        values = value if isinstance(value, list) else [value]
        if not any(fits_glob(ruby_text(each), pattern) for each in values):
            return False
    return True
