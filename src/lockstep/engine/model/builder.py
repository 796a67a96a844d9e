"""Projects built in Python.

project = ProjectBuilder("trades")
query = project.query("trades")
trades = query.source("TradesSource", "ID*:int32,symbol:string,price:double,time:stamp", insert_only=True)
last = trades.copy("Copy5MinRet", retain=sliding("5 minutes", field="time"))
last.aggregate("Aggregate5min", by="symbol", low="ESP_aMin(price)", high="ESP_aMax(price)")
model = project.build()
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.builder_parts import (
    Duration,
    Fields,
    Kept,
    Pairs,
    as_pairs,
    as_retention,
    as_schema,
    email,
    jumping,
    jumping_rows,
    lookback,
    microseconds,
    names,
    pattern,
    plug,
    sliding,
    sliding_rows,
)
from lockstep.engine.model.builder_stream import Stream
from lockstep.engine.model.project import (
    ConnectorEntry,
    ConnectorGroup,
    ContinuousQuery,
    Edge,
    GroupEdge,
    Project,
)
from lockstep.engine.model.schemas import output_schema
from lockstep.engine.model.windows import EVENTS, RECORDS, SourceWindow, Window

__all__ = [
    "ProjectBuilder",
    "QueryBuilder",
    "Stream",
    "email",
    "jumping",
    "jumping_rows",
    "lookback",
    "pattern",
    "plug",
    "sliding",
    "sliding_rows",
]


class QueryBuilder:
    """A continuous query that is being built. Windows are evaluated in the order of their calls, where it matters."""

    def __init__(self, query: ContinuousQuery) -> None:
        self._query = query
        self._windows: dict[str, Window] = {}
        self._edges: list[Edge] = []

    def source(
        self,
        name: str,
        schema: Fields,
        *,
        insert_only: bool = False,
        autogen_key: bool = False,
        retain: Kept = None,
        stream: str | None = None,
        decode: str | None = None,
        avro_schema: str | None = None,
        date_format: str | None = None,
        upsert: bool = False,
    ) -> Stream:
        """Where events come in. With a `stream` its records are taken: as they are, or `decode` json, csv or avro."""
        window = SourceWindow(
            name=name,
            schema=as_schema(schema),
            insert_only=insert_only,
            autogen_key=autogen_key,
            retention=as_retention(retain),
            form=EVENTS if stream is None else RECORDS,
            stream=stream,
            decode=decode,
            avro_schema=avro_schema,
            date_format=date_format,
            upsert=upsert,
        )
        return self.add(window)

    def add(self, window: Window, *inputs: Stream) -> Stream:
        """Add a window of any kind that reads the outputs of others; ValueError if its name is taken."""
        if window.name in self._windows:
            msg = f"the query {self._query.name} has a window {window.name} already"
            raise ValueError(msg)
        self._windows[window.name] = window
        for stream in inputs:
            self.edge(stream, window.name)
        return Stream(self, window.name)

    def edge(self, source: Stream | str, target: Stream | str, *, slot: int = -1, role: str | None = None) -> None:
        """Draw an edge by hand; windows that were added with inputs have theirs already."""
        if isinstance(source, Stream):
            slot = source.slot_number if slot == -1 else slot
            role = role or source.role_name
        self._edges.append(Edge(source=_name(source), target=_name(target), slot=slot, role=role))

    def put(self, window: Window) -> None:
        """Put a window in the place of the one with its name."""
        self._windows[window.name] = window

    def get(self, name: str) -> Window:
        """A window by name."""
        return self._windows[name]

    def schema(self, name: str) -> Schema | None:
        """The fields of a window; None if they can't be inferred."""
        return self._schema(name, frozenset())

    def _schema(self, name: str, below: frozenset[str]) -> Schema | None:
        if name in below or name not in self._windows:
            # A circle or a missing window: what is wrong with it is said when the model is checked.
            return None
        parents = (edge.source for edge in self._edges if edge.target == name)
        inputs = [self._schema(parent, below | {name}) for parent in parents]
        known = [schema for schema in inputs if schema is not None]
        return output_schema(self._windows[name], known) if len(known) == len(inputs) else None

    def build(self) -> ContinuousQuery:
        """The query as it is now."""
        return replace(self._query, windows=tuple(self._windows.values()), edges=tuple(self._edges))


def _name(window: Stream | str) -> str:
    return window.name if isinstance(window, Stream) else window


class ProjectBuilder:
    """A project that is being built."""

    def __init__(
        self,
        name: str,
        *,
        pubsub: str = "auto",
        threads: int | None = None,
        index: str = "pi_HASH",
        heartbeat: Duration = "1 second",
        restore: str | None = None,
        disk_store_path: str | None = None,
        retention_tracking: bool | None = None,
        use_tagged_token: bool | None = None,
        compress_open_patterns: bool | None = None,
        port: int | None = None,
        metadata: Pairs = (),
        description: str = "",
    ) -> None:
        self._project = Project(
            name=name,
            queries=(),
            pubsub=pubsub,
            threads=threads,
            index=index,
            heartbeat_us=microseconds(heartbeat),
            restore=restore,
            disk_store_path=disk_store_path,
            retention_tracking=retention_tracking,
            use_tagged_token=use_tagged_token,
            compress_open_patterns=compress_open_patterns,
            port=port,
            metadata=as_pairs(metadata),
            description=description,
        )
        self._queries: list[QueryBuilder] = []

    def query(
        self,
        name: str,
        *,
        trace: str | Iterable[str] = (),
        index: str | None = None,
        timing_threshold: int | None = None,
        include_singletons: bool | None = None,
        metadata: Pairs = (),
        description: str = "",
    ) -> QueryBuilder:
        """Another continuous query."""
        query = ContinuousQuery(
            name=name,
            windows=(),
            trace=names(trace),
            index=index,
            timing_threshold=timing_threshold,
            include_singletons=include_singletons,
            metadata=as_pairs(metadata),
            description=description,
        )
        self._queries.append(QueryBuilder(query))
        return self._queries[-1]

    def connector_group(self, name: str, entries: Pairs) -> ProjectBuilder:
        """Connectors (query/window/name) that start together, each with the state that it must reach."""
        made = tuple(ConnectorEntry(connector=connector, state=state) for connector, state in as_pairs(entries))
        groups = (*self._project.connector_groups, ConnectorGroup(name=name, entries=made))
        self._project = replace(self._project, connector_groups=groups)
        return self

    def connector_edge(self, source: str, target: str) -> ProjectBuilder:
        """The group `target` starts when `source` is there."""
        edges = (*self._project.connector_edges, GroupEdge(source=source, target=target))
        self._project = replace(self._project, connector_edges=edges)
        return self

    def build(self) -> Project:
        """The project as it is now."""
        return replace(self._project, queries=tuple(query.build() for query in self._queries))
