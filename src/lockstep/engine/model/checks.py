"""Checks of a project: names, indexes, traces, edges and connectors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from lockstep.engine.model.faults import Fault, Findings, did_you_mean, duplicates
from lockstep.engine.model.graph import Placed, Survey, find_cycles
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.schemas import output_schema
from lockstep.engine.model.values import MAX_US
from lockstep.engine.model.windows import INDEXES, AggregateWindow, Connector, JoinWindow, SourceWindow, Window

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_NAME_RULE = "Use 1 to 64 letters, digits, dashes or underscores, beginning with a letter, digit or underscore."
_PUBSUB = ("auto", "manual", "none")
_STATES = ("started", "running", "finished")
# A stream's name may have 128 characters; the cluster's name, the direction and the dots take some of them.
_PATH_LIMIT = 100


def check_names(project: Project, findings: Findings) -> None:
    """Names that can't be, or that two things have."""
    _check_name(project.name, f"project {project.name}", "project", findings)
    _check_twice((query.name for query in project.queries), f"project {project.name}", "queries", findings)
    if not project.queries:
        findings.add(f"project {project.name}", "It has no continuous query.", "Add one with its windows.")
    for query in project.queries:
        _check_name(query.name, f"query {query.name}", "query", findings)
        _check_twice((window.name for window in query.windows), f"query {query.name}", "windows", findings)
        for window in query.windows:
            _check_name(window.name, f"{query.name}/{window.name}", "window", findings)
            _check_length(project.name, query.name, window.name, findings)
        if not query.windows:
            findings.add(f"query {query.name}", "It has no windows.", "Add a source window and what is made of it.")


def _check_name(name: str, place: str, what: str, findings: Findings) -> None:
    if not _NAME.fullmatch(name):
        findings.add(place, f"The {what} name {name!r} is not allowed.", _NAME_RULE)


def _check_twice(names: Iterable[str], place: str, what: str, findings: Findings) -> None:
    for name in duplicates(names):
        findings.add(place, f"Two {what} are called {name!r}.", "Give each a name of its own.")


def _check_length(project: str, query: str, window: str, findings: Findings) -> None:
    length = len(f"{project}.{query}.{window}")
    if length > _PATH_LIMIT:
        problem = f"The names of project, query and window have {length} characters together."
        findings.add(f"{query}/{window}", problem, f"Shorten them to {_PATH_LIMIT}: they name its streams.")


def check_project(project: Project, findings: Findings) -> None:
    """Settings of the project and its queries."""
    place = f"project {project.name}"
    if project.pubsub not in _PUBSUB:
        problem = f"pubsub is {project.pubsub!r}."
        findings.add(place, problem, f"Choose {', '.join(_PUBSUB[:-1])} or {_PUBSUB[-1]}.")
    check_index(project.index, place, "index", findings)
    check_positive(project.heartbeat_us, place, "heartbeat-interval", findings)
    check_positive(project.threads, place, "threads", findings)
    for query in project.queries:
        _check_query(query, findings)
    _check_groups(project, findings)


def _check_query(query: ContinuousQuery, findings: Findings) -> None:
    place = f"query {query.name}"
    check_index(query.index, place, "index", findings)


def check_index(index: str | None, place: str, what: str, findings: Findings) -> None:
    """An index must be of a known kind."""
    if index is not None and index not in INDEXES:
        findings.add(place, f"{what} is {index!r}, which is no kind of index.", did_you_mean(index, INDEXES, "index"))


def check_positive(value: int | None, place: str, what: str, findings: Findings) -> None:
    """A duration or a count must be more than nothing."""
    if value is not None and value <= 0:
        findings.add(place, f"{what} is {value}.", "Give a value above 0.")
    elif value is not None and value > MAX_US:
        findings.add(
            place, f"{what} is {value}, which is too much.", f"Give at most {MAX_US} (of microseconds or rows)."
        )


def _check_groups(project: Project, findings: Findings) -> None:
    place = f"project {project.name} connectors"
    groups = [group.name for group in project.connector_groups]
    _check_twice(groups, place, "connector groups", findings)
    known = connector_paths(project)
    for group in project.connector_groups:
        for entry in group.entries:
            if entry.connector not in known:
                problem = f"Connector {entry.connector!r} of group {group.name!r} does not exist."
                findings.add(place, problem, did_you_mean(entry.connector, known, "connector"))
            if entry.state not in _STATES:
                problem = f"Group {group.name!r} waits for state {entry.state!r}."
                findings.add(place, problem, f"Choose {', '.join(_STATES[:-1])} or {_STATES[-1]}.")
    for edge in project.connector_edges:
        for name in (edge.source, edge.target):
            if name not in groups:
                problem = f"An edge names the group {name!r}, which does not exist."
                findings.add(place, problem, did_you_mean(name, groups, "connector group"))
    _check_group_cycles(project, groups, place, findings)


def _check_group_cycles(project: Project, groups: list[str], place: str, findings: Findings) -> None:
    edges = [edge for edge in project.connector_edges if edge.source in groups and edge.target in groups]
    parents = [[groups.index(edge.source) for edge in edges if edge.target == name] for name in groups]
    for cycle in find_cycles(parents):
        path = " -> ".join(groups[index] for index in cycle)
        findings.add(place, f"The groups wait for each other: {path}.", "Remove one of these edges.")


def connector_paths(project: Project) -> list[str]:
    """Every connector as query/window/name."""
    return [
        f"{query.name}/{window.name}/{connector.name}"
        for query in project.queries
        for window in query.windows
        for connector in window.connectors
    ]


_SEVERAL = (
    "union", "pattern", "counter", "procedural", "custom", "join", "functional", "notification", "unread",
)  # fmt: skip
"""Kinds that can have more than one input."""
_FEED = "Add an edge from the window that feeds it."


def check_edges(seen: Survey, findings: Findings) -> None:
    """Edges that lead nowhere, windows with too many inputs or none, cycles."""
    for query in seen.project.queries:
        by_name = {window.name: window for window in query.windows}
        for edge in query.edges:
            _check_ends(query, edge, by_name, findings)
            _check_slot(query, edge, by_name, findings)
        _check_repeats(query, findings)
        for window in query.windows:
            _check_inputs(query, window, findings)
    for cycle in seen.cycles:
        place = f"query {cycle[0].split('/', maxsplit=1)[0]}"
        problem = f"Windows feed each other in a circle: {' -> '.join(path.split('/', 1)[1] for path in cycle)}."
        findings.add(place, problem, "Remove one of these edges: a window can't wait for its own answer.")


def _check_ends(query: ContinuousQuery, edge: Edge, by_name: dict[str, Window], findings: Findings) -> None:
    for name in (edge.source, edge.target):
        if name not in by_name:
            problem = f"The edge {edge.source} -> {edge.target} names window {name!r}, which does not exist."
            findings.add(f"query {query.name}", problem, did_you_mean(name, by_name, "window"))


def _check_slot(query: ContinuousQuery, edge: Edge, by_name: dict[str, Window], findings: Findings) -> None:
    place = f"query {query.name}"
    if edge.slot < -1:
        problem = f"The edge {edge.source} -> {edge.target} takes slot {edge.slot}."
        findings.add(place, problem, "Slots count from 0; -1 takes everything.")
    source = by_name.get(edge.source)
    if edge.slot >= 0 and source is not None and source.splitter is None:
        problem = f"The edge {edge.source} -> {edge.target} takes slot {edge.slot}, but {edge.source} has no splitter."
        findings.add(place, problem, f"Give {edge.source} a splitter expression, or take the slot away.")


def _check_repeats(query: ContinuousQuery, findings: Findings) -> None:
    seen: set[tuple[str, str, int]] = set()
    for edge in query.edges:
        key = (edge.source, edge.target, edge.slot)
        if key in seen and not _joins(query, edge.target):
            problem = f"The edge {edge.source} -> {edge.target} is there twice."
            findings.add(f"query {query.name}", problem, "Remove one of them.")
        seen.add(key)


def _joins(query: ContinuousQuery, name: str) -> bool:
    """A join may have the same window on both sides."""
    return any(isinstance(window, JoinWindow) and window.name == name for window in query.windows)


def _check_inputs(query: ContinuousQuery, window: Window, findings: Findings) -> None:
    place = f"{query.name}/{window.name}"
    count = sum(edge.target == window.name for edge in query.edges)
    if isinstance(window, SourceWindow):
        if count:
            remedy = "Remove the edge, or make it a copy window."
            findings.add(place, "It is a source window, but an edge leads to it.", remedy)
    elif is_idle(window, count) or window.kind == "unread":
        return
    elif count == 0 and not isinstance(window, JoinWindow):
        findings.add(place, _nothing_leads_to(window), _FEED)
    elif isinstance(window, JoinWindow) and count != 2:
        remedy = (
            "Give it exactly two: the first is the left side, the second the right, unless their roles say otherwise."
        )
        findings.add(place, f"It is a join, but {count} edge(s) lead to it.", remedy)
    elif isinstance(window, JoinWindow):
        sides = [edge.side for edge in query.edges if edge.target == window.name]
        if sides[0] is not None and sides[0] == sides[1]:
            remedy = "Give one of them the role left, the other the role right."
            findings.add(place, f"It is a join, and both edges that lead to it are its {sides[0]} side.", remedy)
    elif count > 1 and window.kind not in _SEVERAL:
        remedy = "Put a union window in front of it."
        findings.add(place, f"It is a {window.kind} window, but {count} edges lead to it.", remedy)


def is_idle(window: Window, inputs: int) -> bool:
    """Whether it can do without an input: no edge leads to it, and its rows are known all the same.

    A copy, filter or union has no fields then, and a join would be another one: those are faults.
    """
    known = not isinstance(window, SourceWindow | JoinWindow) and output_schema(window, ()) is not None
    return inputs == 0 and known


def idle_windows(seen: Survey) -> list[Fault]:
    """Windows that run and give nothing, because no edge leads to them: no faults, but hardly ever meant so."""
    return [
        Fault(placed.path, _nothing_leads_to(placed.window), f"It runs, but gives nothing. {_FEED}")
        for placed in seen.windows
        if is_idle(placed.window, len(placed.edges))
    ]


def _nothing_leads_to(window: Window) -> str:
    article = "an" if window.kind == "aggregate" else "a"
    return f"It is {article} {window.kind} window, but no edge leads to it."


def sources_of_inserts(seen: Survey) -> dict[int, str]:
    """Sources that can take inserts only, by their place, with the path of a window that is the reason.

    Aggregates and joins need the row that an update replaces; a source without an index does not know it.
    """
    found: dict[int, str] = {}
    by_index = {other.index: other for other in seen.windows}
    for placed in seen.windows:
        for parent in placed.parents if isinstance(placed.window, AggregateWindow | JoinWindow) else ():
            for origin in _unresolved_origins(by_index[parent], by_index, seen):
                found.setdefault(origin, placed.path)
    return found


def _unresolved_origins(placed: Placed, by_index: dict[int, Placed], seen: Survey) -> set[int]:
    """The source windows whose unresolved opcodes come out of this window."""
    window = placed.window
    if window.output_insert_only:
        return set()
    if isinstance(window, SourceWindow):
        return set() if window.insert_only or has_index(placed, seen) else {placed.index}
    passes = window.kind in ("filter", "compute") or (window.kind in ("copy", "union") and not has_index(placed, seen))
    if not passes:
        return set()
    return {found for parent in placed.parents for found in _unresolved_origins(by_index[parent], by_index, seen)}


def has_index(placed: Placed, seen: Survey) -> bool:
    """Whether a window keeps its rows by key: its own index, else its query's, else the project's."""
    return (placed.window.index or placed.query.index or seen.project.index) != "pi_EMPTY"


_FORMATS = {"kafka": "kafkatype", "rmq": "rmqtype", "rabbitmq": "rmqtype", "sol": "soltype", "tva": "tvatype"}
_YES = ("true", "1", "yes")
ANY_PARTITION = "-1"
"""Of Kafka: the client chooses one for each message."""


def check_connectors(seen: Survey, findings: Findings) -> None:
    """Each connector, and streams of different partitions that meet."""
    for placed in seen.windows:
        for name in duplicates(connector.name for connector in placed.window.connectors):
            problem = f"Two of its connectors are called {name!r}."
            findings.add(placed.path, problem, "Give each a name of its own.")
        for connector in placed.window.connectors:
            place = f"{placed.path} connector {connector.name}"
            _check_partition(connector, place, is_publisher(placed.window, connector), findings)
            _check_failover(connector, place, findings)
    _check_meetings(seen, findings)


def _check_partition(connector: Connector, place: str, publishes: bool, findings: Findings) -> None:
    properties = dict(connector.properties)
    text = properties.get("kafkapartition", "0").strip()
    if connector.kind != "kafka" or (text.isdecimal() and text.isascii()) or not connector.active:
        return
    problem = f"It has kafkapartition {text}."
    if text == ANY_PARTITION and publishes:
        problem = "It takes every partition (kafkapartition -1), whose order differs from engine to engine."
    elif text == ANY_PARTITION:
        if not is_failover(properties):
            return
        problem = "It has hotfailover, and writes to any partition (kafkapartition -1)."
    findings.add(place, problem, "Name one fixed partition, 0 for example.")


def _check_failover(connector: Connector, place: str, findings: Findings) -> None:
    properties = dict(connector.properties)
    if not is_failover(properties):
        return
    name = _FORMATS.get(connector.kind)
    form = properties.get(name, "csv") if name is not None else "binary"
    if form.strip().lower() != "binary":
        problem = f"It has hotfailover with the format {form!r}, which carries no block numbers."
        findings.add(place, problem, f"Set {name} to binary.")
    if "kafkaconsumergroupid" in properties:
        problem = "It has hotfailover with a kafkaconsumergroupid, which would share the blocks out among the engines."
        findings.add(place, problem, "Take kafkaconsumergroupid away.")


def is_failover(properties: Mapping[str, str]) -> bool:
    """Whether a connector is one of several that stand in for each other."""
    return properties.get("hotfailover", "false").strip().lower() in _YES


def is_publisher(window: Window, connector: Connector) -> bool:
    """Whether a connector brings events in; without a word about it, a source window's does."""
    said = (connector.direction or dict(connector.properties).get("type", "")).lower()
    return said.startswith("pub") if said else isinstance(window, SourceWindow)


def _check_meetings(seen: Survey, findings: Findings) -> None:
    """Blocks of different partitions come in any order, so what is made of both would differ from run to run."""
    reached: dict[int, dict[str, str]] = {}
    for placed in seen.windows:
        own = _partitions(placed)
        above = [reached[parent] for parent in placed.parents]
        reached[placed.index] = {**own, **{key: text for parent in above for key, text in parent.items()}}
        all_here = reached[placed.index]
        if len(all_here) > 1 and not any(len(parent) == len(all_here) for parent in above):
            streams = " and ".join(f"partition {key} ({text})" for key, text in sorted(all_here.items()))
            problem = f"Streams of different partitions meet here: {streams}."
            remedy = "Let both connectors read the same partition, or keep the streams apart."
            findings.add(placed.path, problem, remedy)


def _partitions(placed: Placed) -> dict[str, str]:
    return {
        dict(connector.properties).get("kafkapartition", "0").strip(): f"{placed.path}/{connector.name}"
        for connector in placed.window.connectors
        if connector.kind == "kafka" and connector.active and is_publisher(placed.window, connector)
    }
