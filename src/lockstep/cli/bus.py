"""`lockstep bus`: what the bus of a URL promises, and what on its server would break that."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from lockstep.cli import views
from lockstep.cli.connecting import bus_url, opened
from lockstep.cli.output import Output, plural
from lockstep.cli.parser import Noun, Verb

if TYPE_CHECKING:
    from lockstep.log.network.checks import Finding
    from lockstep.log.port import Bus

FIT, UNFIT = 0, 1


def add_strict(parser: argparse.ArgumentParser) -> None:
    """The option of every command that looks at the server first."""
    parser.add_argument("--strict", action="store_true", help="refuse a server that may break a promise; else warn")


BUS = Noun(
    name="bus",
    purpose="The bus itself: what it promises, and whether its server keeps that.",
    verbs=(
        Verb(
            name="show",
            purpose="Show what a bus promises: durability, copies, retention, what it can do.",
            run="lockstep.cli.bus:show",
            arguments=lambda _: None,
            examples=("lockstep bus show", "lockstep bus show --bus kafka://127.0.0.1:9092 --json"),
        ),
        Verb(
            name="check",
            purpose="Look for settings of the server that would break a promise. Exit code 1 if there are any.",
            run="lockstep.cli.bus:check",
            arguments=add_strict,
            examples=("lockstep bus check --bus redis://127.0.0.1:6379", "lockstep bus check --strict --json"),
        ),
    ),
)


def show(options: argparse.Namespace, output: Output) -> None:
    """Print the promises."""
    with opened(bus_url(options)) as client:
        promised = {"bus": client.url, **views.promises(client)}
    if output.json:
        output.json_line(promised)
        return
    output.facts({name.replace("_", " "): views.setting(value) for name, value in promised.items()})


def check(options: argparse.Namespace, output: Output) -> int:
    """Print what would break a promise; an error if strict, else exit code 1."""
    from lockstep.log.network.checks import refuse

    with opened(bus_url(options)) as client:
        found = findings(client.bus)
        url = client.url
    if options.strict:
        refuse(found)
    if output.json:
        output.json_line({"bus": url, "fit": not found, "findings": [asdict(finding) for finding in found]})
    elif found:
        rows = [["error" if each.fatal else "warning", each.problem, each.setting] for each in found]
        output.table(["", "what would break a promise", "what to change"], rows)
    else:
        output.line(f"Nothing on {url} breaks a promise.")
    return UNFIT if found else FIT


def findings(bus: Bus) -> list[Finding]:
    """What would break a promise of a bus; embedded ones have nothing to set wrong."""
    look = getattr(bus, "check", None)
    return [] if look is None else list(look())


def preflight(bus: Bus, output: Output, *, strict: bool, also: Sequence[Finding] = ()) -> None:
    """Before a start: refuse what can't be, and say what may go wrong; `also` was found by others."""
    from lockstep.log.network.checks import refuse

    found = [*findings(bus), *also]
    refuse([finding for finding in found if strict or finding.fatal])
    for finding in found:
        output.warn(f"{finding.server}: {finding.problem}. Change {finding.setting}.")
    if found:
        output.note(f"{plural(len(found), 'setting')} may break a promise; --strict refuses to start.")
