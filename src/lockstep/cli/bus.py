"""`lockstep bus`: what a bus promises, what on its server would break that, and whether a folder is whole."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.cli.connection import bus_url, label, opened
from lockstep.cli.output import Output, plural
from lockstep.cli.parser import Noun, Verb
from lockstep.cli.sizes import size
from lockstep.errors import LockstepError, StreamNotFound, UnsupportedByBackend
from lockstep.log.urls import split_url
from lockstep.streams import views
from lockstep.streams.shards import split_log

if TYPE_CHECKING:
    from lockstep.log.network.driver import Finding
    from lockstep.log.port import Bus

FIT, UNFIT = 0, 1


def add_strict(parser: argparse.ArgumentParser) -> None:
    """The option of every command that looks at the server first."""
    parser.add_argument("--strict", action="store_true", help="refuse a server that may break a promise; else warn")


def _backup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="where to: a new or an empty folder")


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
            purpose="Look for settings of the server that break a promise (exit code 1), or may (a warning, 0).",
            run="lockstep.cli.bus:check",
            arguments=add_strict,
            examples=("lockstep bus check --bus redis://127.0.0.1:6379", "lockstep bus check --strict --json"),
        ),
        Verb(
            name="backup",
            purpose="Copy the folder of an lmdb bus while it is in use: all streams and groups as of one moment.",
            run="lockstep.cli.bus:backup",
            arguments=_backup,
            examples=("lockstep bus backup ./bus-copy", "lockstep bus backup ./bus-copy --bus lmdb:.lockstep --json"),
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
    """Print what would break a promise; an error if strict, else exit code 1 for one that is fatal."""
    from lockstep.log.network.driver import raise_findings

    with opened(bus_url(options)) as client:
        found = findings(client.bus)
        url = client.url
    if options.strict:
        raise_findings(found)
    if output.json:
        output.json_line({"bus": url, "fit": not found, "findings": [asdict(finding) for finding in found]})
    elif found:
        rows = [["error" if each.fatal else "warning", each.problem, each.setting] for each in found]
        output.table(["", "what would break a promise", "what to change"], rows)
    else:
        output.line(f"Nothing on {url} breaks a promise.")
    return UNFIT if any(each.fatal for each in found) else FIT


def backup(options: argparse.Namespace, output: Output) -> None:
    """Copy the folder of an embedded bus."""
    from lockstep.errors import UnsupportedByBackend
    from lockstep.log.lmdb.backend import backup as copy
    from lockstep.log.urls import split_url

    url, target = bus_url(options), Path(options.folder).expanduser().absolute()
    scheme, source, _ = split_url(url)
    if scheme != "lmdb":
        raise UnsupportedByBackend(bus=url, feature="be copied: it has no folder; back up its server")
    written = copy(Path(source).expanduser().absolute(), target)
    if output.json:
        output.json_line({"bus": url, "folder": str(target), "bytes": written})
    else:
        output.line(f"Copied {url} to {target}, {size(written)}. Use it as lmdb:{target}.")


def findings(bus: Bus) -> list[Finding]:
    """What would break a promise of a bus; embedded ones have nothing to set wrong."""
    look = getattr(bus, "check", None)
    return [] if look is None else list(look())


def preflight(bus: Bus, output: Output, *, strict: bool, also: Sequence[Finding] = ()) -> None:
    """Before a start: refuse what can't be, and say what may go wrong; `also` was found by others."""
    from lockstep.log.network.driver import raise_findings

    found = [*findings(bus), *also]
    raise_findings([finding for finding in found if strict or finding.fatal])
    for finding in found:
        output.warn(f"{finding.server}: {finding.problem}. Change {finding.setting}.")
    if found:
        output.note(f"{plural(len(found), 'setting')} may break a promise; --strict refuses to start.")


FAULTS_FOUND = 1


def verify(options: argparse.Namespace, output: Output) -> int:
    """Check every stored record; 1 if there are faults."""
    from lockstep.log.lmdb import verify as checking

    url = bus_url(options)
    scheme, target, _ = split_url(url)
    if scheme != "lmdb":
        raise UnsupportedByBackend(bus=url, feature="be verified: it has no folder")
    progress = output.progress("")
    progress.say("Checking ...")
    try:
        report = checking.verify(Path(target).expanduser().absolute())
    finally:
        progress.end()
    faults = [_fault(item) for item in report.faults if _concerns(item.stream, options.name)]
    if options.name is not None and not faults:
        _check_exists(url, options.name)
    if output.json:
        output.json_line(
            {
                "ok": not faults,
                "logs": report.streams,
                "batches": report.batches,
                "records": report.records,
                "bytes": report.stored_bytes,
                "faults": faults,
            }
        )
    else:
        _show(output, report, faults)
    return FAULTS_FOUND if faults else 0


def _concerns(stream: str | None, name: str | None) -> bool:
    """Faults of the store as a whole concern every stream."""
    return name is None or stream is None or name in (stream, split_log(stream)[0])


def _fault(fault: Any) -> dict[str, Any]:
    stream, shard = (None, None) if fault.stream is None else split_log(fault.stream)
    return {"stream": stream, "shard": shard, "offset": fault.offset, "what": fault.what}


def _check_exists(url: str, name: str) -> None:
    try:
        with opened(url) as client:
            client.config(name)
    except StreamNotFound:
        raise
    except LockstepError:
        return  # the report says what is wrong


def _show(output: Output, report: Any, faults: list[dict[str, Any]]) -> None:
    if faults:
        rows = [[_label(fault), fault["offset"], fault["what"]] for fault in faults]
        output.table(["stream", "offset", "fault"], rows)
    output.line(
        f"Checked {plural(report.streams, 'log')} (streams, shards and groups), {plural(report.records, 'record')}, "
        f"{size(report.stored_bytes)}: {plural(len(faults), 'fault') if faults else 'no faults'}."
    )
    if faults:
        output.note("Restore the folder from a replica, or save what can be read with 'lockstep stream copy'.")


def _label(fault: dict[str, Any]) -> str | None:
    return None if fault["stream"] is None else label(fault).replace("_group.", "group ", 1)
