"""The project that an adapter works for."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from lockstep.errors import UsageError

if TYPE_CHECKING:
    from lockstep.engine.model.graph import Node
    from lockstep.events.connection import ProjectEvents
    from lockstep.streams.client import Lockstep


def project_of(options: argparse.Namespace, client: Lockstep) -> ProjectEvents:
    """By its name, with the model in force on the bus, or by a model file."""
    from lockstep.cli.model_files import load_graph
    from lockstep.events.connection import Events

    events = Events(client, options.cluster)
    if options.model is None:
        return events.project(options.project)
    graph = load_graph(options.model)
    return events.project(options.project or graph.project.name, model=graph)


def check_project(options: argparse.Namespace) -> None:
    """Refuse a command that names no project."""
    if options.project is None and options.model is None:
        raise UsageError(reason="Say which project: --project NAME, or --model FILE.")


def source_of(project: ProjectEvents, window: str | None) -> Node:
    """The source window that is named, or the only one."""
    from lockstep.cli.model_files import find_source

    known = project.sources()
    if window is None and len(known) != 1:
        raise UsageError(reason=f"{project.name} has several sources: say which with --window: {', '.join(known)}.")
    return find_source(project.graph, window or known[0])
