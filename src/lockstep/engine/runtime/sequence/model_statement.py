"""Which projects a bus holds, and the model that is in force in each: the sequence log states it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from lockstep.core.sequence import Entry, SequenceState
from lockstep.engine.errors import ModelMismatch, ProjectNotStated
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.guard import clock_dependence
from lockstep.engine.model.loading import parse_yaml, to_yaml
from lockstep.engine.model.validation import compile_project
from lockstep.engine.runtime.sequence.beats import last_beat
from lockstep.engine.runtime.sequence.entries import (
    BlockCounter,
    Decision,
    SequencePosition,
    Statement,
    counted,
    records,
)
from lockstep.engine.runtime.sequence.streams import ProjectInputs, ProjectStreams, open_inputs
from lockstep.errors import NotFound, Trimmed
from lockstep.log.port import Bus, Log
from lockstep.runtime import logger


def projects(bus: Bus, cluster: str) -> list[str]:
    """The projects of a cluster: those with a sequence log and a control log."""
    return projects_among(bus.names(), cluster)


def projects_among(logs: Sequence[str], cluster: str) -> list[str]:
    """The projects of a cluster, by the names of all logs."""
    names, prefix = set(logs), f"{cluster}."
    found = [name.removeprefix(prefix).removesuffix(".S") for name in names
             if name.startswith(prefix) and name.endswith(".S")]  # fmt: skip
    return sorted(name for name in found if f"{prefix}{name}.C" in names)


def check_project(bus: Bus, cluster: str, project: str) -> None:
    """Refuse a name that was never used, and suggest one that may be meant."""
    known = projects(bus, cluster)
    if project in known:
        return
    error = NotFound(what=f"In cluster {cluster!r} project", name=project)
    meant = get_close_matches(project, known, n=1)
    if meant:
        error.add_note(f"Did you mean {meant[0]!r}?")
    elif known:
        error.add_note(f"There are: {', '.join(known)}.")
    raise error


def project_graph(bus: Bus, cluster: str, project: str) -> Graph:
    """The model that is in force."""
    return compiled(project_statement(bus, cluster, project))


def project_statement(bus: Bus, cluster: str, project: str) -> Statement:
    """What is stated of a project: its model, and what it publishes."""
    check_project(bus, cluster, project)
    return known_statement(bus, cluster, project)


def known_statement(bus: Bus, cluster: str, project: str) -> Statement:
    """As project_statement, for a project that is known to be there."""
    found = newest_statement(bus, ProjectStreams(cluster=cluster, project=project))
    if found is None:
        raise ProjectNotStated(project=project, cluster=cluster)
    return found


def compiled(statement: Statement) -> Graph:
    """Its model, ready to be used."""
    return compile_project(parse_yaml(statement.model, "the model in force"))


def newest_statement(bus: Bus, streams: ProjectStreams) -> Statement | None:
    """The newest statement: the one that the newest beat knows, or one after it."""
    sequence = bus.open(streams.sequence)
    beat = last_beat(bus.open(streams.control)).position
    position = SequencePosition.of(beat) if beat else None
    found = None if position is None else statement_at(sequence, position.stated_at)
    state = position.sequence if position is not None else SequenceState()
    try:
        for _, entry in counted(sequence, state):
            found = Decision.of(entry).states or found
    except Trimmed:  # after the newest beat: what it says will do
        return found
    return found


def last_reset(
    sequence: Log,
    since: SequencePosition | None = None,
    states: Statement | None = None,
    *,
    upto_block: float = math.inf,
) -> tuple[SequencePosition, Statement] | None:
    """Where windows were emptied last, at a block of at most `upto_block`, and the model in force there.

    As the whole sequence log tells it, or the part after `since`, where `states` was in force.
    """
    found, position = None, since or SequencePosition()
    if sequence.bounds().first > position.sequence.upto + 1:
        return None
    for state, entry in counted(sequence, position.sequence):
        decision, known = Decision.of(entry), position
        clients = dict(decision.clients or {})
        position = known.after(state, decision, BlockCounter(decision.blocks, decision.events, clients))
        if not known.knows(decision):
            states = decision.states or states
            is_found = decision.reset and states is not None and position.block <= upto_block
            found = (position, states) if is_found and states is not None else found
    return found


def first_statement(sequence: Log) -> Decision | None:
    """The first entry, if it states a model; None if it says nothing of one, or is not there any more."""
    if sequence.bounds().first > 0:
        return None
    for _, entry in counted(sequence, SequenceState()):
        decision = Decision.of(entry)
        return decision if decision.states is not None else None
    return None


def statement_at(sequence: Log, offset: int) -> Statement | None:
    """The statement in the entry at an offset."""
    if offset < 0:
        return None
    for at, record in records(sequence, offset):
        return Decision.of(record).states if at == offset and isinstance(record, Entry) else None
    return None


def published_nodes(statement: Statement, graph: Graph) -> list[Node]:
    """The windows whose blocks come out."""
    return [node for node in graph.nodes if node.path in statement.publish]


def published_windows(bus: Bus, streams: ProjectStreams, graph: Graph) -> list[Node]:
    """The windows of a project that have an out stream."""
    names = set(bus.names())
    return [node for node in graph.nodes if streams.output(node) in names]


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
    found = newest_statement(bus, streams)
    if found is None:
        return ModelToRun(graph, wanted, is_stated=False)
    in_force = compiled(found)
    if (in_force.fingerprint, frozenset(found.publish)) != (graph.fingerprint, wanted):
        if not _was_stated(bus.open(streams.sequence), graph, wanted):
            check_same_model(found, graph, wanted, streams.sequence)
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


def graph_at(bus: Bus, streams: ProjectStreams, position: SequencePosition) -> Graph | None:
    """The model in force at a position; None: none was stated there."""
    states = statement_at(bus.open(streams.sequence), position.stated_at)
    return None if states is None else compiled(states)


def statements_since(bus: Bus, streams: ProjectStreams, position: SequencePosition) -> list[Statement]:
    """The statement of the model in force at a position, and those that follow it; none: no model was stated there."""
    sequence = bus.open(streams.sequence)
    first = statement_at(sequence, position.stated_at)
    later = (Decision.of(entry).states for _, entry in counted(sequence, position.sequence))
    return [states for states in (first, *later) if states is not None]


def check_same_model(found: Statement, graph: Graph, wanted: frozenset[str], place: str) -> None:
    """Refuse to go on if another model was stated than this engine has."""
    fingerprint = compiled(found).fingerprint
    if fingerprint != graph.fingerprint:
        raise ModelMismatch(place=place, found=f"model {fingerprint}", wanted=f"model {graph.fingerprint}")
    if set(found.publish) != wanted:
        published = ", ".join(found.publish)
        raise ModelMismatch(place=place, found=f"published {published}", wanted=f"{', '.join(sorted(wanted))}")


def input_logs(bus: Bus, streams: ProjectStreams, graph: Graph, *, is_own: bool = False) -> dict[str, Log]:
    """The inputs by name, in the order in which the blocks of an entry are numbered.

    With `is_own`, streams of other programs are left out: an engine never trims those.
    """
    inputs = open_inputs(bus, streams, graph)
    return {each.name: each.log for each in inputs if not (is_own and each.takes_records)}


def inputs_of(bus: Bus, streams: ProjectStreams, graph: Graph, *, ticks: bool = False) -> ProjectInputs:
    """The inputs, and how often the clock ticks, if any window follows it."""
    heartbeat = graph.project.heartbeat_us if ticks and clock_dependence(graph) else None
    return ProjectInputs(open_inputs(bus, streams, graph), heartbeat)


def inputs_opener(bus: Bus, streams: ProjectStreams, *, ticks: bool) -> Callable[[Statement], ProjectInputs]:
    """What a sequencer calls when a model is stated: its streams are made if they are missing."""

    def restate(statement: Statement) -> ProjectInputs:
        graph = compiled(statement)
        streams.create(bus, graph, frozenset(statement.publish))
        return inputs_of(bus, streams, graph, ticks=ticks)

    return restate
