"""Whether input streams keep events for as long as the windows need them: who starts without a snapshot reads them."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.parts import Retention
from lockstep.engine.run.streams import ProjectStreams, sources
from lockstep.log.config import StreamConfig
from lockstep.log.network.driver import Finding
from lockstep.log.port import Bus


def findings(bus: Bus, streams: ProjectStreams, graph: Graph) -> list[Finding]:
    """The input streams that forget too soon, each with the window that needs most of it."""
    present, found = set(bus.names()), []
    for source in sources(graph):
        name = streams.input(source)
        if name not in present:
            continue  # it is made to keep everything
        config = bus.open(name).config
        for node, problem in _problems(graph, source, config):
            lost = f"{problem}: an engine that starts without a snapshot can't fill {node.path} again"
            found.append(Finding(bus.url, f"the stream {name} {lost}", f"the retention of {name}"))
    return found


def _problems(graph: Graph, source: Node, config: StreamConfig) -> Iterator[tuple[Node, str]]:
    for node in fed_by(graph, source):
        retention = getattr(node.window, "retention", None)
        problem = _too_short(retention, config) if retention is not None else ""
        if problem:
            yield node, problem


def _too_short(retention: Retention, config: StreamConfig) -> str:
    """Why a stream so configured can't be enough for a window; nothing if it is."""
    needs_s = retention.limit / 1_000_000 if retention.by_time else 0.0
    if retention.by_time and config.retain_age_s is not None and config.retain_age_s < needs_s:
        return f"keeps records for {config.retain_age_s:g} s, and the window needs {needs_s:g} s"
    if config.capacity is not None and (retention.by_time or config.capacity < retention.limit):
        needs = f"{needs_s:g} s of them" if retention.by_time else f"{retention.limit:,}"
        return f"keeps {config.capacity:,} records at most, and the window needs {needs}"
    return ""


def fed_by(graph: Graph, source: Node) -> list[Node]:
    """The source window, and all that its events come to."""
    reached = {source.index}
    for node in graph.nodes:  # parents come before children
        if any(parent.node in reached for parent in node.parents):
            reached.add(node.index)
    return [node for node in graph.nodes if node.index in reached]
