"""A project: continuous queries, each a graph of windows; and the same to be shown, without secrets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lockstep.engine.model.parts import Connector
from lockstep.engine.model.values import shown
from lockstep.engine.model.windows import Window


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """The output of `source` is an input of `target`.

    For a join `role` left or right says which side it is; without roles the first edge is the left side, the second the
    right. `slot` takes only what the source's splitter sent there; -1 takes everything.
    """

    source: str
    target: str
    role: str | None = None
    slot: int = -1

    @property
    def side(self) -> str | None:
        """The side of a join that its role names."""
        role = (self.role or "").strip().lower()
        return role if role in ("left", "right") else None


@dataclass(frozen=True, kw_only=True, slots=True)
class ContinuousQuery:
    """A graph of windows. Windows are evaluated parents before children, ties in the order given here."""

    name: str
    windows: tuple[Window, ...]
    edges: tuple[Edge, ...] = ()
    trace: tuple[str, ...] = ()
    index: str | None = None
    timing_threshold: int | None = None
    include_singletons: bool | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    description: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectorEntry:
    """A connector (query/window/name) that must reach a state before its group counts as there."""

    connector: str
    state: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectorGroup:
    """Connectors that are started together."""

    name: str
    entries: tuple[ConnectorEntry, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupEdge:
    """The group `target` starts when `source` is there."""

    source: str
    target: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """What an engine runs.

    `heartbeat_us` is how often the model's clock ticks; windows that follow their own time field need no ticks.
    """

    name: str
    queries: tuple[ContinuousQuery, ...]
    pubsub: str = "auto"
    threads: int | None = None
    index: str = "pi_HASH"
    heartbeat_us: int = 1_000_000
    restore: str | None = None
    disk_store_path: str | None = None
    retention_tracking: bool | None = None
    use_tagged_token: bool | None = None
    compress_open_patterns: bool | None = None
    port: int | None = None
    """Of the engine element around the project, if there was one."""
    connector_groups: tuple[ConnectorGroup, ...] = ()
    connector_edges: tuple[GroupEdge, ...] = ()
    metadata: tuple[tuple[str, str], ...] = field(default=())
    description: str = ""


def without_secrets(project: Project) -> Project:
    """The same project with the values of secret properties and metadata hidden."""
    queries = tuple(_query(query) for query in project.queries)
    return replace(project, queries=queries, metadata=_pairs(project.metadata))


def _query(query: ContinuousQuery) -> ContinuousQuery:
    windows = tuple(
        replace(window, connectors=tuple(_connector(connector) for connector in window.connectors))
        for window in query.windows
    )
    return replace(query, windows=windows, metadata=_pairs(query.metadata))


def _connector(connector: Connector) -> Connector:
    return replace(connector, properties=_pairs(connector.properties))


def _pairs(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((name, shown(name, value)) for name, value in pairs)
