"""OK results of checks without an event: most of what a fleet says, taken with little work.

The text of the check is told as it came, with what the definition and the history add; it is read for the few fields
that count, and not written again. It works on documents whose last member is `check`, with no blanks between members:

    {"client":"web-1","_agent":"4f1c","_n":17,"check":{"name":"disk","status":0,...}}

Everything else is left to `lockstep.monitor.core.results`.
"""

from __future__ import annotations

from typing import Any

from lockstep.monitor.core import copies
from lockstep.monitor.core.documents import DEPTH_LIMIT, MESSAGE_MAX, encode_text, scan
from lockstep.monitor.core.results import CHECKS_MAX, is_name
from lockstep.monitor.core.rules import Rules
from lockstep.monitor.core.state import ALL_OK, CheckState, ClientState, FleetState, History, pushed

Json = dict[str, Any]
CHECK = ',"check":{'
SPECIAL = frozenset(
    (
        "ttl", "aggregate", "aggregates", "type", "low_flap_threshold", "high_flap_threshold", "truncate_output",
        "truncate_output_length", "source", "force_resolve", "history", "total_state_change",
    )
)  # fmt: skip
"""Members that ask for more than a line of history."""
NEEDED = ("name", "status", "executed", "output")
SHAPES_MAX = 4096
_ALL_OK_TEXT = ',"history":[' + ",".join("0" * len(ALL_OK)) + "]}"
_STANDARD = ',"type":"standard"'


class Shape:
    """Checks with the same members: whether they are plain, and what their definitions add to them."""

    __slots__ = ("additions", "has_standalone", "is_plain", "members", "rules")

    def __init__(self, members: tuple[str, ...], rules: Rules) -> None:
        self.members, self.rules = frozenset(members), rules
        self.is_plain = SPECIAL.isdisjoint(members) and all(name in members for name in NEEDED)
        self.has_standalone = "standalone" in members
        self.additions: dict[str, str] = {}

    def addition(self, check: str) -> str:
        """The members that the definition adds, as JSON; empty if they make the check a special one."""
        more = {key: value for key, value in self.rules.checks.get(check, {}).items() if key not in self.members}
        made = "" if not SPECIAL.isdisjoint(more) else _written(more) + _STANDARD
        self.additions[check] = made
        return made


def _written(members: Json) -> str:
    return "," + encode_text(members)[1:-1] if members else ""


class Shapes:
    """The shapes seen under some settings."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.found: dict[tuple[str, ...], Shape] = {}

    def add(self, members: tuple[str, ...]) -> Shape:
        """A shape that was not seen before."""
        if len(self.found) >= SHAPES_MAX:
            self.found.clear()
        made = self.found[members] = Shape(members, self.rules)
        return made


def take_fast(fleet: FleetState, shapes: Shapes, client: ClientState, value: bytes) -> bool:
    """Take a result if it is one of those; False: nothing was done, and it goes the other way."""
    if len(value) > MESSAGE_MAX:
        return False
    try:
        text = value.decode()
        at = text.index(CHECK)
        check, end = scan(text, at + 9)
    except (ValueError, StopIteration, RecursionError):
        return False
    if end != len(text) - 1 or text[end] != "}" or text.count("{") + text.count("[") > DEPTH_LIMIT:
        return False
    if "\n" in text or "\\ud" in text or "\\uD" in text:
        return False  # a row of results has a line for each check; halves of surrogate pairs are replaced
    members = tuple(check)
    shape = shapes.found.get(members) or shapes.add(members)
    if not shape.is_plain:
        return False
    name, executed, status = check["name"], check["executed"], check["status"]
    if type(name) is not str or type(executed) is not int or type(status) is not int or status != 0:
        return False
    state = client.checks.get(name)
    if type(check["output"]) is not str:
        return False
    if state is None:
        if not is_name(name) or len(client.checks) >= CHECKS_MAX:
            return False
    elif state.event is not None or state.ttl or state.aggregates:
        return False
    if shape.has_standalone and check["standalone"] is True:
        addition = _STANDARD
    else:
        addition = shape.additions.get(name) or shape.addition(name)
        if not addition:
            return False
    counters = fleet.counters
    number = _number(client, text, at)
    if number < 0:
        return False
    if number:
        agent = client.agent
        last = client.agents.get(agent)
        if last is None:  # others came in its place since
            return False
        if number <= last:
            fleet.count("copies")
            return True
        client.agents[agent] = number
    else:
        copies.note_digest(client, "r" + copies.digest_of(value))
    if state is None:
        state = client.checks[name] = CheckState()
    if state.history is ALL_OK:
        client.pending[name] = f"{text[at + 9 : end - 1]}{addition}{_ALL_OK_TEXT}"
    else:
        state.history = pushed(state.history, 0)
        client.pending[name] = f"{text[at + 9 : end - 1]}{addition}{_history_text(state.history)}"
    state.executed = state.last_ok = executed
    state.heard = fleet.clock.listened_us
    fleet.waiting.add(client.name)
    counters["results"] += 1
    return True


def _history_text(history: History) -> str:
    return f',"history":[{",".join(map(str, history))}]}}'


def _number(client: ClientState, text: str, at: int) -> int:
    """The number of a message of the agent that the client is known to have; 0: it has none; -1: look closer."""
    prefix = client.prefix
    if prefix and text.startswith(prefix):
        digits = text[len(prefix) : at]
        if digits.isascii() and digits.isdecimal() and digits[0] != "0":
            return int(digits)
        return -1
    try:
        head, end = scan(text[:at] + "}", 0)
    except (ValueError, StopIteration, RecursionError):
        return -1
    if end != at + 1 or head.get("client") != client.name or (head.get("signature") or "") != client.signature:
        return -1
    if head.keys() <= {"client", "signature"}:
        return 0
    agent, number = head.get("_agent"), head.get("_n")
    if head.keys() - {"client", "signature", "_agent", "_n"} or type(number) is not int or agent not in client.agents:
        return -1
    digits = f'"_n":{number}'
    if number > 0 and text.endswith(digits, 0, at) and text.count('"_n"', 0, at) == 1:
        client.prefix, client.agent = text[: at - len(str(number))], agent
        return number
    return -1
