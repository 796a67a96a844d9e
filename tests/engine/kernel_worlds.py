"""Runs a script through the interpreter and through evaluators, in forms that can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lockstep.engine.columns.evaluator import Evaluator
from lockstep.engine.columns.runner import Results, Span
from lockstep.engine.columns.sharding import merge_shards
from lockstep.engine.events.columns import EventBatch, concat
from lockstep.engine.events.event import Event, InputBlock
from lockstep.engine.model.graph import Graph
from lockstep.engine.reference.interpreter import Interpreter
from lockstep.engine.reference.operator import BadEvent

Answer = dict[str, list[tuple[int, str]]]
"""For each window its events as (block, text); the text of a double shows all its bits, and every NaN is one."""


def texts(block: int, events: Iterable[Event]) -> list[tuple[int, str]]:
    return [(block, f"{event.opcode.letter} {event.flags.letters} {event.values!r}") for event in events]


def bad_texts(bad: Iterable[BadEvent]) -> list[str]:
    return [f"{each.block} {each.window} {each.reason} {each.detail} {each.event}" for each in bad]


@dataclass
class Expected:
    """What the interpreter says."""

    answer: Answer
    bad: list[str]
    counts: dict[str, object]


def interpret(graph: Graph, blocks: Sequence[InputBlock]) -> Expected:
    interpreter = Interpreter(graph)
    answer: Answer = {node.path: [] for node in graph.nodes}
    for block in blocks:
        for path, events in interpreter.evaluate(block).items():
            answer[path] += texts(block.number, events)
    return Expected(answer, bad_texts(interpreter.bad), dict(interpreter.counts))


class ListedHistory:
    """The log as a list of blocks."""

    def __init__(self, graph: Graph, blocks: Sequence[InputBlock]) -> None:
        self._schemas = {node.path: node.schema for node in graph.nodes if node.is_source}
        self._blocks = blocks

    def read(self, source: str, first_block: int, last_block: int) -> EventBatch:
        return self.batch(source, [each for each in self._blocks if first_block <= each.number <= last_block])

    def batch(self, source: str, blocks: Sequence[InputBlock]) -> EventBatch:
        given = [(each.number, each.events) for each in blocks if each.window == source]
        return EventBatch.of(self._schemas[source], given)


def make_span(graph: Graph, blocks: Sequence[InputBlock], needed: dict[str, frozenset[str]] | None = None) -> Span:
    """Blocks as a span; with `needed` all other columns are left out."""
    history = ListedHistory(graph, blocks)
    inputs = {node.path: history.batch(node.path, blocks) for node in graph.nodes if node.is_source}
    inputs = {path: batch for path, batch in inputs.items() if len(batch)}
    if needed is not None:
        inputs = {path: pruned(batch, needed.get(path, frozenset())) for path, batch in inputs.items()}
    ticks = tuple((each.number, each.tick_us) for each in blocks if each.tick_us is not None)
    transactional = np.array([each.number for each in blocks if each.transactional], np.int64)
    return Span(blocks[0].number, blocks[-1].number, inputs, ticks, transactional)


def pruned(batch: EventBatch, names: frozenset[str]) -> EventBatch:
    pairs = zip(batch.schema.names, batch.columns, strict=True)
    return replace(batch, columns=tuple(column if name in names else None for name, column in pairs))


def spans(graph: Graph, blocks: Sequence[InputBlock], ends: Sequence[int]) -> list[Span]:
    parts, start = [], 0
    for end in ends:
        parts.append(make_span(graph, blocks[start:end]))
        start = end
    return parts


@dataclass
class Collected:
    """What evaluators said, span by span."""

    answer: Answer = field(default_factory=dict)
    bad: list[BadEvent] = field(default_factory=list)

    def add(self, results: Results) -> None:
        for path, batch in results.outputs.items():
            self.add_batch(path, batch)
        self.bad += results.bad

    def add_batch(self, path: str, batch: EventBatch) -> None:
        for block, events in batch.blocks():
            self.answer.setdefault(path, []).extend(texts(block, events))

    def add_shards(self, parts: Sequence[Results]) -> None:
        for path in {path for part in parts for path in part.outputs}:
            placed = [(part.outputs[path], part.places[path]) for part in parts if path in part.places]
            whole = (
                merge_shards(placed)
                if placed
                else concat([part.outputs[path] for part in parts if path in part.outputs])
            )
            self.add_batch(path, whole)
        self.bad += [bad for part in parts for bad in part.bad]


class Pages:
    """Kept pages, as a store would hold them."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def take(self, evaluator: Evaluator) -> None:
        for name, page in evaluator.changed_pages():
            if page is None:
                self.kept.pop(name, None)
            else:
                self.kept[name] = page
