"""A window of your own, run with cuts, restarts, kills and in a second process, against its own row form in one go."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.engine.events.event import InputBlock
from lockstep.engine.events.script import read_script
from lockstep.engine.model.builder import ProjectBuilder
from lockstep.engine.model.builder_parts import Duration, Fields
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.project import Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.reference.custom_window import Window
from lockstep.errors import BadArgument
from lockstep.testing.window_process import Answer, WindowDiffers, run_elsewhere, run_in_one_go
from lockstep.testing.window_runs import PiecesRun


@dataclass(frozen=True, slots=True)
class WindowReport:
    """What was run without a difference."""

    blocks: int
    runs: int
    restarts: int
    kills: int
    answers: Sequence[Answer]
    """For each block the events of each window, notices and bad events, as text."""


def check_window(
    window: type[Window] | Project,
    script: str | Iterable[InputBlock],
    *,
    inputs: Mapping[str, Fields] | None = None,
    schema: Fields | None = None,
    properties: Mapping[str, str] | None = None,
    tick: Duration | None = None,
    runs: int = 20,
    seed: int = 0,
    second_process: bool = True,
) -> WindowReport:
    """Run a window over a script in many ways, and raise `WindowDiffers` at the first difference.

    `window` is a class, with the schemas of its inputs by name and its own, or a whole model. The script is text as
    `lockstep model run --in script.txt` takes it, or blocks. What is compared with the row form run in one go: the same
    again, to find clocks and chance; a second process with another hash seed, to find the order of sets; and `runs`
    runs in random pieces, with restarts from its state and kills, to find state that is not kept, pages that were not
    marked, and a column form that differs.
    """
    project = window if isinstance(window, Project) else _model(window, inputs, schema, properties, tick)
    graph = compile_project(project)
    blocks = _blocks(graph, script)
    wanted = run_in_one_go(graph, blocks)
    _compare_all(run_in_one_go(graph, blocks), wanted, "the same run again in this process")
    if second_process:
        found = run_elsewhere(project, blocks)
        _compare_all(found, wanted, "the same run in another process, with another hash seed")
    made = [_in_pieces(graph, blocks, wanted, seed + number) for number in range(runs)]
    _compare_states(made)
    restarts, kills = sum(run.restarts for run in made), sum(run.kills for run in made)
    return WindowReport(len(blocks), runs, restarts, kills, wanted)


def _model(
    window: type[Window],
    inputs: Mapping[str, Fields] | None,
    schema: Fields | None,
    properties: Mapping[str, str] | None,
    tick: Duration | None,
) -> Project:
    """A model around a class."""
    if not inputs or schema is None:
        raise BadArgument(name="inputs", value=inputs, reason="give the schemas of the inputs by name, and schema")
    if "<locals>" in window.__qualname__:
        reason = "a class inside a function can't be found by its name; put it into a module"
        raise BadArgument(name="window", value=window.__qualname__, reason=reason)
    project = ProjectBuilder("check")
    query = project.query("q")
    first, *others = [query.source(name, fields) for name, fields in inputs.items()]
    first.custom(window.__name__, schema, window, *others, properties=properties or {}, tick=tick)
    return project.build()


def _blocks(graph: Graph, script: str | Iterable[InputBlock]) -> list[InputBlock]:
    """The blocks of a script, numbered from 1 on."""
    if not isinstance(script, str):
        found = list(script)
        return [_numbered(block, number) for number, block in enumerate(found, 1)]

    def schema_of(name: str) -> Any:
        node = graph.find(name)
        if node is None or not node.is_source:
            known = ", ".join(each.window.name for each in graph.nodes if each.is_source)
            raise BadArgument(name="script", value=name, reason=f"it is no source window; there are {known}")
        return node.schema

    read = read_script(script.splitlines(), schema_of)
    return [
        InputBlock(number, each.window, each.events, each.transactional, each.tick_us, each.lagging)
        for number, each in enumerate(read, 1)
    ]


def _numbered(block: InputBlock, number: int) -> InputBlock:
    return InputBlock(number, block.window, block.events, block.transactional, block.tick_us, block.lagging)


def _in_pieces(graph: Graph, blocks: Sequence[InputBlock], wanted: Sequence[Answer], seed: int) -> PiecesRun:
    run = PiecesRun(graph, blocks, random.Random(seed))
    for number, answer in run.answers():
        told = f"the run in pieces of seed {seed} ({'; '.join(run.log[-6:])})"
        _compare(answer, wanted[number - 1], number, told)
    return run


def _compare_states(runs: Sequence[PiecesRun]) -> None:
    """All runs must end with the same state: a page that changed without being marked shows here at the latest."""
    states = [run.final_pages() for run in runs]
    for number, state in enumerate(states):
        for name in sorted(state.keys() | states[0].keys()):
            if state.get(name) != states[0].get(name):
                told = "a page was not marked as changed, or the state depends on more than the events"
                lines = [
                    f"After all blocks the page {name} of runs 0 and {number} differs: {told}.",
                    f"  run 0:  {states[0].get(name)}",
                    f"  run {number}:  {state.get(name)}",
                    f"  run {number} was: {'; '.join(runs[number].log[-6:])}",
                ]
                raise WindowDiffers(lines)


def _compare_all(found: Sequence[Answer], wanted: Sequence[Answer], run: str) -> None:
    for number, (one, other) in enumerate(zip(found, wanted, strict=True), 1):
        _compare(one, other, number, run)


def _compare(found: Answer, wanted: Answer, number: int, run: str) -> None:
    if found == wanted:
        return
    key = next(key for key in sorted(found.keys() | wanted.keys()) if found.get(key) != wanted.get(key))
    made, expected = found.get(key, []), wanted.get(key, [])
    length = min(len(made), len(expected))
    at = next((place for place in range(length) if made[place] != expected[place]), length)
    lines = [
        f"Block {number}, {key}, number {at} differs in {run}.",
        f"  row form in one go:  {expected[at] if at < len(expected) else 'nothing'}",
        f"  here:                {made[at] if at < len(made) else 'nothing'}",
    ]
    raise WindowDiffers(lines)
