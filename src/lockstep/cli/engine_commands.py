"""The verbs of `lockstep engine`."""

from __future__ import annotations

import argparse

from lockstep.cli import values as kinds
from lockstep.cli.adapter import engine_publish, engine_subscribe
from lockstep.cli.parser import Arguments, Noun, Verb
from lockstep.cli.status import status_arguments
from lockstep.cli.values import add_spark, window_file


def _model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a .yaml, .xml or .py file; a .py file is run")
    kinds.add_cluster(parser)


def _run(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    parser.add_argument("--publish", action="extend", type=kinds.names, default=[], metavar="WINDOW[,WINDOW]",
                        help="windows whose events go to their .O streams (those with pubsub, or if no window says so, "
                        "those without children)")  # fmt: skip
    parser.add_argument("--state", metavar="FOLDER", help="its state (.lockstep-engine/CLUSTER.PROJECT)")
    parser.add_argument("--until-idle", action="store_true", help="stop when everything on the inputs is out")
    parser.add_argument("--batch", type=kinds.positive, default=600_000, metavar="N",
                        help="events in a micro-batch at most (600000)")  # fmt: skip
    parser.add_argument(
        "--shards", type=kinds.positive, default=1, metavar="N", help="see 'lockstep model explain' (1)"
    )
    _runner(parser)
    _failover(parser)
    parser.add_argument("--progress", action=argparse.BooleanOptionalAction, default=None,
                        help="say how far it is (on a terminal, and with --json)")  # fmt: skip
    parser.add_argument("--metrics-port", type=kinds.port, metavar="PORT",
                        help="serve figures for Prometheus on this port of 127.0.0.1")  # fmt: skip
    _spark(parser)


def _failover(parser: argparse.ArgumentParser) -> None:
    failover = parser.add_argument_group("Failover")
    failover.add_argument(
        "--name", default="", metavar="NAME", help="this engine among those of its project (HOST-PID)"
    )
    failover.add_argument("--lease", type=kinds.duration, metavar="TIME",
                          help="a leader silent for so long loses the lead (0.5; 1 on servers)")  # fmt: skip
    failover.add_argument("--preference", type=kinds.not_negative, default=0, metavar="N",
                          help="of several standbys the one with the lowest number takes over (0)")  # fmt: skip
    failover.add_argument("--election", default="", metavar="URL",
                          help="who says which engine may try to lead, as zookeeper://HOST:PORT/ESP or "
                          "rabbitmq-queue://USER@HOST:PORT/VHOST?queue=NAME (the group's log alone)")  # fmt: skip
    failover.add_argument("--buffer-blocks", type=kinds.positive, default=1_000_000, metavar="N",
                          help="blocks that a standby keeps until they are published (1000000)")  # fmt: skip
    failover.add_argument("--buffer-bytes", type=kinds.size, default=512 << 20, metavar="SIZE",
                          help="and bytes (512MiB); when either is reached it waits, and drops nothing")  # fmt: skip
    failover.add_argument("--restarts", type=kinds.not_negative, default=5, metavar="N",
                          help="start again as a standby when Spark fails, so often in ten minutes (5)")  # fmt: skip
    failover.add_argument("--persist-to", metavar="FOLDER",
                          help="snapshots are written there, and it starts from the newest; may be shared")  # fmt: skip
    failover.add_argument("--persist-every", type=kinds.duration, metavar="TIME", help="write one so often, as 5m")
    failover.add_argument("--trim", action="store_true", help="trim what no snapshot and no window needs any more")
    failover.add_argument("--strict", action="store_true",
                          help="refuse a server whose settings may break a promise; else warn")  # fmt: skip
    rest = parser.add_argument_group("REST")
    rest.add_argument("--http", type=kinds.port_or_any, metavar="PORT", help="serve REST on this port; 0 picks one")
    rest.add_argument("--http-host", default="127.0.0.1", metavar="HOST", help="of this address (127.0.0.1)")
    rest.add_argument("--token-file", metavar="FILE", help="whose token callers must bear; needed beyond loopback")
    rest.add_argument("--files", metavar="FOLDER", help="of models that clients name as file://FILE (its state folder)")


def _runner(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runner", choices=("spark", "local"), default="spark",
                        help="evaluate windows on Spark, or in this process, without a JVM (spark)")  # fmt: skip


def _spark(parser: argparse.ArgumentParser) -> None:
    spark = parser.add_argument_group("Spark")
    add_spark(spark)
    spark.add_argument("--verbose-spark", action="store_true", help="let Spark's own words through")


def _replay(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    parser.add_argument("--out", dest="outputs", type=window_file, action="append", default=[], metavar="WINDOW=FILE",
                        help="write the events of a window; may be repeated")  # fmt: skip
    parser.add_argument(
        "--shards", type=kinds.positive, default=1, metavar="N", help="see 'lockstep model explain' (1)"
    )
    parser.add_argument("--collapse", action="store_true", help="write an update as one line U, not as UB and D")
    parser.add_argument("--date-format", metavar="FORMAT", help="of dates and stamps, as %%Y-%%m-%%d")
    _spark(parser)


def _asked(parser: argparse.ArgumentParser) -> None:
    kinds.add_cluster(parser)
    parser.add_argument("--project", metavar="NAME", help="needed if the cluster has several")
    parser.add_argument("--timeout", type=kinds.duration, default=60.0, metavar="TIME", help="wait at most (60)")


def _persist(parser: argparse.ArgumentParser) -> None:
    _asked(parser)
    parser.add_argument("--to", metavar="FOLDER", help="where to (the engines' --persist-to)")


def _replace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the new model: a .yaml, .xml or .py file")
    _asked(parser)
    parser.add_argument("--publish", action="extend", type=kinds.names, default=[], metavar="WINDOW[,WINDOW]",
                        help="windows to be published from then on (those that are now)")  # fmt: skip
    kinds.add_destructive(parser)


def _reset(parser: argparse.ArgumentParser) -> None:
    _asked(parser)
    parser.add_argument("--force", action="store_true", help="also while something comes in")
    kinds.add_destructive(parser)


def _trim(parser: argparse.ArgumentParser) -> None:
    _asked(parser)
    kinds.add_destructive(parser)


def _state(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("value", choices=("running", "stopped"), help="take input, or leave it on its streams")
    _asked(parser)


def _query(parser: argparse.ArgumentParser) -> None:
    _asked(parser)
    parser.add_argument("--what", default="project", choices=("project", "queries", "windows", "schema", "model"),
                        help="what to tell of the project (project)")  # fmt: skip
    parser.add_argument("--window", metavar="WINDOW", help="for --what schema")


def _ls(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", default=".lockstep-engine", metavar="FOLDER",
                        help="where state folders are (.lockstep-engine)")  # fmt: skip


def _stop(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("engine", metavar="ENGINE", help="a state folder, its name, or a project: see 'engine ls'")
    _ls(parser)
    parser.add_argument("--timeout", type=kinds.duration, default=60.0, metavar="TIME", help="wait at most (60s)")


def _verb(name: str, purpose: str, module: str, arguments: Arguments, *examples: str) -> Verb:
    return Verb(name=name, purpose=purpose, run=f"lockstep.cli.{module}:{name}", arguments=arguments, examples=examples)


ENGINE = Noun(
    name="engine",
    purpose="Models at work on streams: run one, feed it, read what comes out.",
    verbs=(
        _verb("run", "Run a model on the streams of a bus until Ctrl-C; it goes on where it was stopped.", "engine_run",
              _run, "lockstep engine run trades.yaml",
              "lockstep engine run trades.yaml --publish Aggregate24HR --shards 2",
              "lockstep engine run trades.yaml --until-idle --json"),
        _verb("ls", "List the engines of this machine by their state folders, and which of them run.", "engine_ask",
              _ls, "lockstep engine ls", "lockstep engine ls --folder .lockstep-engine --json"),
        _verb("stop", "Have an engine of this machine end in order, and wait until it has.", "engine_ask", _stop,
              "lockstep engine stop trades", "lockstep engine stop .lockstep-engine/local.trades --timeout 2m"),
        _verb("replay", "Run a model over everything on a project's streams as one batch job, into files.",
              "engine_replay", _replay, "lockstep engine replay trades.yaml --out Aggregate24HR=day.csv"),
        _verb("status", "The same as 'lockstep status'.", "status", status_arguments,
              "lockstep engine status", "lockstep engine status --project trades --json"),
        _verb("publish", "Publish a file to a source window: 'adapter publish FILE --model MODEL'.", "adapter_publish",
              engine_publish, "lockstep engine publish trades.yaml trades.csv",
              "lockstep engine publish trades.yaml trades.csv --window TradesSource --block 64 --rate 10000"),
        _verb("subscribe", "Print what came out of a window: 'adapter subscribe --model MODEL --all --exit'.",
              "adapter_subscribe", engine_subscribe, "lockstep engine subscribe trades.yaml --window Aggregate24HR",
              "lockstep engine subscribe trades.yaml --window Aggregate24HR -o day.csv --collapse",
              "lockstep engine subscribe trades.yaml --window Aggregate24HR --follow --new"),
        _verb("handover", "Let a standby lead, without a pause.", "engine_ask", _asked,
              "lockstep engine handover", "lockstep engine handover --project trades"),
        _verb("persist", "Have one engine write a snapshot: a standby, if there is one.", "engine_ask", _persist,
              "lockstep engine persist --to /var/lib/lockstep/snapshots"),
        _verb("quiesce", "Wait until everything that was published before is processed and out.", "engine_ask", _asked,
              "lockstep engine quiesce --project trades"),
        _verb("replace", "Put another model in the place of the one that runs, at the same block everywhere.",
              "engine_ask", _replace, "lockstep engine replace trades2.yaml --dry-run",
              "lockstep engine replace trades2.yaml --yes"),
        _verb("reset", "Start of day: empty all windows, and remove old messages; numbers go on.", "engine_ask",
              _reset, "lockstep engine reset --dry-run", "lockstep engine reset --project trades --yes"),
        _verb("trim", "Let logs go of what no snapshot and no window needs any more.", "engine_ask", _trim,
              "lockstep engine trim --project trades --yes"),
        _verb("state", "Have a project take input, or leave it on its streams for later.", "engine_ask", _state,
              "lockstep engine state stopped --project trades"),
        _verb("query", "Ask for the projects of a cluster, or for the windows, schemas and model of one.", "engine_ask",
              _query, "lockstep engine query", "lockstep engine query --project trades --what windows"),
    ),
)  # fmt: skip
