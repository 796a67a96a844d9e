"""The drill of a monitor: servers are killed and paused while checks change state; each change is notified once.

Two servers watch simulated agents whose checks fail and recover; results of every other client go through a real agent
where agents or a broker are killed. Three handlers publish to a stream that is counted, a fourth is a plain command
that notes the id it was given. Whatever is killed or paused, the stream must hold each notification once, and each id
that the command notes twice must be listed as in doubt.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lockstep.dev.servers import RunningServer
from lockstep.drill.errors import DrillBroken
from lockstep.drill.fleet_parts import DrillAgent, DrillBroker
from lockstep.drill.processes import Child, jvms, send_signal, workers
from lockstep.errors import BadArgument, LockstepError, Unavailable
from lockstep.monitor.client import MonitorClient
from lockstep.monitor.node import CLUSTER
from lockstep.streams.client import Lockstep, connect
from lockstep.streams.deliveries import Deliveries

FAULTS = (
    "kill", "stop", "standby", "standby-stop", "agent", "agent-stop", "jvm", "jvm-stop", "worker", "worker-stop",
    "broker", "broker-stop", "resend", "none",
)  # fmt: skip
"""What is killed, or with -stop paused for three seconds; without a name the active server. `resend`: results again."""
LOCAL_FAULTS = ("kill", "stop", "standby", "standby-stop", "agent", "agent-stop", "resend", "kill")
SPARK_FAULTS = (*LOCAL_FAULTS[:-1], "jvm", "jvm-stop", "worker", "worker-stop", "kill")
SINK, HANDLERS, LEDGER = "drill.sink", ("first", "second", "third"), "ledger"
_START_S, _DONE_S, _PAUSE_S = 90.0, 120.0, 3.0
_LOOK_S = 0.1
_RESENT = 20
_CHECK = "drill"
_NOT_STARTED = "A server did not start"

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetDrillOptions:
    """The plan of a run: faults one after the other, evenly spaced."""

    agents: int = 50
    transitions: int = 200
    seconds: float = 30.0
    servers: int = 2
    faults: Sequence[str] = ()
    """By default all that the runner has, without those of a broker."""
    runner: str = "spark"

    def __post_init__(self) -> None:
        unknown = [fault for fault in self.faults if fault not in FAULTS]
        if unknown:
            raise BadArgument(name="fault", value=unknown[0], reason=f"it must be one of {', '.join(FAULTS)}")
        of_spark = [fault for fault in self.faults if _target(fault) in ("jvm", "worker")]
        if self.runner == "local" and of_spark:
            raise BadArgument(name="fault", value=of_spark[0], reason="only the runner spark has a JVM and workers")

    @property
    def planned(self) -> Sequence[str]:
        """The faults, in order."""
        return self.faults or (SPARK_FAULTS if self.runner == "spark" else LOCAL_FAULTS)

    def has(self, *targets: str) -> bool:
        """Whether any of these is killed or paused."""
        return any(_target(fault) in targets for fault in self.planned)


def _target(fault: str) -> str:
    return fault.removesuffix("-stop")


@dataclass(slots=True)
class FleetDrillResult:
    """What came of it."""

    transitions: int
    expected: int
    told: int = 0
    missing: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    commands: int = 0
    """Ids that the command noted."""
    repeats: list[str] = field(default_factory=list)
    """Ids that it noted more than once."""
    repeats_not_listed: list[str] = field(default_factory=list)
    """Those of them that are not listed as in doubt."""
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether each notification came once, and each repeat of the command was listed."""
        wrong = self.missing or self.duplicated or self.unexpected or self.repeats_not_listed
        return not wrong and self.told == self.expected

    def tree(self) -> dict[str, Any]:
        """As plain data."""
        return {"ok": self.ok, **asdict(self)}


def result_of(client: str, number: int) -> dict[str, Any]:
    """The result that makes transition `number` of a client: it fails, recovers, fails, ..."""
    status = 2 if number % 2 else 0
    check = {
        "name": _CHECK, "status": status, "output": f"transition {number}", "issued": number, "executed": number,
        "handlers": [*HANDLERS, LEDGER],
    }  # fmt: skip
    return {"client": client, "_agent": "drill", "_n": number, "check": check}


def notifications(options: FleetDrillOptions) -> set[tuple[str, str, str]]:
    """Return the notifications that must be sent: (client, output, handler)."""
    return {
        (client, f"transition {number}", handler)
        for client, number in script(options)
        for handler in HANDLERS
    }  # fmt: skip


def script(options: FleetDrillOptions) -> Iterator[tuple[str, int]]:
    """Which client has its which transition, in order."""
    for number in range(options.transitions):
        yield f"agent-{number % options.agents:03}", number // options.agents + 1


class FleetDrill:
    """Runs the drill in a folder of its own."""

    def __init__(self, folder: Path, options: FleetDrillOptions, tell: Tell) -> None:
        self._folder, self._options, self._tell = folder, options, tell
        self._url = f"lmdb:{folder / 'bus'}"
        self._servers: dict[str, Child] = {}
        self._api: dict[str, str] = {}
        self._agent: DrillAgent | None = None
        self._broker: DrillBroker | None = None

    def run(self) -> FleetDrillResult:
        """Run it to its end."""
        began = time.monotonic()
        expected = notifications(self._options)
        result = FleetDrillResult(self._options.transitions, len(expected))
        if self._options.has("broker"):
            self._tell("starting a broker")
            self._broker = DrillBroker(self._folder / "broker", self._tell)
        shared = self._broker.settings if self._broker is not None else {}
        _write_settings(self._folder / "conf.d", self._folder / "ledger.txt", shared)
        with closing(self), connect(self._url, create=True) as bus, self._serving():
            self._feed(bus, result)
            self._wait_told(bus, len(expected))
            self._check(bus, expected, result)
        result.seconds = round(time.monotonic() - began, 1)
        return result

    def close(self) -> None:
        """End the agent and the broker."""
        if self._agent is not None:
            self._agent.process.stop()
        if self._broker is not None:
            self._broker.close()

    @contextmanager
    def _serving(self) -> Iterator[None]:
        try:
            for number in range(self._options.servers):
                self._start(f"server-{number + 1}")
            for name in [*self._servers]:
                self._wait_up(name)
            if self._options.has("agent", "broker"):
                self._start_agent()
            yield
        finally:
            for server in self._servers.values():
                server.stop()

    def _start_agent(self) -> None:
        target = ["--bus", self._url] if self._broker is None else []
        shared = {} if self._broker is None else self._broker.settings
        folder = self._folder / "agent"
        folder.mkdir()
        agent = DrillAgent(folder, target, shared)
        agent.start()
        self._agent = agent

    def _start(self, name: str) -> None:
        command = [
            sys.executable, "-m", "lockstep.cli.main", "monitor", "server", "--json", "--http", "0",
            "--config", str(self._folder / "conf.d"), "--server-name", name, "--state", str(self._folder / name),
            "--runner", self._options.runner, "--bus", self._url,
        ]  # fmt: skip
        self._api.pop(name, None)
        self._servers[name] = Child(name, command, self._folder / f"{name}.log", environ=os.environ)

    def _wait_up(self, name: str) -> None:
        end = time.monotonic() + _START_S
        while name not in self._api:
            server = self._servers[name]
            for _, line in server.lines():
                told = _told(line)
                if told.get("event") == "started":
                    self._api[name] = told["url"]
            if server.code is not None or time.monotonic() > end:
                raise server.failure(_NOT_STARTED)
            time.sleep(_LOOK_S)

    def _feed(self, bus: Lockstep, result: FleetDrillResult) -> None:
        """Publish the results, evenly over the time, with the faults in between."""
        options, began = self._options, time.monotonic()
        steps = [*script(options)]
        due = {
            (place + 1) * len(steps) // (len(options.planned) + 1): fault for place, fault in enumerate(options.planned)
        }
        with bus.publisher("monitor.input") as publisher:
            for place, (client, number) in enumerate(steps):
                time.sleep(max(0.0, began + place * options.seconds / len(steps) - time.monotonic()))
                self._publish(publisher, client, number)
                if place in due:
                    self._do(due[place], result)
                if place in due and due[place] == "resend":  # as an agent does that was killed before it noted them
                    for step in steps[max(0, place - _RESENT) : place]:
                        if not self._is_through_agent(step[0]):
                            self._publish(publisher, *step)

    def _is_through_agent(self, client: str) -> bool:
        """Those of every other client, if there is an agent."""
        return self._agent is not None and int(client.rpartition("-")[2]) % 2 == 0

    def _publish(self, publisher: Any, client: str, number: int) -> None:
        if self._agent is not None and self._is_through_agent(client):
            self._agent.submit(client, result_of(client, number)["check"])
            return
        value = json.dumps(result_of(client, number), separators=(",", ":")).encode()
        publisher.publish(value, key=b"r:" + client.encode()).result(30)

    def _do(self, fault: str, result: FleetDrillResult) -> None:
        active, standby = self._roles()
        target, stops = _target(fault), fault.endswith("stop")
        name = standby if target == "standby" else active
        self._tell(f"{fault}: {name if target in ('kill', 'stop', 'standby', 'jvm', 'worker') else target}")
        result.faults.append(fault)
        if target in ("kill", "stop", "standby"):
            self._harm_server(name, stops=stops)
        elif target in ("jvm", "worker"):
            tree = self._servers[name].tree()
            _harm_pids((jvms(tree) if target == "jvm" else workers(tree))[:1], stops=stops)
        elif target == "agent" and self._agent is not None:
            _harm(self._agent.process, self._agent.start, stops=stops)
        elif target == "broker" and self._broker is not None:
            self._harm_broker(self._broker.server, stops=stops)

    def _harm_server(self, name: str, *, stops: bool) -> None:
        _harm(self._servers[name], lambda: self._start(name), stops=stops)

    @staticmethod
    def _harm_broker(broker: RunningServer, *, stops: bool) -> None:
        if stops:
            broker.pause()
            time.sleep(_PAUSE_S)
            broker.resume()
        else:
            broker.kill()
            broker.start()

    def _roles(self) -> tuple[str, str]:
        """The names of the active server and of another one, once one is active."""
        end = time.monotonic() + _START_S
        while time.monotonic() < end:
            for name in self._servers:
                self._wait_up(name)
            roles = {name: self._role(name) for name in self._servers}
            active = [name for name, role in roles.items() if role == "active"]
            if active:
                return active[0], next((name for name in roles if name != active[0]), active[0])
            time.sleep(_LOOK_S)
        raise DrillBroken(what="No server leads", name="servers", pid=0, state="are running", words="")

    def _role(self, name: str) -> str:
        try:
            return str(MonitorClient(self._api[name], timeout_s=2.0).info()["servers"][0]["role"])
        except (Unavailable, LockstepError):
            return "unknown"

    def _wait_told(self, bus: Lockstep, expected: int) -> None:
        """Return when as many notifications are there as should be, and the command noted as many ids."""
        end = time.monotonic() + _DONE_S
        while time.monotonic() < end:
            told = len(_records(bus, SINK))
            noted = len({*self._noted()})
            if told >= expected and noted >= expected // len(HANDLERS):
                return
            time.sleep(_LOOK_S)

    def _noted(self) -> list[str]:
        path = self._folder / "ledger.txt"
        return path.read_text().split() if path.exists() else []

    def _check(self, bus: Lockstep, expected: set[tuple[str, str, str]], result: FleetDrillResult) -> None:
        told = Counter(map(_notification, _records(bus, SINK)))
        result.told = sum(told.values())
        result.missing = sorted(" ".join(each) for each in expected - told.keys())
        result.unexpected = sorted(" ".join(each) for each in told.keys() - expected)
        result.duplicated = sorted(" ".join(each) for each, count in told.items() if count > 1)
        noted = Counter(self._noted())
        result.commands = len(noted)
        result.repeats = sorted(each for each, count in noted.items() if count > 1)
        outbox = f"{CLUSTER}.monitor.N"
        doubts = {doubt.id for doubt in Deliveries(bus, outbox, "monitor.handlers").doubts()}
        result.repeats_not_listed = [each for each in result.repeats if each not in doubts]


def _harm(process: Child, start: Callable[[], None], *, stops: bool) -> None:
    """Kill a process with all that it started, and start it again; or pause all of it for a while."""
    if stops:
        process.pause()
        time.sleep(_PAUSE_S)
        process.signal_all(signal.SIGCONT)
    else:
        process.kill()
        start()


def _harm_pids(pids: Sequence[int], *, stops: bool) -> None:
    for pid in pids:
        send_signal(pid, signal.SIGSTOP if stops else signal.SIGKILL)
    if stops:
        time.sleep(_PAUSE_S)
    for pid in pids if stops else ():
        send_signal(pid, signal.SIGCONT)


def _told(line: str) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _records(bus: Lockstep, stream: str) -> list[Any]:
    """All records of the sink."""
    if stream not in bus.streams():
        return []
    with bus.subscriber(stream, initial="earliest") as subscriber:
        found: list[Any] = []
        while batch := subscriber.poll(timeout=0.0):
            found += [*batch]
        return found


def _notification(record: Any) -> tuple[str, str, str]:
    event = json.loads(record.value)
    handler = record.header("handler") or b""
    return event["client"]["name"], event["check"]["output"], handler.decode()


def _write_settings(folder: Path, ledger: Path, shared: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True)
    handlers: dict[str, Any] = {name: {"type": "stream", "stream": SINK} for name in HANDLERS}
    handlers[LEDGER] = {"type": "pipe", "command": f'cat > /dev/null; echo "$LOCKSTEP_DELIVERY_ID" >> "{ledger}"'}
    (folder / "handlers.json").write_text(json.dumps({"handlers": handlers, **shared}))
