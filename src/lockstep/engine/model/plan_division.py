"""Which chains of windows may be divided over shards by the values of some fields, and what stands in the way.

Every shard looks at the keys and times of all rows, so that its clocks are those of the whole; of anything else it has
only its own rows.
That gives the same answer if nobody behind the source ever looks at rows of two shards: a group lives on one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.engine.kernels.traits import is_pure
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.plan_state import retention_of
from lockstep.engine.model.schemas import changes_key
from lockstep.engine.model.windows import AggregateWindow, ComputeWindow, CopyWindow, FilterWindow, SourceWindow

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
    """All windows behind one child of a source."""

    nodes: tuple[int, ...]
    keys: frozenset[str] | None
    """The source's fields by which all of its groups are told apart; None if it has no groups."""
    obstacle: str | None


def find_division(graph: Graph) -> Division:
    """What can be divided, for each source."""
    children = children_of(graph)
    splits: list[Split] = []
    obstacles: dict[int, str] = {}
    for node in graph.nodes:
        if node.is_source:
            split, reasons = _divide_source(graph, node, children)
            obstacles = reasons | obstacles  # of a window behind several sources the first reason stays
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
