"""Hypothesis strategies: random edits of a model, and scripts that go on where another one ended."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st
from model_strategies import (
    CONDITIONS,
    SECOND,
    SOURCES,
    Draft,
    _child,
    aggregates,
    compiled,
    options,
    retentions,
    scripts,
    sources,
)

from lockstep.engine.events.event import Event, InputBlock
from lockstep.engine.events.schema import FieldType, Schema
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.windows import AggregateWindow, CopyWindow, FilterWindow, SourceWindow, Window

EDITS = ["retention", "aggregate", "filter", "options", "leaf", "leaf", "cut", "source", "unsource", "order"]


@st.composite
def edits(draw, graph: Graph, age: int = 1) -> Graph:
    """Another model, by one edit or a few; new sources have names of their age."""
    draft = draft_of(graph)
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        draw(_edit(draft, draw(st.sampled_from(EDITS), label="edit"), age))
    assume(any(isinstance(window, SourceWindow) for window in draft.windows))
    return compiled(draft)


def draft_of(graph: Graph) -> Draft:
    """A model as the draft it was; windows that look like a source's are found by their fields."""
    query = graph.project.queries[0]
    looks = {node.window.name: str(node.schema) for node in graph.nodes if str(node.schema) in SOURCES}
    return Draft(list(query.windows), list(query.edges), looks)


@st.composite
def _edit(draw, draft: Draft, kind: str, age: int) -> None:
    if kind == "leaf":
        draw(_child(draft, draw(st.sampled_from(_free(draft, "w", 20)))))
    elif kind == "source":
        place = f"{age}{_free(draft, f'in{age}', 9)[0]}"
        schema = draw(st.sampled_from(sorted(draft.schemas.values()) or SOURCES))
        draft.windows.insert(draw(st.integers(0, len(draft.windows))), draw(sources(f"in{place}", schema)))
        draft.schemas[f"in{place}"] = schema
    elif kind == "order":
        draft.windows = draw(st.permutations(draft.windows))
    elif kind in ("cut", "unsource"):
        found = [each for each in draft.windows if _may_go(draft, each, kind)]
        if found:
            _remove(draft, draw(st.sampled_from(found)).name)
    else:
        draw(_other(draft, kind))


@st.composite
def _other(draw, draft: Draft, kind: str) -> None:
    """One window, changed."""
    kinds = {"retention": CopyWindow, "aggregate": AggregateWindow, "filter": FilterWindow, "options": Window}
    found = [at for at, window in enumerate(draft.windows) if isinstance(window, kinds[kind])]
    if not found:
        return
    at = draw(st.sampled_from(found))
    window = draft.windows[at]
    if kind == "retention":
        draft.windows[at] = replace(window, retention=draw(retentions()), index=None)
    elif kind == "aggregate":
        columns_only = str(window.schema).startswith("s*:string,") and draw(st.booleans())
        draft.windows[at] = draw(aggregates(window.name, columns_only=columns_only))
    elif kind == "filter":
        draft.windows[at] = replace(window, expression=draw(st.sampled_from(CONDITIONS)), initialize=None)
    else:
        plain = {"output_insert_only": False, "collapse_updates": False, "pulse_us": None}
        draft.windows[at] = replace(window, **{**plain, **draw(options())})


def _free(draft: Draft, prefix: str, most: int) -> list[int]:
    names = {window.name for window in draft.windows}
    return [number for number in range(most) if f"{prefix}{number}" not in names]


def _may_go(draft: Draft, window: Window, kind: str) -> bool:
    is_source = isinstance(window, SourceWindow)
    if kind == "unsource":
        return is_source and sum(isinstance(each, SourceWindow) for each in draft.windows) > 1
    return not is_source and all(edge.source != window.name for edge in draft.edges)


def _remove(draft: Draft, name: str) -> None:
    """A window, and all below it."""
    behind = [edge.target for edge in draft.edges if edge.source == name]
    draft.windows = [window for window in draft.windows if window.name != name]
    draft.edges = [edge for edge in draft.edges if name not in (edge.source, edge.target)]
    draft.schemas.pop(name, None)
    for each in behind:
        if any(window.name == each for window in draft.windows):
            _remove(draft, each)


@st.composite
def later(draw, graph: Graph, number: int, age: int) -> list[InputBlock]:
    """A script that goes on after block `number`, with other keys and later times than those before it."""
    schemas = {node.path: node.schema for node in graph.nodes if node.is_source}
    blocks = draw(scripts(graph))
    return [_moved(block, number, age, schemas) for block in blocks]


def _moved(block: InputBlock, number: int, age: int, schemas: dict[str, Schema]) -> InputBlock:
    tick = block.tick_us
    if tick is not None and 0 < tick < 10**12:
        tick += age * 10 * SECOND
    events = tuple(_event(event, age, schemas[block.window]) for event in block.events)
    return replace(block, number=block.number + number, events=events, tick_us=tick)


def _event(event: Event, age: int, schema: Schema) -> Event:
    values = list(event.values)
    first = values[0]
    if isinstance(first, int) and 100 < first < 1000:
        values[0] = first + 1000 * age
    elif isinstance(first, str) and first[1:].isdigit():
        values[0] = f"k{age}-{first[1:]}"
    for place, each in enumerate(schema):
        value = values[place]
        if each.type.is_time and isinstance(value, int) and 0 < value < 10**12:
            values[place] = value + age * 10 * (SECOND if each.type is FieldType.STAMP else 1)
    return event._replace(values=tuple(values))
