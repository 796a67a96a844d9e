"""Which windows an evaluator runs as one of several shards, which it answers for, and which rows are its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lockstep.engine.kernels.sharding import Share
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.plan import Plan, make_plan


@dataclass(frozen=True, slots=True)
class Duty:
    """What one shard does."""

    owned: frozenset[int]
    """Windows whose output, counts and bad events it gives."""
    active: frozenset[int]
    """Those, and the windows they are fed by."""
    divided: frozenset[int] = frozenset()
    shares: dict[int, Share] = field(default_factory=dict)
    """For windows that are divided, and fed by one that is not: the rows to take."""

    def share_of(self, graph: Graph, source: int) -> Share | None:
        """The share that all windows take which a source feeds; None if one of them takes all rows."""
        fed = [node.index for node in graph.nodes if any(parent.node == source for parent in node.parents)]
        shares = [self.shares.get(index) for index in fed if index in self.active]
        return shares[0] if shares and None not in shares else None


def duty_of(graph: Graph, shard: int, shards: int) -> Duty:
    """The part of a model that falls to a shard."""
    everything = frozenset(range(len(graph.nodes)))
    if shards == 1:
        return Duty(everything, everything)
    plan = make_plan(graph)
    if not plan.splits:
        owned = _components(plan, shard, shards) if len(plan.components) > 1 else everything if shard == 0 else ()
        return Duty(frozenset(owned), frozenset(owned))
    divided = frozenset(index for split in plan.splits for index in split.divided)
    owned = divided | (everything - divided if shard == 0 else frozenset())
    shares = {
        index: Share(split.fields, shard, shards)
        for split in plan.splits
        for index in split.divided
        if any(parent.node not in divided for parent in graph.nodes[index].parents)
    }
    return Duty(frozenset(owned), _with_ancestors(graph, owned), divided, shares)


def _components(plan: Plan, shard: int, shards: int) -> Iterable[int]:
    return [index for number, part in enumerate(plan.components) if number % shards == shard for index in part]


def _with_ancestors(graph: Graph, owned: frozenset[int]) -> frozenset[int]:
    found = set(owned)
    for node in reversed(graph.nodes):
        if node.index in found:
            found.update(parent.node for parent in node.parents)
    return frozenset(found)
