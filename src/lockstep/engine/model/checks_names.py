"""Checks of what a project and its queries say about themselves: names, indexes, traces, connector groups."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lockstep.engine.model.checks_survey import find_cycles
from lockstep.engine.model.durations import MAX_US
from lockstep.engine.model.faults import Findings, did_you_mean, duplicates
from lockstep.engine.model.project import ContinuousQuery, Project
from lockstep.engine.model.windows import INDEXES

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
