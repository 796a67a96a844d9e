"""The verbs of `lockstep adapter`."""

from __future__ import annotations

import argparse

from lockstep.cli import arguments as kinds
from lockstep.cli.engine_commands import CLUSTER
from lockstep.cli.parser import Noun, Verb

TYPES = ("csv", "json", "binary")


def _project(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--project", metavar="NAME", help="whose model is asked of the bus; needed without --model")
    parser.add_argument("--model", metavar="FILE", help="take the model of a file: before any engine has run")
    parser.add_argument(
        "--cluster", default=CLUSTER, metavar="NAME", help=f"first part of the streams' names ({CLUSTER})"
    )
    parser.add_argument("--type", choices=TYPES, default="csv", help="how events are written (csv)")
    parser.add_argument("--delimiter", default=",", metavar="CHAR", help="between the fields of CSV lines (,)")
    parser.add_argument("--date-format", metavar="FORMAT", help="of dates and stamps, as %%Y-%%m-%%d")


def _publish(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a path, - for stdin, tcp://HOST:PORT or listen://HOST:PORT")
    _project(parser)
    parser.add_argument("--window", metavar="WINDOW", help="the source window; needed if there are several")
    parser.add_argument("--block", type=kinds.positive, default=1, metavar="N", help="events in a block (1)")
    parser.add_argument("--transactional", action="store_true", help="take blocks whole or not at all")
    parser.add_argument("--rate", type=kinds.above_zero, metavar="R", help="at most R events a second")
    parser.add_argument("--repeat", type=kinds.positive, default=1, metavar="N", help="read the file N times (1)")
    parser.add_argument("--max-events", type=kinds.positive, metavar="N", help="stop after so many events")
    parser.add_argument(
        "--client", metavar="NAME", help="number the blocks for this name: sent again, none counts twice"
    )
    growing = parser.add_argument_group("a source that grows")
    growing.add_argument("--growing", action="store_true", help="wait for more at the end of the file, until Ctrl-C")
    growing.add_argument("--until-idle", type=kinds.span_s, metavar="TIME", help="end when nothing came for so long")
    lines = parser.add_argument_group("lines of CSV")
    lines.add_argument("--header", type=kinds.not_negative, default=0, metavar="N", help="lines to skip (0)")
    lines.add_argument("--add-opcode", action="store_true", help="lines have no opcode: all are inserts")
    lines.add_argument("--add-flags", action="store_true", help="lines have no flag: all are normal")
    lines.add_argument("--no-key", action="store_true", help="lines have no key: the window makes it itself")
    lines.add_argument("--upsert", action="store_true", help="take inserts as upserts")
    lines.add_argument("--ignore-parse-errors", action="store_true", help="count lines that are no events, and no more")
    failover = parser.add_argument_group("standing in for each other")
    failover.add_argument("--failover", metavar="GROUP", help="adapters of a group read the same; one of them sends")
    failover.add_argument("--buffered", type=kinds.positive, default=1000, metavar="N",
                          help="blocks that a standby keeps (1000)")  # fmt: skip
    failover.add_argument("--check-every", type=kinds.positive, default=100, metavar="N",
                          help="blocks between two checks of what was sent (100)")  # fmt: skip
    failover.add_argument("--lease", type=kinds.duration, default=1.0, metavar="TIME",
                          help="silence after which another takes over (1)")  # fmt: skip


def _subscribe(parser: argparse.ArgumentParser) -> None:
    _project(parser)
    parser.add_argument("--window", metavar="WINDOW", required=True, help="whose events to write")
    parser.add_argument("-o", "--out", metavar="FILE", default="-",
                        help="a path, tcp://HOST:PORT or listen://HOST:PORT (stdout)")  # fmt: skip
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--snapshot", action="store_true", help="first the rows that the window holds now")
    begin.add_argument("--no-snapshot", action="store_true", help="only what comes from now on; so it is anyway")
    begin.add_argument("--all", action="store_true", help="everything on the stream, from its start")
    parser.add_argument("--collapse", action="store_true", help="write an update as one event U, not as UB and D")
    parser.add_argument("--rmretdel", action="store_true", help="leave out deletes caused by retention")
    parser.add_argument("--header", choices=("none", "names", "full"), default="none", help="first line of CSV (none)")
    parser.add_argument("--resume", action="store_true",
                        help="keep the position beside the file; started again it goes on exactly there")  # fmt: skip
    end = parser.add_argument_group("when to end (Ctrl-C)")
    end.add_argument("--until-block", type=kinds.positive, metavar="N", help="when everything up to block N is written")
    end.add_argument("--until-idle", type=kinds.span_s, metavar="TIME", help="when nothing came for so long")
    end.add_argument("--count", type=kinds.positive, metavar="N", help="with the block that has the Nth event")


ADAPTER = Noun(
    name="adapter",
    purpose="Files and sockets to and from the windows of a project.",
    verbs=(
        Verb(
            name="publish",
            purpose="Publish events from a file or a socket to a source window.",
            run="lockstep.cli.adapter_publish:publish",
            arguments=_publish,
            examples=(
                "lockstep adapter publish trades.csv --project trades --block 64",
                "lockstep adapter publish trades.csv --project trades --growing --failover feed",
                "lockstep adapter publish listen://127.0.0.1:5555 --project trades --window TradesSource --type json",
            ),
        ),
        Verb(
            name="subscribe",
            purpose="Write what comes out of a window to a file or a socket.",
            run="lockstep.cli.adapter_subscribe:subscribe",
            arguments=_subscribe,
            examples=(
                "lockstep adapter subscribe --project trades --window Aggregate24HR --snapshot",
                "lockstep adapter subscribe --project trades --window Aggregate24HR -o day.csv --all --resume",
                "lockstep adapter subscribe --project trades --window Copy5MinRet --collapse --until-idle 5s",
            ),
        ),
    ),
)
