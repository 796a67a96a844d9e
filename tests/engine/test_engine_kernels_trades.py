"""The trades model in small: long enough for windows to fill and empty, compared with the interpreter."""

from __future__ import annotations

import random

import pytest
from kernel_worlds import Collected, ListedHistory, Pages, bad_texts, interpret, spans

from lockstep.engine.columns import copy as members
from lockstep.engine.columns.evaluator import Evaluator
from lockstep.engine.events.event import Event, Flag, InputBlock, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import AggregateWindow, CopyWindow, Retention, SourceWindow
from lockstep.engine.reference.operator import WindowCounts

pytestmark = pytest.mark.slow
TRADE = Schema.parse("ID*:int32,symbol:string,time:date,price:double,quant:int32")
PRICES = Schema.parse("symbol*:string,vwap:double,low:double,high:double,dev:double,most:int32")
FIELDS = ("ESP_aWAve(quant,price)", "ESP_aMin(price)", "ESP_aMax(price)", "ESP_aStd(price)", "ESP_aMax(quant)")
EVENTS = 3000


def trades_model() -> Graph:
    windows = [SourceWindow(name="Trades", schema=TRADE, insert_only=True)]
    edges = []
    for name, seconds in (("Long", 10_000), ("Middle", 300), ("Short", 20)):
        retention = Retention(kind="bytime_sliding", limit=seconds * 1_000_000, field="time")
        windows.append(CopyWindow(name=f"Copy{name}", retention=retention))
        windows.append(AggregateWindow(name=f"Aggregate{name}", schema=PRICES, fields=FIELDS))
        edges.append(Edge(source="Trades", target=f"Copy{name}"))
        edges.append(Edge(source=f"Copy{name}", target=f"Aggregate{name}"))
    return compile_project(
        Project(name="t", queries=(ContinuousQuery(name="q", windows=tuple(windows), edges=tuple(edges)),))
    )


def trades(seed: int) -> list[InputBlock]:
    """Blocks of one to three trades; now and then a trade comes twice, late, or without a price."""
    chance, blocks, number, now = random.Random(seed), [], 0, 1_000_000
    while number < EVENTS:
        events = []
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            number += 1
            now += chance.choice((0, 0, 0, 1))
            again = chance.random() < 0.02
            late = 30 if chance.random() < 0.05 else 0
            price = None if chance.random() < 0.02 else round(chance.uniform(1, 99), 2)
            symbol = f"S{min(int(chance.expovariate(0.2)), 40)}"
            row = (number - 1 if again else number, symbol, now - late, price, chance.randint(1, 900))
            events.append(Event(Opcode.INSERT, Flag.NORMAL, row))
        blocks.append(InputBlock(len(blocks) + 1, "q/Trades", tuple(events)))
    return blocks


@pytest.fixture(scope="module")
def world():
    graph, blocks = trades_model(), trades(7)
    return graph, blocks, interpret(graph, blocks)


@pytest.mark.parametrize("step", [37, 500, 10_000])
@pytest.mark.parametrize("segment", [50, 65_536])
def test_every_cut_and_segment_gives_the_answer_of_the_interpreter(world, monkeypatch, step, segment):
    # Given the log read again in segments
    graph, blocks, expected = world
    monkeypatch.setattr(members, "_SEGMENT", segment)
    ends = [*range(step, len(blocks), step), len(blocks)]
    wanted = frozenset(expected.answer)
    evaluator, pages, found = (
        Evaluator(graph, wanted=wanted, history=ListedHistory(graph, blocks)),
        Pages(),
        Collected(),
    )
    # When the evaluator is thrown away now and then, and another goes on from its pages
    for number, span in enumerate(spans(graph, blocks, ends)):
        found.add(evaluator.evaluate(span))
        pages.take(evaluator)
        if number % 5 == 4:
            evaluator = Evaluator(graph, wanted=wanted, history=ListedHistory(graph, blocks))
            evaluator.load(pages.kept)
    # Then nothing differs
    assert found.answer == {path: events for path, events in expected.answer.items() if events}
    assert bad_texts(found.bad) == expected.bad
    assert evaluator.counts() == expected.counts


@pytest.mark.parametrize("shards", [2, 3, 4])
def test_shards_share_the_work_and_give_the_same_answer(world, shards):
    # Given as many evaluators as shards
    graph, blocks, expected = world
    history, wanted = ListedHistory(graph, blocks), frozenset(expected.answer)
    crew = [Evaluator(graph, wanted=wanted, history=history, shard=k, shards=shards) for k in range(shards)]
    found = Collected()
    # When all of them see all spans
    for span in spans(graph, blocks, [400, 900, len(blocks)]):
        found.add_shards([evaluator.evaluate(span) for evaluator in crew])
    # Then the merged answer is the same, and no shard had all the rows of an aggregate
    assert found.answer == {path: events for path, events in expected.answer.items() if events}
    for path, count in expected.counts.items():
        counts = [evaluator.counts().get(path, WindowCounts()) for evaluator in crew]
        assert sum(counts, WindowCounts()) == count
        if "Aggregate" in path:
            assert max(each.events_in for each in counts) < count.events_in


class CountingHistory(ListedHistory):
    rows = 0

    def read(self, source, first_block, last_block):
        batch = super().read(source, first_block, last_block)
        self.rows += len(batch)
        return batch


def test_a_window_that_nothing_leaves_never_reads_the_log(world):
    # Given the long window alone in view: all others read the log
    graph, blocks, _ = world
    history = CountingHistory(graph, blocks)
    nodes = [node for node in graph.nodes if node.window.name in ("Trades", "CopyLong", "AggregateLong")]
    windows = tuple(node.window for node in nodes)
    edges = (Edge(source="Trades", target="CopyLong"), Edge(source="CopyLong", target="AggregateLong"))
    alone = compile_project(Project(name="t", queries=(ContinuousQuery(name="q", windows=windows, edges=edges),)))
    evaluator = Evaluator(alone, wanted=frozenset({"q/AggregateLong"}), history=history)
    for span in spans(graph, blocks, [*range(100, len(blocks), 100), len(blocks)]):
        evaluator.evaluate(span)
    assert history.rows == 0
    assert evaluator.earliest_block() == 1


def test_the_state_over_the_log_does_not_grow_with_the_rows(world):
    # Given the short window's copy, which holds few rows, and the long one's, which holds all
    graph, blocks, _ = world
    evaluator, pages = Evaluator(graph, wanted=frozenset(), history=ListedHistory(graph, blocks)), Pages()
    for span in spans(graph, blocks, [1000, len(blocks)]):
        evaluator.evaluate(span, silent=True)
    pages.take(evaluator)
    sizes = {name: len(page) for name, page in pages.kept.items() if ":tail" in name}
    # Then both remember a place, not rows
    assert set(sizes) == {"q/CopyLong:tail", "q/CopyMiddle:tail", "q/CopyShort:tail"}
    assert max(sizes.values()) < 2000
