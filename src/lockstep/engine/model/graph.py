"""A model ready to be evaluated: windows in evaluation order, each with its schema and its parents.

`lockstep.engine.model.validation.compile_project` makes it, and refuses models that have faults.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.project import Project
from lockstep.engine.model.windows import SourceWindow, Window


@dataclass(frozen=True, slots=True)
class Parent:
    """An input of a node: the node it comes from, and which of its slots (-1: all)."""

    node: int
    slot: int = -1
    role: str | None = None
    name: str = ""
    """The window it comes from: patterns, counters and input() speak of it."""


@dataclass(frozen=True, slots=True)
class Node:
    """One window in its place: `parents` in the order of the edges, `inputs` their schemas."""

    index: int
    query: str
    window: Window
    schema: Schema
    parents: tuple[Parent, ...]
    inputs: tuple[Schema, ...]
    is_indexed: bool
    """Keeps its rows by key, and so resolves opcodes; a window with index pi_EMPTY does not."""

    @property
    def path(self) -> str:
        """Its name in the project: query/window."""
        return f"{self.query}/{self.window.name}"

    @property
    def is_source(self) -> bool:
        """Events come in here."""
        return isinstance(self.window, SourceWindow)


@dataclass(frozen=True, slots=True)
class Graph:
    """All windows of a project, parents before children."""

    project: Project
    nodes: tuple[Node, ...]
    fingerprint: str
    """A digest of the model: state of another model is refused."""

    def find(self, name: str) -> Node | None:
        """The node of a window by its name or path; None if there is none, or several windows have that name."""
        found = [node for node in self.nodes if name in (node.path, node.window.name)]
        return found[0] if len(found) == 1 else None
