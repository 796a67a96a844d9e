"""The noun `monitor`: its verbs, and those about agents and transports."""

from __future__ import annotations

import argparse

from lockstep.cli import values as kinds
from lockstep.cli.parser import Noun, Verb

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
        run="lockstep.cli.monitor_settings:transport",
        arguments=_transport,
        examples=(
            "lockstep monitor transport show --json",
            "lockstep monitor transport setup --management http://localhost:15672 --transport amqp://guest:guest@localhost",
        ),
    ),
)  # fmt: skip
"""Commands of `lockstep monitor`; a new one is a new entry."""


def _server(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    _add_server(parser)
    parser.add_argument("--runner", choices=("spark", "local"), default="spark",
                        help="where the fleet is computed: spark (default), or local, in this process")  # fmt: skip
    parser.add_argument("--state", metavar="FOLDER", help="for the engine and the view (.lockstep-monitor/NAME-SERVER)")
    parser.add_argument("--election", metavar="URL",
                        help="who may lead: redis-lock://HOST:6379/0 as in Sensu, or zookeeper://...")  # fmt: skip
    parser.add_argument(
        "--transport",
        metavar="URL",
        help="amqp://USER:PASSWORD@HOST:5672/VHOST, to which agents send (rabbitmq of the settings)",
    )


def _add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--http", type=kinds.port_or_any, metavar="PORT",
                        help="of Sensu's API; 0 takes any that is free (that of the settings, or 4567)")  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", metavar="HOST", help="to listen on (127.0.0.1)")
    parser.add_argument("--server-name", metavar="NAME", help="of this server among others (HOST-PID)")
    add_name(parser)


def _up(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", default="monitor", metavar="FOLDER",
                        help="for settings and state (./monitor)")  # fmt: skip
    _add_server(parser)
    parser.set_defaults(runner="local", election=None, state=None)


def add_url(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which server is asked."""
    parser.add_argument("--url", metavar="URL", help="of a server (LOCKSTEP_MONITOR_URL, else http://127.0.0.1:4567)")
    parser.add_argument("--user", metavar="USER", help="if the server asks for one")
    parser.add_argument("--password-file", metavar="FILE", help="holds the password of the user")


def _event(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("client", metavar="CLIENT")
    parser.add_argument("check", metavar="CHECK")
    add_url(parser)


def _client(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("client", nargs="?", metavar="CLIENT", help="of this client only")
    add_url(parser)


def _one_client(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("client", metavar="CLIENT")
    add_url(parser)


def _checks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("check", nargs="?", metavar="CHECK", help="this check only, with all its settings")
    add_url(parser)


def _history(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("client", nargs="?", metavar="CLIENT", help="of this client only")
    parser.add_argument("check", nargs="?", metavar="CHECK", help="of this check of the client only")
    parser.add_argument("--limit", type=kinds.positive, default=100, metavar="N", help="at most so many (100)")
    add_url(parser)


def _ack(parser: argparse.ArgumentParser) -> None:
    _event(parser)
    parser.add_argument("--reason", metavar="TEXT", help="why")
    parser.add_argument("--by", metavar="NAME", help="who ($USER)")


def _request(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("check", metavar="CHECK")
    parser.add_argument("--subscriber", action="append", metavar="NAME",
                        help="instead of the check's own; may be repeated")  # fmt: skip
    parser.add_argument("--reason", metavar="TEXT", help="why")
    parser.add_argument("--by", metavar="NAME", help="who ($USER)")
    add_url(parser)


def _silence(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--client", metavar="CLIENT", help="all checks of it, or --check")
    parser.add_argument("--subscription", metavar="NAME", help="clients with this subscription")
    parser.add_argument("--check", metavar="CHECK", help="on all clients, or those named")
    parser.add_argument("--match", action="append", default=[], metavar="ATTRIBUTE=PATTERN",
                        help="of client and check: client.zone=eu-*; may be repeated, all have to fit")  # fmt: skip
    parser.add_argument("--id", metavar="ID", help="of a silence with --match (the patterns)")
    parser.add_argument("--begin", metavar="TIME", help="not before: 2026-01-31T22:00:00Z, or from now as 2h")
    parser.add_argument("--expire", type=kinds.duration, metavar="TIME", help="ends by itself, as 2h, after it began")
    parser.add_argument("--when", action="append", default=[], metavar="DAY=BEGIN-END",
                        help="recurring: only then, as saturday=22:00-06:00 or all=1:00-2:00; may repeat")  # fmt: skip
    parser.add_argument("--planned", action="store_true", help="mark it as planned work")
    parser.add_argument("--until-resolved", action="store_true", help="ends when the event is resolved")
    parser.add_argument("--reason", metavar="TEXT", help="why")
    parser.add_argument("--by", metavar="NAME", help="who ($USER)")
    parser.add_argument("--end", metavar="ID", help="end the silence with this id")
    parser.add_argument("--show", metavar="ID", help="show the silence with this id")
    add_url(parser)


def _delete(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("client", metavar="CLIENT")
    parser.add_argument("--invalidate", action="store_true",
                        help="ignore it from now on; else an agent that still runs registers it again")  # fmt: skip
    kinds.add_destructive(parser)
    add_url(parser)


def _reload(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")
    add_url(parser)


def _try(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("new", metavar="NEW", help="a folder or a file of the settings to be tried")
    parser.add_argument("--since", type=kinds.duration, default=7 * 86_400.0, metavar="TIME", help="of history (7d)")
    parser.add_argument("--config", action="append", default=[], metavar="PATH",
                        help="the settings of now, instead of those that a server has in force")  # fmt: skip
    parser.add_argument("--runner", choices=("spark", "local"), default="spark",
                        help="where both are computed: spark (default), or local, in this process")  # fmt: skip
    add_name(parser)
    add_url(parser)


def _drill(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agents", type=kinds.positive, default=50, metavar="N", help="simulated agents (50)")
    parser.add_argument("--transitions", type=kinds.positive, default=200, metavar="N", help="changes of state (200)")
    parser.add_argument("--seconds", type=kinds.duration, default=30.0, metavar="TIME", help="they take so long (30s)")
    parser.add_argument("--fault", type=kinds.names, default=(), metavar="KIND[,KIND...]",
                        help="in turn: kill and stop (pause) of the active server, standby, agent, jvm, worker, broker,"
                             " each also with -stop; resend, none (all that need no broker)")  # fmt: skip
    parser.add_argument("--runner", choices=("spark", "local"), default="spark", help="of the servers (spark)")


SERVER_VERBS = (
    Verb(
        name="up",
        purpose="Try it: a server, an agent of this machine and two example checks, in one command.",
        run="lockstep.cli.monitor_server:up",
        arguments=_up,
        examples=(
            "lockstep monitor up --bus lmdb:./m",
            "lockstep monitor up ./try --http 14567 --bus lmdb:./m",
        ),
    ),
    Verb(
        name="server",
        purpose="Run a server: the engine of the fleet, its handlers, and Sensu's HTTP API.",
        run="lockstep.cli.monitor_server:server",
        arguments=_server,
        examples=(
            "lockstep monitor server --config conf.d --bus lmdb:./m --http 14567",
            "lockstep monitor server --config conf.d --bus lmdb:./m --http 14568 --server-name second",
        ),
    ),
    Verb(
        name="reload",
        purpose="Validate settings, show what differs from those in force, and put them in force on all servers.",
        run="lockstep.cli.monitor_server:reload",
        arguments=_reload,
        examples=(
            "lockstep monitor reload --config conf.d --dry-run",
            "lockstep monitor reload --config conf.d",
        ),
    ),
    Verb(
        name="try",
        purpose="Show which notifications other settings would have made of the stored input; 1 if any differ.",
        run="lockstep.cli.monitor_settings:try_settings",
        arguments=_try,
        examples=(
            "lockstep monitor try new.d --since 7d",
            "lockstep monitor try new.d --config conf.d --since 2h --runner local --json",
        ),
    ),
    Verb(
        name="events",
        purpose="List the open events, the worst first.",
        run="lockstep.cli.monitor_fleet:events",
        arguments=_client,
        examples=(
            "lockstep monitor events",
            "lockstep monitor events web-1 --json",
        ),
    ),
    Verb(
        name="clients",
        purpose="List the clients.",
        run="lockstep.cli.monitor_fleet:clients",
        arguments=add_url,
        examples=(
            "lockstep monitor clients",
            "lockstep monitor clients --json",
        ),
    ),
    Verb(
        name="show",
        purpose="Show a client: its facts, open events and last results.",
        run="lockstep.cli.monitor_fleet:show",
        arguments=_one_client,
        examples=("lockstep monitor show web-1", "lockstep monitor show web-1 --json"),
    ),
    Verb(
        name="checks",
        purpose="List the checks that are published, or show one.",
        run="lockstep.cli.monitor_fleet:checks",
        arguments=_checks,
        examples=(
            "lockstep monitor checks",
            "lockstep monitor checks disk --json",
        ),
    ),
    Verb(
        name="check",
        purpose="Print the last result of a check; the exit code is its status, as of a Nagios plugin.",
        run="lockstep.cli.monitor_fleet:check",
        arguments=_event,
        examples=(
            "lockstep monitor check web-1 disk",
            "lockstep monitor check web-1 disk --json",
        ),
    ),
    Verb(
        name="why",
        purpose="Say why handlers were told of an event or not: each gate with its reason.",
        run="lockstep.cli.monitor_fleet:why",
        arguments=_event,
        examples=(
            "lockstep monitor why web-1 disk",
            "lockstep monitor why web-1 disk --json",
        ),
    ),
    Verb(
        name="history",
        purpose="List the newest transitions, of 90 days.",
        run="lockstep.cli.monitor_fleet:history",
        arguments=_history,
        examples=(
            "lockstep monitor history",
            "lockstep monitor history web-1 disk --limit 20",
        ),
    ),
    Verb(
        name="silence",
        purpose="List silences, show one, begin one, or end one.",
        run="lockstep.cli.monitor_fleet:silence",
        arguments=_silence,
        examples=(
            "lockstep monitor silence --client web-1 --check disk --expire 2h --reason 'new disk'",
            "lockstep monitor silence --match 'client.zone=eu-*' --when all=22:00-06:00 --planned --reason backups",
            "lockstep monitor silence --end client:web-1:disk",
        ),
    ),
    Verb(
        name="ack",
        purpose="Acknowledge an event: it is silent until it is resolved.",
        run="lockstep.cli.monitor_fleet:ack",
        arguments=_ack,
        examples=(
            "lockstep monitor ack web-1 disk",
            "lockstep monitor ack web-1 disk --reason 'disk is ordered'",
        ),
    ),
    Verb(
        name="resolve",
        purpose="Resolve an event.",
        run="lockstep.cli.monitor_fleet:resolve",
        arguments=_event,
        examples=("lockstep monitor resolve web-1 disk",),
    ),
    Verb(
        name="delete",
        purpose="Forget a client: its events are resolved, and its results are gone.",
        run="lockstep.cli.monitor_fleet:delete",
        arguments=_delete,
        examples=("lockstep monitor delete web-1 --dry-run", "lockstep monitor delete web-1 --invalidate --yes"),
    ),
    Verb(
        name="drill",
        purpose="Kill and pause servers while checks change state, and count that each change is told once.",
        run="lockstep.cli.monitor_server:drill",
        arguments=_drill,
        examples=(
            "lockstep monitor drill --json",
            "lockstep monitor drill --runner local --fault broker,broker-stop,agent",
        ),
    ),
    Verb(
        name="request",
        purpose="Have a check run now.",
        run="lockstep.cli.monitor_fleet:request",
        arguments=_request,
        examples=(
            "lockstep monitor request disk",
            "lockstep monitor request disk --subscriber client:web-1",
        ),
    ),
)

MONITOR = Noun(
    name="monitor",
    purpose="A fleet of machines watched as Sensu does it: agents, checks, events, notifications.",
    verbs=(*SERVER_VERBS, *VERBS),
)
