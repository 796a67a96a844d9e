"""Runs of a model in random pieces on the fast path, with restarts and kills."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lockstep.engine.columns import pages
from lockstep.engine.columns.evaluator import Evaluator
from lockstep.engine.columns.runner import Results, Span
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event, InputBlock
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.windows import CustomWindow
from lockstep.testing.window_process import Answer, add_bad, add_event, add_notice

_KILLS_MAX = 5


class PiecesRun:
    """A run in random pieces; `log` says what happened.

    After a kill the run goes on from the last snapshot, so that blocks come again.
    """

    def __init__(self, graph: Graph, blocks: Sequence[InputBlock], chance: random.Random) -> None:
        self.graph, self.blocks, self.chance = graph, blocks, chance
        self.log: list[str] = []
        self.restarts = self.kills = 0
        self._pages: dict[str, bytes] = {}
        self._done, self._kept = 0, 0
        self._evaluator = self._new()

    def answers(self) -> Iterator[tuple[int, Answer]]:
        """The number and the answer of each block, some of them more than once."""
        while self._done < len(self.blocks):
            size = self.chance.choice((1, 1, 2, 3, 7, 20, len(self.blocks)))
            part = self.blocks[self._done : self._done + size]
            self.log.append(f"blocks {self._done + 1} to {self._done + len(part)}")
            results = self._evaluator.evaluate(span_of(self.graph, part, self._done + 1))
            yield from enumerate(answers_of(results, self._done + 1, len(part)), self._done + 1)
            self._done += len(part)
            self._disturb()

    def final_pages(self) -> dict[str, str]:
        """The state of the custom windows at the end, by the names of its pages; equal for equal states.

        Other windows may keep the same in different ways.
        """
        self._keep()
        mine = {node.path for node in self.graph.nodes if isinstance(node.window, CustomWindow)}
        found = {name: page for name, page in self._pages.items() if name.rpartition(":")[0] in mine}
        return {name: canonical(pages.unpack(page)) for name, page in found.items()}

    def _disturb(self) -> None:
        what = self.chance.choice(("nothing", "nothing", "snapshot", "restart", "kill"))
        if what in ("snapshot", "restart"):
            self._keep()
        if what == "restart":
            self._evaluator = self._new()
            self.restarts += 1
        if what == "kill" and self.kills < _KILLS_MAX and self._done < len(self.blocks):
            self.kills += 1
            self._done, self._evaluator = self._kept, self._new()
        if what != "nothing":
            self.log.append(f"{what} at block {self._done}")

    def _keep(self) -> None:
        """Take a snapshot: only the pages that changed are written."""
        for name, page in self._evaluator.changed_pages():
            if page is None:
                self._pages.pop(name, None)
            else:
                self._pages[name] = page
        self._kept = self._done

    def _new(self) -> Evaluator:
        evaluator = Evaluator(self.graph, wanted=frozenset(node.path for node in self.graph.nodes))
        found = list(self._pages.items())
        self.chance.shuffle(found)  # pages come in no particular order
        evaluator.load(dict(found))
        return evaluator


def span_of(graph: Graph, blocks: Sequence[InputBlock], first: int) -> Span:
    """Numbered blocks as columns."""
    inputs: dict[str, list[tuple[int, Sequence[Event]]]] = {}
    for block in blocks:
        if block.tick_us is None:
            node = graph.find(block.window)
            assert node is not None, "the interpreter has taken it before"
            inputs.setdefault(node.path, []).append((block.number, block.events))
    schemas = {node.path: node.schema for node in graph.nodes}
    return Span(
        first,
        first + len(blocks) - 1,
        {path: EventBatch.of(schemas[path], found) for path, found in inputs.items()},
        tuple((block.number, block.tick_us) for block in blocks if block.tick_us is not None),
        np.array([block.number for block in blocks if block.transactional], np.int64),
        frozenset(block.number for block in blocks if block.lagging),
    )


def answers_of(results: Results, first: int, count: int) -> list[Answer]:
    """What each block of a range gave."""
    answers: list[Answer] = [{} for _ in range(count)]
    for path, batch in results.outputs.items():
        for number, events in batch.blocks():
            for event in events:
                add_event(answers[number - first], path, event)
    for bad in results.bad:
        add_bad(answers[bad.block - first], bad)
    for notice in results.notices:
        add_notice(answers[notice.block - first], notice)
    return answers


def canonical(tree: Any) -> str:
    """A text that is equal for states that are equal; the order in dicts does not count."""
    if isinstance(tree, Mapping):
        return "{" + ", ".join(sorted(f"{name!r}: {canonical(item)}" for name, item in tree.items())) + "}"
    if isinstance(tree, list | tuple):
        return "[" + ", ".join(map(canonical, tree)) + "]"
    return tree.tobytes().hex() if isinstance(tree, np.ndarray) else repr(tree)
