"""Whether the logs keep what windows will read from them again."""

from __future__ import annotations

from lockstep.engine.errors import LogForgets
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.plan import Plan
from lockstep.engine.model.windows import CopyWindow
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.log.config import StreamConfig
from lockstep.log.port import Bus


def check_retention(plan: Plan, bus: Bus, streams: ProjectStreams) -> None:
    """Refuse a model whose windows need more of the past than an input stream is sure to keep."""
    for step in plan.steps:
        node = plan.graph.nodes[step.node]
        if step.members == "log" and isinstance(node.window, CopyWindow):
            name = streams.input(_source_of(plan.graph, node))
            kept = _forgets(bus.open(name).config, node.window)
            if kept is not None:
                raise LogForgets(window=node.path, stream=name, kept=kept)


def _source_of(graph: Graph, node: Node) -> Node:
    while node.parents:
        node = graph.nodes[node.parents[0].node]
    return node


def _forgets(config: StreamConfig, window: CopyWindow) -> str | None:
    """What is kept, in words, if that may be too little."""
    retention = window.retention
    if config.capacity is not None:
        return f"{config.capacity} records"
    if config.retain_bytes is not None:
        return f"{config.retain_bytes} bytes"
    if config.retain_age_s is None:
        return None
    is_enough = retention is not None and retention.by_time and config.retain_age_s * 1e6 > retention.limit
    return None if is_enough else f"{config.retain_age_s:g} seconds"
