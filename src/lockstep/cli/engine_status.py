"""How far engines are, by what they wrote down: works whether or not they run."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lockstep.cli.connecting import bus_url, opened
from lockstep.cli.model_report import show_windows
from lockstep.cli.output import Output

if TYPE_CHECKING:
    from lockstep.engine.run.beats import Beat
    from lockstep.log.port import Bus, Log


def status(options: argparse.Namespace, output: Output) -> None:
    """Print what is published, how far behind it is, and the windows' counts."""
    from lockstep.engine.run.catalog import check_project, projects

    with opened(bus_url(options)) as client:
        if options.project is not None:
            check_project(client.bus, options.cluster, options.project)
        names = [options.project] if options.project is not None else projects(client.bus, options.cluster)
        found = [_project(client.bus, options.cluster, name) for name in names]
    for item in found:
        if output.json:
            output.json_line(item)
    if not output.json:
        _show(output, found, in_full=options.project is not None)


def _project(bus: Bus, cluster: str, name: str) -> dict[str, Any]:
    from lockstep.engine.run.beats import last_beat
    from lockstep.engine.run.position import Position

    root = f"{cluster}.{name}"
    control, sequence = bus.open(f"{root}.C"), bus.open(f"{root}.S")
    beat = last_beat(control)
    position = Position.of(beat.position) if beat.position else Position()
    blocks, events = _sequenced(sequence, position)
    return {
        "cluster": cluster,
        "project": name,
        "published": beat.published,
        "events": position.events,
        "lag": max(0, blocks - beat.published),
        "lag_events": max(0, events - position.events),
        "beat": _time_of(control),
        "windows": [_counts(path, dumped) for path, dumped in beat.counts.items()],
        "outputs": _outputs(bus, root, beat),
    }


def _sequenced(sequence: Log, position: Any) -> tuple[int, int]:
    """Blocks and events that are decided."""
    from lockstep.engine.run.decisions import Decision, counted

    blocks, events = position.block, position.events
    for _, entry in counted(sequence, position.sequence):
        decision = Decision.of(entry)
        blocks, events = decision.blocks, decision.events
    return blocks, events


def _time_of(control: Log) -> str | None:
    """When the newest beat was written."""
    from lockstep.log.batch import BatchView

    bounds = control.bounds()
    if bounds.next == bounds.first:
        return None
    stored = control.read(bounds.next - 1)[-1]
    created_ns = BatchView(stored.base, stored.data, control.name).created_ns
    return datetime.fromtimestamp(created_ns / 1e9, UTC).isoformat(timespec="milliseconds")


def _counts(path: str, dumped: Any) -> dict[str, Any]:
    from lockstep.engine.windows.counts import WindowCounts

    counts = WindowCounts.load(dumped)
    return {
        "window": path,
        "rows": counts.rows,
        "in": counts.events_in,
        "out": counts.events_out,
        "bad": dict(sorted(counts.bad.items())),
    }


def _outputs(bus: Bus, root: str, beat: Beat) -> list[dict[str, Any]]:
    names = [name for name in bus.names() if name.startswith(f"{root}.") and name.endswith(".O")]
    last = {path.replace("/", "."): number for path, number in beat.last.items()}
    return [
        {"stream": name, "last": last.get(name.removeprefix(f"{root}.").removesuffix(".O"), 0)}
        for name in sorted(names)
    ]


def _show(output: Output, found: list[dict[str, Any]], *, in_full: bool) -> None:
    if not found:
        output.note("No engine has run here yet: 'lockstep engine run MODEL' starts one.")
    rows = [[item["project"], item["published"], item["events"], item["lag"], item["beat"]] for item in found]
    if rows:
        output.table(["project", "published block", "events", "blocks behind", "last beat"], rows)
    for item in found if in_full else []:
        if item["windows"]:
            output.line("")
            show_windows(output, item["windows"])
        if item["outputs"]:
            output.line("")
            output.table(["stream", "last block"], [[row["stream"], row["last"]] for row in item["outputs"]])
