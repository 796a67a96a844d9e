"""How a model is run: which windows may be divided over shards, what each keeps, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.guard import clock_of
from lockstep.engine.model.plan_division import Division, Split, find_division
from lockstep.engine.model.plan_state import StatePlan
from lockstep.engine.model.windows import CustomWindow

__all__ = ["Plan", "Split", "Step", "make_plan"]


@dataclass(frozen=True, slots=True)
class Step:
    """One window's part of the plan."""

    node: int
    mode: str
    """whole: on every shard (or the only one); divided: its shard's rows; component: on one of the shards."""
    state: str
    clock: str
    """`field NAME`, `model clock` or `none`."""
    members: str
    """Where the rows are that it must remember: log, state or none."""
    form: str
    """columns or rows; for a custom window its class decides, which is not loaded for a plan."""
    why: str
    form_why: str = ""
    """Why it goes row by row, if it does."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a graph. `max_shards` None: as many as you like."""

    graph: Graph
    steps: tuple[Step, ...]
    splits: tuple[Split, ...]
    components: tuple[frozenset[int], ...]
    """Parts that have nothing to do with each other; without a split, part k runs on shard k % shards."""
    max_shards: int | None
    reason: str
    obstacles: tuple[str, ...] = ()
    """Why windows are not divided, each reason once; it begins with the window that forbids it."""


def make_plan(graph: Graph) -> Plan:
    """Look for what may be divided without changing the answer."""
    components = find_components(graph)
    division = find_division(graph)
    by_source = {index: split for split in division.splits for index in split.divided}
    parts = {index: number for number, part in enumerate(components) for index in part}
    keeping = StatePlan(graph)
    steps = []
    for node in graph.nodes:
        mode, why = _mode(node, division, by_source, parts, len(components))
        steps.append(_step(keeping, node, mode, why))
    shards = None if division.splits else len(components)
    reason = _reason(graph, division, len(components))
    sources = {split.source for split in division.splits}
    obstacles = tuple(dict.fromkeys(why for index, why in division.obstacles.items() if index not in sources))
    return Plan(graph, tuple(steps), division.splits, components, shards, reason, obstacles)


def _step(keeping: StatePlan, node: Node, mode: str, why: str) -> Step:
    return Step(
        node=node.index,
        mode=mode,
        state=keeping.state(node),
        clock=clock_of(node),
        members=keeping.members(node),
        form=_form(keeping, node),
        why=why,
        form_why="" if isinstance(node.window, CustomWindow) else keeping.rows_because(node),
    )


def _form(keeping: StatePlan, node: Node) -> str:
    if isinstance(node.window, CustomWindow):
        return "as its class"
    return "columns" if keeping.works_on_columns(node) else "rows"


def _mode(
    node: Node, division: Division, by_source: Mapping[int, Split], parts: Mapping[int, int], count: int
) -> tuple[str, str]:
    split = by_source.get(node.index)
    if split is not None:
        return "divided", f"rows with the same {' and '.join(split.fields)} are on one shard"
    if division.splits:
        return "whole", division.obstacles.get(node.index, "it has inputs that are not divided")
    if count > 1:
        return "component", f"part {parts[node.index] + 1} of {count} that have nothing to do with each other"
    return "whole", division.obstacles.get(node.index, "one ordered task evaluates it")


def _reason(graph: Graph, division: Division, count: int) -> str:
    if division.splits:
        names = (f"{graph.nodes[split.source].path} by {', '.join(split.fields)}" for split in division.splits)
        return f"divided: {'; '.join(names)}; every shard sees the clock of all blocks"
    if count > 1:
        return f"{count} parts that have nothing to do with each other; each runs on one shard"
    return next(iter(division.obstacles.values()), "one ordered task evaluates all windows")


def find_components(graph: Graph) -> tuple[frozenset[int], ...]:
    """The parts of a graph between which no edge leads, by their first window."""
    part = list(range(len(graph.nodes)))
    for node in graph.nodes:
        for parent in node.parents:
            low, high = sorted((part[node.index], part[parent.node]))
            part = [low if number == high else number for number in part]
    return tuple(
        frozenset(index for index, number in enumerate(part) if number == first) for first in sorted(set(part))
    )
