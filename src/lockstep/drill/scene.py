"""The model of the drill and its streams: volume-weighted prices of trades, as in the document it is measured by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lockstep.bench.engine_models import seven_windows
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.loading import load_model, to_yaml
from lockstep.engine.model.validation import compile_project
from lockstep.engine.runtime.sequence.streams import ProjectStreams

SOURCE, WINDOW = "trades/TradesSource", "trades/Aggregate24HR"
MODEL = "trades.yaml"


@dataclass(frozen=True, slots=True)
class Scene:
    """A compiled model under the name of a cluster."""

    graph: Graph
    streams: ProjectStreams

    @property
    def source(self) -> Node:
        """Where events go in."""
        return _found(self.graph, SOURCE)

    @property
    def window(self) -> Node:
        """Whose events the subscriber writes down."""
        return _found(self.graph, WINDOW)

    @property
    def input(self) -> str:
        """The stream the publisher writes to."""
        return self.streams.input(self.source)

    @property
    def output(self) -> str:
        """The stream the subscriber reads."""
        return self.streams.output(self.window)


def write_model(path: Path) -> None:
    """Put the model into a file, for the engines."""
    path.write_text(to_yaml(seven_windows()))


def scene(model: Path, cluster: str) -> Scene:
    """From the file, as everybody reads it."""
    graph = compile_project(load_model(model))
    return Scene(graph, ProjectStreams(cluster=cluster, project=graph.project.name))


def _found(graph: Graph, path: str) -> Node:
    node = graph.find(path)
    assert node is not None, path
    return node
