"""`lockstep monitor server`, `up` and `reload`: servers of a monitor, and the settings that are in force."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from lockstep.cli.connection import BUS_VARIABLE, bus_url, opened
from lockstep.cli.monitor_settings import loaded
from lockstep.cli.output import Output, Stopping
from lockstep.log.urls import without_secret
from lockstep.monitor.agent.process import HTTP_PORT, TCP_PORT
from lockstep.monitor.client import DEFAULT_URL
from lockstep.monitor.transport.port import KEEPALIVES, RESULTS

if TYPE_CHECKING:
    from lockstep.monitor.node import MonitorNode
    from lockstep.monitor.settings.settings import Settings
    from lockstep.monitor.transport.port import Transport
    from lockstep.server.monitor import MonitorServer

_LOOK_S = 0.5
_AGENT_STOP_S = 5.0
DEFAULT_PORT = 4567


def server(options: argparse.Namespace, output: Output) -> int:
    """Run a server until asked to end."""
    settings = loaded(options.config, is_client=False)
    if options.runner == "spark":
        from lockstep.engine.spark.session import check_java

        check_java()
    return _serve(options, output, settings)


def _serve(
    options: argparse.Namespace,
    output: Output,
    settings: Settings,
    beside: Callable[[ExitStack, str], None] | None = None,
) -> int:
    from lockstep.monitor.node import MonitorNode
    from lockstep.server.monitor import check_login
    from lockstep.server.serving import bind

    check_login(options.host, _login(settings))
    port = options.http if options.http is not None else _port_of(settings)
    with (
        Stopping().listening() as stop,
        bind(options.host, port, "The monitor's API") as bound,
        opened(bus_url(options), create=True, lasting=True) as bus,
        ExitStack() as closing,
    ):
        output.note("Starting the engine of the fleet ...")
        transport = closing.enter_context(_broker(options, settings))
        chosen = _node_options(options)

        def reread() -> Settings:
            return loaded(options.config, is_client=False)

        node = closing.enter_context(MonitorNode(bus, settings, os.environ, chosen, transport=transport, reread=reread))
        stop.listen()
        api = closing.enter_context(_api(node, options, settings, bound, transport))
        fields = {"event": "started", "url": api.url, "server": node.engine.name, "bus": without_secret(bus.url)}
        _tell(output, fields, f"Monitor {options.name} on {fields['bus']}: {api.url}")
        if beside is not None:
            beside(closing, api.url)
        while not stop.wait(_LOOK_S):
            node.check()
    _tell(output, {"event": "stopped", "url": fields["url"]}, f"Stopped {fields['url']}.")
    return stop.code


def _node_options(options: argparse.Namespace) -> Any:
    from lockstep.monitor.node import NodeOptions

    folder = Path(options.state or f".lockstep-monitor/{options.name}-{options.server_name or 'server'}")
    return NodeOptions(
        name=options.name, folder=folder, runner=options.runner, engine_name=options.server_name or "",
        election=getattr(options, "election", None) or "",
    )  # fmt: skip


@contextmanager
def _broker(options: argparse.Namespace, settings: Settings) -> Iterator[Transport | None]:
    """The broker that agents of the old shape speak to, if one is named: --transport, else rabbitmq of the settings."""
    from lockstep.cli.monitor_agent import amqp_transport
    from lockstep.monitor.transport.brokers import SERVER_PREFETCH

    brokers = getattr(options, "transport", None) or settings.get("rabbitmq")
    if brokers is None:
        yield None
        return
    transport = amqp_transport(brokers, SERVER_PREFETCH)
    try:
        yield transport
    finally:
        transport.close()


def _api(
    node: MonitorNode, options: argparse.Namespace, settings: Settings, bound: Any, broker: Transport | None
) -> MonitorServer:
    from lockstep.server.monitor import MonitorServer
    from lockstep.server.monitor.site import MonitorSite, QueueFigures, TransportFigures

    def figures() -> TransportFigures:
        if broker is None:
            waiting = QueueFigures(messages=node.waiting_records(), consumers=len(node.servers()))
            return TransportFigures("lockstep", connected=True, keepalives=waiting, results=waiting)
        if not broker.connected:
            return TransportFigures(broker.name, connected=False)
        found = [broker.stats(queue) for queue in (KEEPALIVES, RESULTS)]
        return TransportFigures(broker.name, True, *(QueueFigures(each.messages, each.consumers) for each in found))

    site = MonitorSite(
        node.view, node.orders, node.bus.runtime, figures, node.servers,
        is_following=lambda: node.reader.error is None, deliveries=node.deliveries,
    )  # fmt: skip
    cors = {str(name): str(text) for name, text in (settings.get("cors") or {}).items()}
    return MonitorServer(site, options.host, credentials=_login(settings), cors=cors, bound=bound)


def _login(settings: Settings) -> tuple[str, str] | None:
    own: Mapping[str, Any] = settings.get("api") or {}
    return (str(own["user"]), str(own["password"])) if own.get("user") and own.get("password") else None


def _port_of(settings: Settings) -> int:
    port = (settings.get("api") or {}).get("port", DEFAULT_PORT)
    return port if isinstance(port, int) else DEFAULT_PORT


def up(options: argparse.Namespace, output: Output) -> int:
    """Run a server and an agent of this machine with two example checks, and say where to look."""
    folder = Path(options.folder)
    _write_examples(folder)
    options.config, options.state = [str(folder / "conf.d")], str(folder / "server")
    settings = loaded(options.config, is_client=False)

    def beside(closing: ExitStack, url: str) -> None:
        closing.enter_context(_agent_process(folder, bus_url(options), options.name, output))
        asked = "" if url == DEFAULT_URL else f" --url {url}"
        host, conf = socket.gethostname(), folder / "conf.d"
        for line in (
            f"What is wrong:   lockstep monitor events{asked}",
            f"Why it was told: lockstep monitor why {host} welcome{asked}",
            "To resolve it:   touch welcome.txt",
            f"Notifications:   {folder / 'events.log'}",
            f"Settings:        {conf}; after a change: lockstep monitor reload --config {conf}{asked}",
            f"Sensu's API:     curl -s {url}/events",
        ):
            output.note(line)

    return _serve(options, output, settings, beside)


@contextmanager
def _agent_process(folder: Path, bus: str, name: str, output: Output) -> Iterator[None]:
    """An agent in a process of its own, which ends with this one."""
    closed = closed_sockets(folder, {"socket": TCP_PORT, "http_socket": HTTP_PORT}, output)
    command = [sys.executable, "-m", "lockstep.cli.main", "monitor", "agent", "--quiet", "--name", name]
    command += ["--config", str(folder / "agent.d"), *closed, "--spool", str(folder / "agent")]
    process = subprocess.Popen(command, env={**os.environ, BUS_VARIABLE: bus}, process_group=0)  # noqa: S603 - itself
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_AGENT_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def closed_sockets(folder: Path, ports: Mapping[str, int], output: Output) -> list[str]:
    """Options for an agent that close those of its sockets whose port another process has, as another agent may."""
    taken = {name: port for name, port in ports.items() if not _is_free(port)}
    if not taken:
        return []
    named = " and ".join(str(port) for port in taken.values())
    output.note(f"The agent takes no results from programs on port {named}: another process has it.")
    settings = folder / "closed-sockets.json"
    settings.write_text(json.dumps({"client": {name: {"enabled": False} for name in taken}}))
    return ["--config", str(settings)]


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


EXAMPLES: Mapping[str, str] = {
    "conf.d/checks.yaml": """# Two checks that the agent of this machine runs. The second fails until the file is there.
checks:
  disk:
    command: |
      df -P / | awk 'NR == 2 { sub("%", "", $5); print "disk " $5 " % used"; exit ($5 > 95) ? 2 : ($5 > 85) }'
    subscribers: [all]
    interval: 10
    handlers: [log]
  welcome:
    command: test -e welcome.txt && echo "it is there" || { echo "touch welcome.txt in $PWD"; exit 1; }
    subscribers: [all]
    interval: 10
    handlers: [log]
    occurrences: 1
""",
    "conf.d/handlers.yaml": """# Where events go: this one appends what the check said to a file.
handlers:
  log:
    type: pipe
    command: sed '$a\\' >> '{folder}/events.log'
    mutator: only_check_output
    filters: [occurrences]
""",
    "agent.d/client.yaml": """# The agent of this machine. Without safe mode it runs whatever servers ask for.
client:
  subscriptions: [all]
  safe_mode: false
""",
}


def _write_examples(folder: Path) -> None:
    """Write the example settings where there are none."""
    for name, text in EXAMPLES.items():
        if not (folder / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text.replace("{folder}", str(folder.resolve())))


def reload(options: argparse.Namespace, output: Output) -> int:
    """Validate settings, show what differs from those in force, and put them in force for all servers."""
    from lockstep.cli.monitor_fleet import client_of
    from lockstep.monitor.settings.errors import fault_line
    from lockstep.monitor.settings.expressions import unreadable
    from lockstep.monitor.settings.settings import difference

    settings = loaded(options.config, is_client=False)
    for fault in unreadable(settings.document):
        output.warn(fault_line(fault))
    order = settings.order(os.environ.get("USER", "reload"))
    fleet = client_of(options)
    found = difference(fleet.get("settings"), order["settings"])
    changed = [{"name": each.name, "before": each.before, "after": each.after} for each in found]
    if not options.dry_run:
        fleet.send("POST", "settings", body=order)
    if output.json:
        output.json_line({"changed": changed, "digest": order["digest"], "in_force": not options.dry_run})
        return 0
    for each in changed:
        output.line(f"{each['name']}: {each['before']!r} -> {each['after']!r}")
    output.note("Nothing was changed." if options.dry_run else f"In force: {order['digest'][:12]}.")
    return 0


def _tell(output: Output, event: Mapping[str, Any], sentence: str) -> None:
    if output.json:
        output.json_line(event)
    else:
        output.note(sentence)
    output.flush()


def drill(options: argparse.Namespace, output: Output) -> int:
    """Kill and pause servers while checks change state, and count the notifications sent."""
    from lockstep.drill.fleet import FleetDrill, FleetDrillOptions

    wanted = FleetDrillOptions(
        agents=options.agents, transitions=options.transitions, seconds=options.seconds, faults=options.fault,
        runner=options.runner,
    )  # fmt: skip
    with TemporaryDirectory(prefix="lockstep-monitor-drill-", ignore_cleanup_errors=True) as folder:
        result = FleetDrill(Path(folder), wanted, output.note).run()
    if output.json:
        output.json_line(result.tree())
    else:
        output.facts({
            "transitions": f"{result.transitions}, in {result.seconds} s",
            "faults": ", ".join(result.faults) or "none",
            "told": f"{result.told} of {result.expected}",
            "missing": len(result.missing),
            "duplicated": len(result.duplicated),
            "unexpected": len(result.unexpected),
            "command": f"{result.commands} ids, {len(result.repeats)} more than once,"
            f" {len(result.repeats_not_listed)} of these not listed as in doubt",
        })  # fmt: skip
        output.line("Each change was told once." if result.ok else "Not each change was told once.")
    return 0 if result.ok else 1
