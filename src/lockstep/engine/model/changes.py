"""What a new model changes in a project that runs: which windows keep their state, and what can't be changed so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.guard import clock_of
from lockstep.engine.model.plan import make_plan
from lockstep.engine.model.values import duration_text
from lockstep.engine.model.windows import PatternWindow, Window


@dataclass(frozen=True, slots=True)
class Change:
    """Paths of windows. A kept one goes on as if nothing had happened; a rebuilt one is as if it had always been so.

    A window is rebuilt if it is new, or if itself, its inputs or a window before it are not what they were.
    """

    kept: frozenset[str]
    rebuilt: frozenset[str]
    removed: frozenset[str]
    added: frozenset[str]
    """Those of the rebuilt ones that are new."""


def compare(old: Graph, new: Graph) -> Change:
    """What becomes of every window of two models."""
    before = {node.path: node for node in old.nodes}
    kept: set[str] = set()
    for node in new.nodes:
        known = before.get(node.path)
        above = {new.nodes[parent.node].path for parent in node.parents}
        if known is not None and above <= kept and _same(old, known, new, node):
            kept.add(node.path)
    after = frozenset(node.path for node in new.nodes)
    return Change(frozenset(kept), after - kept, frozenset(before) - after, after - frozenset(before))


def refusals(old: Graph, new: Graph, *, published: frozenset[str], shards: int = 1) -> list[str]:
    """Every reason why a running project can't change to a model, in words; none if it can.

    `published` are paths of the windows whose output others may be reading.
    """
    change = compare(old, new)
    before = {node.path: node for node in old.nodes}
    reasons = [*_of_project(old, new)]
    for node in new.nodes:
        known = before.get(node.path)
        if known is not None:
            reasons += _of_window(known, node, is_published=node.path in published)
            reasons += _of_pattern(old, known, new, node, change)
    reasons += [
        f"Window {path} has connectors and would be removed."
        for path in sorted(change.removed)
        if before[path].window.connectors
    ]
    return [*reasons, *_of_shards(new, shards)]


def _same(old: Graph, known: Node, new: Graph, node: Node) -> bool:
    return _definition(known) == _definition(node) and _inputs(old, known) == _inputs(new, node)


def _definition(node: Node) -> tuple[object, ...]:
    """All that can change what a window answers, apart from what comes in."""
    return _bare(node.window), node.schema, node.is_indexed


def _bare(window: Window) -> Window:
    """Without what is beside the answer; of the kind of index only whether there is one counts, which the node says."""
    return replace(window, connectors=(), description="", pubsub=None, pubsub_index=None, index=None)


def _inputs(graph: Graph, node: Node) -> list[tuple[object, ...]]:
    pairs = zip(node.parents, node.inputs, strict=True)
    return [(graph.nodes[parent.node].path, parent.slot, parent.role, parent.name, schema) for parent, schema in pairs]


def _of_project(old: Graph, new: Graph) -> Iterator[str]:
    if old.project.name != new.project.name:
        names = f"{new.project.name} instead of {old.project.name}"
        yield f"The project would be called {names}: its streams and snapshots carry the name."
    followers = dict.fromkeys(
        node.path for graph in (old, new) for node in graph.nodes if clock_of(node) == "model clock"
    )
    if old.project.heartbeat_us != new.project.heartbeat_us and followers:
        times = f"{duration_text(new.project.heartbeat_us)} instead of {duration_text(old.project.heartbeat_us)}"
        yield f"The heartbeat would be {times}, and the model's clock is followed by {', '.join(followers)}."


def _of_window(known: Node, node: Node, *, is_published: bool) -> Iterator[str]:
    path = node.path
    if known.is_source != node.is_source:
        yield f"Window {path} would be a {node.window.kind} window instead of a {known.window.kind} window."
        return
    if node.is_source:
        yield from (f"Source window {path}: {what}; publishers hold its schema." for what in _differences(known, node))
    elif is_published:
        yield from (f"Published window {path}: {what}; readers hold its schema." for what in _differences(known, node))
    if known.window.connectors or node.window.connectors:
        names = _changed_fields(known, node)
        if names:
            yield f"Window {path} has connectors, and of it would change: {', '.join(names)}."


def _differences(known: Node, node: Node) -> Iterator[str]:
    """How a schema would differ, field by field."""
    old, new = known.schema, node.schema
    for name in old.names:
        if name not in new:
            yield f"its field {name} would be gone"
        elif old[name].type is not new[name].type:
            yield f"its field {name} would be {new[name].type.value} instead of {old[name].type.value}"
        if name in new and old[name].key != new[name].key:
            yield f"its field {name} would {'' if new[name].key else 'no longer '}belong to the key"
    yield from (f"it would have a new field {name}" for name in new.names if name not in old)
    if _shared(old, new) != _shared(new, old):
        yield f"its fields would stand in another order: {', '.join(new.names)}"


def _shared(one: Schema, other: Schema) -> list[str]:
    return [name for name in one.names if name in other]


def _changed_fields(known: Node, node: Node) -> list[str]:
    """What of a window itself would change, connectors included."""
    if type(known.window) is not type(node.window):
        return ["kind"]
    before, after = (replace(_bare(each.window), connectors=each.window.connectors) for each in (known, node))
    names = [item.name for item in fields(before) if getattr(before, item.name) != getattr(after, item.name)]
    return [*names, *(["index"] if known.is_indexed != node.is_indexed else [])]


def _of_pattern(old: Graph, known: Node, new: Graph, node: Node, change: Change) -> Iterator[str]:
    if not isinstance(known.window, PatternWindow) or node.path in change.kept:
        return
    above = [new.nodes[parent.node].path for parent in node.parents]
    changed = [path for path in above if path not in change.kept]
    if not _same(old, known, new, node):
        changed.insert(0, "itself")
    yield f"Pattern window {node.path} would lose its open patterns, because of a change of {' and '.join(changed)}."


def _of_shards(new: Graph, shards: int) -> Iterator[str]:
    plan = make_plan(new)
    if plan.max_shards is not None and shards > plan.max_shards:
        most = f"on {plan.max_shards} shard{'' if plan.max_shards == 1 else 's'} at most"
        yield f"The project runs on {shards} shards, and the new model could run {most}: {plan.reason}."
