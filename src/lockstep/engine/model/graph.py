"""A model ready to be evaluated, windows in order with schemas and parents; and its survey before that."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.schemas import output_schema
from lockstep.engine.model.windows import JoinWindow, SourceWindow, Window


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


@dataclass(frozen=True, slots=True)
class Placed:
    """A window in its place: its inputs by the edges that lead to it, and its rows as far as they are known."""

    index: int
    """Its place among all windows of the project, in the order of declaration."""
    query: ContinuousQuery
    window: Window
    edges: tuple[Edge, ...]
    parents: tuple[int, ...]
    inputs: tuple[Schema | None, ...]
    schema: Schema | None

    @property
    def path(self) -> str:
        """Its name in the project."""
        return f"{self.query.name}/{self.window.name}"

    @property
    def input(self) -> Schema | None:
        """The rows of its only parent, if they are known."""
        return self.inputs[0] if len(self.inputs) == 1 else None


@dataclass(frozen=True, slots=True)
class Survey:
    """All windows of a project in evaluation order; those on a cycle, or downstream of one, are left out."""

    project: Project
    windows: tuple[Placed, ...]
    cycles: tuple[tuple[str, ...], ...]
    """Paths, the first one again at the end."""


def survey(project: Project) -> Survey:
    """Look at the whole model."""
    declared = [(query, window) for query in project.queries for window in query.windows]
    incoming = _incoming(declared)
    parents = [[source for source, _ in edges] for edges in incoming]
    placed: dict[int, Placed] = {}
    for index in evaluation_order(parents):
        query, window = declared[index]
        inputs = tuple(placed[parent].schema for parent in parents[index])
        known = [schema for schema in inputs if schema is not None]
        schema = output_schema(window, known) if len(known) == len(inputs) else output_schema(window, ())
        edges = tuple(edge for _, edge in incoming[index])
        placed[index] = Placed(index, query, window, edges, tuple(parents[index]), inputs, schema)
    paths = [f"{query.name}/{window.name}" for query, window in declared]
    cycles = tuple(tuple(paths[index] for index in cycle) for cycle in find_cycles(parents))
    return Survey(project, tuple(placed.values()), cycles)


def _incoming(declared: Sequence[tuple[ContinuousQuery, Window]]) -> list[list[tuple[int, Edge]]]:
    """For each window the edges that lead to it, with the index of their source; a join's left side first."""
    places: dict[tuple[int, str], int] = {}
    for index, (query, window) in enumerate(declared):
        places.setdefault((id(query), window.name), index)
    incoming: list[list[tuple[int, Edge]]] = [[] for _ in declared]
    queries = {id(query): query for query, _ in declared}
    for identity, query in queries.items():
        for edge in query.edges:
            source, target = places.get((identity, edge.source)), places.get((identity, edge.target))
            if source is not None and target is not None:
                incoming[target].append((source, edge))
    for (_, window), edges in zip(declared, incoming, strict=True):
        if isinstance(window, JoinWindow) and are_swapped([edge for _, edge in edges]):
            edges.reverse()
    return incoming


def are_swapped(edges: Sequence[Edge]) -> bool:
    """Whether the roles of a join's two edges say that the first one is the right side."""
    sides = [edge.side for edge in edges]
    return sides in (["right", "left"], ["right", None], [None, "left"])


def evaluation_order(parents: Sequence[Sequence[int]]) -> list[int]:
    """Parents before children, ties in the order of declaration; what can't be ordered is left out."""
    children: list[list[int]] = [[] for _ in parents]
    waiting = [len(above) for above in parents]
    for index, above in enumerate(parents):
        for parent in above:
            children[parent].append(index)
    ready = [index for index, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for child in children[index]:
            waiting[child] -= 1
            if waiting[child] == 0:
                heapq.heappush(ready, child)
    return order


def find_cycles(parents: Sequence[Sequence[int]]) -> list[list[int]]:
    """Cycles along the edges, each window in at most one of them, the first window again at the end."""
    left = set(range(len(parents))) - set(evaluation_order(parents))
    cycles = []
    while left:
        path = [min(left)]
        while True:
            above = next((parent for parent in parents[path[-1]] if parent in left), None)
            if above is None:
                left.difference_update(path[-1:])
                break
            if above in path:
                cycle = path[path.index(above) :]
                cycles.append(_turned(cycle))
                left.difference_update(cycle)
                break
            path.append(above)
    return cycles


def _turned(cycle: list[int]) -> list[int]:
    """A cycle found against the edges, along them, from its first window back to it."""
    along = cycle[::-1]
    start = along.index(min(along))
    return [*along[start:], *along[: start + 1]]
