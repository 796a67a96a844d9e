"""The streams of a project on its bus, and how they are made."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.windows import SourceWindow
from lockstep.log.config import StreamConfig
from lockstep.log.port import Bus

FRAME_BYTES, FRAME_LIMIT = 1 << 19, 63 << 20
"""About this many bytes are in a frame, so that any bus takes it; at most so many, if one event needs them."""
EVENT_STREAM = StreamConfig(capacity=None, max_record_bytes=64 << 20)
"""Inputs and outputs keep everything until they are trimmed; a frame may be large."""
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
