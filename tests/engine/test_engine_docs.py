"""The pages about the engine are kept true: their models load, their tables are what the code says."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from pathlib import Path

import pytest

from lockstep.cli.engine_commands import ENGINE
from lockstep.core.outputs import Barrier
from lockstep.core.sequence import Entry, Mark
from lockstep.engine.columns.pages import pack, unpack
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.model.document import WINDOWS
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.loading import parse_xml, parse_yaml, to_python, to_xml, to_yaml
from lockstep.engine.model.plan import make_plan
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import Window
from lockstep.engine.reference.function_library import CALLS
from lockstep.engine.reference.function_special import SPECIALS
from lockstep.engine.reference.operator import BadEvent, Notice
from lockstep.engine.runtime.control.reports import Report
from lockstep.engine.runtime.engine import EngineOptions
from lockstep.engine.runtime.output.outlet import encode_barrier
from lockstep.engine.runtime.output.side_streams import bad_tree, broken_tree, notice_trees, numbered
from lockstep.engine.runtime.output.spool import SpoolPart
from lockstep.engine.runtime.sequence.beats import Beat
from lockstep.engine.runtime.sequence.entries import Decision, SequencePosition, encode
from lockstep.engine.runtime.sequence.reader import BrokenFrame
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.engine.runtime.snapshots.format import HEAD, HEAD_VERSION, Head, encode_head, unseal
from lockstep.streams.grouplog import PREFIX

DOCS = Path(__file__).parents[2] / "docs"
WITH_MODELS = [
    DOCS / "reference" / "windows.md",
    DOCS / "reference" / "models-yaml.md",
    DOCS / "howto" / "models.md",
    DOCS / "howto" / "custom-windows.md",
    DOCS / "learn" / "first-model.md",
]
FENCE = re.compile(r"^```(yaml|xml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(form: str, *pages: Path) -> list:
    return [
        pytest.param(match[2], id=f"{page.name}-{number}")
        for page in pages
        for number, match in enumerate(FENCE.finditer(page.read_text()), 1)
        if match[1] == form
    ]


def section(page: Path, heading: str) -> str:
    start = re.search(rf"^#+ {re.escape(heading)}$", page.read_text(), re.MULTILINE)
    assert start, f"{page.name} has no section {heading}"
    return re.split(r"^#+ ", page.read_text()[start.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def table(page: Path, heading: str) -> list[list[str]]:
    """The rows of a section's tables, without heads and rules."""
    lines = [line for line in section(page, heading).splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]
    rules = {at for at, cells in enumerate(rows) if set("".join(cells)) <= set("-: |")}
    return [cells for at, cells in enumerate(rows) if at not in rules and at + 1 not in rules]


def written(page: Path, heading: str) -> dict[str, str]:
    return {name.strip("`"): default.strip("`") for name, default, _ in table(page, heading)}


def options_of(cls: type, without: type | None = None) -> dict[str, str]:
    inherited = {field.name for field in dataclasses.fields(without)} if without else set()
    found = [field for field in dataclasses.fields(cls) if field.name not in inherited]
    return {field.name.removesuffix("_us").removesuffix("_"): default_of(field) for field in found}


def default_of(field: dataclasses.Field) -> str:
    if field.default is dataclasses.MISSING:
        return "required" if field.default_factory is dataclasses.MISSING else repr(field.default_factory())
    return "1 second" if field.name == "heartbeat_us" else repr(field.default)


@pytest.mark.parametrize("text", blocks("yaml", *WITH_MODELS))
def test_every_model_in_yaml_loads_and_survives_every_form(text):
    project = parse_yaml(text, "the page")
    graph = compile_project(project)
    assert len(make_plan(graph).steps) == len(graph.nodes)
    assert parse_yaml(to_yaml(project)) == project
    assert parse_xml(to_xml(project).encode(), "again") == project
    compile(to_python(project), "again", "exec")


@pytest.mark.parametrize("text", blocks("xml", DOCS / "reference" / "models-xml.md"))
def test_every_model_in_xml_loads(text):
    assert isinstance(compile_project(parse_xml(text.encode(), "the page")), Graph)


def test_there_are_models_to_load():
    assert len(blocks("yaml", *WITH_MODELS)) > len(WINDOWS)
    assert blocks("xml", DOCS / "reference" / "models-xml.md")


@pytest.mark.parametrize("kind", WINDOWS)
def test_options_of_windows_and_their_defaults(kind):
    assert written(WITH_MODELS[0], kind) == options_of(WINDOWS[kind], Window)


def test_options_of_every_window():
    assert written(WITH_MODELS[0], "Every window") == options_of(Window)


@pytest.mark.parametrize(("heading", "cls"), [("Project", Project), ("Query", ContinuousQuery), ("Edge", Edge)])
def test_options_of_projects_queries_and_edges(heading, cls):
    assert written(DOCS / "reference" / "models-yaml.md", heading) == options_of(cls)


def test_functions_of_functional_windows():
    words = {name.lower() for name in re.findall(r"`(\w+)`", section(WITH_MODELS[0], "functional"))}
    assert {*CALLS, *SPECIALS} <= words


def test_options_of_an_engine():
    assert written(DOCS / "reference" / "engine-options.md", "EngineOptions") == options_of(EngineOptions)


def test_every_argument_of_the_engine_commands_is_explained():
    options, adapters = (DOCS / page for page in ("reference/engine-options.md", "howto/adapters.md"))
    for verb in ENGINE.verbs:
        page = adapters if verb.name in ("publish", "subscribe") else options
        text = options.read_text() + page.read_text()
        parser = argparse.ArgumentParser(add_help=False)
        verb.arguments(parser)
        for action in parser._actions:
            for name in action.option_strings or ([action.metavar] if action.metavar else action.choices):
                if len(name) > 2 and not name.startswith("--no-") and action.help != argparse.SUPPRESS:
                    assert f"`{name}" in text, f"{verb.name} {name}"


STREAMS = DOCS / "reference" / "project-streams.md"


def test_names_of_a_projects_streams():
    streams = ProjectStreams(cluster="local", project="trades")
    names = [streams.sequence, streams.control, streams.bad, streams.notices]
    names += [streams.reports, streams.requests, streams.replies("ID"), PREFIX + streams.group]
    assert [name.strip("`") for name, *_ in table(STREAMS, "Names")][2:] == names


def fields(heading: str) -> list[str]:
    return [name.strip("`") for name, *_ in table(STREAMS, heading)]


def test_fields_of_the_records():
    event = Event(Opcode.INSERT, Flag.NORMAL, (1,))
    bad, broken = bad_tree(BadEvent(1, "q/w", "null-key", "", event)), broken_tree(BrokenFrame("s", 0, 1, ""))
    notices = notice_trees("p/0", [Notice(1, "q/w", "email", ()), Notice(1, "q/w", "mine", body=b"x")])
    shown = [list(item) for item in numbered([bad, broken, *notices])]
    assert [fields("Bad records")] * 2 + [fields("Notices"), fields("Notices of custom windows")] == shown
    assert fields("Reports") == ["kind", *(field.name for field in dataclasses.fields(Report))]
    assert fields("Beats") == ["kind", *(field.name for field in dataclasses.fields(Beat))]
    assert fields("The body of an entry") == [field.name for field in dataclasses.fields(Decision)]


def test_marks_entries_and_barriers_look_as_shown():
    shown = [set(json.loads(line)) for line in re.findall(r'^\{"kind".*\}$', STREAMS.read_text(), re.MULTILINE)]
    records = [encode(Mark(1, "a")), encode(Entry(1, "a", 1, "", "{}")), encode_barrier(Barrier(1, "a"))]
    assert shown == [set(json.loads(record)) for record in records]


SNAPSHOT = DOCS / "reference" / "snapshot-format.md"


def test_the_head_of_a_snapshot():
    head = unpack(unseal(encode_head(Head("f", SequencePosition(), (), {})), "head"))
    assert [name.strip("`") for name, *_ in table(SNAPSHOT, "The head")] == list(head)
    assert f"`{HEAD}`" in section(SNAPSHOT, "The head")
    assert f"Version {HEAD_VERSION}." in SNAPSHOT.read_text()
    assert [name.strip("`") for name, *_ in table(SNAPSHOT, "A position")] == list(head["position"])


def test_extensions_of_pages_are_plain_values():
    assert unpack(pack([2**80, {"a": [1.5, None, b"x"]}])) == [2**80, {"a": [1.5, None, b"x"]}]


def test_fields_of_a_part_of_the_spool():
    names = [field.name for field in dataclasses.fields(SpoolPart)]
    assert [name.strip("`") for name, *_ in table(SNAPSHOT, "The spool")] == names
