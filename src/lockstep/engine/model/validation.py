"""Is a model sound? All of its faults at once, or the graph that is evaluated."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum

from lockstep.engine.errors import ModelInvalid
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.checks import (
    check_connectors,
    check_edges,
    check_names,
    check_project,
    has_index,
    idle_windows,
    is_idle,
    sources_of_inserts,
)
from lockstep.engine.model.checks_functions import (
    check_custom,
    check_functional,
    check_notification,
    check_procedural,
)
from lockstep.engine.model.checks_joins import check_join, check_pattern
from lockstep.engine.model.checks_windows import (
    check_aggregate,
    check_common,
    check_compute,
    check_copy,
    check_counter,
    check_filter,
    check_remove_state,
    check_source,
    check_transpose,
    check_union,
    lost_keys,
)
from lockstep.engine.model.faults import Fault, Findings
from lockstep.engine.model.graph import Graph, Node, Parent, Placed, Survey, survey
from lockstep.engine.model.project import Project
from lockstep.engine.model.windows import IdleWindow, SourceWindow, UnreadWindow, Window

__all__ = ["Fault", "cautions", "compile_project", "faults", "fingerprint"]

_ALONE: Mapping[str, Callable[[Placed, Findings], None]] = {
    "aggregate": check_aggregate,
    "filter": check_filter,
    "compute": check_compute,
    "join": check_join,
    "functional": check_functional,
    "notification": check_notification,
    "procedural": check_procedural,
    "counter": check_counter,
    "transpose": check_transpose,
    "remove-state": check_remove_state,
}
_AMONG_OTHERS: Mapping[str, Callable[[Placed, Survey, Findings], None]] = {
    "custom": check_custom,
    "source": check_source,
    "copy": check_copy,
    "union": check_union,
    "pattern": check_pattern,
}
_NO_INFLUENCE = frozenset({"description", "metadata", "port", "connectors", "connector_groups", "connector_edges"})
"""What can change without changing an answer."""
_LATER = frozenset({"form", "stream", "decode", "avro_schema", "date_format", "upsert"})
"""Fields of sources that came later: where they have their defaults, the fingerprint is what it was before."""


def faults(project: Project) -> list[Fault]:
    """All faults of a model, in reading order of the model's parts; none if it can run.

    What follows only from another fault (the fields downstream of a window whose fields are unknown) is not reported.
    """
    return _examine(survey(project))


def cautions(project: Project) -> list[Fault]:
    """What a model that runs hardly means: windows to which no edge leads, and rows that lose a part of their key."""
    seen = survey(project)
    return [*idle_windows(seen), *(found for placed in seen.windows for found in lost_keys(placed))]


def _examine(seen: Survey) -> list[Fault]:
    findings = Findings()
    check_names(seen.project, findings)
    check_project(seen.project, findings)
    check_edges(seen, findings)
    for placed in seen.windows:
        check_common(placed, findings)
        kind = placed.window.kind
        if isinstance(placed.window, UnreadWindow):
            continue
        if kind in _ALONE:
            _ALONE[kind](placed, findings)
        else:
            _AMONG_OTHERS[kind](placed, seen, findings)
    check_connectors(seen, findings)
    return findings.found


def compile_project(project: Project) -> Graph:
    """The graph of a sound model; raises ModelInvalid with all faults of any other."""
    seen = survey(project)
    found = _examine(seen)
    if found:
        listed = "\n".join(f"  {fault}" for fault in found)
        raise ModelInvalid(name=project.name, count=len(found), faults=listed)
    places = {placed.index: place for place, placed in enumerate(seen.windows)}
    inserts = sources_of_inserts(seen)
    nodes = tuple(
        _node(place, placed, places, seen, takes_inserts=placed.index in inserts)
        for place, placed in enumerate(seen.windows)
    )
    return Graph(project, nodes, fingerprint(project))


def _node(place: int, placed: Placed, places: Mapping[int, int], seen: Survey, *, takes_inserts: bool) -> Node:
    window = placed.window
    if takes_inserts and isinstance(window, SourceWindow):
        window = replace(window, insert_only=True)
    if is_idle(window, len(placed.edges)):
        window = _idle(window)
    pairs = zip(placed.parents, placed.edges, strict=True)
    return Node(
        index=place,
        query=placed.query.name,
        window=window,
        schema=_known(placed.schema),
        parents=tuple(Parent(places[parent], edge.slot, edge.role, edge.source) for parent, edge in pairs),
        inputs=tuple(_known(schema) for schema in placed.inputs),
        is_indexed=has_index(placed, seen),
    )


def _idle(window: Window) -> IdleWindow:
    """The window with what others see of it, and nothing of what it would do."""
    return IdleWindow(
        name=window.name,
        pubsub=window.pubsub,
        index=window.index,
        splitter=window.splitter,
        connectors=window.connectors,
        description=window.description,
    )


def _known(schema: Schema | None) -> Schema:
    assert schema is not None, "a window whose schema is unknown, though no fault was found"
    return schema


def fingerprint(project: Project) -> str:
    """A digest of everything in a model that can change an answer."""
    return hashlib.blake2b(_canonical(project).encode(), digest_size=16).hexdigest()


def _canonical(part: object) -> str:
    """A text that is equal for equal parts, and for no others."""
    if isinstance(part, Enum):
        return f"<{part.value}>"
    if is_dataclass(part):
        inner = (
            f"{item.name}={_canonical(getattr(part, item.name))}"
            for item in fields(part)
            if item.name not in _NO_INFLUENCE and not (item.name in _LATER and getattr(part, item.name) == item.default)
        )
        return f"{type(part).__name__}({', '.join(inner)})"
    if isinstance(part, tuple):
        return f"({', '.join(_canonical(item) for item in part)},)"
    return repr(part)
