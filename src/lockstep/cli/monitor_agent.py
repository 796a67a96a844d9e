"""`lockstep monitor agent`, and many of them simulated: `lockstep monitor swarm`."""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.cli.connection import BUS_VARIABLE, bus_url, opened
from lockstep.cli.monitor_settings import loaded
from lockstep.cli.output import Output

if TYPE_CHECKING:
    from lockstep.monitor.agent.spool import Spool
    from lockstep.monitor.settings.settings import Settings
    from lockstep.monitor.transport.port import Transport

_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


def agent(options: argparse.Namespace, output: Output) -> int:
    """Run an agent until asked to end."""
    from lockstep.monitor.agent.process import Parts, run

    settings = loaded(options.config, is_client=True)
    name = settings.client["name"]
    transport, place = _transport(options, settings)
    try:
        spool = _spool(options, name, place)
    except BaseException:
        transport.close()
        raise

    def started(_: Any) -> None:
        _tell(output, {"event": "started", "client": name, "transport": place}, f"Agent {name} runs, {place}.")

    number = run(Parts(settings, transport, spool, started))
    _tell(output, {"event": "stopped", "client": name}, f"Agent {name} stopped.")
    return _CODES[signal.Signals(number)]


def amqp_options(options: argparse.Namespace, settings: Settings | None) -> Any:
    """The brokers that are meant: --transport, else those of the settings if no bus is named; None is a bus."""
    if options.transport:
        return options.transport
    has_bus = getattr(options, "bus", None) or os.environ.get(BUS_VARIABLE) or "bus" in options.settings
    if settings is None or has_bus:
        return None
    return settings.get("rabbitmq")


def _transport(options: argparse.Namespace, settings: Settings) -> tuple[Transport, str]:
    """Describe the transport and its destination."""
    brokers = amqp_options(options, settings)
    if brokers is None:
        from lockstep.log.urls import split_url, without_secret
        from lockstep.monitor.transport.streams import StreamsTransport
        from lockstep.streams.client import connect

        url = bus_url(options)
        scheme, target, _ = split_url(url)
        place = f"lmdb:{Path(target).resolve()}" if scheme == "lmdb" else without_secret(url)
        streams = StreamsTransport(lambda: connect(url, create=True), options.name, settings.client["name"])
        return streams, f"bus {place}, monitor {options.name}"
    from lockstep.monitor.transport.brokers import brokers_of

    return amqp_transport(brokers), f"RabbitMQ {', '.join(broker.place for broker in brokers_of(brokers))}"


def amqp_transport(brokers: Any, prefetch: int | None = None) -> Transport:
    """A transport over the brokers that a URL or settings name; `prefetch` is that of those without one."""
    from lockstep.monitor.transport.amqp import AmqpTransport
    from lockstep.monitor.transport.brokers import PREFETCH, Turn, brokers_of
    from lockstep.monitor.transport.topology import host_of_master

    found = brokers_of(brokers, PREFETCH if prefetch is None else prefetch)
    return AmqpTransport(Turn(found, random.SystemRandom().shuffle, host_of_master))


def _spool(options: argparse.Namespace, client: str, place: str) -> Spool:
    from lockstep.monitor.agent.spool import FileSpool, MemorySpool

    if options.spool == "none":
        return MemorySpool()
    folder = Path(options.spool) if options.spool else state_folder(os.environ) / _folder_name(client, place)
    return FileSpool(folder, limit_bytes=options.spool_bytes)


def state_folder(environ: Mapping[str, str]) -> Path:
    """Where agents keep what they have not sent: XDG_STATE_HOME/lockstep/monitor, else below ~/.local/state."""
    base = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME") or Path.home()) / ".local" / "state")
    return Path(base) / "lockstep" / "monitor"


def _folder_name(client: str, place: str) -> str:
    """A folder for each client and the place it sends to: results never go to another monitor than they were for."""
    return f"{client}-{hashlib.blake2b(place.encode(), digest_size=6).hexdigest()}"


def swarm(options: argparse.Namespace, output: Output) -> int:
    """Simulate agents."""
    from lockstep.monitor.agent.swarm import Plan, Swarm

    plan = Plan(options.clients, options.checks, options.interval, options.failing, options.seed)
    with opened(bus_url(options), create=True, lasting=True) as bus:
        found = Swarm(bus, options.name, plan).run(options.seconds, lambda counts: output.note(_line(counts)))
    if output.json:
        output.json_line(found)
    else:
        output.facts(found)
    return 0


def _line(counts: Mapping[str, Any]) -> str:
    return f"{counts['results']:,} results, {counts['results_per_s']:,.0f}/s, {counts['behind_s']:.1f} s late"


def _tell(output: Output, event: Mapping[str, Any], sentence: str) -> None:
    if output.json:
        output.json_line(event)
    else:
        output.note(sentence)
    output.flush()
