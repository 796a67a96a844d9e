"""How a model is run: which windows may be divided over shards, what each keeps, and why, also in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.engine.columns.traits import is_pure
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.guard import ClockUse, clock_dependence, clock_of
from lockstep.engine.model.plan_state import StatePlan, retention_of
from lockstep.engine.model.schemas import changes_key
from lockstep.engine.model.windows import (
    AggregateWindow,
    ComputeWindow,
    CopyWindow,
    CustomWindow,
    FilterWindow,
    SourceWindow,
)

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


Trace = Mapping[str, str]
"""For each field of a window that is a source's field unchanged, the name it has there."""


@dataclass(frozen=True, slots=True)
class Split:
    """The rows of a source go to shards by the values of `fields`; the windows in `divided` see only their shard's.

    Every other window runs on each shard as a whole, and only shard 0 publishes it.
    """

    source: int
    fields: tuple[str, ...]
    divided: frozenset[int]


@dataclass(frozen=True, slots=True)
class Division:
    """The splits, and for each window that is not divided the reason."""

    splits: tuple[Split, ...]
    obstacles: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class _Chain:
    """All windows downstream of one child of a source, with it."""

    nodes: tuple[int, ...]
    keys: frozenset[str] | None
    """The source's fields that distinguish all of its groups; None if it has no groups."""
    obstacle: str | None


def find_division(graph: Graph) -> Division:
    """What can be divided, for each source."""
    children = children_of(graph)
    splits: list[Split] = []
    obstacles: dict[int, str] = {}
    for node in graph.nodes:
        if node.is_source:
            split, reasons = _divide_source(graph, node, children)
            obstacles = reasons | obstacles  # for a window downstream of several sources the first reason stays
            if split is not None:
                splits.append(split)
    divided = {index for split in splits for index in split.divided}
    return Division(tuple(splits), {index: why for index, why in obstacles.items() if index not in divided})


def children_of(graph: Graph) -> list[list[int]]:
    """For each node the nodes that it feeds."""
    children: list[list[int]] = [[] for _ in graph.nodes]
    for node in graph.nodes:
        for parent in dict.fromkeys(parent.node for parent in node.parents):
            children[parent].append(node.index)
    return children


def _divide_source(graph: Graph, source: Node, children: list[list[int]]) -> tuple[Split | None, dict[int, str]]:
    why = _source_obstacle(source)
    chains = [_chain(graph, source, child, children) for child in children[source.index]]
    if why is not None:
        return None, dict.fromkeys((source.index, *(index for chain in chains for index in chain.nodes)), why)
    obstacles = {index: chain.obstacle for chain in chains if chain.obstacle for index in chain.nodes}
    free = [chain for chain in chains if chain.obstacle is None]
    bare = "no window groups its rows, so that there is nothing to divide them by"
    obstacles.update({index: bare for chain in free if chain.keys is None for index in chain.nodes})
    free = [chain for chain in free if chain.keys is not None]
    fields, taken = _common_fields(graph, free, obstacles)
    if not fields:
        obstacles[source.index] = next(iter(obstacles.values()), bare)
        return None, obstacles
    obstacles[source.index] = (
        "its keys are checked and its clock is followed on every shard; behind it each has its own rows"
    )
    order = tuple(name for name in source.schema.names if name in fields)
    return Split(source.index, order, frozenset(index for chain in taken for index in chain.nodes)), obstacles


def _common_fields(graph: Graph, free: list[_Chain], obstacles: dict[int, str]) -> tuple[frozenset[str], list[_Chain]]:
    """The fields that tell apart the groups of as many chains as possible, first come first served."""
    fields: frozenset[str] | None = None
    taken: list[_Chain] = []
    for chain in free:
        own = chain.keys or frozenset()
        shared = own if fields is None else fields & own
        if not shared:
            names = ", ".join(sorted(fields or ()))
            last = graph.nodes[chain.nodes[-1]].window.name
            why = f"{last} groups by other fields than {names}, which divides the rest"
            obstacles.update(dict.fromkeys(chain.nodes, why))
            continue
        fields = shared
        taken.append(chain)
    return fields or frozenset(), taken


def _source_obstacle(source: Node) -> str | None:
    window = source.window
    assert isinstance(window, SourceWindow)
    if not window.insert_only:
        return f"{window.name} is not insert-only: a row that changes may have to move to another shard"
    if retention_of(source) is not None:
        return f"{window.name} has retention of its own, for the rows of all groups together"
    return _option_obstacle(source)


def _option_obstacle(node: Node) -> str | None:
    window = node.window
    if window.pulse_us is not None:
        return f"{window.name} has a pulse-interval, which gathers the events of all groups"
    if window.collapse_updates:
        return f"{window.name} collapses updates, which needs the whole block"
    if window.splitter is not None:
        return f"{window.name} has a splitter"
    return None


def _chain(graph: Graph, source: Node, first: int, children: list[list[int]]) -> _Chain:
    nodes = _behind(first, children)
    traces: dict[int, Trace] = {source.index: {name: name for name in source.schema.names}}
    keys: frozenset[str] | None = None
    for index in nodes:
        node = graph.nodes[index]
        why = _obstacle(graph, node, traces)
        if why is not None:
            return _Chain(nodes, None, why)
        above = traces[node.parents[0].node]
        traces[index] = _trace(node, above)
        if isinstance(node.window, AggregateWindow):
            names = (node.schema.names[place] for place in node.schema.keys)
            own = frozenset(above[name] for name in names if name in above)
            keys = own if keys is None else keys & own
            if not keys:
                return _Chain(
                    nodes, None, f"{node.window.name} groups by fields that are not those of {source.window.name}"
                )
    return _Chain(nodes, keys, None)


def _behind(first: int, children: list[list[int]]) -> tuple[int, ...]:
    """A node and all that it feeds, in evaluation order."""
    found, todo = {first}, [first]
    while todo:
        for child in children[todo.pop()]:
            if child not in found:
                found.add(child)
                todo.append(child)
    return tuple(sorted(found))


def _obstacle(graph: Graph, node: Node, traces: Mapping[int, Trace]) -> str | None:
    window = node.window
    if not isinstance(window, CopyWindow | FilterWindow | ComputeWindow | AggregateWindow):
        return f"{window.name} is a {window.kind} window, which looks at the rows of all groups in their order"
    if node.parents[0].node not in traces or node.parents[0].slot != -1:
        return f"{window.name} takes only a part of what {graph.nodes[node.parents[0].node].window.name} gives"
    if isinstance(window, CopyWindow):
        return _copy_obstacle(graph, node) or _option_obstacle(node)
    if changes_key(window, node.inputs[0]):
        return f"{window.name} gives rows another key, which must be looked up among all"
    if isinstance(window, FilterWindow | ComputeWindow) and not is_pure(node):
        return f"{window.name} has expressions that look at more than the row"
    if isinstance(window, AggregateWindow) and window.initialize is not None:
        return f"{window.name} has variables, which all groups share"
    return _option_obstacle(node)


def _copy_obstacle(graph: Graph, node: Node) -> str | None:
    name, retention, parent = node.window.name, retention_of(node), graph.nodes[node.parents[0].node]
    if retention is None:
        return f"{name} keeps all rows by key, whatever their group"
    if not retention.by_time:
        return f"{name} counts rows ({retention.kind}), those of all groups together"
    if retention.field is None:
        return f"{name} has retention by the model's clock"
    if not isinstance(parent.window, SourceWindow):
        return f"{name} is not fed by a source directly"
    if not (parent.is_indexed or parent.window.autogen_key):
        return f"{name} must look up the keys of all rows, since {parent.window.name} does not check them"
    return None


def _trace(node: Node, above: Trace) -> Trace:
    window = node.window
    if isinstance(window, CopyWindow | FilterWindow):
        return above
    kept = {node.schema.names[place]: node.schema.names[place] for place in node.schema.keys}
    if isinstance(window, ComputeWindow):
        others = (field.name for field in node.schema if not field.key)
        kept.update(dict(zip(others, (text.strip() for text in window.fields), strict=True)))
    return {name: above[text] for name, text in kept.items() if text in above}


_HEADINGS = ("window", "kind", "stage", "runs", "clock", "state", "rows in", "works on", "why")


@dataclass(frozen=True, slots=True)
class Explanation:
    """The same twice: lines to be printed, and what they say as data."""

    lines: tuple[str, ...]
    data: dict[str, Any]


def explain(plan: Plan) -> Explanation:
    """Stages, shards, state and clock of each window, and why."""
    uses = clock_dependence(plan.graph)
    return Explanation(tuple(_lines(plan, uses)), _data(plan, uses))


def stages_of(graph: Graph) -> tuple[int, ...]:
    """For each node how many windows lie on the longest way to it: 1 for a source."""
    stages: list[int] = []
    for node in graph.nodes:
        stages.append(1 + max((stages[parent.node] for parent in node.parents), default=0))
    return tuple(stages)


def shards_in_words(plan: Plan) -> str:
    """How many shards the plan allows."""
    if plan.max_shards is None:
        return "any number of shards"
    return "1 shard" if plan.max_shards == 1 else f"up to {plan.max_shards} shards"


def _lines(plan: Plan, uses: Sequence[ClockUse]) -> list[str]:
    project = plan.graph.project
    lines = [f"{project.name}: {shards_in_words(plan)}", f"  {plan.reason}"]
    lines += [f"  not divided: {reason}" for reason in plan.obstacles if reason != plan.reason]
    lines += [""]
    lines += _table([_HEADINGS, *_rows(plan)])
    slow = [step for step in plan.steps if step.form_why]
    if slow:
        lines += ["", "Row by row, with the same answer:"]
        lines += [f"  {plan.graph.nodes[step.node].path}: {step.form_why}." for step in slow]
    if uses:
        lines += ["", "Answers that depend on a wall clock:"]
        lines += [f"  {use.path}: {use.why}. {use.remedy}" for use in uses]
    return lines


def _rows(plan: Plan) -> list[tuple[str, ...]]:
    stages = stages_of(plan.graph)
    rows: list[tuple[str, ...]] = []
    for step in plan.steps:
        node = plan.graph.nodes[step.node]
        stage = str(stages[step.node])
        row = (node.path, node.window.kind, stage, step.mode, step.clock, step.state, step.members, step.form, step.why)
        rows.append(row)
    return rows


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _data(plan: Plan, uses: Sequence[ClockUse]) -> dict[str, Any]:
    nodes, stages = plan.graph.nodes, stages_of(plan.graph)
    return {
        "project": plan.graph.project.name,
        "fingerprint": plan.graph.fingerprint,
        "max_shards": plan.max_shards,
        "reason": plan.reason,
        "not_divided": list(plan.obstacles),
        "splits": [
            {
                "source": nodes[split.source].path,
                "fields": list(split.fields),
                "divided": [nodes[index].path for index in sorted(split.divided)],
            }
            for split in plan.splits
        ],
        "components": [[nodes[index].path for index in sorted(part)] for part in plan.components],
        "windows": [
            {
                "window": nodes[step.node].path,
                "kind": nodes[step.node].window.kind,
                "schema": str(nodes[step.node].schema),
                "stage": stages[step.node],
                "mode": step.mode,
                "clock": step.clock,
                "state": step.state,
                "members": step.members,
                "form": step.form,
                "why": step.why,
                "form_why": step.form_why,
            }
            for step in plan.steps
        ],
        "clock_dependence": [use._asdict() for use in uses],
    }
