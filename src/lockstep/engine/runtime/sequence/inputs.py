"""The logs that a project takes its input from: one for a source of events, one for each shard of another stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lockstep.engine.errors import SourceUnfit
from lockstep.engine.events.recordform import key_repeats
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.windows import SourceWindow
from lockstep.engine.runtime.sequence.streams import ProjectStreams, sources, takes_records
from lockstep.errors import BadArgument, StreamNotFound
from lockstep.log.port import Bus, Log
from lockstep.streams.shards import logs_of

_IDENTITY_CHARS = 8


@dataclass(frozen=True, slots=True)
class Input:
    """One log of a source window. `name` is what entries and positions call it.

    The name of a stream that is not the project's own has a part of its identity: one that was deleted and made anew
    is another input.
    """

    name: str
    node: Node
    log: Log
    shard: int = 0

    @property
    def takes_records(self) -> bool:
        """Whether its records are events themselves, and it belongs to somebody else."""
        return takes_records(self.node)


def own_input(streams: ProjectStreams, node: Node) -> str:
    """The stream to which events for a source are published; refuses a source that takes the records of another."""
    stream = streams.input(node)
    if takes_records(node):
        reason = f"it takes the records of stream {stream}: publish those, with 'lockstep stream publish {stream}'"
        raise BadArgument(name="window", value=node.path, reason=reason)
    return stream


def open_inputs(bus: Bus, streams: ProjectStreams, graph: Graph) -> tuple[Input, ...]:
    """The inputs in the order in which the blocks of an entry are numbered."""
    return tuple(found for node in sources(graph) for found in _inputs_of(bus, streams, node))


def _inputs_of(bus: Bus, streams: ProjectStreams, node: Node) -> Iterator[Input]:
    stream = streams.input(node)
    if not takes_records(node):
        yield Input(node.path, node, bus.open(stream))
        return
    for shard, log in enumerate(check_stream(bus, streams, node)):
        yield Input(f"{node.path}@{log.name}:{log.identity[:_IDENTITY_CHARS]}", node, log, shard)


def check_stream(bus: Bus, streams: ProjectStreams, node: Node) -> list[Log]:
    """The logs of the stream whose records a source takes; refuses one that is not there, or that it can't take."""
    assert isinstance(node.window, SourceWindow)
    stream = streams.input(node)
    try:
        logs = logs_of(bus, stream)
    except StreamNotFound as error:
        error.add_note(f"The source {node.path} takes its records: make the stream first, an engine does not.")
        raise
    if len(logs) > 1 and key_repeats(node.schema, node.window.decode):
        raise SourceUnfit(window=node.path, stream=stream, shards=len(logs))
    return logs
