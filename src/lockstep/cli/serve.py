"""`lockstep serve`: pages and REST of everything on a bus; and `lockstep top`, its first page in a terminal."""

from __future__ import annotations

import argparse
import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.cli import values as kinds
from lockstep.cli.connection import bus_url, opened
from lockstep.cli.output import Output, Stopping
from lockstep.cli.parser import Verb, alone
from lockstep.errors import UsageError

if TYPE_CHECKING:
    from lockstep.console.home import HomeView
    from lockstep.console.server import ConsoleOptions

_LOOK_S = 0.5
WELL, WRONG = 0, 1


def _shared(parser: argparse.ArgumentParser) -> None:
    kinds.add_cluster(parser)
    parser.add_argument("--state", metavar="FOLDER", default=".lockstep-serve",
                        help="where the view of a fleet is kept; it can be deleted (.lockstep-serve)")  # fmt: skip


def _serve(parser: argparse.ArgumentParser) -> None:
    _shared(parser)
    parser.add_argument(
        "--http", type=kinds.port_or_any, default=8080, metavar="PORT", help="where to listen (8080; 0: any)"
    )
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="of which address (127.0.0.1)")
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate with its chain, PEM; needed off loopback")
    parser.add_argument("--tls-key", metavar="FILE", help="its key, PEM")
    parser.add_argument("--behind-proxy", action="store_true", help="a proxy in front of it does TLS")
    parser.add_argument("--grafana", action="store_true",
                        help="print a dashboard over /metrics, to import into Grafana, and end")  # fmt: skip
    parser.add_argument("--sign-in", action="store_true", help="on loopback, too, only bearers of tokens may look")


def _top(parser: argparse.ArgumentParser) -> None:
    _shared(parser)
    parser.add_argument("--once", action="store_true", help="show it once and end; exit code 1 if something is wrong")
    parser.add_argument("--every", type=kinds.duration, default=2.0, metavar="TIME", help="how often (2s)")


SERVE = alone(
    Verb(
        name="serve",
        purpose="Serve pages and REST of streams, projects, schedules and the fleet on a bus, until Ctrl-C.",
        run="lockstep.cli.serve:serve",
        arguments=_serve,
        examples=(
            "lockstep serve --bus lmdb:./data",
            "lockstep serve --bus kafka://127.0.0.1:9092 --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem",
        ),
    )
)
TOP = alone(
    Verb(
        name="top",
        purpose="Show what is wrong now, in all parts, again and again. --once ends with 1 if something is.",
        run="lockstep.cli.serve:top",
        arguments=_top,
        examples=("lockstep top", "lockstep top --once --json"),
    )
)


def serve(options: argparse.Namespace, output: Output) -> int:
    """Serve until asked to end."""
    if options.grafana:
        return _print_dashboard(output)
    from lockstep.console.assembly import opened_parts
    from lockstep.console.server import Console, check_exposure
    from lockstep.server.serving import bind

    chosen = _options(options)
    check_exposure(chosen)
    with Stopping().listening() as stopping, ExitStack() as closing:
        bound = closing.enter_context(bind(chosen.host, chosen.port, "The console"))
        client = closing.enter_context(opened(bus_url(options), create=True))
        parts = closing.enter_context(opened_parts(client, options.cluster, Path(options.state)))
        chosen = replace(chosen, left_out=parts.left_out)
        console = closing.enter_context(
            Console(client, chosen, pillars=parts.pillars, mounts=parts.mounts, bound=bound)
        )
        _tell_started(output, console.url, parts.left_out, has_tokens=console.credentials.has_tokens())
        while not stopping.wait(_LOOK_S):
            pass
    return stopping.code


def _print_dashboard(output: Output) -> int:
    from lockstep.console.static import dashboard_text

    output.line(dashboard_text().rstrip())
    return 0


def _options(options: argparse.Namespace) -> ConsoleOptions:
    from lockstep.console.server import ConsoleOptions
    from lockstep.server.serving import TlsFiles

    if (options.tls_cert is None) != (options.tls_key is None):
        raise UsageError(reason="--tls-cert and --tls-key go together.")
    tls = None if options.tls_cert is None else TlsFiles(Path(options.tls_cert), Path(options.tls_key))
    return ConsoleOptions(
        host=options.host, port=options.http, cluster=options.cluster, tls=tls, behind_proxy=options.behind_proxy,
        anonymous=False if options.sign_in else None, state=options.state, environ=os.environ,
    )  # fmt: skip


def _tell_started(output: Output, url: str, left_out: list[str], *, has_tokens: bool) -> None:
    for sentence in left_out:
        output.warn(sentence)
    if output.json:
        output.json_line({"event": "serving", "url": url})
    else:
        output.line(f"Serving on {url}")
        if not has_tokens:
            output.note("Everybody on this machine may look. To change things, make a token and sign in: "
                        "'lockstep access add NAME --role admin'.")  # fmt: skip
    output.flush()


def top(options: argparse.Namespace, output: Output) -> int:
    """Show problems and figures, once or again and again."""
    from lockstep.console.assembly import opened_parts
    from lockstep.console.home import HomeView

    with (
        Stopping().listening() as stopping,
        opened(bus_url(options)) as client,
        opened_parts(client, options.cluster, Path(options.state)) as parts,
    ):
        home = HomeView(parts.pillars)
        while True:
            output.clear()
            code = _show_home(home, output)
            output.flush()
            if options.once:
                return code
            if stopping.wait(options.every):
                return stopping.code


def _show_home(home: HomeView, output: Output) -> int:
    """Print it; 1 if something is wrong."""
    from lockstep.console.port import Asked

    tree = home.home(Asked(path="/"))
    code = WRONG if tree["problems"] else WELL
    if output.json:
        output.json_line(dict(tree))
        return code
    output.line("  ".join(f"{figure['label']}: {figure['value']}" for figure in tree["figures"]))
    output.line("")
    for problem in tree["problems"]:
        output.line(f"{problem['severity'].upper()}  {problem['title']}")
        output.line(f"  {problem['reason']}")
        output.line(f"  next: {problem['command']}")
    if not tree["problems"]:
        output.line("Nothing is wrong.")
    return code
