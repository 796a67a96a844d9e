"""Whether an engine can run a model that is about to come into force: it is compiled and its Python code imported."""

from __future__ import annotations

from importlib import invalidate_caches

from lockstep.engine.kernels.evaluator import Evaluator
from lockstep.engine.run.catalog import compiled
from lockstep.engine.run.decisions import Statement
from lockstep.errors import LockstepError


def why_not_runnable(states: Statement, shards: int) -> str:
    """Why this process can't run a model; empty: it can."""
    invalidate_caches()  # a module may have been put there a moment ago
    try:
        graph, wanted = compiled(states), frozenset(states.publish)
        for shard in range(shards):
            Evaluator(graph, wanted=wanted, shard=shard, shards=shards)
    except LockstepError as error:
        return str(error)
    return ""
