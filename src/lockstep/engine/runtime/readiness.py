"""Whether an engine can run a model that is about to come into force.

It is compiled, its Python code imported, and streams that it takes records of are looked for.
"""

from __future__ import annotations

from importlib import invalidate_caches

from lockstep.engine.kernels.evaluator import Evaluator
from lockstep.engine.runtime.sequence.catalog import compiled
from lockstep.engine.runtime.sequence.decisions import Statement
from lockstep.engine.runtime.sequence.inputs import check_stream
from lockstep.engine.runtime.sequence.streams import ProjectStreams, sources, takes_records
from lockstep.errors import LockstepError
from lockstep.log.port import Bus


def why_not_runnable(states: Statement, shards: int, bus: Bus, streams: ProjectStreams) -> str:
    """Why this process can't run a model; empty: it can. Streams of others that it takes records of must be there."""
    invalidate_caches()  # a module may have been put there a moment ago
    try:
        graph, wanted = compiled(states), frozenset(states.publish)
        for shard in range(shards):
            Evaluator(graph, wanted=wanted, shard=shard, shards=shards)
        for node in sources(graph):
            if takes_records(node):
                check_stream(bus, streams, node)
    except LockstepError as error:
        return str(error)
    return ""
