"""What all routes share: the engine, its model, and names that are found or refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from lockstep.engine.errors import WindowNotFound
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.loading import to_xml
from lockstep.engine.model.project import Project
from lockstep.engine.model.values import shown
from lockstep.engine.model.xml_elements import Element, parse_element
from lockstep.engine.reference.operator import WindowCounts
from lockstep.engine.runtime.requests.channel import Reply
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.errors import NotFound
from lockstep.runtime import Runtime
from lockstep.server.guard import Limits
from lockstep.server.rows import RowsOfWindows
from lockstep.server.view import EngineView

ASK_S = 30.0
"""How long the leader may take to answer."""


@dataclass(frozen=True, slots=True)
class Site:
    """An engine, and what its REST keeps beside it."""

    view: EngineView
    rows: RowsOfWindows
    runtime: Runtime
    limits: Limits
    root: Path | None
    """Below this folder are the models that clients may name."""
    persist_root: Path | None = None
    """Below this folder are those for snapshots."""

    @property
    def name(self) -> str:
        """The project of the engine."""
        return self.view.graph().project.name

    @property
    def streams(self) -> ProjectStreams:
        """The streams of the project."""
        return ProjectStreams(cluster=self.view.cluster, project=self.name)

    def graph(self, project: str | None = None) -> Graph:
        """The model in force; NotFound for another project than the one that this engine runs."""
        graph = self.view.graph()
        if project not in (None, graph.project.name):
            error = NotFound(what="On this engine project", name=project)
            error.add_note(f"It runs {graph.project.name!r}.")
            raise error
        return graph

    def window(self, project: str | None, query: str | None, window: str) -> Node:
        """One window by its names; the query may be left out if the window's name says enough."""
        graph = self.graph(project)
        wanted = f"{query}/{window}" if query is not None else window
        node = graph.find(wanted)
        if node is None:
            known = [node.path for node in graph.nodes]
            near = get_close_matches(wanted, known, n=3, cutoff=0.5)
            name = graph.project.name
            raise WindowNotFound(model=name, what="window", name=wanted, known=", ".join(near or known[:12]))
        return node

    def counts(self) -> dict[str, WindowCounts]:
        """The counts of this engine's windows by path."""
        return {path: WindowCounts.load(dumped) for path, dumped in self.view.report().counts.items()}

    def ask(self, kind: str, params: Mapping[str, Any]) -> Reply:
        """Send a request to the active engine, and return its reply."""
        return self.view.ask(kind, params, ASK_S)


def model_element(project: Project) -> Element:
    """Return the model as a project element, without secrets."""
    return without_secrets(parse_element(to_xml(replace(project, port=None)), "the model"))


def without_secrets(element: Element) -> Element:
    """The same element with the values of secret properties hidden."""
    name = element.attributes.get("name") or element.attributes.get("id", "")
    if element.tag in ("property", "meta") and element.text:
        return Element(element.tag, element.attributes, text=shown(name, element.text))
    return Element(
        element.tag, element.attributes, [without_secrets(child) for child in element.children], element.text
    )
