"""The monitor's figures with their targets, as rows of one table: `lockstep bench monitor`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from lockstep.bench.monitor import amqp_in, event_list, loads, notifications, peer_work, takeovers
from lockstep.bench.monitor.peers import KINDS, PeerMissing
from lockstep.bench.rows import Row, as_data
from lockstep.dev.errors import ServerNotAvailable
from lockstep.drill import measure
from lockstep.errors import LockstepError

Say = Callable[[str], None]
NO_PEERS = "Other monitors were not measured: --peers unpacks them below the cache folder and does."
CHECKS, INTERVAL_S, FAILING = 40, 5.0, 0.03
RUNNERS = ("local", "spark")
_NEARLY = 0.99
_FILTERED = f"occurrences {loads.OCCURRENCES}, refresh {loads.REFRESH_S}"


@dataclass(frozen=True, kw_only=True, slots=True)
class MonitorBench:
    """What to measure. The targets are those for 4,000 clients on two cores."""

    clients: int = 4000
    """With 40 checks every 5 s each; the rows with less work have a part of them."""
    seconds: float = 120.0
    """How long the rows take in which a fleet sends results."""
    kills: int = 10
    only: tuple[str, ...] = ()
    runner: str = "local"
    peers: bool = False
    """Whether Nagios, Icinga and Alertmanager are measured, too."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.only) - set(PARTS))
        if unknown:
            message = f"there is no row {', '.join(unknown)}; there are {', '.join(PARTS)}"
            raise ValueError(message)
        if self.clients < 8:
            message = f"clients={self.clients} must be at least 8"
            raise ValueError(message)
        if self.runner not in RUNNERS:
            message = f"runner={self.runner!r} must be one of {', '.join(RUNNERS)}"
            raise ValueError(message)

    @property
    def parts(self) -> list[str]:
        """The parts to be measured, in order."""
        wanted = [name for name in PARTS if not self.only or name in self.only]
        return [name for name in wanted if name != "peers" or self.peers]


@dataclass(frozen=True, slots=True)
class Bench:
    """What the parts work with."""

    options: MonitorBench
    say: Say


def all_rows(options: MonitorBench, say: Say) -> Iterator[Row]:
    """Measure everything that is wanted, one after the other. What fails becomes a row that says so."""
    for name in options.parts:
        bench = Bench(options, _with_name(say, name))
        try:
            yield from PARTS[name](bench)
        except (ServerNotAvailable, PeerMissing) as error:
            bench.say(f"left out: {error}")
        except (LockstepError, OSError, RuntimeError, subprocess.SubprocessError) as error:
            bench.say(f"failed: {error}")
            yield Row(name=f"{name}: failed", value=1.0, unit="records", limit=0.0, at_least=False,
                      details={"error": str(error)})  # fmt: skip


def _with_name(say: Say, name: str) -> Say:
    return lambda text: say(f"{name}: {text}")


def run(options: MonitorBench, progress: Say | None = None) -> dict[str, Any]:
    """Measure; the rows as plain data, with what the figures depend on."""
    facts = {**measure.machine(), **asdict(options), "only": list(options.only)}
    rows = list(all_rows(options, progress or (lambda _: None)))
    result: dict[str, Any] = {"machine": facts, "rows": [as_data(row) for row in rows]}
    return result if options.peers else {**result, "peers": NO_PEERS}


def _row(found: dict[str, Any], name: str, value: float, unit: str, **more: Any) -> Row:
    """A row; its first one of a run has all that was found."""
    limit, at_least = more.get("limit"), more.get("at_least", False)
    details = found if more.get("is_first", False) else {}
    return Row(name=name, value=value, unit=unit, limit=limit, at_least=at_least, details=details,
               others_cores=found["others_cores"])  # fmt: skip


def _fleet_rows(bench: Bench, clients: int, servers: int) -> Iterator[Row]:
    """The target is nearly what is sent: the window that is measured begins and ends within a second of the agents'."""
    options = bench.options
    plan = loads.fleet_plan(clients, CHECKS, INTERVAL_S, FAILING)
    found = loads.under_load(options.runner, plan, options.seconds, bench.say, servers)
    beside = ", with a standby" if servers > 1 else ""
    name = f"{clients:,} agents x {CHECKS} checks / {INTERVAL_S:.0f} s, 3 % failing, {_FILTERED}{beside}"
    target = round(loads.rate_of(plan) * _NEARLY)
    yield _row(found, f"{name}: results", found["per_s"], "/s", limit=target, at_least=True, is_first=True)
    yield _row(found, f"{name}: lag, p50", found["lag_s"]["p50"], "s")
    yield _row(found, f"{name}: lag, p99", found["lag_s"]["p99"], "s", limit=2.0)
    yield _row(found, f"{name}: processor time for each, all servers", found["cpu_us_per_result"], "µs")
    yield _row(found, f"{name}: not counted", found["lost"], "results", limit=0.0)


def _load(bench: Bench) -> Iterator[Row]:
    yield from _fleet_rows(bench, bench.options.clients, servers=1)


def _standby(bench: Bench) -> Iterator[Row]:
    yield from _fleet_rows(bench, bench.options.clients * 5 // 8, servers=2)


def _ok(bench: Bench) -> Iterator[Row]:
    options = bench.options
    plan = loads.fleet_plan(options.clients, CHECKS, INTERVAL_S, 0.0)
    found = loads.under_load(options.runner, plan, options.seconds, bench.say)
    name = f"{options.clients:,} agents x {CHECKS} checks / {INTERVAL_S:.0f} s, all OK"
    yield _row(found, f"{name}: processor time for each, all processes of the server", found["cpu_us_per_result"],
               "µs", limit=25.0, is_first=True)  # fmt: skip
    yield _row(found, f"{name}: results", found["per_s"], "/s")


def _handler(bench: Bench) -> Iterator[Row]:
    options = bench.options
    plan = loads.fleet_plan(max(options.clients * 5 // 32, 1), CHECKS, INTERVAL_S, FAILING)
    found = notifications.handler_starts(options.runner, plan, options.seconds / 2, bench.say)
    name = f"result to handler start at {found['rate']:,.0f}/s, 3 % failing, {_FILTERED}"
    yield _row(found, f"{name}: p50", found["late_s"]["p50"], "s", limit=0.6, is_first=True)
    yield _row(found, f"{name}: p99", found["late_s"]["p99"], "s", limit=1.5)
    yield _row(found, f"{name}: lost, repeated", found["lost"] + found["repeated"], "records", limit=0.0)


def _kill(bench: Bench) -> Iterator[Row]:
    found = takeovers.kill_leaders(bench.options.runner, bench.options.kills, bench.say)
    name = f"kill -9 of the leader, {found['kills']} times"
    yield _row(found, f"{name}: next request late, worst", found["late_max_s"], "s", limit=2.0, is_first=True)
    yield _row(found, f"{name}: requests missed", found["missed"], "records", limit=0.0)
    yield _row(found, f"{name}: requests duplicated", found["duplicated"], "records", limit=0.0)


def _amqp(bench: Bench) -> Iterator[Row]:
    results = bench.options.clients * 10
    found = amqp_in.take_from_rabbitmq(bench.options.runner, results, bench.say)
    name = f"{results:,} results from RabbitMQ, acknowledged when durable"
    yield _row(found, name, found["per_s"], "/s", limit=5e3, at_least=True, is_first=True)
    yield _row(found, f"{name}: not counted", found["lost"], "results", limit=0.0)


def _list(bench: Bench) -> Iterator[Row]:
    clients, events = bench.options.clients * 5 // 2, bench.options.clients * 5 // 4
    found = event_list.list_events(bench.options.runner, clients, events, bench.say)
    name = f"{clients:,} clients, {events:,} events: list"
    yield _row(found, f"{name} of events, p50", found["events_s"]["p50"], "s", limit=0.3, is_first=True)
    yield _row(found, f"{name} of events, worst of {event_list.TRIES}", found["events_s"]["max"], "s")
    yield _row(found, f"{name} of clients, p50", found["clients_s"]["p50"], "s")


def _peers(bench: Bench) -> Iterator[Row]:
    """A fortieth of the fleet does the work, hosts with as many services, ours as well."""
    kills, hosts = bench.options.kills, max(bench.options.clients // CHECKS, 8)
    for name in peer_work.NAMES:
        try:
            found = peer_work.measured(name, hosts, kills, bench.options.runner, _with_name(bench.say, name))
        except PeerMissing as error:
            bench.say(f"left out: {error}")
            continue
        beside = f"{name}, {kills} times kill -9, {found['changes']} changes"
        limit = 0.0 if name not in KINDS else None
        yield _row(found, f"{name}, {found['services']:,} services: results", found["per_s"], "/s", is_first=True)
        yield _row(found, f"{name}: processor time for each result", found["cpu_us_per_result"], "µs")
        yield _row(found, f"{name}: memory", found["memory_mb"], "MB")
        yield _row(found, f"{name}: change to notification, p50", found["late_s"]["p50"], "s")
        yield _row(found, f"{name}: change to notification, p99", found["late_s"]["p99"], "s")
        yield _row(found, f"{beside}: not notified of", found["missed"], "records", limit=limit)
        yield _row(found, f"{beside}: notified of again", found["duplicated"], "records")


PARTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "load": _load,
    "standby": _standby,
    "ok": _ok,
    "handler": _handler,
    "kill": _kill,
    "amqp": _amqp,
    "list": _list,
    "peers": _peers,
}
"""What `only` may name, in the order of the table."""
