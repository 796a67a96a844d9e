"""Which projects a bus holds, and the model that is in force in each: the sequence log states it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from difflib import get_close_matches

from lockstep.core.sequence import Entry, SequenceState
from lockstep.engine.errors import ProjectNotStated
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.loading import parse_yaml
from lockstep.engine.model.validation import compile_project
from lockstep.engine.run.beats import last_beat
from lockstep.engine.run.decisions import Decision, Statement, counted, records
from lockstep.engine.run.position import Position, Tally
from lockstep.engine.run.streams import ProjectStreams
from lockstep.errors import NotFound, Trimmed
from lockstep.log.port import Bus, Log


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
    """Refuse a name that nobody has used, with one that may be meant."""
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
    found = stated(bus, ProjectStreams(cluster=cluster, project=project))
    if found is None:
        raise ProjectNotStated(project=project, cluster=cluster)
    return found


def compiled(statement: Statement) -> Graph:
    """Its model, ready to be used."""
    return compile_project(parse_yaml(statement.model, "the model in force"))


def stated(bus: Bus, streams: ProjectStreams) -> Statement | None:
    """The newest statement: the one that the newest beat knows, or one behind it."""
    sequence = bus.open(streams.sequence)
    beat = last_beat(bus.open(streams.control)).position
    position = Position.of(beat) if beat else None
    found = None if position is None else statement_at(sequence, position.stated_at)
    state = position.sequence if position is not None else SequenceState()
    try:
        for _, entry in counted(sequence, state):
            found = Decision.of(entry).states or found
    except Trimmed:  # behind the newest beat: what it says will do
        return found
    return found


def last_reset(
    sequence: Log, since: Position | None = None, states: Statement | None = None, *, upto_block: float = math.inf
) -> tuple[Position, Statement] | None:
    """Where windows were emptied last, at a block of at most `upto_block`, and the model in force there.

    As the whole sequence log tells it, or the part after `since`, where `states` was in force.
    """
    found, position = None, since or Position()
    if sequence.bounds().first > position.sequence.upto + 1:
        return None
    for state, entry in counted(sequence, position.sequence):
        decision, known = Decision.of(entry), position
        clients = dict(decision.clients or {})
        position = known.after(state, decision, Tally(decision.blocks, decision.events, clients))
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
