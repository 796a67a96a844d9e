"""Where a connector goes on: what the target tells, what was noted, and in which order groups start."""

from __future__ import annotations

import pytest

from lockstep.connectors.plan import may_start
from lockstep.connectors.port import Note
from lockstep.connectors.subscriber import Resume, resume
from lockstep.engine.model.project import ConnectorEntry, ConnectorGroup, GroupEdge, Project

NEW = Note(5, {"is_new": True})
OLD = Note(9, {"sent": 8})


@pytest.mark.parametrize(
    ("told", "note", "snapshot", "expected"),
    [
        (None, NEW, False, Resume(5)),
        (None, NEW, True, Resume(5, with_rows=True)),
        (5, NEW, True, Resume(5)),
        (7, NEW, True, Resume(7)),
        (3, NEW, False, Resume(5)),
        (None, OLD, False, Resume(9)),
        (8, OLD, False, Resume(8)),
        (12, OLD, False, Resume(12)),
        (6, OLD, False, Resume(6, from_start=True)),
        (6, OLD, True, Resume(6, from_start=True)),
    ],
)
def test_the_target_counts_and_else_the_note(told, note, snapshot, expected):
    assert resume(told, note, snapshot=snapshot) == expected


def project(*edges: tuple[str, str], **groups: dict[str, str]) -> Project:
    made = tuple(
        ConnectorGroup(
            name=name,
            entries=tuple(ConnectorEntry(connector=path, state=state) for path, state in entries.items()),
        )
        for name, entries in groups.items()
    )
    links = tuple(GroupEdge(source=source, target=target) for source, target in edges)
    return Project(name="p", queries=(), connector_groups=made, connector_edges=links)


def test_without_groups_all_may_start():
    assert may_start(project(), {"a": "stopped", "b": "running"}) == {"a", "b"}


@pytest.mark.parametrize(
    ("wanted", "state", "free"),
    [
        ("started", "stopped", False),
        ("started", "started", True),
        ("running", "started", False),
        ("running", "running", True),
        ("finished", "running", False),
        ("finished", "finished", True),
        ("running", "finished", True),
    ],
)
def test_a_group_waits_until_those_before_it_are_there(wanted, state, free):
    found = may_start(
        project(("one", "two"), one={"a": wanted}, two={"b": "finished"}), {"a": state, "b": "stopped", "c": "stopped"}
    )
    assert found == ({"a", "b", "c"} if free else {"a", "c"})


def test_a_connector_that_is_not_run_is_no_hindrance():
    assert may_start(project(("one", "two"), one={"gone": "finished"}, two={"b": "finished"}), {"b": "stopped"}) == {
        "b"
    }
