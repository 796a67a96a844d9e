"""The model of a project as its sequence log states it, and what that means for an engine that starts or goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lockstep.core.sequence import Entry
from lockstep.engine.errors import ModelMismatch
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.guard import clock_dependence
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.runtime.sequence.catalog import compiled, stated, statement_at
from lockstep.engine.runtime.sequence.decisions import Decision, Statement, counted, records
from lockstep.engine.runtime.sequence.inputs import open_inputs
from lockstep.engine.runtime.sequence.position import Position
from lockstep.engine.runtime.sequence.sequencing import Inputs
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.log.port import Bus, Log
from lockstep.runtime import logger


def statement_of(graph: Graph, wanted: frozenset[str]) -> Statement:
    """What an engine says of itself when it leads first."""
    return Statement(to_yaml(graph.project), tuple(sorted(wanted)))


@dataclass(frozen=True, slots=True)
class ModelToRun:
    """The model that an engine starts with, and which windows it publishes; `is_stated`: the sequence log says so."""

    graph: Graph
    wanted: frozenset[str]
    is_stated: bool


def model_to_run(bus: Bus, streams: ProjectStreams, graph: Graph, wanted: frozenset[str]) -> ModelToRun:
    """The model in force, or the given one if none is stated yet.

    An engine that was given a model that was in force before, or was about to be, starts with the one that is: all
    engines may have ended while it was replaced. Any other model is refused.
    """
    found = stated(bus, streams)
    if found is None:
        return ModelToRun(graph, wanted, is_stated=False)
    in_force = compiled(found)
    if (in_force.fingerprint, frozenset(found.publish)) != (graph.fingerprint, wanted):
        if not _was_stated(bus.open(streams.sequence), graph, wanted):
            compare(found, graph, wanted, streams.sequence)
        words = "%s runs model %s, which was replaced on its sequence log: the given model %s is not used"
        extra = {"action": "model"}
        logger.warning(words, streams.project, in_force.fingerprint, graph.fingerprint, extra=extra)
    return ModelToRun(in_force, frozenset(found.publish), is_stated=True)


def _was_stated(sequence: Log, graph: Graph, wanted: frozenset[str]) -> bool:
    """Whether this model with these windows is on the sequence log, in force once or proposed."""
    seen: set[str] = set()
    for _, record in records(sequence, sequence.bounds().first):
        decision = Decision.of(record) if isinstance(record, Entry) else None
        states = None if decision is None else decision.states or decision.prepare
        if states is None or frozenset(states.publish) != wanted or states.model in seen:
            continue
        if compiled(states).fingerprint == graph.fingerprint:
            return True
        seen.add(states.model)
    return False


def graph_at(bus: Bus, streams: ProjectStreams, position: Position) -> Graph | None:
    """The model in force at a position; None: none was stated there."""
    states = statement_at(bus.open(streams.sequence), position.stated_at)
    return None if states is None else compiled(states)


def statements_since(bus: Bus, streams: ProjectStreams, position: Position) -> list[Statement]:
    """The statement of the model in force at a position, and those that follow it; none: no model was stated there."""
    sequence = bus.open(streams.sequence)
    first = statement_at(sequence, position.stated_at)
    later = (Decision.of(entry).states for _, entry in counted(sequence, position.sequence))
    return [states for states in (first, *later) if states is not None]


def compare(found: Statement, graph: Graph, wanted: frozenset[str], place: str) -> None:
    """Refuse to go on if another model was stated than this engine has."""
    fingerprint = compiled(found).fingerprint
    if fingerprint != graph.fingerprint:
        raise ModelMismatch(place=place, found=f"model {fingerprint}", wanted=f"model {graph.fingerprint}")
    if set(found.publish) != wanted:
        published = ", ".join(found.publish)
        raise ModelMismatch(place=place, found=f"published {published}", wanted=f"{', '.join(sorted(wanted))}")


def input_logs(bus: Bus, streams: ProjectStreams, graph: Graph, *, is_own: bool = False) -> dict[str, Log]:
    """The inputs by name, in the order in which the blocks of an entry are numbered.

    With `is_own` without streams that are somebody else's, which an engine never trims.
    """
    inputs = open_inputs(bus, streams, graph)
    return {each.name: each.log for each in inputs if not (is_own and each.takes_records)}


def inputs_of(bus: Bus, streams: ProjectStreams, graph: Graph, *, ticks: bool = False) -> Inputs:
    """The inputs, and how often the clock ticks, if any window follows it."""
    heartbeat = graph.project.heartbeat_us if ticks and clock_dependence(graph) else None
    return Inputs(open_inputs(bus, streams, graph), heartbeat)


def restating(bus: Bus, streams: ProjectStreams, *, ticks: bool) -> Callable[[Statement], Inputs]:
    """What a sequencer calls when a model is stated: its streams are made if they are missing."""

    def restate(statement: Statement) -> Inputs:
        graph = compiled(statement)
        streams.create(bus, graph, frozenset(statement.publish))
        return inputs_of(bus, streams, graph, ticks=ticks)

    return restate
