"""Checking a folder that nobody writes to."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lockstep.cli.connecting import bus_url, opened
from lockstep.cli.names import label
from lockstep.cli.output import Output, plural
from lockstep.cli.sizes import size
from lockstep.errors import LockstepError, StreamNotFound, UnsupportedByBackend
from lockstep.log.urls import split_url
from lockstep.streams.shards import split_log

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
