"""The connectors of a model: which there are, what they are for, and in which order they start. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lockstep.connectors.eventhubs import as_kafka
from lockstep.connectors.names import IN, OUT, WindowPath, topic_name
from lockstep.connectors.properties import PUBLISH, SUBSCRIBE, USED_IF_BOUND, Properties, read_properties
from lockstep.engine.model.checks import is_publisher
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.project import ConnectorEntry, Project
from lockstep.engine.model.variables import expanded, remedy_for, unreplaced
from lockstep.engine.model.windows import Connector, Window

STOPPED, STARTED, RUNNING, FINISHED = "stopped", "started", "running", "finished"
_OWN_NAMES = frozenset({"config"})
"""Properties that are documents: names in them are replaced when they have been read, by those who read them."""
_REACHED = {STOPPED: 0, STARTED: 1, RUNNING: 2, FINISHED: 3}


@dataclass(frozen=True, slots=True)
class Planned:
    """A connector in its place."""

    node: Node = field(repr=False)
    project: str
    properties: Properties
    is_bound: bool = False
    """Its topic is a stream of the engine's own bus: there is nothing to run."""

    @property
    def path(self) -> str:
        """query/window/name."""
        return self.properties.connector

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The properties that are taken, and mean nothing."""
        given = self.properties
        return tuple(sorted(set(given.values) - USED_IF_BOUND)) if self.is_bound else given.ignored

    def topic(self) -> str:
        """Its topic: as the properties say, or as the cluster names it."""
        kind = self.properties.kind
        given = self.properties.text(f"{kind}topic")
        if given:
            return given
        path = WindowPath(self.properties.text("urlhostport"), self.project, self.node.query, self.node.window.name)
        return topic_name(kind, path, IN if self.properties.publishes else OUT)


def plan_connectors(graph: Graph, bound: Iterable[str] = (), environ: Mapping[str, str] | None = None) -> list[Planned]:
    """All active connectors; ConnectorRefused for one that can't be run. `bound` are those that need not be.

    Names between @ signs in their properties take the values of `environ`.
    """
    at_home, found = frozenset(bound), []
    for node in graph.nodes:
        for connector in node.window.connectors:
            path = f"{node.path}/{connector.name}"
            if connector.active:
                made = properties_of(path, node.window, connector, environ or {})
                found.append(Planned(node, graph.project.name, made, path in at_home))
    for planned in found:
        if planned.properties.publishes and not planned.node.is_source:
            raise planned.properties.refused(
                reason="it publishes to a window that is no source", remedy="Move it to a source window."
            )
    return found


def properties_of(path: str, window: Window, connector: Connector, environ: Mapping[str, str]) -> Properties:
    """The properties of a connector, checked, with the values of an environment."""
    direction = PUBLISH if is_publisher(window, connector) else SUBSCRIBE
    given = {
        name: text if name.strip().lower() in _OWN_NAMES else expanded(text, environ)
        for name, text in connector.properties
    }
    made = as_kafka(read_properties(path, connector.kind, direction, given), environ)
    for name, text in connector.properties:
        known = name.strip().lower()
        if known in made.ignored or known in _OWN_NAMES or "password" in known:  # a password may have two @ signs
            continue
        for variable in unreplaced(text):
            if variable not in environ:
                reason = f"its {known} has @{variable}@, which has no value"
                raise made.refused(reason=reason, remedy=remedy_for(variable))
    return made


def subscribed_windows(graph: Graph) -> frozenset[str]:
    """The windows from which connectors take events: they must be published."""
    return frozenset(
        node.path
        for node in graph.nodes
        for connector in node.window.connectors
        if connector.active and not is_publisher(node.window, connector)
    )


def may_start(project: Project, states: Mapping[str, str]) -> frozenset[str]:
    """The connectors that may run now: those of no group, and of groups whose groups before them are there."""
    entries = {group.name: group.entries for group in project.connector_groups}
    grouped = {entry.connector for group in entries.values() for entry in group}
    waiting = {edge.target for edge in project.connector_edges if not _is_there(entries.get(edge.source, ()), states)}
    free = {entry.connector for name, group in entries.items() if name not in waiting for entry in group}
    return frozenset(path for path in states if path not in grouped or path in free)


def _is_there(entries: Iterable[ConnectorEntry], states: Mapping[str, str]) -> bool:
    """Return whether all connectors of a group that run here have reached the required state."""
    return all(
        _REACHED[states[entry.connector]] >= _REACHED.get(entry.state.lower(), _REACHED[FINISHED])
        for entry in entries
        if entry.connector in states
    )
