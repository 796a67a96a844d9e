"""The monitors of a bus as the console sees them: a view of each that follows its changelog, and a way for orders.

The packages that a view needs are imported when a monitor is opened, so that a console starts without them.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lockstep.console.port import Asked, Parameter, Site
from lockstep.errors import (
    BadArgument,
    LockstepError,
    NotFound,
    TimedOut,
    Unavailable,
)
from lockstep.monitor.core.patterns import fits_glob
from lockstep.runtime import Runtime

if TYPE_CHECKING:
    from lockstep.engine.runtime.control.leaders import LeaderEpoch
    from lockstep.monitor.view import FleetView, RowChange
    from lockstep.server.monitor.site import MonitorSite
    from lockstep.streams.client import Lockstep

CLUSTER, PREFIX, SUFFIX = "lockstep", "lockstep.", ".monitor.Fleet.O"
"""Servers of a monitor run as engines of this cluster, and the changelog is the output of the window `Fleet`."""
DEFAULT_NAME = "monitor"
NEEDED = ("lmdb", "numpy", "pyarrow")
ANSWER_S = 5.0
STALE_S = 15.0
"""A running fleet publishes its counters once a second."""
EVENTS_MAX = 100_000
"""Open events that are looked at; of more it is said that there are more."""
INDEX_S, INDEX_COST = 1.0, 5.0
"""Open events are put in order again after so long, or so many times as long as that took."""
FOLDERS_MAX = 64
OUTPUT_SHOWN = 240
MONITOR = Parameter(
    name="monitor", label="Monitor", is_scope=True, characters_max=128,
    help="which monitor; by default the only one, or 'monitor'",
)  # fmt: skip


def lacking() -> str | None:
    """Why fleets can't be shown here, in a sentence; None if they can."""
    missing = [package for package in NEEDED if not _is_there(package)]
    if not missing:
        return None
    return f"The fleet is left out, as {', '.join(missing)} is missing: pip install 'lockstep-events[monitor]'."


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


class Orders(Protocol):
    """The way of changes to a fleet."""

    def send(self, kind: str, fields: Mapping[str, Any]) -> str:
        """Append an order durably; return its id."""

    def wait(self, order: str, seconds: float) -> bool:
        """Wait until the view has the answer to an order; False if it did not come in time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenEvent:
    """What lists need of an open event. Times are milliseconds since 1970."""

    client: str
    check: str
    status: int
    action: str
    occurrences: int
    since_ms: int | None
    output: str
    silenced_by: tuple[str, ...]
    subscriptions: tuple[str, ...]
    runbook: str | None

    @property
    def severity(self) -> str:
        """The name of its status."""
        return {1: "warning", 2: "critical"}.get(self.status, "unknown")

    @property
    def rank(self) -> int:
        """How bad it is: critical, then unknown, then warning; what is silenced comes after what is not."""
        return {2: 3, 1: 1}.get(self.status, 2) + (0 if self.silenced_by else 10)

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> OpenEvent:
        """From the row of an event."""
        check, client = event["check"], event["client"]
        since = event.get("last_state_change") or event.get("timestamp")
        runbook, output = check.get("runbook"), str(check.get("output") or "").strip().split("\n", 1)[0]
        named = client.get("subscriptions")
        return cls(
            client=str(client.get("name")), check=str(check["name"]), status=int(check["status"]),
            action=str(event.get("action")), occurrences=int(event.get("occurrences") or 0),
            since_ms=None if since is None else int(since) * 1000, output=output[:OUTPUT_SHOWN],
            silenced_by=tuple(map(str, event.get("silenced_by") or ())),
            subscriptions=tuple(filter(_is_text, named)) if isinstance(named, list) else (),
            runbook=runbook if _is_text(runbook) and runbook.startswith(("http://", "https://")) else None,
        )  # fmt: skip


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def hides(subscription: str | None, check: str | None, event: OpenEvent) -> bool:
    """Whether a silence of a subscription and a check, either of which may be open or a pattern, fits an event."""
    if subscription and not any(fits_glob(each, subscription) for each in event.subscriptions):
        return False
    return not check or fits_glob(event.check, check)


@dataclass(frozen=True, slots=True)
class OpenEvents:
    """All open events and all hosts, the worst first."""

    events: Sequence[OpenEvent] = ()
    left_out: int = 0
    worst: Mapping[str, int] = field(default_factory=dict)
    """By client: the rank of its worst event."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """By client: how many."""
    hosts: Sequence[str] = ()


class OpenEventFold:
    """Open events and hosts of a view, kept in step with it: its rows are gone through once, then changes are taken."""

    def __init__(self, view: FleetView, events_max: int = EVENTS_MAX) -> None:
        self._view, self._max = view, events_max
        self._lock = threading.Lock()
        self._events: dict[tuple[str, str], OpenEvent] = {}
        self._hosts: set[str] = set()
        self._left_out = 0
        self._is_read = False
        self.version = 0
        """Grows whenever something of it changed."""
        view.on_change = self._take

    def ordered(self) -> OpenEvents:
        """As of now."""
        with self._lock:
            if not self._is_read:
                self._read()
            events, hosts, left_out = list(self._events.values()), list(self._hosts), self._left_out
        events.sort(key=lambda event: (-event.rank, event.check, event.client))
        worst: dict[str, int] = {}
        counts: dict[str, int] = {}
        for event in events:
            worst.setdefault(event.client, event.rank)
            counts[event.client] = counts.get(event.client, 0) + 1
        hosts.sort(key=lambda name: (-worst.get(name, 0), name))
        return OpenEvents(events, left_out, worst, counts, hosts)

    def _read(self) -> None:
        self._events, self._left_out = {}, 0
        for row in self._view.rows("event"):
            self._put(OpenEvent.of(row))
        self._hosts = set(self._view.clients("client"))
        self._is_read = True

    def _put(self, event: OpenEvent) -> None:
        key = (event.client, event.check)
        if key in self._events or len(self._events) < self._max:
            self._events[key] = event
        else:
            self._left_out += 1

    def _take(self, changes: Sequence[RowChange] | None) -> None:
        with self._lock:
            if changes is None:
                self._is_read = False
            elif self._is_read:
                changes = [change for change in changes if change.kind in ("event", "client")]
                for change in changes:
                    self._fold(change)
            self.version += changes is None or bool(changes) or not self._is_read

    def _fold(self, change: RowChange) -> None:
        if change.kind == "client":
            (self._hosts.discard if change.body is None else self._hosts.add)(change.client)
        elif change.body is not None:
            self._put(OpenEvent.of(json.loads(change.body)))
        else:
            self._events.pop((change.client, change.name), None)
        if self._left_out:  # which of them are left out is not known, so they are gone through again
            self._is_read = False


class Fleet:
    """A monitor: its view, and what follows from it."""

    def __init__(
        self, name: str, view: FleetView, orders: Callable[[], Orders], runtime: Runtime,
        error: Callable[[], LockstepError | None] = lambda: None,
    ) -> None:  # fmt: skip
        self.name, self.view = name, view
        self._orders, self._runtime, self._error = orders, runtime, error
        self._lock = threading.Lock()
        self._fold = OpenEventFold(view)
        self._known, self._known_at, self._until = OpenEvents(), -1, 0.0
        self._position, self._changed = view.position, runtime.monotonic()

    @property
    def error(self) -> LockstepError | None:
        """What keeps the view from following, while it does."""
        return self._error()

    @property
    def as_of_ms(self) -> int | None:
        """The time of the fleet that the view shows; None before it shows anything."""
        found = self.view.row("counters")
        return None if found is None else int(found["time"]) * 1000

    def silent_s(self) -> float:
        """For how long this console has seen no change of the view, by its own clock."""
        position, now = self.view.position, self._runtime.monotonic()
        with self._lock:
            if position != self._position:
                self._position, self._changed = position, now
            return now - self._changed

    @property
    def is_stale(self) -> bool:
        """Whether the view does not follow the fleet."""
        return self.silent_s() > STALE_S

    def events(self) -> OpenEvents:
        """All open events, as of about a second ago."""
        with self._lock:
            version, now = self._fold.version, self._runtime.monotonic()
            if version != self._known_at and now >= self._until:
                self._known = self._fold.ordered()
                self._known_at, cost = version, self._runtime.monotonic() - now
                self._until = now + cost + max(INDEX_S, INDEX_COST * cost)
            return self._known

    def forget(self) -> None:
        """Have the open events gone through again: something was changed."""
        with self._lock:
            self._known_at, self._until = -1, 0.0

    def site(self) -> MonitorSite:
        """The monitor as the routes of its own API see it."""
        from lockstep.server.monitor.site import MonitorSite, TransportFigures

        return MonitorSite(
            self.view, self._orders(), self._runtime, TransportFigures, is_following=lambda: not self.is_stale
        )

    def ask(self, kind: str, what: str, **fields: Any) -> Mapping[str, Any]:
        """Have an order carried out and return the body of its answer; an error of the tree says why it was not."""
        orders = self._orders()
        order = orders.send(kind, fields)
        if not orders.wait(order, ANSWER_S):
            error = TimedOut(what=f"The order {kind} to monitor {self.name!r}", seconds=ANSWER_S)
            error.add_note(
                "It is stored and will be carried out. Is a server running? 'lockstep monitor server' starts one."
            )
            raise error
        self.forget()
        answer = self.view.row("answer", "", order) or {"status": 500, "body": None}
        body, status = answer.get("body") or {}, int(answer["status"])
        if status == 404:
            raise NotFound(what=what, name=str(fields.get("check") or fields.get("client") or fields.get("entry")))
        if status >= 500:
            raise Unavailable(reason=f"The fleet answered {status} to the order {kind}.")
        if status >= 400:
            raise BadArgument(name=kind, value=fields, reason=str(body.get("error", f"the fleet answered {status}")))
        return dict(body)


def _monitors(logs: Sequence[str]) -> list[str]:
    names = set(logs)
    found = (name[len(PREFIX) : -len(SUFFIX)] for name in logs if name.startswith(PREFIX) and name.endswith(SUFFIX))
    return sorted(name for name in found if name and f"{name}.input" in names)


class Fleets:
    """The monitors of a bus; each is followed from when it is first looked at until this is closed."""

    def __init__(self, site: Site, folder: Path) -> None:
        """Views are kept below `folder`. Consoles may share it: each view belongs to one of them at a time."""
        self._site, self._folder = site, folder
        self._open: dict[str, Fleet] = {}
        self._closing = ExitStack()
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Every monitor that a server has run on the bus."""
        return list(self._site.names.derived("monitors", _monitors))

    def name_of(self, wanted: str) -> str | None:
        """The name that is meant; None if there is no monitor and none was named."""
        known = self.names()
        if wanted in known:
            return wanted
        if wanted:
            raise NotFound(what="Monitor", name=wanted)
        if not known or DEFAULT_NAME in known:
            return DEFAULT_NAME if known else None
        if len(known) > 1:
            raise BadArgument(name="monitor", value="", reason=f"say which: {', '.join(known)}")
        return known[0]

    def chosen(self, asked: Asked) -> Fleet:
        """The monitor that a request means; NotFound if there is none."""
        name = self.name_of(asked.values["monitor"])
        if name is None:
            raise NotFound(what="Monitor", name=DEFAULT_NAME)
        return self.open(name)

    def open(self, name: str) -> Fleet:
        """A monitor by its name, which is one of `names`."""
        with self._lock:
            found = self._open.get(name)
            if found is None:
                found = self._open[name] = opened_fleet(self._site.client, name, self._folder, self._closing)
            return found

    def lead(self, name: str) -> LeaderEpoch | None:
        """The newest epoch of the servers of a monitor; None before one has led."""
        from lockstep.engine.runtime.control.leaders import leader_epochs
        from lockstep.engine.runtime.sequence.streams import ProjectStreams

        sequence = ProjectStreams(cluster=CLUSTER, project=name).sequence
        bus = self._site.client.bus
        found = leader_epochs(bus.open(sequence), 1) if sequence in bus.names() else []
        return found[0] if found else None

    def close(self) -> None:
        """Follow no more."""
        with self._lock:
            self._open.clear()
            self._closing.close()


def opened_fleet(client: Lockstep, name: str, folder: Path, closing: ExitStack) -> Fleet:
    """A monitor whose view follows its changelog until `closing` is closed."""
    from lockstep.engine.model.validation import compile_project
    from lockstep.events.connection import ProjectEvents
    from lockstep.monitor.transport.streams import MonitorStreams
    from lockstep.monitor.view import ChangelogReader, FleetView, OrderClient
    from lockstep.monitor.window import monitor_model

    streams = MonitorStreams(name)
    project = ProjectEvents(client, CLUSTER, compile_project(monitor_model(name, streams.input)))
    view = closing.enter_context(FleetView(own_folder(folder, name, closing)))
    reader = ChangelogReader(project, view, client.runtime)
    closing.callback(reader.close)
    made: list[OrderClient] = []
    lock = threading.Lock()

    def orders() -> Orders:
        """Made for the first order: a console that only looks has no publisher."""
        with lock:
            if not made:
                made.append(OrderClient(client, streams, reader))
                closing.callback(made[0].close)
        return made[0]

    return Fleet(name, view, orders, client.runtime, lambda: reader.error)


def own_folder(folder: Path, name: str, closing: ExitStack) -> Path:
    """A folder for a view that no other process has: the first that is free, so that one that restarts goes on."""
    for number in range(FOLDERS_MAX):
        path = folder / f"fleet-{name}-{number}"
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            continue
        closing.callback(os.close, file)
        return path
    raise BadArgument(name="folder", value=str(folder), reason=f"{FOLDERS_MAX} consoles use it already")
