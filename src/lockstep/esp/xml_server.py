"""dfesp_xml_server: an engine for the model, on the bus that its failover connectors name."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.cli.connection import BUS_DEFAULT, BUS_VARIABLE
from lockstep.errors import UsageError
from lockstep.esp.command import flags, parsed, run_command
from lockstep.esp.places import STREAM_PORT, Place, place_of_model

if TYPE_CHECKING:
    from lockstep.cli.parser import Parser
    from lockstep.engine.model.graph import Graph

NAME = "dfesp_xml_server"
PUBSUB_DEFAULT = 5555
LOCAL = "127.0.0.1"
_LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
    "off": logging.CRITICAL + 1,
}
_LOGGERS = ("esp", "df.esp")
_STATE = Path(".lockstep-engine")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(NAME, _serve, arguments)


def _serve(given: Sequence[str]) -> int:
    from lockstep.cli.engine_run import run
    from lockstep.cli.model_files import load_graph
    from lockstep.cli.output import Output

    wish = parsed(parser(), given)
    if wish.model is None:
        from lockstep.esp.engine_process import run_server

        return run_server(wish, given)
    from lockstep.esp.engine_process import follow_lifeline

    follow_lifeline()
    graph = load_graph(model_path(wish.model))
    if wish.rmqstreamport:
        os.environ[STREAM_PORT] = str(wish.rmqstreamport)
    place = place_of_model(graph, os.environ) or native_place(wish.pubsub, os.environ)
    os.environ.update(place.secrets)  # Spark's workers, which open the bus themselves, inherit it
    options = engine_options(wish, place, graph)
    options.again = [sys.executable, "-m", "lockstep.esp.xml_server", *given]
    output = Output(json=False, quiet=False)
    for name in ("exit", "cleanup", "messages"):
        if getattr(wish, name):
            output.note(f"-{name} is taken, and means nothing here.")
    code = run(options, output)
    output.flush()
    return code


def parser() -> Parser:
    """Its flags."""
    made = flags(
        NAME,
        "Run a model, with REST beside it. Started twice on the same bus, one is active and the other stands by.",
        ("dfesp_xml_server -model file://model.xml -http 8181 -pubsub 5555 -loglevel esp=info",),
    )
    made.add_argument("-model", metavar="URL", help="file://MODEL or a path: .xml, .yaml or .py; without it models "
                      "are loaded over REST: PUT projects/NAME")  # fmt: skip
    made.add_argument("-http", type=_port, metavar="PORT", help="serve REST on this port of 127.0.0.1; 0 picks one")
    made.add_argument("-pubsub", type=_port, metavar="PORT", help="names the cluster of a model without failover "
                      f"connectors: 127.0.0.1:PORT ({PUBSUB_DEFAULT})")  # fmt: skip
    made.add_argument("-loglevel", type=level_of, default=logging.WARNING, metavar="esp=LEVEL",
                      help="what is said of active and standby: info all, warn who becomes active (warn)")  # fmt: skip
    made.add_argument("-exit", action="store_true", help="taken, and of no effect")
    made.add_argument("-cleanup", action="store_true", help="taken, and of no effect")
    made.add_argument("-messages", metavar="FOLDER", help="taken, and of no effect")
    own = made.add_argument_group("not in the document")
    own.add_argument("-rmqstreamport", type=_port, metavar="PORT",
                     help=f"of RabbitMQ's streams (the connectors' rmqstreamport, {STREAM_PORT}, 5552)")  # fmt: skip
    own.add_argument("-state", metavar="FOLDER", help=f"its state ({_STATE}/CLUSTER.PROJECT-HTTP)")
    own.add_argument("-engine", nargs="+", default=[], metavar="WORD", action="extend",
                     help="options of 'lockstep engine run' without their dashes: lease=1 shards=2")  # fmt: skip
    return made


def model_path(text: str) -> str:
    """The file that file://PATH names."""
    if "://" in text and not text.startswith("file://"):
        raise UsageError(reason=f"-model {text!r} is not file://PATH.")
    return text.removeprefix("file://")


def native_place(pubsub: int | None, environ: Mapping[str, str]) -> Place:
    """The bus of a model without failover connectors: the one of the environment, or a folder here."""
    return Place(environ.get(BUS_VARIABLE) or BUS_DEFAULT, f"{LOCAL}_{PUBSUB_DEFAULT if pubsub is None else pubsub}")


def engine_options(wish: argparse.Namespace, place: Place, graph: Graph) -> argparse.Namespace:
    """As if it had been started with `lockstep engine run`; only a Ctrl-C ends it as a kill would."""
    from lockstep import __version__
    from lockstep.cli.commands import NOUNS
    from lockstep.cli.parser import build, parse

    state = wish.state or _STATE / f"{place.cluster}.{graph.project.name}-{wish.http or 0}"
    words = ["engine", "run", model_path(wish.model), "--bus", place.url, "--cluster", place.cluster,
             "--state", str(state), "--files", str(Path.cwd())]  # fmt: skip
    words += [] if wish.http is None else ["--http", str(wish.http)]
    words += ["--election", f"zookeeper://{place.zookeeper}/ESP"] if place.zookeeper else []
    words += ["--buffer-blocks", str(place.buffered)] if place.buffered else []
    for word in wish.engine:
        name, sign, value = word.partition("=")
        words += [f"--{name}", value] if sign else [f"--{name}"]
    options = parse(build(NOUNS, __version__), words)
    options.told_level = wish.loglevel
    options.document_lines = True
    options.dies_on_interrupt = True
    options.bound_connectors = place.bound
    return options


def level_of(text: str) -> int:
    """The level of esp=LEVEL; of several, the one for esp."""
    for part in text.split(","):
        name, sign, level = part.strip().lower().partition("=")
        if sign and level not in _LEVELS:
            reason = f"{level!r} is no level; there are {', '.join(_LEVELS)}"
            raise argparse.ArgumentTypeError(reason)
        if sign and (name in _LOGGERS or name.startswith("df.esp")):
            return _LEVELS[level]
        if not sign:
            reason = f"{part!r} is not NAME=LEVEL"
            raise argparse.ArgumentTypeError(reason)
    return logging.WARNING


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > 65_535:
        reason = f"{text!r} is no port"
        raise argparse.ArgumentTypeError(reason)
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
