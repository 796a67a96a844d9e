"""What a project's logs may be trimmed to, and whether its input streams keep enough for a start without a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from lockstep.core.snapshots import Reach, Snapshot, trimmable
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.parts import Retention
from lockstep.engine.runtime.sequence.entries import Decision, SequencePosition, Statement, TrimPoint, counted
from lockstep.engine.runtime.sequence.streams import ProjectStreams, sources
from lockstep.engine.runtime.snapshots.format import HEAD, decode_head
from lockstep.engine.runtime.snapshots.store import SnapshotInfo, SnapshotStore
from lockstep.log.config import StreamConfig
from lockstep.log.network.driver import Finding
from lockstep.log.port import Bus, Log

FIRST_SHARD = 0


def trim_point(
    folder: Path,
    belongs: str,
    sequence: Log,
    sources: Sequence[str],
    decided: SequencePosition,
    published: SequencePosition,
) -> TrimPoint | None:
    """The offsets below which the sequence log and the inputs are not needed; None with too few snapshots to say.

    Kept are the entry that states the model in force, the one that states the model of what is published, from where
    an engine starts, and everything after them.
    """
    store = SnapshotStore(folder, belongs)
    found = [_snapshot(store, info) for info in store.complete() if _is_of_model_in_force(store, info, sequence)]
    reach = trimmable(found)
    if not reach.sequence and not any(reach.inputs.values()):
        return None
    stated_at = min(decided.stated_at, published.stated_at)
    return TrimPoint(max(0, min(reach.sequence, stated_at)), input_offsets(reach, sources, decided))


def input_offsets(reach: Reach, sources: Sequence[str], decided: SequencePosition) -> dict[str, int]:
    """The offset of each source's input below which nothing is needed: never beyond what is decided."""
    return {path: min(reach.inputs.get(path, 0), decided.ends.get(path, 0)) for path in sources}


def _is_of_model_in_force(store: SnapshotStore, info: SnapshotInfo, sequence: Log) -> bool:
    """Whether no other model was stated after a snapshot: rebuilding its windows may need all there ever was."""
    head = decode_head(store.load(info, FIRST_SHARD)[HEAD], info.fingerprint, info.name)
    states = Statement(head.model, tuple(sorted(head.publish)))
    later = (Decision.of(entry).states for _, entry in counted(sequence, head.position.sequence))
    return all(each in (None, states) for each in later)


def _snapshot(store: SnapshotStore, info: SnapshotInfo) -> Snapshot:
    """Where an engine that begins with this snapshot reads on: in its windows' past, if they have one."""
    reaches = [_reach(store.load(info, shard)[HEAD], info) for shard in range(info.shards)]
    paths = {path for reach in reaches for path in reach.inputs}
    inputs = {path: min(reach.inputs.get(path, 0) for reach in reaches) for path in paths}
    return Snapshot(info.name, info.number, Reach(min(reach.sequence for reach in reaches), inputs))


def _reach(page: bytes, info: SnapshotInfo) -> Reach:
    head = decode_head(page, info.fingerprint, info.name)
    first = head.marks[0] if head.marks else head.position
    return Reach(first.sequence.upto + 1, first.ends)


def input_retention(bus: Bus, streams: ProjectStreams, graph: Graph) -> list[Finding]:
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
