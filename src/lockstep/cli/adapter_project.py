"""The project that an adapter works for."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from lockstep.errors import UsageError

if TYPE_CHECKING:
    from lockstep.engine.model.graph import Graph, Node
    from lockstep.events.connection import ProjectEvents
    from lockstep.streams.client import Lockstep


def model_of(options: argparse.Namespace) -> Graph | None:
    """The model in the file that is named; None: the bus is asked for the model in force. UsageError without either."""
    from lockstep.cli.model_files import load_graph

    if options.project is None and options.model is None:
        raise UsageError(reason="Say which project: --project NAME, or --model FILE.")
    return None if options.model is None else load_graph(options.model)


def project_of(options: argparse.Namespace, client: Lockstep, model: Graph | None) -> ProjectEvents:
    """The project with the model of a file, or with the model in force on the bus."""
    from lockstep.events.connection import Events

    events = Events(client, options.cluster)
    if model is None:
        return events.project(options.project)
    return events.project(options.project or model.project.name, model=model)


def source_of(graph: Graph, window: str | None) -> Node:
    """The source window that is named, or the only one."""
    from lockstep.cli.model_files import find_source

    known = [node.path for node in graph.nodes if node.is_source]
    if window is None and len(known) != 1:
        raise UsageError(
            reason=f"{graph.project.name} has several source windows: choose one with --window: {', '.join(known)}."
        )
    return find_source(graph, window or known[0])
