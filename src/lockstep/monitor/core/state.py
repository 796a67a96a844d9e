"""What the fleet keeps: clients with their checks and open events, silences, stashes, the clock; and its pages.

Ages are counted in *listened time*: microseconds of ticks that did not lag, at most two seconds each.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any
from uuid import UUID
from zlib import crc32

from lockstep.monitor.core.documents import encode_text
from lockstep.monitor.core.output import Notice, Output, Row
from lockstep.monitor.core.rules import Rules

HISTORY = 21
ALL_OK = bytes(HISTORY)
MONITOR_S = 30
"""Keepalives and TTLs of a client are looked at once in so many seconds, as in Sensu."""
REFUSED_KEPT = 1000
ID_BYTES_MAX, NOTICE_BYTES_MAX = 512, 250_000
_ALL_OK_STATE = "0" * HISTORY
_DIGITS = bytes(48 + each if each < 10 else 0 for each in range(256))
History = bytes | tuple[int, ...]
Json = dict[str, Any]


def pushed(history: History, status: int) -> History:
    """The last 21 statuses with one more. A history of nothing but OK is one object, however many checks have it."""
    if history is ALL_OK and status == 0:
        return history
    recent = history[1 - HISTORY :]
    if isinstance(recent, bytes) and 0 <= status < 256:
        made = recent + bytes((status,))
        return ALL_OK if made == ALL_OK else made
    return (*recent, status)


@dataclass(slots=True)
class EventState:
    """An open event: the last result of its check is `check`."""

    id: str
    check: Json
    revision: int = 0
    occurrences: int = 1
    watermark: int = 1
    action: str = "create"
    last_state_change: int | None = None
    silenced_by: list[str] = field(default_factory=list)
    timestamp: int = 0
    told: dict[str, list[Any]] = field(default_factory=dict)
    """For each handler with `notify: change`: status, action and time of what it was told last."""

    @property
    def status(self) -> int:
        """Of its last result."""
        return int(self.check["status"])


@dataclass(slots=True)
class CheckState:
    """A check of a client. `body` is its last result if that has a TTL."""

    history: History = b""
    last_ok: int | None = None
    executed: int | None = None
    heard: int = 0
    ttl: int = 0
    aggregates: tuple[str, ...] = ()
    body: Json | None = None
    event: EventState | None = None


@dataclass(slots=True)
class ClientState:
    """A client; without a document only what is needed to know copies of its messages."""

    name: str
    doc: Json | None = None
    text: str = ""
    """The document as JSON."""
    signature: str = ""
    heard: int = 0
    invalid_until: int = 0
    """Messages are ignored up to this time; -1: for ever."""
    checks: dict[str, CheckState] = field(default_factory=dict)
    agents: dict[str, int] = field(default_factory=dict)
    """The number of the last message of each agent."""
    digests: list[str] = field(default_factory=list)
    """Of the last messages without a number."""
    pending: dict[str, str] = field(default_factory=dict)
    """Results since the last tick, as JSON in one line; one that was deleted is empty."""
    prefix: str = ""
    """How its agent begins a message, up to the number; found again after a restart."""
    agent: str = ""

    @property
    def subscriptions(self) -> list[str]:
        """As the client says."""
        found = (self.doc or {}).get("subscriptions")
        return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []

    def set_doc(self, doc: Json) -> None:
        """Another definition."""
        self.doc, self.text = doc, encode_text(doc)

    @property
    def is_watched(self) -> bool:
        """Whether it is expected to send keepalives."""
        return self.doc is not None and self.doc.get("keepalives") is not False


@dataclass(slots=True)
class Clock:
    """The time of the last tick, and the listened time."""

    now_us: int = 0
    listened_us: int = 0
    ticks: int = 0
    lagging_ticks: int = 0
    lagging_since: int = 0
    """Seconds since 1970; 0: it does not lag."""
    is_open: bool = False
    """Whether input is taken: from the first tick on, or if too much came before it."""
    monitored_s: int = 0
    """Clients whose turn came up to this second have been looked at."""


class FleetState:
    """Clients, checks, open events, silences and the clock of a fleet.

    It also carries the step at hand: its block, its output, and `seed`, of which event ids are made.
    """

    def __init__(self) -> None:
        self.clients: dict[str, ClientState] = {}
        self.turns: list[set[str]] = [set() for _ in range(MONITOR_S)]
        self.open: dict[str, set[str]] = {}
        """Clients with an open event, by check."""
        self.members: dict[str, set[tuple[str, str]]] = {}
        """(client, check), by aggregate."""
        self.silences: dict[str, Json] = {}
        self.stashes: dict[str, Json] = {}
        self.orders: dict[str, None] = {}
        """Ids of the last orders, the newest last."""
        self.delayed: list[list[Any]] = []
        """Requests for proxy clients that wait for their turn: [milliseconds, check, client]."""
        self.turn_of: dict[str, str] = {}
        """The client that was picked last, by round-robin subscription."""
        self.early: list[list[Any]] = []
        """What came before the first tick: [key, value, block]."""
        self.rules = Rules({})
        self.clock = Clock()
        self.counters: dict[str, int] = {"results": 0, "keepalives": 0, "orders": 0, "copies": 0, "refused": 0}
        self.severities: list[int] = [0, 0, 0, 0]
        """Open events by severity."""
        self.grown: set[str] = set()
        """Aggregates whose members changed since the last tick."""
        self.waiting: set[str] = set()
        """Clients with pending results."""
        self.marked: set[str] = set()
        self.now = 0
        self.block, self.seed, self.out = 0, 0, Output()
        self.transitions = 0
        self.skewed: dict[str, int] = {}
        """Clients whose clocks are ahead, and by how many seconds."""
        self.leaving: list[str] = []
        """Clients that said in this step that they go."""
        self.direct: dict[bytes, ClientState] = {}
        """Registered clients by the key of their results."""
        self.ring: dict[str, list[str]] | None = None
        """Clients by round-robin subscription; None: to be found again."""

    def begin(self, block: int, out: Output) -> None:
        """A step begins."""
        if block != self.block:
            self.transitions = 0
        self.block = self.seed = block
        self.out = out

    def row(self, id_: str, kind: str, client: str, name: str, body: str | None) -> None:
        """Give a row of the changelog."""
        self.out.rows.append(Row(id_, kind, client, name, body, self.block))

    def notice(self, id_: str, kind: str, key: str, body: str, headers: dict[str, str]) -> None:
        """Give a notice, or refuse one that is too large; an id or key that no bus takes is told by its digest."""
        size = len(body.encode()) + sum(len(name) + len(text.encode()) for name, text in headers.items())
        if size > NOTICE_BYTES_MAX:
            self.refuse(id_, f"a notice of {size} bytes is too large to be carried out; at most {NOTICE_BYTES_MAX} are")
            return
        if not id_.isprintable() or len(id_.encode()) > ID_BYTES_MAX:
            id_ = blake2b(id_.encode("utf-8", "replace"), digest_size=16).hexdigest()
        if len(key.encode()) > ID_BYTES_MAX:
            key = blake2b(key.encode(), digest_size=16).hexdigest()
        self.out.notices.append(Notice(id_, kind, key, body.encode(), headers, self.block))

    def refuse(self, key: str, reason: str) -> None:
        """Count what can't be taken, and say why."""
        number = self.count("refused") - 1
        told = {"key": key[:256], "reason": reason[:400], "time": self.now}
        self.row(f"refused/{number % REFUSED_KEPT}", "refused", "", "", encode_text(told))

    def count(self, name: str) -> int:
        """One more of something."""
        made = self.counters[name] = self.counters.get(name, 0) + 1
        self.marked.add("clock")
        return made

    def event_id(self, client: str, check: str) -> str:
        """The id of an event that begins in this step: a UUID that follows from the block.

        With the time in it a monitor that was made anew does not give ids of the one before.
        """
        raw = blake2b(f"{self.seed}\0{self.now}\0{client}\0{check}".encode(), digest_size=16).digest()
        return str(UUID(bytes=raw, version=5))

    def client(self, name: str) -> ClientState:
        """The state of a client, new if nothing of it came before."""
        found = self.clients.get(name)
        if found is None:
            found = self.clients[name] = ClientState(name)
            self.turns[crc32(name.encode()) % MONITOR_S].add(name)
        return found

    def registered(self, name: str) -> ClientState | None:
        """The client, if it is one."""
        found = self.clients.get(name)
        return found if found is not None and found.doc is not None else None

    def forget(self, name: str) -> None:
        """Nothing is kept of a client any more."""
        self.direct.pop(f"r:{name}".encode(), None)
        del self.clients[name]
        self.turns[crc32(name.encode()) % MONITOR_S].discard(name)
        self.waiting.discard(name)
        self.mark(name)

    def mark(self, client: str) -> None:
        """The page of a client changed."""
        self.marked.add(f"c/{client}")

    def pend(self, client: ClientState, check: str, text: str) -> None:
        """A result to be told with the next tick, in one line; empty: it is gone."""
        client.pending[check] = text
        self.waiting.add(client.name)

    # Open events and aggregates are looked up from more than one side.

    def open_event(self, client: str, state: CheckState, check: str, event: EventState) -> None:
        """Keep an event, or another state of it."""
        self.close_event(client, state, check)
        state.event = event
        self.open.setdefault(check, set()).add(client)
        self.severities[_severity(event.status)] += 1

    def close_event(self, client: str, state: CheckState, check: str) -> None:
        """There is no event of this check any more."""
        if state.event is None:
            return
        self.severities[_severity(state.event.status)] -= 1
        state.event = None
        holders = self.open[check]
        holders.discard(client)
        if not holders:
            del self.open[check]

    def join(self, client: str, check: str, state: CheckState, names: tuple[str, ...]) -> None:
        """A check is a member of these aggregates, and of no others."""
        for name in state.aggregates:
            if name not in names:
                members = self.members[name]
                members.discard((client, check))
                if not members:
                    del self.members[name]
                self.grown.add(name)
        for name in names:
            if name not in state.aggregates:
                self.members.setdefault(name, set()).add((client, check))
                self.grown.add(name)
        state.aggregates = names


def _severity(status: int) -> int:
    return status if 0 <= status < 3 else 3


def history_state(history: History) -> str | list[int]:
    """A history as a page keeps it: digits, if each status is one."""
    if history is ALL_OK:
        return _ALL_OK_STATE
    if not history or (min(history) >= 0 and max(history) < 10):
        return bytes(history).translate(_DIGITS).decode("ascii")
    return list(history)


def history_of(state: str | list[int]) -> History:
    """A history from a page."""
    if isinstance(state, str):
        made: History = bytes(map(int, state))
    else:
        made = bytes(state) if all(0 <= each < 256 for each in state) else tuple(state)
    return ALL_OK if made == ALL_OK else made


def json_of(text: Any) -> Any:
    """What a page holds."""
    return json.loads(text)
