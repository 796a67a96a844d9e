"""What can be asked of the engines of a project: one of them answers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.cli.connecting import bus_url, opened
from lockstep.cli.output import Output
from lockstep.errors import UsageError


def handover(options: argparse.Namespace, output: Output) -> None:
    """Let a standby lead."""
    reply = _ask(options, "handover", {})
    _show(output, reply, f"{reply['from']} handed over to one of: {', '.join(reply['standbys'])}.")


def persist(options: argparse.Namespace, output: Output) -> None:
    """Have one engine write a snapshot."""
    path = str(Path(options.to).resolve()) if options.to else None
    reply = _ask(options, "persist", {"path": path})
    _show(output, reply, f"{reply['engine']} persisted everything up to block {reply['block']:,} to {reply['path']}.")


def quiesce(options: argparse.Namespace, output: Output) -> None:
    """Wait until everything that was published before is out."""
    reply = _ask(options, "quiesce", {})
    _show(output, reply, f"Everything up to block {reply['block']:,} is out, {reply['events']:,} events.")


def replace(options: argparse.Namespace, output: Output) -> None:
    """Put another model in the place of the one that runs."""
    from lockstep.cli.model_files import find_window, load_graph
    from lockstep.engine.model.loading import to_yaml

    graph = load_graph(options.model)
    if options.project not in (None, graph.project.name):
        raise UsageError(reason=f"The model is of project {graph.project.name}, not of {options.project}.")
    options.project = graph.project.name
    publish = [find_window(graph, name).path for name in options.publish]
    reply = _ask(options, "replace", {"model": to_yaml(graph.project), "publish": publish})
    words = f"runs from block {reply.get('block', 0):,} on" if reply["changed"] else "is the one that runs already"
    _show(output, reply, f"The model {words}.")


def reset(options: argparse.Namespace, output: Output) -> None:
    """Start of day."""
    reply = _ask(options, "reset", {"force": options.force})
    _show(output, reply, f"Windows are empty behind block {reply['block']:,}; numbers go on.")


def trim(options: argparse.Namespace, output: Output) -> None:
    """Let go of what no snapshot and no window needs."""
    reply = _ask(options, "trim", {})
    _show(output, reply, "Trimmed." if reply["trimmed"] else f"Nothing was trimmed: {reply['reason']}.")


def state(options: argparse.Namespace, output: Output) -> None:
    """Have input taken, or not."""
    reply = _ask(options, "state", {"value": options.value})
    _show(output, reply, f"The project is {reply['state']}.")


def query(options: argparse.Namespace, output: Output) -> None:
    """Projects of the cluster, or what one of them is."""
    from lockstep.engine.run.catalog import projects

    if options.project is None:
        with opened(bus_url(options)) as client:
            names = projects(client.bus, options.cluster)
        _show(output, {"projects": names}, "\n".join(names) or "No engine has run here yet.")
        return
    reply = _ask(options, "query", {"what": options.what, "window": options.window or ""})
    if output.json:
        output.json_line(dict(reply))
    elif "windows" in reply:
        rows = [[row["window"], row["kind"], "yes" if row["published"] else "", row["schema"]]
                for row in reply["windows"]]  # fmt: skip
        output.table(["window", "kind", "published", "schema"], rows)
    else:
        output.line(str(reply.get("model") or reply.get("schema") or "\n".join(reply.get("queries", []))))


def _ask(options: argparse.Namespace, kind: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    from lockstep.engine.run.asking import Asker
    from lockstep.engine.run.catalog import check_project, projects
    from lockstep.engine.run.streams import ProjectStreams

    with opened(bus_url(options)) as client:
        project = options.project or _only(projects(client.bus, options.cluster), options.cluster)
        check_project(client.bus, options.cluster, project)
        streams = ProjectStreams(cluster=options.cluster, project=project)
        return Asker(client.bus, streams, client.runtime).ask(kind, params, timeout_s=options.timeout).result


def _only(names: list[str], cluster: str) -> str:
    if len(names) != 1:
        known = ", ".join(names) or "none"
        raise UsageError(reason=f"Say which project with --project; cluster {cluster!r} has: {known}.")
    return names[0]


def _show(output: Output, reply: Mapping[str, Any], words: str) -> None:
    if output.json:
        output.json_line(dict(reply))
    else:
        output.line(words)
