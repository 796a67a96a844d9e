"""The verbs of `lockstep adapter`, and the same two with the model first, as `lockstep engine` has them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from lockstep.cli import values as kinds
from lockstep.cli.parser import Noun, Verb
from lockstep.errors import UsageError

if TYPE_CHECKING:
    from lockstep.engine.model.graph import Graph, Node
    from lockstep.events.connection import ProjectEvents
    from lockstep.streams.client import Lockstep

TYPES = ("csv", "json", "binary")
FILE_HELP = "a path, - for stdin, tcp://HOST:PORT or listen://HOST:PORT"
NEW, ALL, SNAPSHOT = "new", "all", "snapshot"
"""Where a subscriber begins."""


def engine_publish(parser: argparse.ArgumentParser) -> None:
    """`engine publish MODEL FILE` takes every option of `adapter publish`."""
    _model_first(parser)
    parser.add_argument("file", metavar="FILE", help=FILE_HELP)
    _publish_options(parser)


def engine_subscribe(parser: argparse.ArgumentParser) -> None:
    """`engine subscribe MODEL` takes every option of `adapter subscribe`, and prints what is there by default."""
    _model_first(parser)
    _subscribe_options(parser, begin=ALL, exits=True)


def _model_first(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a .yaml, .xml or .py file; a .py file is run")
    parser.add_argument("--project", metavar="NAME", help="another name for the project (that of the model)")


def _model_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--project", metavar="NAME", help="its model is read from the bus; needed without --model")
    parser.add_argument("--model", metavar="FILE", help="a model file: needed before an engine has run the project")


def _publish(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=FILE_HELP)
    _model_option(parser)
    _publish_options(parser)


def _subscribe(parser: argparse.ArgumentParser) -> None:
    _model_option(parser)
    _subscribe_options(parser, begin=NEW, exits=False)


def _form(parser: argparse.ArgumentParser, type_help: str) -> None:
    kinds.add_cluster(parser)
    parser.add_argument("--type", choices=TYPES, help=type_help)
    parser.add_argument("--delimiter", default=",", metavar="CHAR", help="between the fields of CSV lines (,)")
    parser.add_argument("--date-format", metavar="FORMAT", help="of dates and stamps, as %%Y-%%m-%%d")


def _publish_options(parser: argparse.ArgumentParser) -> None:
    _form(parser, "format of the events (csv)")
    parser.add_argument("--window", metavar="WINDOW", help="the source window; needed if there are several")
    parser.add_argument("--block", type=kinds.positive, default=1, metavar="N", help="events in a block (1)")
    parser.add_argument("--transactional", action="store_true", help="take blocks whole or not at all")
    parser.add_argument("--rate", type=kinds.above_zero, metavar="R", help="at most R events a second")
    parser.add_argument("--repeat", type=kinds.positive, default=1, metavar="N", help="read the file N times (1)")
    parser.add_argument("--max-events", type=kinds.positive, metavar="N", help="stop after N events")
    parser.add_argument(
        "--client", metavar="NAME", help="number the blocks for this name: a block that is sent again counts once"
    )
    growing = parser.add_argument_group("a source that grows")
    growing.add_argument("--growing", action="store_true", help="wait for more at the end of the file, until Ctrl-C")
    growing.add_argument("--idle", type=kinds.span_s, metavar="TIME", help="stop after TIME without new data")
    growing.add_argument("--until-idle", dest="idle", type=kinds.span_s, help=argparse.SUPPRESS)
    lines = parser.add_argument_group("lines of CSV")
    lines.add_argument("--header", type=kinds.not_negative, default=0, metavar="N",
                       help="lines to skip (0)")  # fmt: skip
    lines.add_argument("--csv-header", dest="header", type=kinds.not_negative, default=0, help=argparse.SUPPRESS)
    lines.add_argument("--add-opcode", action="store_true", help="lines have no opcode: all are inserts")
    lines.add_argument("--add-flags", action="store_true", help="lines have no flag: all are normal")
    lines.add_argument("--no-key", action="store_true", help="lines have no key: the window generates it")
    lines.add_argument("--upsert", action="store_true", help="take inserts as upserts")
    lines.add_argument("--ignore-parse-errors", action="store_true", help="count lines that are no events, show none")
    failover = parser.add_argument_group("hot failover between adapters")
    failover.add_argument("--failover", metavar="GROUP", help="adapters of a group read the same; one of them sends")
    failover.add_argument("--buffered", type=kinds.positive, default=1000, metavar="N",
                          help="blocks that a standby keeps (1000)")  # fmt: skip
    failover.add_argument("--check-every", type=kinds.positive, default=100, metavar="N",
                          help="blocks between two checks of what was sent (100)")  # fmt: skip
    failover.add_argument("--lease", type=kinds.duration, default=1.0, metavar="TIME",
                          help="silence after which another adapter takes over (1)")  # fmt: skip


def _subscribe_options(parser: argparse.ArgumentParser, *, begin: str, exits: bool) -> None:
    _form(parser, "format of the events (csv; json with --json on stdout)")
    parser.add_argument("--window", metavar="WINDOW", required=True, help="the window whose events are written")
    parser.add_argument("-o", "--out", metavar="FILE", default="-",
                        help="a path, tcp://HOST:PORT or listen://HOST:PORT (stdout)")  # fmt: skip
    parser.add_argument("--collapse", action="store_true", help="write an update as one event U, not as UB and D")
    parser.add_argument("--rmretdel", action="store_true", help="leave out deletes caused by retention")
    parser.add_argument("--header", choices=("none", "names", "full"), default="none", help="first line of CSV (none)")
    parser.add_argument("--resume", action="store_true",
                        help="keep the position beside the file, and continue there after a restart")  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="empty a file that is there, and write it anew")
    _begin(parser.add_argument_group("where to begin").add_mutually_exclusive_group(), begin)
    _end(parser.add_argument_group("when to end"), exits=exits)
    parser.set_defaults(exits_by_default=exits)


def _begin(group: argparse._MutuallyExclusiveGroup, default: str) -> None:
    choices = (
        ("--all", ALL, "everything on the stream, from its start"),
        ("--new", NEW, "only new events"),
        ("--snapshot", SNAPSHOT, "first the rows that the window holds now, then new events"),
    )
    for option, value, words in choices:
        said = f"{words} (default)" if value == default else words
        group.add_argument(option, dest="begin", action="store_const", const=value, default=default, help=said)
    group.add_argument("--no-snapshot", dest="begin", action="store_const", const=NEW, default=default,
                       help=argparse.SUPPRESS)  # fmt: skip


def _end(group: argparse._ArgumentGroup, *, exits: bool) -> None:
    either = group.add_mutually_exclusive_group()
    words = {"--exit": "at the end of what is published now", "--follow": "with Ctrl-C"}
    for option, said in words.items():
        shown = f"{said} (default)" if (option == "--exit") == exits else said
        either.add_argument(option, dest="exit", action="store_const", const=option == "--exit", help=shown)
    group.add_argument("--until-block", type=kinds.positive, metavar="N", help="after block N")
    group.add_argument("--idle", type=kinds.span_s, metavar="TIME", help="after TIME without new events")
    group.add_argument("--until-idle", dest="idle", type=kinds.span_s, help=argparse.SUPPRESS)
    group.add_argument("--count", type=kinds.positive, metavar="N", help="after the block that has the Nth event")


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
                "lockstep adapter subscribe --project trades --window Copy5MinRet --collapse --idle 5s",
            ),
        ),
    ),
)


def model_of(options: argparse.Namespace) -> Graph | None:
    """The model in the file that is named; None: the bus is asked for the model in force. UsageError without either."""
    from lockstep.cli.model_files import load_graph

    if options.project is None and options.model is None:
        raise UsageError(reason="Say which project: --project NAME, or --model FILE.")
    return None if options.model is None else load_graph(options.model)


def project_of(options: argparse.Namespace, client: Lockstep, model: Graph | None) -> ProjectEvents:
    """The project with the model of a file, or with the model in force on the bus."""
    from lockstep.events.connection import Events

    events = Events(client, options.cluster)
    if model is None:
        return events.project(options.project)
    return events.project(options.project or model.project.name, model=model)


def source_of(graph: Graph, window: str | None) -> Node:
    """The source window that is named, or the only one."""
    from lockstep.cli.model_files import find_source

    known = [node.path for node in graph.nodes if node.is_source]
    if window is None and len(known) != 1:
        raise UsageError(
            reason=f"{graph.project.name} has several source windows: choose one with --window: {', '.join(known)}."
        )
    return find_source(graph, window or known[0])
