"""Models without their secrets, to be shown: values are hidden by their names, and passwords within them."""

from __future__ import annotations

from dataclasses import replace

from lockstep.engine.model.parts import Connector
from lockstep.engine.model.project import ContinuousQuery, Project
from lockstep.engine.model.secret_values import shown


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
