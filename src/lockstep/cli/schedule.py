"""The nouns `schedule` and `tenant`, and the verbs of `cron` that are about crons of a scheduler."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from lockstep.cli import values as kinds
from lockstep.cli.parser import Noun, Verb
from lockstep.cli.values import add_spark

TYPES = ("QUARTZ", "UNIX", "CRON4J", "SPRING")
STATUSES = ("WAITING", "FIRING", "RETRY", "DONE", "FAILED")
GROUPED = ("UNFIRED", "OVERDUE")
"""Words for several: unfired are WAITING and RETRY; overdue are those of them that are due by now."""
GRANULARITIES = ("MINUTES", "HOURS", "DAYS", "WEEKS", "MONTHS", "YEARS")
NAME, TENANT_NAME = "default", "default"
TIMES_HELP = "ISO 8601, 5m (ago), @SECONDS since 1970"


def add_scheduler(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which scheduler is meant."""
    parser.add_argument("--name", default=NAME, metavar="NAME", help=f"of the scheduler ({NAME})")
    parser.add_argument("--store", metavar="URL", help="where its rows are (LOCKSTEP_STORE, else the bus itself)")


def add_asked(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that wait for an answer of a node."""
    add_scheduler(parser)
    parser.add_argument("--timeout", dest="answer_s", type=kinds.duration, default=10.0, metavar="TIME",
                        help="wait at most so long for a node's answer (10s)")  # fmt: skip


def _tenant(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tenant", default=TENANT_NAME, metavar="TENANT", help=f"whose it is ({TENANT_NAME})")


def _event(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="of the event")
    _tenant(parser)
    add_asked(parser)


def _serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--http", type=kinds.port_or_any, metavar="PORT",
                        help="serve the API on this port (SERVER_PORT, else 8080); 0 picks one")  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", metavar="HOST", help="of this address (127.0.0.1)")
    parser.add_argument("--nodes", type=kinds.positive, metavar="N",
                        help="processes, on the ports after the first (NUM_INSTANCES, else 1)")  # fmt: skip
    parser.add_argument("--node-name", metavar="NAME", help="of this node in lists and the history (HOST-PID)")
    parser.add_argument("--config", action="append", default=[], metavar="FILE",
                        help="a bigben.yaml; one that is named later overrides those before")  # fmt: skip
    parser.add_argument("--set", dest="settings_given", action="append", default=[], metavar="KEY=VALUE",
                        help="a key of bigben.yaml; overrides the environment and files")  # fmt: skip
    parser.add_argument("--change-store", action="store_true",
                        help="use this store from now on, without the rows of the earlier one")  # fmt: skip
    parser.add_argument("--token-file", metavar="FILE", help="whose token callers must bear; needed beyond loopback")
    parser.add_argument("--change-token-file", metavar="FILE", help="the same for requests that change something")
    add_scheduler(parser)


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="of the event; the same id again changes it")
    parser.add_argument("payload", metavar="PAYLOAD", nargs="?", help="text; - reads standard input")
    when = parser.add_mutually_exclusive_group(required=True)
    when.add_argument("--at", metavar="TIME", help="when it fires, as 2027-01-31T04:00Z")
    when.add_argument("--after", metavar="SPAN", help="how long from now, as 30s, 5m, 1h30m or 7d")
    parser.add_argument("--payload-only", action="store_true", help="deliver the payload, without the event around it")
    _tenant(parser)
    add_asked(parser)


def _ls(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tenant", metavar="TENANT", help="of one tenant (all)")
    parser.add_argument(
        "--status", type=kinds.names, metavar="STATUS[,STATUS]", help=f"of {', '.join((*STATUSES, *GROUPED))} (all)"
    )
    _range(parser)
    parser.add_argument("--limit", type=kinds.positive, default=100, metavar="N", help="events of a page (100)")
    parser.add_argument("--cursor", metavar="CURSOR", help="the page after another, as that one says")
    parser.add_argument("--all", action="store_true", help="all pages")
    add_scheduler(parser)


def _range(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="start", type=kinds.moment_or_begin_ns, metavar="TIME",
                        help=f"at or after: {TIMES_HELP}, or begin (begin)")  # fmt: skip
    parser.add_argument("--to", dest="stop", type=kinds.moment_ns, metavar="TIME", help="before this time")


def _why(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="of an event or a cron")
    parser.add_argument("--history", type=kinds.positive, default=1_000_000, metavar="N",
                        help="records of the history to look at, from its end (1000000)")  # fmt: skip
    _tenant(parser)
    add_scheduler(parser)


def _replay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", metavar="ID", nargs="*", help="of FAILED events")
    parser.add_argument("--failed", action="store_true", help="all FAILED events of the tenant")
    _tenant(parser)
    add_asked(parser)


def _buckets(parser: argparse.ArgumentParser) -> None:
    _range(parser)
    parser.add_argument("--tenant", metavar="TENANT", help="of one tenant (all)")
    parser.add_argument("--limit", type=kinds.positive, default=60, metavar="N", help="minutes that have events (60)")
    add_scheduler(parser)


def _spark(parser: argparse.ArgumentParser) -> None:
    spark = parser.add_argument_group("Spark")
    add_spark(spark)
    spark.add_argument("--verbose-spark", action="store_true", help="show what Spark itself prints")


def _load(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help=".jsonl, .csv or .parquet; folders are searched")
    parser.add_argument("--dry-run", action="store_true", help="check, show the hottest minutes, and store nothing")
    parser.add_argument("--top", type=kinds.positive, default=10, metavar="N", help="hottest minutes to show (10)")
    parser.add_argument("--rejected", type=kinds.positive, default=100, metavar="N", help="bad lines to show (100)")
    parser.add_argument("--wait", action=argparse.BooleanOptionalAction, default=True,
                        help="wait until nodes have carried out all requests (yes)")  # fmt: skip
    parser.add_argument("--timeout", type=kinds.duration, default=600.0, metavar="TIME", help="wait at most (10m)")
    _spark(parser)
    add_scheduler(parser)


def _ingest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", required=True, metavar="FORMAT",
                        help="of Spark, as kafka or json: rows with the fields, or with JSON in `value`")  # fmt: skip
    parser.add_argument("--option", dest="source_options", type=kinds.header, action="append", default=[],
                        metavar="NAME=VALUE", help="of the source; may be repeated")  # fmt: skip
    parser.add_argument("--checkpoint", required=True, metavar="FOLDER", help="where Spark keeps its progress")
    parser.add_argument(
        "--available-now", action="store_true", help="stop when everything that is there now is taken in"
    )
    parser.add_argument("--every", type=kinds.duration, default=1.0, metavar="TIME", help="between two batches (1)")
    _spark(parser)
    add_scheduler(parser)


def _report(parser: argparse.ArgumentParser) -> None:
    _range(parser)
    parser.add_argument("--tenant", metavar="TENANT", help="of one tenant (all)")
    parser.add_argument("--plot", metavar="PNG", help="draw lateness over time")
    parser.add_argument("--parquet", metavar="FOLDER", help="write the rows of the table there; it must not exist")
    _spark(parser)
    add_scheduler(parser)


def _forecast(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--days", type=kinds.above_zero, default=7.0, metavar="N", help="to look ahead (7)")
    parser.add_argument("--tenant", metavar="TENANT", help="of one tenant (all that are not paused)")
    parser.add_argument("--top", type=kinds.positive, default=20, metavar="N", help="busiest minutes to show (20)")
    parser.add_argument("--plot", metavar="PNG", help="draw fires a minute over time")
    _spark(parser)
    add_scheduler(parser)


SCHEDULE = Noun(
    name="schedule",
    purpose="Events that fire at a time: a scheduler's nodes, its events, and what became of them.",
    verbs=(
        Verb(
            name="serve",
            purpose="Run nodes of a scheduler with its HTTP API, until Ctrl-C.",
            run="lockstep.cli.schedule_serve:serve",
            arguments=_serve,
            examples=(
                "lockstep schedule serve --bus lmdb:./s --http 18080",
                "lockstep schedule serve --bus lmdb:./s --http 18080 --nodes 3",
                "lockstep schedule serve --config bigben.yaml --set events.processor.max.retries=5",
            ),
        ),
        Verb(
            name="add",
            purpose="Have an event fire at a time, or change the one that has this id.",
            run="lockstep.cli.schedule_events:add",
            arguments=_add,
            examples=(
                "lockstep schedule add mail-7 'the body' --at 2027-01-01T00:00Z",
                "lockstep schedule add timeout-9 --after 30m --tenant orders --json",
            ),
        ),
        Verb(
            name="cancel",
            purpose="Cancel an event and say who won: 0 the cancel, 4 the fire, 3 there is no such event.",
            run="lockstep.cli.schedule_events:cancel",
            arguments=_event,
            examples=("lockstep schedule cancel mail-7", "lockstep schedule cancel mail-7 --tenant orders --json"),
        ),
        Verb(
            name="find",
            purpose="Show an event as it is stored.",
            run="lockstep.cli.schedule_events:find",
            arguments=_event,
            examples=("lockstep schedule find mail-7", "lockstep schedule find mail-7 --json"),
        ),
        Verb(
            name="ls",
            purpose="List events in the order of their times: when they were to fire, when they did, and how late.",
            run="lockstep.cli.schedule_events:ls",
            arguments=_ls,
            examples=(
                "lockstep schedule ls --status FAILED,RETRY",
                "lockstep schedule ls --tenant orders --from 1h --all --json",
            ),
        ),
        Verb(
            name="dryrun",
            purpose="Deliver an event now, marked as a dry run, and change nothing.",
            run="lockstep.cli.schedule_events:dryrun",
            arguments=_event,
            examples=("lockstep schedule dryrun mail-7",),
        ),
        Verb(
            name="why",
            purpose="Say in plain words what became of an event, or why it has not fired.",
            run="lockstep.cli.schedule_events:why",
            arguments=_why,
            examples=("lockstep schedule why mail-7", "lockstep schedule why mail-7 --tenant orders --json"),
        ),
        Verb(
            name="load",
            purpose="Take in files of requests with Spark: the last line for a tenant and id counts.",
            run="lockstep.cli.schedule_spark:load",
            arguments=_load,
            examples=(
                "lockstep schedule load requests.jsonl --dry-run",
                "lockstep schedule load requests.jsonl more.csv --bus lmdb:./s --json",
            ),
        ),
        Verb(
            name="ingest",
            purpose="Take in requests from any streaming source of Spark.",
            run="lockstep.cli.schedule_spark:ingest",
            arguments=_ingest,
            examples=(
                "lockstep schedule ingest --format json --option path=./inbox --checkpoint ./taken --available-now",
                "lockstep schedule ingest --format lockstep --option url=lmdb:./s --option stream=in --checkpoint ./c",
            ),
        ),
        Verb(
            name="report",
            purpose="Show lateness, retries and misses by tenant and hour, from the history.",
            run="lockstep.cli.schedule_spark:report",
            arguments=_report,
            examples=("lockstep schedule report --from 24h", "lockstep schedule report --plot late.png --json"),
        ),
        Verb(
            name="forecast",
            purpose="Count what will fire in each minute: stored events and crons.",
            run="lockstep.cli.schedule_spark:forecast",
            arguments=_forecast,
            examples=("lockstep schedule forecast --days 7", "lockstep schedule forecast --days 1 --plot fires.png"),
        ),
        Verb(
            name="buckets",
            purpose="Count the events of each minute by status.",
            run="lockstep.cli.schedule_events:buckets",
            arguments=_buckets,
            examples=("lockstep schedule buckets --from 1h", "lockstep schedule buckets --tenant orders --json"),
        ),
        Verb(
            name="nodes",
            purpose="List the nodes that are heard, and which shards each owns; 1 if a shard has no owner.",
            run="lockstep.cli.schedule_events:nodes",
            arguments=add_scheduler,
            examples=("lockstep schedule nodes", "lockstep schedule nodes --json"),
        ),
        Verb(
            name="replay",
            purpose="Fire FAILED events again, from the first try.",
            run="lockstep.cli.schedule_events:replay",
            arguments=_replay,
            examples=("lockstep schedule replay mail-7", "lockstep schedule replay --failed --tenant orders"),
        ),
    ),
)


def _tenant_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tenant", metavar="TENANT")
    add_scheduler(parser)


def _tenant_add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tenant", metavar="TENANT")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--stream", metavar="STREAM", help="its events go to this stream of the bus")
    where.add_argument("--url", metavar="URL", help="or by POST to this address")
    where.add_argument("--topic", metavar="TOPIC", help="or to this Kafka topic; needs --prop bootstrap.servers=...")
    where.add_argument("--class", dest="processor", metavar="NAME", help="or to a processor that nodes know by name")
    parser.add_argument("--header", type=kinds.header, action="append", default=[], metavar="NAME=VALUE",
                        help="of the POST; may be repeated")  # fmt: skip
    parser.add_argument("--prop", type=kinds.header, action="append", default=[], metavar="NAME=VALUE",
                        help="further props; may be repeated")  # fmt: skip
    parser.add_argument("--secret-file", metavar="FILE", help="whose content signs each POST")
    parser.add_argument("--rate", type=kinds.above_zero, metavar="N", help="events a second at most (no limit)")
    add_scheduler(parser)


def _tenant_rm(parser: argparse.ArgumentParser) -> None:
    _tenant_name(parser)
    kinds.add_destructive(parser)


TENANT = Noun(
    name="tenant",
    purpose="Tenants of a scheduler: where their events go.",
    verbs=(
        Verb(
            name="add",
            purpose="Register a tenant, or give it other settings.",
            run="lockstep.cli.tenants:add",
            arguments=_tenant_add,
            examples=(
                "lockstep tenant add orders --stream orders.due",
                "lockstep tenant add mails --url https://mail.example/due --header X-Team=mail --rate 100",
            ),
        ),
        Verb(
            name="ls",
            purpose="List the tenants; secrets are not shown.",
            run="lockstep.cli.tenants:ls",
            arguments=add_scheduler,
            examples=("lockstep tenant ls", "lockstep tenant ls --json"),
        ),
        Verb(
            name="show",
            purpose="Show a tenant, and how many of its events are due; secrets are not shown.",
            run="lockstep.cli.tenants:show",
            arguments=_tenant_name,
            examples=("lockstep tenant show orders", "lockstep tenant show orders --json"),
        ),
        Verb(
            name="rm",
            purpose="Remove a tenant; its events wait until it is registered again.",
            run="lockstep.cli.tenants:rm",
            arguments=_tenant_rm,
            examples=("lockstep tenant rm orders --dry-run", "lockstep tenant rm orders --yes"),
        ),
        Verb(
            name="pause",
            purpose="Have the events of a tenant wait.",
            run="lockstep.cli.tenants:pause",
            arguments=_tenant_name,
            examples=("lockstep tenant pause orders",),
        ),
        Verb(
            name="resume",
            purpose="Let the events of a tenant fire again.",
            run="lockstep.cli.tenants:resume",
            arguments=_tenant_name,
            examples=("lockstep tenant resume orders",),
        ),
    ),
)


def _cron(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="of the cron")
    parser.add_argument("--type", type=str.upper, choices=TYPES, metavar="TYPE", help="one of several dialects (all)")
    _tenant(parser)
    add_asked(parser)


def _cron_rm(parser: argparse.ArgumentParser) -> None:
    _cron(parser)
    kinds.add_destructive(parser)


def _cron_add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="of the cron; the same id and type again replace it")
    parser.add_argument("expression", metavar="EXPRESSION", help="in quotes, as '0 9 * * MON-FRI'")
    parser.add_argument("--type", type=str.upper, choices=TYPES, default="UNIX", metavar="TYPE",
                        help=f"the dialect: {', '.join(TYPES)} (UNIX)")  # fmt: skip
    parser.add_argument("--tz", default="UTC", metavar="ZONE", help="whose clock it follows, as Europe/Berlin (UTC)")
    parser.add_argument("--dst", choices=("once", "literal"), default="once",
                        help="in nights when clocks change: docs/reference/cron.md (once)")  # fmt: skip
    parser.add_argument("--payload", metavar="TEXT", help="what is delivered (the expression)")
    parser.add_argument("--misfire", choices=("once", "all", "skip"), default="once",
                        help="which missed ticks fire: the latest, all, or none (once)")  # fmt: skip
    parser.add_argument("--grace", default="60s", metavar="SPAN", help="a tick that is later than this is missed (60s)")
    parser.add_argument("--catch-up", default="1d", metavar="SPAN", help="missed ticks older than this never fire (1d)")
    parser.add_argument(
        "--jitter", default="0s", metavar="SPAN", help="fire later by up to this; always by the same (0s)"
    )
    parser.add_argument("--overlap", choices=("allow", "skip"), default="allow",
                        help="whether a tick fires while the one before is being delivered (allow)")  # fmt: skip
    parser.add_argument("--log", type=str.upper, choices=GRANULARITIES, metavar="UNIT",
                        help="log runs, grouped by MINUTES, HOURS, DAYS, WEEKS, MONTHS or YEARS (off)")  # fmt: skip
    parser.add_argument("--keep", metavar="SPAN", help="how long logged runs are kept (for ever)")
    _tenant(parser)
    add_asked(parser)


def _cron_ls(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tenant", metavar="TENANT", help="of one tenant (all)")
    add_scheduler(parser)


def _cron_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="of the cron")
    parser.add_argument("--type", type=str.upper, choices=TYPES, metavar="TYPE", help="one of several dialects (all)")
    parser.add_argument("--limit", type=kinds.positive, default=20, metavar="N", help="newest runs to show (20)")
    parser.add_argument("--history", type=kinds.positive, default=1_000_000, metavar="N",
                        help="records of the history to look at, from its end (1000000)")  # fmt: skip
    _tenant(parser)
    add_scheduler(parser)


def _cron_backfill(parser: argparse.ArgumentParser) -> None:
    _cron(parser)
    parser.add_argument("--from", dest="start", type=kinds.moment_ns, required=True, metavar="TIME",
                        help=f"ticks at or after: {TIMES_HELP}")  # fmt: skip
    parser.add_argument("--to", dest="stop", type=kinds.moment_ns, metavar="TIME", help="ticks before (now)")
    parser.add_argument("--dry-run", action="store_true", help="count the ticks, and fire none")


def _cron_verb(name: str, purpose: str, arguments: Callable[[argparse.ArgumentParser], None], *examples: str) -> Verb:
    return Verb(name=name, purpose=purpose, run=f"lockstep.cli.cron:{name}", arguments=arguments, examples=examples)


CRON_VERBS = (
    _cron_verb("add", "Set up a cron, or replace it.", _cron_add,
               "lockstep cron add report '0 9 * * MON-FRI' --tz Europe/Berlin",
               "lockstep cron add poll '*/30 * * * * ?' --type QUARTZ --overlap skip --log DAYS --keep 30d"),
    _cron_verb("rm", "Remove a cron.", _cron_rm, "lockstep cron rm report --dry-run",
               "lockstep cron rm report --type UNIX --yes"),
    _cron_verb("ls", "List the crons, when they fired last, and when they fire next.", _cron_ls,
               "lockstep cron ls", "lockstep cron ls --tenant orders --json"),
    _cron_verb("runs", "Show the ticks of a cron: fired, late by how much, or skipped and why.", _cron_runs,
               "lockstep cron runs report", "lockstep cron runs report --limit 100 --json"),
    _cron_verb("pause", "Have the ticks of a cron skipped.", _cron, "lockstep cron pause report"),
    _cron_verb("resume", "Let a cron tick again.", _cron, "lockstep cron resume report"),
    _cron_verb("trigger", "Fire a cron now, beside its ticks.", _cron, "lockstep cron trigger report"),
    _cron_verb("backfill", "Fire a cron for its nominal ticks of a time that has passed.", _cron_backfill,
               "lockstep cron backfill report --from 2026-11-01 --to 2026-11-08"),
)  # fmt: skip
"""Verbs of `lockstep cron` that need a scheduler."""
