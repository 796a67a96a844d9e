"""The streams of a project on its bus: their names, how they are made, and the logs that its input comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lockstep.engine.errors import SourceUnfit
from lockstep.engine.events.record_format import key_repeats
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.windows import SourceWindow
from lockstep.errors import BadArgument, StreamNotFound
from lockstep.log.config import StreamConfig
from lockstep.log.port import Bus, Log
from lockstep.streams.shards import logs_of

FRAME_BYTES, FRAME_LIMIT = 1 << 19, 63 << 20
"""About this many bytes are in a frame, so that any bus takes it; at most so many, if one event needs them."""
EVENT_STREAM = StreamConfig(capacity=None, max_record_bytes=64 << 20)
"""ProjectInputs and outputs keep everything until they are trimmed; a frame may be large."""
CONTROL_STREAM = StreamConfig(capacity=None)
BAD_RECORDS = StreamConfig(capacity=100_000)
"""The last bad records; all of them are counted."""
NOTICES = StreamConfig(capacity=100_000)
"""The last messages to people: of a mail server that is away for long, older ones are lost."""
REPORTS = StreamConfig(capacity=2_000)
"""What each engine last said of itself."""
REQUESTS = StreamConfig(capacity=1_000)
"""What engines were last asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectStreams:
    """The names of a project's streams: CLUSTER.PROJECT.QUERY.WINDOW.I and .O, and those of the project itself."""

    cluster: str
    project: str

    def input(self, node: Node) -> str:
        """Where events for a source window are published: its own stream, or the one whose records it takes."""
        if isinstance(node.window, SourceWindow) and node.window.takes_records:
            return str(node.window.stream)
        return f"{self._root}.{node.query}.{node.window.name}.I"

    def output(self, node: Node) -> str:
        """Where the blocks of a window come out."""
        return f"{self._root}.{node.query}.{node.window.name}.O"

    @property
    def sequence(self) -> str:
        """Which input came when: everything follows from this log."""
        return f"{self._root}.S"

    @property
    def control(self) -> str:
        """Who leads, and what is published."""
        return f"{self._root}.C"

    @property
    def bad(self) -> str:
        """Events that windows refused, with the reason."""
        return f"{self._root}.B"

    @property
    def notices(self) -> str:
        """Messages to be sent to people."""
        return f"{self._root}.N"

    @property
    def mail_group(self) -> str:
        """The group of carriers that send messages to people."""
        return f"{self._root}.mail"

    @property
    def reports(self) -> str:
        """What every engine says of itself."""
        return f"{self._root}.T"

    @property
    def requests(self) -> str:
        """What is asked of the engine that leads."""
        return f"{self._root}.M"

    def replies(self, request: str) -> str:
        """Where the answer to a request is expected."""
        return f"{self._root}.R.{request}"

    @property
    def group(self) -> str:
        """The group of engines of which one leads."""
        return f"{self._root}.engines"

    @property
    def _root(self) -> str:
        return f"{self.cluster}.{self.project}"

    def create(self, bus: Bus, graph: Graph, wanted: frozenset[str]) -> None:
        """Make what is missing; nothing that is there is changed, and no stream that is not the project's own."""
        wanted_streams = {self.input(node): EVENT_STREAM for node in sources(graph) if not takes_records(node)}
        wanted_streams |= {self.output(node): EVENT_STREAM for node in graph.nodes if node.path in wanted}
        wanted_streams |= dict.fromkeys((self.sequence, self.control), CONTROL_STREAM)
        wanted_streams |= {
            self.notices: NOTICES,
            self.bad: BAD_RECORDS,
            self.reports: REPORTS,
            self.requests: REQUESTS,
        }
        present = set(bus.names())
        for name, config in wanted_streams.items():
            if name not in present:  # one that is there keeps the configuration its owner gave it
                bus.create(name, config)


def takes_records(node: Node) -> bool:
    """Whether a source takes the records of a stream that is not the project's own."""
    return isinstance(node.window, SourceWindow) and node.window.takes_records


def sources(graph: Graph) -> list[Node]:
    """The source windows, in the order in which an entry of the sequence log names their inputs."""
    return [node for node in graph.nodes if node.is_source]


def own_sources(graph: Graph) -> list[Node]:
    """The sources whose input streams are the project's own."""
    return [node for node in sources(graph) if not takes_records(node)]


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
        """Whether its records are events themselves, published by other programs."""
        return takes_records(self.node)


@dataclass(frozen=True, slots=True)
class ProjectInputs:
    """What a sequencer must know of a model: its inputs in order, and its heartbeat."""

    inputs: tuple[Input, ...]
    tick_us: int | None = None

    @property
    def logs(self) -> dict[str, Log]:
        """Their logs by name, in order."""
        return {each.name: each.log for each in self.inputs}

    def ends(self, ends: Mapping[str, int]) -> dict[str, int]:
        """Where each input is taken up: where the model before had come to, or at its beginning."""
        return {name: ends.get(name, log.bounds().first) for name, log in self.logs.items()}

    def begin(self) -> dict[str, int]:
        """Where each input is taken up if nothing was taken before; a stream of other programs need not begin at 0."""
        return {each.name: each.log.bounds().first if each.takes_records else 0 for each in self.inputs}


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
