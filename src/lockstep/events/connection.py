"""The front door for events: connect, choose a project, publish to its sources, subscribe to its windows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.loading import load_model
from lockstep.engine.model.validation import compile_project
from lockstep.engine.runtime.files import source_of, window_of
from lockstep.engine.runtime.output.event_streams import EventPublisher
from lockstep.engine.runtime.sequence.model_statement import project_graph, projects, published_windows
from lockstep.engine.runtime.sequence.streams import EVENT_STREAM, ProjectStreams, own_input, own_sources
from lockstep.errors import BadArgument, StreamNotFound
from lockstep.events.clients import ClientTail, client_id
from lockstep.events.positions import Position
from lockstep.events.publisher import WindowPublisher
from lockstep.events.subscriber import OutSource, SubscribeOptions, Subscription
from lockstep.runtime import Runtime
from lockstep.streams.client import Lockstep
from lockstep.streams.client import connect as connect_bus


def connect(url: str, cluster: str = "local", *, create: bool = False, runtime: Runtime | None = None) -> Events:
    """Open the bus at a URL for the projects of a cluster. A bus that does not exist is created only with `create`."""
    return Events(connect_bus(url, create=create, runtime=runtime), cluster)


class Events:
    """A connection for events. Close it, or use it in a with statement."""

    def __init__(self, connection: Lockstep, cluster: str = "local") -> None:
        self.connection, self.cluster = connection, cluster

    def projects(self) -> list[str]:
        """The projects of the cluster that engines have run."""
        return projects(self.connection.bus, self.cluster)

    def project(self, name: str, *, model: str | Path | Graph | None = None) -> ProjectEvents:
        """A project by name, with the model that is in force there; a given model serves before any engine has run."""
        if model is None:
            return ProjectEvents(self.connection, self.cluster, project_graph(self.connection.bus, self.cluster, name))
        graph = model if isinstance(model, Graph) else compile_project(load_model(str(model)))
        if graph.project.name != name:
            raise BadArgument(name="model", value=graph.project.name, reason=f"it is not the model of {name!r}")
        return ProjectEvents(self.connection, self.cluster, graph)

    def close(self) -> None:
        """Close everything that was opened here."""
        self.connection.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class ProjectEvents:
    """One project on a bus."""

    def __init__(self, connection: Lockstep, cluster: str, graph: Graph) -> None:
        self.connection, self.graph = connection, graph
        self.streams = ProjectStreams(cluster=cluster, project=graph.project.name)

    @property
    def name(self) -> str:
        """Its name."""
        return self.graph.project.name

    def sources(self) -> list[str]:
        """The windows that can be published to."""
        return [node.path for node in own_sources(self.graph)]

    def windows(self) -> list[str]:
        """The windows that can be subscribed to: those whose out streams are there."""
        return [node.path for node in published_windows(self.connection.bus, self.streams, self.graph)]

    def source(self, window: str) -> Node:
        """A source window by its name or path."""
        return source_of(self.graph, window)

    def publisher(
        self,
        window: str,
        *,
        client: str | bytes | None = None,
        next_id: int | None = None,
        block: int = 1,
        transactional: bool = False,
    ) -> WindowPublisher:
        """A publisher to a source window, by its name or path.

        A client that has a name numbers its blocks, and engines take each number once. It goes on after its last
        number on the stream; or, to send everything again, give next_id=1.
        """
        node = self.source(window)
        stream = self.input(node)
        known = None if client is None else client_id(client)
        if next_id is None:
            next_id = 1 if known is None else self.last_id(node, known) + 1
        sender = EventPublisher(self.connection, stream, node.schema, client=known, next_id=next_id)
        return WindowPublisher(sender, node.schema, stream, block=block, transactional=transactional)

    def last_id(self, node: Node, client: bytes) -> int:
        """The last number of a client that is on the stream of a source window."""
        tail = ClientTail.begin(self.connection.bus, self.streams, node, client)
        for _ in tail.read():
            pass
        return tail.last

    def input(self, node: Node) -> str:
        """Return the stream of a source window, which is created if no engine has created it yet."""
        stream, bus = own_input(self.streams, node), self.connection.bus
        if stream not in set(bus.names()):
            bus.create(stream, EVENT_STREAM)
        return stream

    def subscribe(
        self,
        window: str,
        *,
        after: Position | Mapping[str, Any] | str | None = None,
        blocks: bool = False,
        timeout: float | None = None,
        **options: Any,
    ) -> Subscription:
        """Subscribe to a window. `options`: snapshot, collapse, rmretdel, begin, patience_s (SubscribeOptions).

        `after` is the position of an earlier subscription: it goes on exactly there. Iterating ends after `timeout`
        seconds in which nothing came.
        """
        try:
            wish = SubscribeOptions(**options)
        except TypeError as error:
            raise BadArgument(name="options", value=sorted(options), reason=str(error).split(") ")[-1]) from error
        known = Position.loads(after) if isinstance(after, str) else after
        known = Position.of(known) if isinstance(known, Mapping) else known
        source = self.output(window)
        return Subscription(source, self.connection.runtime, wish, after=known, blocks=blocks, timeout=timeout)

    def output(self, window: str) -> OutSource:
        """The out stream of a window, by its name or path; StreamNotFound if no engine publishes it."""
        node, bus = window_of(self.graph, window), self.connection.bus
        try:
            log = bus.open(self.streams.output(node))
        except StreamNotFound as error:
            error.add_note("Windows are published if 'lockstep engine run' says so: see --publish there.")
            raise
        control = bus.open(self.streams.control) if self.streams.control in set(bus.names()) else None
        return OutSource(bus, log, control, node)
