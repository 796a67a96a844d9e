"""Verbs of the noun `monitor`: agents, their settings, and the transports between agents and servers."""

from __future__ import annotations

import argparse

from lockstep.cli import arguments as kinds
from lockstep.cli.parser import Verb

NAME = "monitor"


def add_name(parser: argparse.ArgumentParser) -> None:
    """Add the option that says which monitor is meant."""
    parser.add_argument("--name", default=NAME, metavar="NAME", help=f"of the monitor ({NAME})")


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add the option that says where the settings are."""
    parser.add_argument("--config", action="append", default=[], metavar="PATH",
                        help="a folder of .json and .yaml files, or one file; may be repeated")  # fmt: skip


def _agent(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--transport", metavar="URL",
                        help="amqp://USER:PASSWORD@HOST:5672/VHOST, several with commas between; no bus")  # fmt: skip
    parser.add_argument("--spool", metavar="FOLDER",
                        help="where results wait while the bus is away; none keeps them in memory only"
                             " (~/.local/state/lockstep/monitor/...)")  # fmt: skip
    parser.add_argument("--spool-bytes", type=kinds.size, default=64 << 20, metavar="SIZE", help="at most (64 MiB)")
    add_name(parser)


def _validate(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--print", dest="shows", action="store_true", help="print the settings, without secrets")


def _swarm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clients", type=kinds.positive, default=100, metavar="N", help="simulated agents (100)")
    parser.add_argument("--checks", type=kinds.positive, default=10, metavar="N", help="checks of each (10)")
    parser.add_argument("--interval", type=kinds.duration, default=10.0, metavar="TIME", help="of each check (10s)")
    parser.add_argument("--failing", type=_percent, default=0.03, metavar="PERCENT", help="of the results (3)")
    parser.add_argument("--for", dest="seconds", type=kinds.duration, metavar="TIME", help="so long (until Ctrl-C)")
    parser.add_argument("--seed", type=kinds.not_negative, default=0, metavar="N", help="of what fails when (0)")
    add_name(parser)


def _percent(text: str) -> float:
    try:
        found = float(text.removesuffix("%")) / 100
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        message = f"{text!r} is not a percentage"
        raise argparse.ArgumentTypeError(message)
    return found


def _transport(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("show", "setup"), metavar="show|setup",
                        help="show what a broker holds; have its queues mirrored, and print permissions")  # fmt: skip
    add_config(parser)
    parser.add_argument("--transport", metavar="URL", help="amqp://USER:PASSWORD@HOST/VHOST (that of the settings)")
    parser.add_argument("--management", metavar="URL", help="of the management API; else rabbitmqctl is asked")
    parser.add_argument("--node", metavar="NODE", help="that rabbitmqctl asks, as rabbit@host (its own)")


VERBS = (
    Verb(
        name="agent",
        purpose="Run the agent of this machine: keepalives, checks, and a local socket for results.",
        run="lockstep.cli.monitor_agent:agent",
        arguments=_agent,
        examples=(
            "lockstep monitor agent --config agent.d --bus lmdb:./m",
            "lockstep monitor agent --config agent.d --transport amqp://sensu:secret@localhost:5672/%2Fsensu",
        ),
    ),
    Verb(
        name="validate",
        purpose="Check settings: 0 if they are valid, else 2 and all faults at once.",
        run="lockstep.cli.monitor_settings:validate",
        arguments=_validate,
        examples=("lockstep monitor validate --config conf.d", "lockstep monitor validate --config conf.d --print"),
    ),
    Verb(
        name="swarm",
        purpose="Simulate many agents in one process, which publish as fast as their intervals say.",
        run="lockstep.cli.monitor_agent:swarm",
        arguments=_swarm,
        examples=(
            "lockstep monitor swarm --clients 50 --checks 4 --for 10s --bus lmdb:./m",
            "lockstep monitor swarm --clients 4000 --checks 40 --interval 5s --failing 3 --for 120s --bus lmdb:./m",
        ),
    ),
    Verb(
        name="transport",
        purpose="Show channels, exchanges, queues, masters and bindings of RabbitMQ, or set it up.",
        run="lockstep.cli.monitor_transport:transport",
        arguments=_transport,
        examples=(
            "lockstep monitor transport show --json",
            "lockstep monitor transport setup --management http://localhost:15672 --transport amqp://guest:guest@localhost",
        ),
    ),
)  # fmt: skip
"""Commands of `lockstep monitor`; a new one is a new entry."""
