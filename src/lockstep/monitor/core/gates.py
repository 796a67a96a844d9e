"""The gates between an event and a handler, in order; each verdict says in a sentence why.

enabled      check.handle is not false
flapping     a flapping event needs handle_flapping
severities   the severity is one of the handler's; at a resolve, one in the history is
silenced     a silenced event needs handle_silenced
filter NAME  the handler's filters, in order
change       with `notify: change`, status and action are not those that the handler was told last
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from lockstep.monitor.core.conditions import difference, in_time_windows
from lockstep.monitor.core.rules import CHANGE, EACH, Rules, integer, positive, severity_of
from lockstep.monitor.core.state import EventState, FleetState

Json = dict[str, Any]
SETS_NESTED = 2
DEFAULT_REFRESH_S, DEFAULT_INTERVAL_S = 1800, 60


class Verdict(NamedTuple):
    """Whether a gate let an event through, and why."""

    gate: str
    passed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of an event for a handler: its verdicts up to the first gate that is closed."""

    handler: str
    definition: Json
    verdicts: list[Verdict]
    later: list[str]
    """Filters that the settings do not have: extensions, which the server that carries out the notice has to ask."""

    @property
    def is_handled(self) -> bool:
        """Whether all gates are open."""
        return all(verdict.passed for verdict in self.verdicts)

    def told(self) -> Json:
        """As a document."""
        gates = [{"gate": gate, "passed": passed, "reason": reason} for gate, passed, reason in self.verdicts]
        return {"handler": self.handler, "handled": self.is_handled, "gates": gates}


def decisions(fleet: FleetState, event: Json, state: EventState) -> list[Decision]:
    """What becomes of an event for each of its handlers."""
    made = []
    for name, definition, fault in handlers_of(fleet.rules, event["check"]):
        if definition is None:
            made.append(Decision(name, {}, [Verdict("handler", False, fault)], []))
            continue
        verdicts: list[Verdict] = []
        later: list[str] = []
        for verdict in _gates(fleet, event, state, name, definition, later):
            verdicts.append(verdict)
            if not verdict.passed:
                break
        made.append(Decision(name, definition, verdicts, later))
    return made


def handlers_of(rules: Rules, check: Json) -> list[tuple[str, Json | None, str]]:
    """The handlers of a check, sets expanded, each once; those that can't be used with the reason."""
    names = next((check[each] for each in ("handlers", "handler") if check.get(each) not in (None, False)), "default")
    found: dict[str, tuple[str, Json | None, str]] = {}
    for each in _expanded(rules, names if isinstance(names, list) else [names], 0):
        found.setdefault(each[0], each)
    return list(found.values())


def _expanded(rules: Rules, names: list[Any], depth: int) -> Iterator[tuple[str, Json | None, str]]:
    for name in names:
        definition = rules.handlers.get(name) if isinstance(name, str) else None
        if definition is None:
            yield str(name), None, "the settings have no handler of this name"
        elif definition.get("type") != "set":
            yield name, definition, ""
        elif depth >= SETS_NESTED:
            yield name, None, "sets of handlers can't be nested deeper than two"
        else:
            members = definition.get("handlers")
            yield from _expanded(rules, members if isinstance(members, list) else [], depth + 1)


def _gates(
    fleet: FleetState, event: Json, state: EventState, name: str, handler: Json, later: list[str]
) -> Iterator[Verdict]:
    check = event["check"]
    if check.get("handle") is False:
        yield Verdict("enabled", False, "the check says handle: false")
    if event["action"] == "flapping":
        may = bool(handler.get("handle_flapping"))
        yield Verdict(
            "flapping", may, f"the check is flapping, and the handler takes {'that' if may else 'no such events'}"
        )
    if isinstance(handler.get("severities"), list):
        yield _severity(event, handler["severities"])
    if event["silenced"]:
        may = bool(handler.get("handle_silenced"))
        ids = ", ".join(event["silenced_by"][:5])
        yield Verdict("silenced", may, f"silenced by {ids}" + (", which the handler disregards" if may else ""))
    for wanted in _filters(handler):
        yield _filter(fleet, event, wanted, later)
    if _notifies(fleet.rules, check, handler) == CHANGE:
        yield _change(fleet, event, state, name)
    yield Verdict("handler", True, "all gates are open")


def _severity(event: Json, wanted: list[Any]) -> Verdict:
    check = event["check"]
    if event["action"] == "resolve":
        found = list(dict.fromkeys(severity_of(int(status)) for status in check["history"]))
        may = any(each in wanted for each in found)
        reason = f"resolved; its history has {', '.join(found)}"
    else:
        severity = severity_of(check["status"])
        may, reason = severity in wanted, f"the severity is {severity}"
    return Verdict("severities", may, f"{reason}, and the handler takes {', '.join(map(str, wanted))}")


def _filters(handler: Json) -> list[str]:
    names: Any = next((handler[each] for each in ("filters", "filter") if handler.get(each) not in (None, False)), [])
    return [name for name in (names if isinstance(names, list) else [names]) if isinstance(name, str)]


def _filter(fleet: FleetState, event: Json, name: str, later: list[str]) -> Verdict:
    gate = f"filter {name}"
    definition = fleet.rules.filters.get(name)
    if definition is not None:
        return Verdict(gate, *_native(fleet, event, definition))
    if name == "occurrences":
        return Verdict(gate, *occurrences(event))
    if name == "check_dependencies":
        return Verdict(gate, *dependencies(fleet, event))
    later.append(name)
    return Verdict(gate, True, "the settings have no filter of this name: it passes unless an extension filters it out")


def _native(fleet: FleetState, event: Json, definition: Json) -> tuple[bool, str]:
    moment = fleet.rules.moment(fleet.now)
    if definition.get("when") is not None and not in_time_windows(definition["when"], moment):
        return True, "the filter does not apply at this time"
    attributes = definition.get("attributes")
    told = difference(attributes if isinstance(attributes, dict) else {}, event, event, moment)
    negate = bool(definition.get("negate"))
    if told is None:
        return not negate, "all attributes match" + (", and the filter drops what matches" if negate else "")
    return negate, told


def occurrences(event: Json) -> tuple[bool, str]:
    """The filter of this name: from `occurrences` on, and then again each `refresh` seconds."""
    check = event["check"]
    need = integer(check.get("occurrences")) or 1
    refresh = _refresh_s(check)
    count, watermark = event["occurrences"], event["occurrences_watermark"]
    if event["action"] == "resolve" and watermark >= need:
        return True, f"resolved after {watermark} occurrences of {need} that are needed"
    if count < need:
        return False, f"{count} occurrences of {need} that are needed"
    if event["action"] in ("create", "flapping") and count > need:
        interval = positive(check.get("interval")) or DEFAULT_INTERVAL_S
        turn = refresh // interval
        if turn > 0 and (count - need) % turn:
            return False, f"occurrence {count}; after number {need} each {turn}th is handled (refresh {refresh} s)"
    return True, f"occurrence {count} of {need} that are needed"


def _refresh_s(check: Json) -> int:
    refresh = integer(check.get("refresh"))
    return DEFAULT_REFRESH_S if refresh is None else refresh


def dependencies(fleet: FleetState, event: Json) -> tuple[bool, str]:
    """The filter check_dependencies: nothing that the check depends on has an open event."""
    found = event["check"].get("dependencies")
    own = event["client"].get("name")
    for each in found if isinstance(found, list) else []:
        if isinstance(each, str) and (holder := _open_dependency(fleet, each, own)):
            return False, f"it depends on {each}, and {holder} has an open event"
    return True, "nothing that it depends on has an open event"


def _open_dependency(fleet: FleetState, text: str, own: str) -> str | None:
    """Who has an open event: a client and check in the words of a dependency."""
    place, slash, check = text.rpartition("/")
    holders = fleet.open.get(check, ())
    if not slash:
        return f"{own}/{check}" if own in holders else None
    if not place.startswith("subscription:"):
        return text if place in holders else None
    wanted = place.removeprefix("subscription:")
    named = [name for name in holders if wanted in fleet.clients[name].subscriptions]
    return f"{min(named)}/{check}" if named else None


def _notifies(rules: Rules, check: Json, handler: Json) -> str:
    """Return how often a handler is notified: `notify` of the handler, of the check, or the default."""
    return next((each for each in (handler.get("notify"), check.get("notify")) if each in (EACH, CHANGE)), rules.notify)


def _change(fleet: FleetState, event: Json, state: EventState, handler: str) -> Verdict:
    """One notification for each change, and again after `refresh` seconds."""
    check = event["check"]
    told = state.told.get(handler)
    if told is None or told[:2] != [check["status"], event["action"]]:
        return Verdict("change", True, "status or action changed since the handler was told last")
    refresh = _refresh_s(check)
    slack = (positive(check.get("interval")) or DEFAULT_INTERVAL_S) / 2
    age = fleet.now - told[2]
    if age >= refresh - slack:
        return Verdict("change", True, f"unchanged, and told {age} s ago (refresh {refresh} s)")
    return Verdict("change", False, f"unchanged since the handler was told {age} s ago (refresh {refresh} s)")
