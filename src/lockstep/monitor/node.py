"""One server of a monitor: an engine that runs the fleet, carriers that carry out its notices, and a view of it.

Any number of servers may run beside one bus. One engine leads; the carriers of all of them share the notices, and each
server answers from a view of its own.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from lockstep.carriers.stream import ToStream
from lockstep.engine.model.validation import compile_project
from lockstep.engine.runtime.control.leadership import usual_lease_s
from lockstep.engine.runtime.control.status import ACTIVE, SILENT_S
from lockstep.engine.runtime.engine import Engine, EngineOptions
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.errors import TimedOut
from lockstep.events.connection import ProjectEvents
from lockstep.log.config import StreamConfig
from lockstep.monitor.delivery import HandlerDelivery
from lockstep.monitor.health import OWN_CLIENT, Health
from lockstep.monitor.settings.errors import SettingsInvalid, fault_line
from lockstep.monitor.settings.expressions import unreadable
from lockstep.monitor.settings.settings import Settings
from lockstep.monitor.transport.bridge import MESSAGE_BYTES, Bridge
from lockstep.monitor.transport.port import Transport
from lockstep.monitor.transport.streams import MonitorStreams
from lockstep.monitor.view import ChangelogReader, FleetView, OrderClient
from lockstep.monitor.window import QUERY, WINDOW, monitor_model
from lockstep.runtime import logger
from lockstep.streams.carrier import Carrier, CarrierOptions
from lockstep.streams.client import Lockstep
from lockstep.streams.deliveries import Deliveries
from lockstep.streams.options import GroupOptions

CLUSTER = "lockstep"
HANDLE, REQUEST = "handle", "request"
_DAY_S = 86_400.0
INPUT = StreamConfig(retain_age_s=7 * _DAY_S)
CHANGELOG = StreamConfig(retain_age_s=2 * _DAY_S, max_record_bytes=64 << 20)
"""The fleet tells rows again every six hours, so that two days make a whole view; results it tells as they come."""
NOTICES = StreamConfig(retain_age_s=7 * _DAY_S)
REQUESTS = StreamConfig(retain_age_s=3600.0)
"""A request that nobody took for an hour is of no use any more."""
_SETTINGS_S = 60.0
_HANDLER_TRIES = 10
HANDLERS_END_S = 10.0
"""How long a server that stops waits for handlers at work before it kills their commands."""
_BEATS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeOptions:
    """How a server of a monitor runs."""

    name: str = "monitor"
    folder: Path = Path(".lockstep-monitor")
    """Where the engine and the view keep their files."""
    runner: str = "spark"
    engine_name: str = ""
    workers: int = 12
    """Handlers at work at a time."""
    spark: Mapping[str, str] = field(default_factory=dict)
    election: str = field(default="", repr=False)
    """The URL of what says who may try to lead, with its password; by default the log of the engines alone."""


class MonitorNode:
    """Runs from `start` to `close`; use it in a with statement."""

    def __init__(
        self,
        bus: Lockstep,
        settings: Settings,
        environment: Mapping[str, str],
        options: NodeOptions | None = None,
        *,
        transport: Transport | None = None,
        reread: Callable[[], Settings] | None = None,
    ) -> None:
        """`reread` reads the settings of this server again, when others are put in force."""
        self.options = options or NodeOptions()
        self.bus, self.settings, self._environment, self._transport = bus, settings, environment, transport
        self._reread, self._in_force = reread, ("", 0)
        self.streams = MonitorStreams(self.options.name)
        self.graph = compile_project(monitor_model(self.options.name, self.streams.input))
        self.project = ProjectStreams(cluster=CLUSTER, project=self.options.name)
        self._closing = ExitStack()
        self.engine: Engine
        self.view: FleetView
        self.reader: ChangelogReader
        self.orders: OrderClient
        self.carriers: list[Carrier] = []
        self._runs = False

    def start(self) -> None:
        """Start everything; it returns when the engine computes and the settings are in force."""
        try:
            self._make_streams()
            self._start_engine()
            self._start_view()
            self._start_carriers()
            self._state_settings()
            self._start_bridge()
            self._start_health()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop everything in the reverse order."""
        self._closing.close()

    def __enter__(self) -> MonitorNode:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def check(self) -> None:
        """Raise what stopped the engine or a carrier, if anything did, and follow the settings in force."""
        self.engine.check()
        for carrier in self.carriers:
            if carrier.error is not None:
                raise carrier.error
        if self._reread is not None and self.reader.settings_told.is_set():
            self.reader.settings_told.clear()
            self._follow_settings(self._reread)

    def waiting_records(self) -> int:
        """Records of the input that no engine has taken yet."""
        log = self.bus.logs(self.streams.input)[0]
        taken = [end for path, end in self.engine.status().sequenced.ends.items() if path.startswith(QUERY)]
        return max(0, log.bounds().next - max(taken, default=0))

    def servers(self) -> list[dict[str, Any]]:
        """This server, and the others that are heard."""
        silences, reports = self.engine.heard(SILENT_S), self.engine.reports()
        others = [
            {"name": name, "hostname": report.host, "role": report.role}
            for name, report in sorted(reports.items())
            if name != self.engine.name and silences.get(name, SILENT_S + 1) <= SILENT_S
        ]
        return [self.status(), *others]

    def deliveries(self, unfinished: bool, limit: int) -> dict[str, Any]:
        """What became of the newest notices for handlers, and what is in doubt."""
        found = Deliveries(self.bus, self.project.notices, f"{self.options.name}.handlers")
        items = sorted(found.items(unfinished=unfinished), key=lambda item: -item.offset)[:limit]
        return {
            "items": [asdict(item) for item in items],
            "doubts": [asdict(doubt) for doubt in found.doubts()[-limit:]],
        }

    def status(self) -> dict[str, Any]:
        """Describe what this server does."""
        return {
            "name": self.engine.name,
            "hostname": socket.gethostname(),
            "role": self.engine.role,
            "settings": self.settings.order("")["digest"],
        }

    def _make_streams(self) -> None:
        """Streams of the engine that are there keep their settings, so those with other bounds are made first."""
        fleet = next(node for node in self.graph.nodes if node.path == f"{QUERY}/{WINDOW}")
        for name, config in (
            (self.streams.input, INPUT),
            (self.streams.requests, REQUESTS),
            (self.project.output(fleet), CHANGELOG),
            (self.project.notices, NOTICES),
        ):
            self.bus.create(name, config)

    def _start_engine(self) -> None:
        options = EngineOptions(
            cluster=CLUSTER, runner=self.options.runner, name=self.options.engine_name, spark=self.options.spark,
            election=self.options.election,
        )  # fmt: skip
        wanted = frozenset({f"{QUERY}/{WINDOW}"})
        self.engine = Engine(
            self.graph, wanted, self.bus.bus, self.options.folder / "engine", self.bus.runtime, options
        )
        self._runs = True
        self._closing.callback(self._stop_engine)
        self.engine.start()

    def _stop_engine(self) -> None:
        """Stop the engine, once: another one leads from then on."""
        if self._runs:
            self._runs = False
            self.engine.stop()

    def _start_view(self) -> None:
        self.view = self._closing.enter_context(FleetView(self.options.folder / "view"))
        self.reader = ChangelogReader(ProjectEvents(self.bus, CLUSTER, self.graph), self.view, self.bus.runtime)
        self._closing.callback(self.reader.close)
        self.orders = OrderClient(self.bus, self.streams, self.reader)
        self._closing.callback(self.orders.close)

    def _start_carriers(self) -> None:
        name = self.options.name
        deliver = HandlerDelivery(self.bus, lambda: self.settings.document, self._environment, self._transport)
        lease_s = usual_lease_s(self.bus.url)
        # A command that is taken from a server which only paused may run twice; a request keeps its id.
        self._carry(
            f"{name}.handlers", HANDLE, deliver, workers=self.options.workers, lease_s=2 * lease_s, end=deliver.close
        )
        publish = ToStream(self.bus, self.streams.requests, name=name)
        self._carry(f"{name}.requests", REQUEST, publish, workers=4, lease_s=lease_s)
        self._closing.callback(self._stop_engine)  # first of all: nobody waits for the handlers of one that stops

    def _carry(
        self,
        group: str,
        kind: str,
        handler: Callable[[Any], None],
        *,
        workers: int,
        lease_s: float,
        end: Callable[[], None] | None = None,
    ) -> None:
        options = CarrierOptions(workers=workers, retries=_HANDLER_TRIES)
        shared = GroupOptions(lease_s=lease_s, beat_s=lease_s / _BEATS)
        carrier = Carrier(self.bus, self.project.notices, group, options, shared)
        carrier.on(kind, handler)
        carrier.start()
        self._closing.callback(carrier.close, HANDLERS_END_S, end)
        self.carriers.append(carrier)

    def _start_bridge(self) -> None:
        """With a broker, take in what agents send there, and hand on the requests for them."""
        if self._transport is None:
            return
        size = (self.settings.get("sensu") or {}).get("server", {}).get("max_message_size", MESSAGE_BYTES)
        bridge = Bridge(self.bus, self._transport, self.options.name, message_bytes=size)
        bridge.start()
        self._closing.callback(bridge.close)

    def _start_health(self) -> None:
        """The server that leads tells what is wrong with the deliveries of all."""
        groups = [f"{self.options.name}.handlers", f"{self.options.name}.requests"]
        health = Health(
            self.bus, self.project.notices, groups, self.orders,
            leads=lambda: self.engine.role == ACTIVE,
            is_open=lambda check: self.view.row("event", OWN_CLIENT, check) is not None,
            model_s=lambda: (self.view.row("counters") or {}).get("time", self.bus.runtime.wall_ns() // 10**9),
        )  # fmt: skip
        self._closing.callback(health.start(self.bus.runtime))

    def _state_settings(self) -> None:
        """The first server states its settings; another one says so if its own differ from those in force."""
        for fault in unreadable(self.settings.document):
            logger.warning("%s", fault_line(fault), extra={"action": "expression_unreadable"})
        known = self._settings_in_force()
        if known is None:
            self._send_settings()
            known = self.view.row("settings") or {}
        self._compare(known)

    def _compare(self, known: Mapping[str, Any]) -> None:
        """Note which settings are in force, and say so if those of this server differ."""
        self._in_force = (str(known.get("digest")), known.get("time", 0))
        own = self.settings.order("")["digest"]
        if known.get("digest") != own:
            logger.warning(
                "Settings in force differ from those of this server; 'lockstep monitor reload' puts these in force",
                extra={"action": "settings_differ", "in_force": known.get("digest"), "own": own},
            )

    def _follow_settings(self, reread: Callable[[], Settings]) -> None:
        """When settings were put in force, read those of this server again: commands of handlers are only there."""
        known = self.view.row("settings") or {}
        if (known.get("digest"), known.get("time")) == self._in_force:
            return  # it was told again
        try:
            self.settings = reread()
        except SettingsInvalid as error:
            logger.error("The settings of this server are not valid, and stay as they were: %s", error,
                         extra={"action": "settings_invalid"})  # fmt: skip
        self._compare(known)

    def _settings_in_force(self) -> Mapping[str, Any] | None:
        """Those that the fleet has. An order that changes nothing is answered when the view shows all before it."""
        order = self.orders.send("look", {})
        if not self.orders.wait(order, _SETTINGS_S):
            raise TimedOut(what="Reading the settings of the fleet", seconds=_SETTINGS_S)
        found: Mapping[str, Any] | None = self.view.row("settings")
        return found

    def _send_settings(self) -> dict[str, Any]:
        order = self.orders.send("settings", self.settings.order(_whoami()))
        if not self.orders.wait(order, _SETTINGS_S):
            raise TimedOut(what="Putting the settings in force", seconds=_SETTINGS_S)
        found: dict[str, Any] = self.view.row("answer", "", order) or {}
        return found


def _whoami() -> str:
    """Who states settings, for people."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):
        return socket.gethostname()
