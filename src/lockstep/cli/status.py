"""The state of a cluster's projects: which engine is active, how far the others lag behind, and what is wrong."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from lockstep.cli import values as kinds
from lockstep.cli.connection import bus_url, opened
from lockstep.cli.output import Output, plural
from lockstep.cli.parser import Verb, alone
from lockstep.cli.sizes import size

if TYPE_CHECKING:
    from lockstep.engine.runtime.control.status import ClusterWatcher, EngineRow, ProjectStatus
    from lockstep.log.port import Bus
    from lockstep.runtime import Runtime

WELL, OFF = 0, 1
LISTEN_S = 2.5
"""So long it listens for an engine that seems silent: engines report every second."""
PIECE_S = 2.5
"""Who watches and looks less often listens this often: an engine is silent after five seconds."""
Wait = Callable[[float], None]


def status_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `status` and `engine status`."""
    kinds.add_cluster(parser)
    parser.add_argument("--project", metavar="NAME", help="only this one, with its windows (all of the cluster)")
    parser.add_argument("--watch", action="store_true", help="show it again every second, until Ctrl-C")
    parser.add_argument("--every", type=kinds.duration, default=1.0, metavar="TIME", help="how often with --watch (1s)")


STATUS = alone(
    Verb(
        name="status",
        purpose="Show every engine: its role, epoch, lag, buffer and last snapshot. Exit code 1 if something is wrong.",
        run="lockstep.cli.status:status",
        arguments=status_arguments,
        examples=("lockstep status", "lockstep status --watch", "lockstep status --project trades --json"),
    )
)


def status(options: argparse.Namespace, output: Output) -> int:
    """Print how projects stand; 1 if there is none, if one has no active engine, or if something else is off."""
    with opened(bus_url(options)) as client:
        if not options.watch:
            return show(client.bus, options, output, client.runtime)
        return watch(client.bus, options, output, client.runtime, client.runtime.waiter().wait)


def watch(bus: Bus, options: argparse.Namespace, output: Output, runtime: Runtime, wait: Wait) -> int:
    """Refresh the status; each round takes a bounded number of reads, and a missed second is not made up for."""
    from lockstep.engine.runtime.control.status import ClusterWatcher

    listening = ClusterWatcher(bus, options.cluster, runtime)
    while True:
        output.clear()
        show(bus, options, output, runtime, listening)
        output.flush()
        _wait(options, listening, wait)


def _wait(options: argparse.Namespace, listening: ClusterWatcher, wait: Wait) -> None:
    """Wait for the next round and keep listening, so that silent engines are noticed."""
    left = options.every
    while left > PIECE_S:
        wait(PIECE_S)
        left -= PIECE_S
        listening.listen_to_all(options.project)
    wait(left)


def show(
    bus: Bus, options: argparse.Namespace, output: Output, runtime: Runtime, listening: ClusterWatcher | None = None
) -> int:
    """Print how projects stand now; the exit code. `listening`: what a caller that looks again and again has heard."""
    from lockstep.engine.runtime.sequence.model_statement import check_project

    if options.project is not None:
        check_project(bus, options.cluster, options.project)
    found = _look(bus, options, runtime) if listening is None else listening.status(options.project)
    for number, item in enumerate(found):
        if output.json:
            output.json_line(item.tree())
        else:
            if number:
                output.line("")
            _show_project(output, item, in_full=options.project is not None)
    if not found:
        output.note(f"No engine has run in cluster {options.cluster} yet: 'lockstep engine run MODEL' starts one.")
    return WELL if found and all(item.is_well for item in found) else OFF


def _look(bus: Bus, options: argparse.Namespace, runtime: Runtime) -> list[ProjectStatus]:
    """How projects stand; if an engine seems silent by the wall clocks, look again whether it reports meanwhile."""
    from lockstep.engine.runtime.control.status import ClusterWatcher

    listening = ClusterWatcher(bus, options.cluster, runtime)
    found = listening.status(options.project)
    if any(status.has_silent for status in found):
        runtime.waiter().wait(LISTEN_S)
        found = listening.status(options.project)
    return found


def _show_project(output: Output, status: ProjectStatus, *, in_full: bool) -> None:
    from lockstep.cli.model_report import show_windows

    output.line(headline(status))
    if status.engines:
        output.table(
            ["engine", "role", "epoch", "block", "behind", "lag", "buffer", "snapshot", "heard", "takeovers", "rest"],
            [_cells(row) for row in status.engines],
        )
    for row in status.engines:
        if row.election and row.role in ("active", "standby"):
            output.line(f"  {row.engine}: {row.election}")
    for problem in status.problems:
        output.line(f"! {problem}")
    if not in_full:
        output.line(f"  {occupied(status)}")
    if in_full and status.counts:
        output.line("")
        show_windows(output, status.windows())
    if in_full:
        output.line("")
        output.table(["occupied by", "holds", "size", "trimmed by"], list(_occupied_rows(status)))


def occupied(status: ProjectStatus) -> str:
    """What a project occupies, in one line."""
    kept = [stream for stream in status.streams if not stream.is_trimmed]
    parts = [f"bus {_size(_sum(stream.bytes for stream in status.streams))} in {plural(len(status.streams), 'stream')}"]
    parts += [f"{row.engine} {size(row.state_bytes)} in {plural(row.state_files, 'file')}" for row in status.engines]
    parts += [f"snapshots {size(_snapshots(status))}"] if _snapshots(status) else []
    ending = f". {plural(len(kept), 'stream')} not trimmed: --project {status.project} shows which" if kept else ""
    return f"occupied: {', '.join(parts)}{ending}"


def _occupied_rows(status: ProjectStatus) -> Iterable[list[str | int | None]]:
    for stream in status.streams:
        yield [stream.stream, plural(stream.records, "record"), _size(stream.bytes), stream.trimmed_by]
    for row in status.engines:
        by = "Spark (the last 10 batches) and the engine (the spool: blocks that are published)"
        yield [f"state folder of {row.engine}", plural(row.state_files, "file"), size(row.state_bytes), by]
    if held := _snapshots(status):
        yield ["snapshots", None, size(held), "the engine that writes one: the newest two stay"]


def _snapshots(status: ProjectStatus) -> int:
    """Return the largest figure, as engines may share a folder or have one each."""
    return max((row.snapshots_bytes for row in status.engines), default=0)


def _sum(found: Iterable[int | None]) -> int | None:
    known = [item for item in found if item is not None]
    return sum(known) if known else None


def _size(count: int | None) -> str:
    return "-" if count is None else size(count)


def headline(status: ProjectStatus) -> str:
    """A project in one line."""
    equal = {True: ", counts equal", False: ", counts differ", None: ""}[status.counts_equal]
    stopped = " (stopped)" if status.state == "stopped" else ""
    snapshot = f", snapshot {_ago(status.snapshot_age_s)} at block {status.snapshot_block:,}"
    return (
        f"{status.cluster}.{status.project}{stopped}: "
        f"{status.active or 'no engine'} is active in epoch {status.epoch}; "
        f"block {status.published:,} of {status.sequenced:,} is published, {plural(status.events, 'event')}"
        f"{snapshot if status.snapshot_age_s is not None else ', no snapshot'}"
        f", {plural(status.takeovers, 'takeover')}{equal}"
    )


def _cells(row: EngineRow) -> list[str | int | None]:
    held = f"{row.buffer_blocks:,} / {size(row.buffer_bytes)} ({row.buffer_percent:.0f} %)"
    role = row.role if row.state == "running" or row.role in ("silent", "stopped") else f"{row.role} ({row.state})"
    snapshot = None if row.snapshot_age_s is None else _ago(row.snapshot_age_s)
    return [row.engine, role, row.epoch, row.block, row.lag_blocks, f"{row.lag_s:.1f} s", held, snapshot,
            _ago(row.report_age_s), row.takeovers, row.http or None]  # fmt: skip


def _ago(seconds: float | None) -> str:
    """Return how long ago, in a readable unit."""
    if seconds is None:
        return "-"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.1f} s ago"
