"""What empties, trims or replaces asks first, and can be tried without doing it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from lockstep import connect
from lockstep.engine.model.loading import parse_yaml, to_yaml
from lockstep.engine.model.validation import compile_project
from lockstep.engine.runtime.sequence.entries import Statement
from lockstep.engine.runtime.sequence.streams import ProjectStreams

MODEL = """
name: small
queries:
  - name: q
    windows:
      - {kind: source, name: S, schema: "id*:int32, x:double"}
      - {kind: filter, name: F, expression: x > 1}
    edges: [S -> F]
"""
OTHER = MODEL.replace("x > 1", "x > 2")
VERBS = {"reset": (), "trim": (), "replace": ("other.yaml",)}
REPLIES = {"reset": {"block": 7}, "trim": {"trimmed": True}, "replace": {"changed": True, "block": 7}}


@pytest.fixture
def asked(cli, monkeypatch) -> list[str]:
    """A project on the bus, and engines that answer: what they were asked for."""
    found: list[str] = []

    class Answers:
        def __init__(self, *_: object) -> None:
            """Nobody is there."""

        def ask(self, kind, _params, **_: object):
            found.append(kind)
            return SimpleNamespace(result=REPLIES[kind])

    graph = compile_project(parse_yaml(MODEL, "m"))
    Path("other.yaml").write_text(OTHER)
    with connect("lmdb:.lockstep") as client:
        ProjectStreams(cluster="local", project="small").create(client.bus, graph, frozenset({"q/F"}))
    monkeypatch.setattr("lockstep.engine.runtime.requests.channel.RequestClient", Answers)
    statement = Statement(to_yaml(graph.project), ("q/F",))
    monkeypatch.setattr("lockstep.engine.runtime.sequence.model_statement.project_statement", lambda *_: statement)
    return found


@pytest.mark.parametrize("verb", VERBS)
def test_without_a_terminal_and_without_yes_nothing_is_done(cli, asked, verb) -> None:
    refused = cli("engine", verb, *VERBS[verb], code=2)
    assert "Nothing was changed: add --yes to do it, or --dry-run" in refused.err
    assert asked == []


@pytest.mark.parametrize("verb", VERBS)
def test_yes_does_it(cli, asked, verb) -> None:
    cli("engine", verb, *VERBS[verb], "--yes")
    assert asked == [verb]


@pytest.mark.parametrize("verb", VERBS)
def test_a_dry_run_says_what_it_would_do(cli, asked, verb) -> None:
    assert "Would " in cli("engine", verb, *VERBS[verb], "--dry-run").out
    assert cli("engine", verb, *VERBS[verb], "--dry-run", "--json").object["dry_run"] is True
    assert asked == []


def test_a_dry_run_of_replace_names_what_is_rebuilt_and_why_it_would_be_refused(cli, asked) -> None:
    tree = cli("engine", "replace", "other.yaml", "--dry-run", "--json").object
    assert (tree["kept"], tree["rebuilt"], tree["refused"]) == (["q/S"], ["q/F"], [])
    Path("other.yaml").write_text(MODEL.replace("x:double", "x:int32"))
    assert "It would be refused: " in cli("engine", "replace", "other.yaml", "--dry-run").out


def test_without_any_project_it_is_not_found(cli) -> None:
    with connect("lmdb:.lockstep"):
        pass
    for verb in ("handover", "reset", "quiesce"):
        assert "[NOT_FOUND]" in cli("engine", verb, code=3).err


def test_windows_can_be_asked_for_without_naming_the_only_project(cli, asked, monkeypatch) -> None:
    rows = [{"window": "q/S", "kind": "source", "published": False, "schema": "id*:int32"}]
    monkeypatch.setitem(REPLIES, "query", {"windows": rows})
    assert "q/S" in cli("engine", "query", "--what", "windows").out
    assert asked == ["query"]
