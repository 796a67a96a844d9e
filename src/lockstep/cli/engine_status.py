"""How far engines are, by what they wrote down: works whether or not they run."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lockstep.cli.connecting import bus_url, opened
from lockstep.cli.model_report import show_windows
from lockstep.cli.names import closest
from lockstep.cli.output import Output
from lockstep.errors import NotFound

if TYPE_CHECKING:
    from lockstep.engine.run.beats import Beat
    from lockstep.log.port import Bus, Log

_SEQUENCE = ".S"


def status(options: argparse.Namespace, output: Output) -> None:
    """Print what is published, how far behind it is, and the windows' counts."""
    with opened(bus_url(options)) as client:
        projects = _projects(client.bus, options.cluster)
        if options.project is not None:
            projects = [_chosen(options.project, projects, options.cluster)]
        found = [_project(client.bus, options.cluster, name) for name in projects]
    for item in found:
        if output.json:
            output.json_line(item)
    if not output.json:
        _show(output, found, in_full=options.project is not None)


def _projects(bus: Bus, cluster: str) -> list[str]:
    """The projects of a cluster: those with a sequence log and a control log."""
    names, prefix = set(bus.names()), f"{cluster}."
    found = [name.removeprefix(prefix).removesuffix(_SEQUENCE) for name in names
             if name.startswith(prefix) and name.endswith(_SEQUENCE)]  # fmt: skip
    return sorted(name for name in found if f"{prefix}{name}.C" in names)


def _chosen(name: str, known: list[str], cluster: str) -> str:
    if name in known:
        return name
    error = NotFound(what=f"In cluster {cluster!r} project", name=name)
    meant = closest(name, known)
    if meant is not None:
        error.add_note(f"Did you mean {meant!r}?")
    raise error


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
