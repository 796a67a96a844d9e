"""The model of a project as its sequence log states it, and what that means for an engine that starts or goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lockstep.engine.errors import ModelMismatch
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.guard import clock_dependence
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.run.catalog import compiled, stated
from lockstep.engine.run.decisions import Statement
from lockstep.engine.run.sequencing import Inputs
from lockstep.engine.run.streams import ProjectStreams, sources
from lockstep.log.port import Bus, Log


def statement_of(graph: Graph, wanted: frozenset[str]) -> Statement:
    """What an engine says of itself when it leads first."""
    return Statement(to_yaml(graph.project), tuple(sorted(wanted)))


def check_stated(bus: Bus, streams: ProjectStreams, graph: Graph, wanted: frozenset[str]) -> None:
    """Refuse a model or a choice of windows that is not the one in force."""
    found = stated(bus, streams)
    if found is not None:
        compare(found, graph, wanted, streams.sequence)


def compare(found: Statement, graph: Graph, wanted: frozenset[str], place: str) -> None:
    """Refuse to go on if another model was stated than this engine has."""
    fingerprint = compiled(found).fingerprint
    if fingerprint != graph.fingerprint:
        raise ModelMismatch(place=place, found=f"model {fingerprint}", wanted=f"model {graph.fingerprint}")
    if set(found.publish) != wanted:
        published = ", ".join(found.publish)
        raise ModelMismatch(place=place, found=f"published {published}", wanted=f"{', '.join(sorted(wanted))}")


def input_logs(bus: Bus, streams: ProjectStreams, graph: Graph) -> Sequence[Log]:
    """The inputs, in the order in which entries name them."""
    return [bus.open(streams.input(node)) for node in sources(graph)]


def inputs_of(bus: Bus, streams: ProjectStreams, graph: Graph, *, ticks: bool = False) -> Inputs:
    """The inputs by the paths of their sources, and how often the clock ticks, if any window follows it."""
    heartbeat = graph.project.heartbeat_us if ticks and clock_dependence(graph) else None
    return Inputs({node.path: bus.open(streams.input(node)) for node in sources(graph)}, heartbeat)


def restating(bus: Bus, streams: ProjectStreams, *, ticks: bool) -> Callable[[Statement], Inputs]:
    """What a sequencer calls when a model is stated: its streams are made if they are missing."""

    def restate(statement: Statement) -> Inputs:
        graph = compiled(statement)
        streams.create(bus, graph, frozenset(statement.publish))
        return inputs_of(bus, streams, graph, ticks=ticks)

    return restate
