"""Windows that read their rows from the log again: the place of the oldest row, in the middle of a block too."""

from __future__ import annotations

import pytest
from kernel_worlds import Collected, ListedHistory, Pages, interpret, make_span

from lockstep.engine.columns.evaluator import Evaluator
from lockstep.engine.events.event import Event, Flag, InputBlock, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import CopyWindow, Retention, SourceWindow

WANTED = frozenset({"q/copy"})


def model(retention: Retention) -> Graph:
    source = SourceWindow(name="in", schema=Schema.parse("id*:int64,t:date"), insert_only=True)
    copy = CopyWindow(name="copy", retention=retention)
    query = ContinuousQuery(name="q", windows=(source, copy), edges=(Edge(source="in", target="copy"),))
    return compile_project(Project(name="p", queries=(query,)))


def block(number: int, *keys: int) -> InputBlock:
    events = tuple(Event(Opcode.INSERT, Flag.NORMAL, (key, 1000 + key)) for key in keys)
    return InputBlock(number, "q/in", events)


RETENTIONS = (
    Retention(kind="bycount_sliding", limit=10),
    Retention(kind="bytime_sliding", limit=10_000_000, field="t"),
)


@pytest.mark.parametrize("retention", RETENTIONS, ids=lambda each: each.kind)
@pytest.mark.parametrize("restarts", [1, 2, 3])
def test_rows_leave_a_long_block_one_by_one_across_restarts(retention, restarts):
    # Given one block of many rows, refused ones among them, and then blocks that push them out one by one
    graph = model(retention)
    long = (1, 2, 2, 3, 4, 1, 5, 6, 7, 8, 9, 10)
    blocks = [block(1, *long), *(block(number, 9 + number) for number in range(2, 24))]
    history = ListedHistory(graph, blocks)
    evaluator, pages, found = Evaluator(graph, wanted=WANTED, history=history), Pages(), Collected()
    # When a new evaluator goes on every so many blocks
    for number, each in enumerate(blocks, 1):
        found.add(evaluator.evaluate(make_span(graph, [each])))
        pages.take(evaluator)
        if number % restarts == 0:
            evaluator = Evaluator(graph, wanted=WANTED, history=history)
            evaluator.load(pages.kept)
    # Then every row leaves once, in the order in which it came
    assert found.answer["q/copy"] == interpret(graph, blocks).answer["q/copy"]


def test_a_span_of_nothing_but_refused_events_is_remembered():
    # Given a block whose only event is refused, in a span of its own
    graph = model(Retention(kind="bycount_sliding", limit=2))
    blocks = [block(1, 1), block(2, 1), block(3, 2), block(4, 3), block(5, 4)]
    evaluator, found = Evaluator(graph, wanted=WANTED, history=ListedHistory(graph, blocks)), Collected()
    # When rows leave later
    for each in blocks:
        found.add(evaluator.evaluate(make_span(graph, [each])))
    # Then the refused one is not among them
    assert found.answer["q/copy"] == interpret(graph, blocks).answer["q/copy"]
    assert evaluator.earliest_block() == 4
