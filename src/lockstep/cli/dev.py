"""`lockstep dev`: real servers on this machine, to try a bus without installing it by hand."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.cli.output import Output
from lockstep.cli.parser import Noun, Verb

if TYPE_CHECKING:
    from lockstep.dev.home import Home
    from lockstep.dev.processes import Server

SERVERS = (
    "kafka",
    "rabbitmq",
    "redis",
    "hazelcast",
    "zookeeper",
    "kafka3",
    "hazelcast3",
    "spark",
    "postgresql",
    "cassandra",
)
"""What can be started, without importing how."""
STORES = ("postgresql", "cassandra")


def _folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help="of the servers (~/.cache/lockstep/dev)")


def _up(parser: argparse.ArgumentParser) -> None:
    names = f"{', '.join(SERVERS)}, or all: one of each kind"
    parser.add_argument("server", choices=(*SERVERS, "all"), metavar="SERVER", help=names)
    _folder(parser)


def _down(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("server", nargs="?", default="all", choices=(*SERVERS, "all"), metavar="SERVER",
                        help="which (all that run)")  # fmt: skip
    _folder(parser)


DEV = Noun(
    name="dev",
    purpose="Real servers on this machine, to try a bus with.",
    verbs=(
        Verb(
            name="up",
            purpose="Start a server on loopback and print its URL; as root, install its packages first if needed.",
            run="lockstep.cli.dev:up",
            arguments=_up,
            examples=("lockstep dev up kafka", "lockstep dev up all --json", "lockstep dev up redis --folder servers"),
        ),
        Verb(
            name="fetch",
            purpose="Install and fetch what a server needs, without starting it.",
            run="lockstep.cli.dev:fetch",
            arguments=_up,
            examples=("lockstep dev fetch redis", "lockstep dev fetch all"),
        ),
        Verb(
            name="ls",
            purpose="List the servers that were started, and whether they run.",
            run="lockstep.cli.dev:ls",
            arguments=_folder,
            examples=("lockstep dev ls", "lockstep dev ls --json"),
        ),
        Verb(
            name="down",
            purpose="End servers that were started; their data stays.",
            run="lockstep.cli.dev:down",
            arguments=_down,
            examples=("lockstep dev down", "lockstep dev down kafka"),
        ),
    ),
)


def up(options: argparse.Namespace, output: Output) -> None:
    """Start servers and say how to try them."""
    from lockstep.dev.home import ALL

    home = _home(options, output)
    names = ALL if options.server == "all" else (options.server,)
    home.announce(names)
    servers = [home.up(name) for name in names]
    _show(servers, output)
    if not output.json:
        for server in servers:
            output.note(_hint(server))
        where = f" --folder {shlex.quote(str(options.folder))}" if options.folder else ""
        output.note(f"End it: lockstep dev down {options.server}{where} (its data stays)")


def fetch(options: argparse.Namespace, output: Output) -> None:
    """Install and fetch servers."""
    from lockstep.dev.home import ALL

    home = _home(options, output)
    for name in (*ALL, *STORES) if options.server == "all" else (options.server,):
        home.fetch(name)
        if output.json:
            output.json_line({"name": name, "fetched": True})
        else:
            output.line(f"{name}: ready to start")


def ls(options: argparse.Namespace, output: Output) -> None:
    """List servers."""
    home = _home(options, output)
    servers = home.servers()
    if servers:
        _show(servers, output)
    else:
        output.note(f"No server was started in {home.folder} yet: 'lockstep dev up redis' starts one.")


def down(options: argparse.Namespace, output: Output) -> None:
    """End servers."""
    home = _home(options, output)
    wanted = SERVERS if options.server == "all" else (options.server,)
    ended = [name for name in wanted if home.down(name)]
    if output.json:
        for name in ended:
            output.json_line({"name": name, "ended": True})
    elif ended:
        output.line(f"Ended: {', '.join(ended)}")
    else:
        output.note(
            f"Nothing to end: {'no server runs' if options.server == 'all' else f'{options.server} does not run'}"
            f" in {home.folder}."
        )


def _home(options: argparse.Namespace, output: Output) -> Home:
    from lockstep.dev.home import Home
    from lockstep.runtime import ThreadRuntime

    return Home(options.folder, ThreadRuntime(), os.environ, output.note)


def _show(servers: list[Server], output: Output) -> None:
    if output.json:
        for server in servers:
            output.json_line(_tree(server))
        return
    rows = [[server.name, server.url, _pids(server), str(server.folder)] for server in servers]
    output.table(["server", "url", "pid", "folder"], rows)


def _tree(server: Server) -> dict[str, Any]:
    alive = server.alive
    pids = {name: process.pid for name, process in alive.items()}
    return {**server.tree(), "pids": pids, "running": server.is_running}


def _pids(server: Server) -> str:
    """The processes that run; those that should and do not are said to be down."""
    alive = server.alive
    if not alive:
        return "down"
    return ", ".join(str(alive[name].pid) if name in alive else f"{name} down" for name in server.pids)


def _hint(server: Server) -> str:
    if server.name == "spark":
        return f"Try {server.name}: lockstep drill --master {server.url}"
    if server.name in STORES:
        return f"Try {server.name} as the store of a scheduler: {server.url}"
    if "://" not in server.url:
        return f"Try {server.name} with any ZooKeeper client at {server.url}."
    return f"Try {server.name}: lockstep stream publish orders hello --bus {shlex.quote(server.url)}"
