"""All nouns of the command line, and the verbs of the smaller ones."""

from __future__ import annotations

import argparse

from lockstep.cli import values as kinds
from lockstep.cli.access import ACCESS
from lockstep.cli.adapter import ADAPTER
from lockstep.cli.bench import COMPARE
from lockstep.cli.bus import BUS
from lockstep.cli.cron import CRON
from lockstep.cli.debug import DEBUG
from lockstep.cli.deliveries import DELIVERY
from lockstep.cli.demo import DEMO
from lockstep.cli.dev import DEV
from lockstep.cli.drill import DRILL
from lockstep.cli.engine_commands import ENGINE
from lockstep.cli.help_commands import COMPLETION, EXPLAIN
from lockstep.cli.model import DATA, MODEL
from lockstep.cli.monitor import MONITOR
from lockstep.cli.parser import Noun, Verb
from lockstep.cli.schedule import SCHEDULE, TENANT
from lockstep.cli.serve import SERVE, TOP
from lockstep.cli.settings import SETTINGS
from lockstep.cli.status import STATUS
from lockstep.cli.stream_commands import STREAM


def _nothing(_parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def _group_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")


def _group_reset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("name", metavar="STREAM")
    parser.add_argument(
        "--to",
        type=kinds.position,
        required=True,
        metavar="WHERE",
        help="earliest, latest, an OFFSET, or a time: ISO 8601, 5m (ago), @SECONDS since 1970",
    )
    parser.add_argument("--force", action="store_true", help="even while a member is at work; it loses the stream")
    kinds.add_destructive(parser)


def _group_mirror(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("--every", type=kinds.duration, metavar="TIME", help="again and again, as 10s (once)")


def _group_delete(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("--force", action="store_true", help="even while a member is at work")
    kinds.add_destructive(parser)


GROUP = Noun(
    name="group",
    purpose="Groups that share streams and remember how far they are.",
    verbs=(
        Verb(
            name="ls",
            purpose="List the groups with their members, streams and lag.",
            run="lockstep.cli.groups:ls",
            arguments=_nothing,
            examples=("lockstep group ls", "lockstep group ls --json"),
        ),
        Verb(
            name="show",
            purpose="Show a group: who owns which stream, what is confirmed, and the lag.",
            run="lockstep.cli.groups:show",
            arguments=_group_name,
            examples=("lockstep group show billing", "lockstep group show billing --json"),
        ),
        Verb(
            name="reset",
            purpose="Have a group read a stream again from another position, or skip ahead.",
            run="lockstep.cli.groups:reset",
            arguments=_group_reset,
            examples=(
                "lockstep group reset billing orders --to earliest --dry-run",
                "lockstep group reset billing orders --to 1h",
                "lockstep group reset billing orders --to latest --yes",
            ),
        ),
        Verb(
            name="delete",
            purpose="Forget a group and its positions; streams stay as they are.",
            run="lockstep.cli.groups:delete",
            arguments=_group_delete,
            examples=("lockstep group delete billing", "lockstep group delete billing --yes"),
        ),
        Verb(
            name="mirror",
            purpose="Show where a group is to the server's own tools, as one of its consumer groups (Kafka).",
            run="lockstep.cli.groups:mirror",
            arguments=_group_mirror,
            examples=("lockstep group mirror billing", "lockstep group mirror billing --every 10"),
        ),
    ),
)


def _dlq_ls(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="STREAM", nargs="?", help="the stream, or its dead-letter stream")
    _dlq_shard(parser)


def _dlq_shard(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shard", type=kinds.not_negative, metavar="N",
                        help="of the dead-letter stream, if it has several: each has offsets of its own")  # fmt: skip


def _dlq_redrive(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="STREAM", help="the stream, or its dead-letter stream")
    parser.add_argument("--limit", type=kinds.positive, metavar="N", help="send back at most N")
    kinds.add_destructive(parser)


def _dlq_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="STREAM", help="the stream, or its dead-letter stream")
    parser.add_argument("offset", type=kinds.not_negative, metavar="OFFSET", help="of the letter, as 'dlq ls' shows it")
    _dlq_shard(parser)


def _dlq_drop(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="STREAM", help="the stream, or its dead-letter stream")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--before", type=kinds.not_negative, metavar="OFFSET", help="those with smaller offsets")
    which.add_argument("--all", action="store_true", help="all of them")
    _dlq_shard(parser)
    kinds.add_destructive(parser)


DLQ = Noun(
    name="dlq",
    purpose="Dead letters: records that a handler could not deal with.",
    verbs=(
        Verb(
            name="ls",
            purpose="List dead-letter streams, or the dead letters of one stream and why they are there.",
            run="lockstep.cli.dlq:ls",
            arguments=_dlq_ls,
            examples=("lockstep dlq ls", "lockstep dlq ls orders", "lockstep dlq ls orders --json"),
        ),
        Verb(
            name="redrive",
            purpose="Publish dead letters to the streams they came from, each once.",
            run="lockstep.cli.dlq:redrive",
            arguments=_dlq_redrive,
            examples=("lockstep dlq redrive orders --dry-run", "lockstep dlq redrive orders --limit 10 --yes"),
        ),
        Verb(
            name="show",
            purpose="Show one dead letter whole: the record, its headers and why it is there.",
            run="lockstep.cli.dlq:show",
            arguments=_dlq_show,
            examples=("lockstep dlq show orders 0", "lockstep dlq show orders 0 --json"),
        ),
        Verb(
            name="drop",
            purpose="Remove dead letters for good, without sending them back.",
            run="lockstep.cli.dlq:drop",
            arguments=_dlq_drop,
            examples=("lockstep dlq drop orders --before 2 --dry-run", "lockstep dlq drop orders --all --yes"),
        ),
    ),
)


def _bench_streams(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--publishers", type=kinds.positive, default=4, metavar="N", help="publishing processes (4)")
    parser.add_argument("--subscribers", type=kinds.positive, default=16, metavar="N", help="reading processes (16)")
    parser.add_argument("--size", type=kinds.positive, default=100, metavar="BYTES", help="bytes of a record (100)")
    parser.add_argument("--seconds", type=kinds.duration, default=10.0, metavar="S", help="how long (10)")
    parser.add_argument("--durability", choices=("fsync", "relaxed"), default="fsync", help="of the bus (fsync)")
    parser.add_argument("--objects", action="store_true", help="make a record object for each delivery")
    parser.add_argument("--codec", default="none", metavar="NAME", help="none, lz4, zstd, gzip or snappy (none)")
    parser.add_argument("--folder", metavar="FOLDER", help="where to make the bus; a temporary folder by default")


def _bench_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--events", type=kinds.positive, default=1_000_000, metavar="N", help="trades (1000000)")
    names = "one, three, live, memory, groups, start, kernel, profile, shards, records, join, peers, large"
    parser.add_argument("--only", nargs="+", action="extend", default=[], metavar="ROW", help=f"of {names} (all)")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True,
                        help="measure other means beside it: Bytewax, Pathway, PyFlink, Spark (yes)")  # fmt: skip
    parser.add_argument("--large", action="store_true", help="also ten times as many events: takes minutes")
    parser.add_argument("--seconds", type=kinds.duration, default=30.0, metavar="S", help="of the live row (30)")
    parser.add_argument("--rate", type=kinds.positive, default=10_000, metavar="N", help="live events a second (10000)")
    parser.add_argument("--batch", type=kinds.positive, default=600_000, metavar="N",
                        help="events of a micro-batch (600000)")  # fmt: skip
    parser.add_argument(
        "--bytewax-python", metavar="PYTHON", help="a Python that has Bytewax (LOCKSTEP_BYTEWAX_PYTHON)"
    )


def _bench_failover(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", default=[], metavar="ROW",
                        help="drain, throughput, takeover, buses, handover, soak (all)")  # fmt: skip
    parser.add_argument("--takeovers", type=kinds.positive, default=20, metavar="N", help="kills (20)")
    parser.add_argument("--bus-takeovers", type=kinds.positive, default=5, metavar="N",
                        help="kills on each server: --bus kafka,redis or URLs (5, on each kind of server)")  # fmt: skip
    parser.add_argument("--handovers", type=kinds.positive, default=10, metavar="N", help="planned hand-overs (10)")
    parser.add_argument("--events", type=kinds.positive, default=1_000_000, metavar="N", help="trades (1000000)")
    parser.add_argument("--soak-events", type=kinds.positive, default=5_000_000, metavar="N",
                        help="trades of the run in which no takeover must happen (5000000)")  # fmt: skip


def _bench_schedule(parser: argparse.ArgumentParser) -> None:
    names = "now, minute, instant, crons, post, load, start, kill, http"
    parser.add_argument("--only", nargs="+", action="extend", default=[], metavar="ROW", help=f"of {names} (all)")
    parser.add_argument("--events", type=kinds.positive, default=100_000, metavar="N",
                        help="due events; ten times as many crons and overdue ones (100000)")  # fmt: skip
    parser.add_argument(
        "--store", metavar="URL", help="a PostgreSQL for those rows that need one (started for the run)"
    )
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=False,
                        help="install other schedulers in the cache folder, and measure them too (no)")  # fmt: skip
    parser.add_argument("--kills", type=kinds.positive, default=20, metavar="N", help="owners killed (20)")
    parser.add_argument("--seconds", type=kinds.duration, default=60.0, metavar="S",
                        help="of the rows in which time passes (60)")  # fmt: skip


def _bench_monitor(parser: argparse.ArgumentParser) -> None:
    names = "load, standby, ok, handler, kill, amqp, list, peers"
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=False,
                        help="fetch Nagios, Icinga and Alertmanager, and measure them too (no)")  # fmt: skip
    parser.add_argument("--only", nargs="+", action="extend", default=[], metavar="ROW", help=f"of {names} (all)")
    parser.add_argument("--clients", type=kinds.positive, default=4000, metavar="N",
                        help="simulated agents, with 40 checks every 5 s each (4000)")  # fmt: skip
    parser.add_argument("--seconds", type=kinds.duration, default=120.0, metavar="S",
                        help="of the rows in which a fleet sends results (120)")  # fmt: skip
    parser.add_argument("--kills", type=kinds.positive, default=10, metavar="N", help="leaders killed (10)")
    parser.add_argument("--runner", choices=("local", "spark"), default="local",
                        help="who computes in the servers (local)")  # fmt: skip


def _bench_console(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", action="extend", default=[], metavar="ROW", help="of scale, load (all)")
    parser.add_argument("--viewers", type=kinds.positive, default=200, metavar="N", help="with live pages (200)")
    parser.add_argument("--every", type=kinds.duration, default=10.0, metavar="TIME",
                        help="how often each of them loads a page (10s)")  # fmt: skip
    parser.add_argument("--seconds", type=kinds.duration, default=30.0, metavar="S", help="they look for so long (30)")
    parser.add_argument("--size", type=float, default=1.0, metavar="X",
                        help="of the large world: 1 is 10,000 streams, groups, hosts, 100,000 events (1)")  # fmt: skip


BENCH = Noun(
    name="bench",
    purpose="Measure this machine.",
    verbs=(
        Verb(
            bus_help="a bus or servers to measure on (its own; LOCKSTEP_BUS does not count)",
            name="streams",
            purpose="Publish from several processes to several subscribers on a bus of its own, and count.",
            run="lockstep.cli.bench:streams",
            arguments=_bench_streams,
            examples=(
                "lockstep bench streams --publishers 4 --subscribers 16 --size 100 --seconds 10 --json",
                "lockstep bench streams --publishers 1 --subscribers 1 --seconds 2 --durability relaxed",
            ),
        ),
        Verb(
            bus_help="a bus or servers to measure on (its own; LOCKSTEP_BUS does not count)",
            name="engine",
            purpose="Run the trades model on Spark and without, live and over what is there, and measure it.",
            run="lockstep.cli.bench:engine",
            arguments=_bench_engine,
            examples=(
                "lockstep bench engine --json",
                "lockstep bench engine --only one three --no-peers",
                "lockstep bench engine --large --bytewax-python bench-env/bin/python",
            ),
        ),
        Verb(
            bus_help="a bus or servers to measure on (its own; LOCKSTEP_BUS does not count)",
            name="failover",
            purpose="Kill, hand over and rejoin engines, and measure silence, drain and throughput.",
            run="lockstep.cli.bench:failover",
            arguments=_bench_failover,
            examples=(
                "lockstep bench failover --json",
                "lockstep bench failover --only drain throughput",
                "lockstep bench failover --only buses --bus kafka --bus-takeovers 20",
            ),
        ),
        Verb(
            bus_help="a bus or servers to measure on (its own; LOCKSTEP_BUS does not count)",
            name="schedule",
            purpose="Fire events and crons in bulk and on time, kill nodes, and measure rate, lateness and silence.",
            run="lockstep.cli.bench:schedule",
            arguments=_bench_schedule,
            examples=(
                "lockstep bench schedule --json",
                "lockstep bench schedule --only now minute --peers",
                "lockstep bench schedule --only now --store postgresql://USER@HOST/DATABASE",
            ),
        ),
        Verb(
            bus_help="a bus or servers to measure on (its own; LOCKSTEP_BUS does not count)",
            name="monitor",
            purpose="Have simulated agents send results to a monitor, kill its servers, and measure rate and lag.",
            run="lockstep.cli.bench:monitor",
            arguments=_bench_monitor,
            examples=(
                "lockstep bench monitor --json",
                "lockstep bench monitor --only load ok --runner spark --seconds 60",
                "lockstep bench monitor --only kill --kills 20",
            ),
        ),
        Verb(
            bus_help="none: it starts what it measures (LOCKSTEP_BUS does not count)",
            name="console",
            purpose="Load pages beside a large world, have viewers look at the demo, and probe health and metrics.",
            run="lockstep.cli.bench:console",
            arguments=_bench_console,
            examples=(
                "lockstep bench console --json",
                "lockstep bench console --only scale --size 0.2",
                "lockstep bench console --only load --viewers 50 --seconds 20",
            ),
        ),
        COMPARE,
    ),
)

NOUNS = (
    STREAM, GROUP, DLQ, DELIVERY, BUS, MODEL, ENGINE, ADAPTER, SCHEDULE, CRON, TENANT, MONITOR,
    STATUS, TOP, SERVE, SETTINGS, ACCESS, DEMO, DRILL, DATA, BENCH, DEV, EXPLAIN, COMPLETION, DEBUG,
)  # fmt: skip
