"""The fast path gives the interpreter's answer, bit for bit, whatever the cut, the shards or restarts."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from kernel_worlds import Collected, ListedHistory, Pages, bad_texts, interpret, make_span, spans
from model_strategies import cuts, models, scripts, shardable_models

from lockstep.engine.columns import aggregate, keys
from lockstep.engine.columns import copy as members
from lockstep.engine.columns import source as seen
from lockstep.engine.columns.evaluator import Evaluator
from lockstep.engine.events.event import Event, Flag, InputBlock, Opcode
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.yaml_form import parse_yaml
from lockstep.engine.reference.operator import WindowCounts

pytestmark = pytest.mark.slow
THOROUGH = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@pytest.fixture(autouse=True, scope="module")
def small_pages():
    """Segments, pages and chunks so small that short scripts fill several of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(members, "_SEGMENT", 8)
        patch.setattr(seen, "PAGE_KEYS", 4)
        patch.setattr(keys, "PAGE", 2)
        patch.setattr(aggregate, "PAGE", 2)
        yield


def every(graph: Graph) -> frozenset[str]:
    return frozenset(node.path for node in graph.nodes)


@given(data=st.data(), graph=models(), logged=st.booleans())
@THOROUGH
def test_the_evaluator_gives_the_answer_of_the_interpreter_whatever_the_cut(data, graph, logged):
    # Given a model and a script
    blocks = data.draw(scripts(graph))
    ends = data.draw(cuts(len(blocks)))
    note(f"{graph.project.queries[0].windows}")
    expected = interpret(graph, blocks)
    # When the script is evaluated in spans, with the log at hand or not
    evaluator = Evaluator(graph, wanted=every(graph), history=ListedHistory(graph, blocks) if logged else None)
    found = Collected()
    for span in spans(graph, blocks, ends):
        found.add(evaluator.evaluate(span))
    # Then events, bad events and counts are the interpreter's
    for path, events in expected.answer.items():
        assert found.answer.get(path, []) == events, path
    assert bad_texts(found.bad) == expected.bad
    assert evaluator.counts() == expected.counts


@given(data=st.data(), graph=models(), logged=st.booleans())
@THOROUGH
def test_an_evaluator_that_loads_pages_goes_on_as_the_one_that_made_them(data, graph, logged):
    # Given an evaluator whose pages are taken now and then, as they change
    blocks = data.draw(scripts(graph))
    ends = data.draw(cuts(len(blocks)))
    parts = spans(graph, blocks, ends)
    stop = data.draw(st.integers(0, len(parts)))
    note(f"{graph.project.queries[0].windows} stop after {ends[:stop]}")
    expected = interpret(graph, blocks)
    history = ListedHistory(graph, blocks) if logged else None
    first, pages, found = Evaluator(graph, wanted=every(graph), history=history), Pages(), Collected()
    for number, span in enumerate(parts[:stop]):
        found.add(first.evaluate(span))
        if data.draw(st.booleans()) or number == stop - 1:
            pages.take(first)
    # When another one goes on from the pages, and needs no block before the earliest
    second = Evaluator(graph, wanted=every(graph), history=history)
    second.load(pages.kept)
    assert second.earliest_block() == first.earliest_block()
    assert second.clock_us == first.clock_us
    for span in parts[stop:]:
        found.add(second.evaluate(span))
        pages.take(second)
    # Then the answer is as if nothing had happened
    for path, events in expected.answer.items():
        assert found.answer.get(path, []) == events, path
    assert second.counts() == expected.counts
    # And the pages are those that a third one can load
    third = Evaluator(graph, wanted=every(graph), history=history)
    third.load(pages.kept)
    assert third.counts() == expected.counts


@given(data=st.data(), graph=models())
@THOROUGH
def test_silent_spans_and_pruned_columns_change_nothing_that_follows(data, graph):
    # Given a model of which one window is wanted
    blocks = data.draw(scripts(graph))
    ends = data.draw(cuts(len(blocks)))
    wanted = data.draw(st.sampled_from(sorted(every(graph))))
    quiet = data.draw(st.integers(0, len(ends)))
    expected = interpret(graph, blocks)
    history = ListedHistory(graph, blocks)
    evaluator = Evaluator(graph, wanted=frozenset({wanted}), history=history)
    # When the first spans are silent, and only needed columns are there
    found, start = Collected(), 0
    for number, end in enumerate(ends):
        span = make_span(graph, blocks[start:end], dict(evaluator.needed))
        results = evaluator.evaluate(span, silent=number < quiet)
        assert number >= quiet or not results.outputs
        found.add(results)
        start = end
    # Then what is shown is the end of the answer, and all is counted
    seen = ends[quiet - 1] if quiet else 0
    assert found.answer.get(wanted, []) == [each for each in expected.answer[wanted] if each[0] > seen]
    assert evaluator.counts() == expected.counts


@given(
    data=st.data(),
    graph=st.one_of(shardable_models(), shardable_models(), models()),
    shards=st.integers(1, 4),
    logged=st.booleans(),
)
@THOROUGH
def test_shards_merged_give_the_answer_of_one(data, graph, shards, logged):
    # Given a model, mostly one that can be divided
    blocks = data.draw(scripts(graph))
    ends = data.draw(cuts(len(blocks)))
    note(f"{graph.project.queries[0].windows}")
    expected = interpret(graph, blocks)
    history = ListedHistory(graph, blocks) if logged else None
    crew = [Evaluator(graph, wanted=every(graph), history=history, shard=k, shards=shards) for k in range(shards)]
    # When every shard evaluates every span
    found = Collected()
    for span in spans(graph, blocks, ends):
        found.add_shards([evaluator.evaluate(span) for evaluator in crew])
    # Then merged by place it is the answer of one, and the counts add up
    for path, events in expected.answer.items():
        assert found.answer.get(path, []) == events, path
    assert sorted(bad_texts(found.bad)) == sorted(expected.bad)
    counts = [evaluator.counts() for evaluator in crew]
    for path, count in expected.counts.items():
        assert sum((each[path] for each in counts if path in each), WindowCounts()) == count, path


PULSED = """
name: p
queries:
- name: q
  windows:
  - {kind: source, name: in, schema: "id*:int64", insert_only: true}
  - {kind: copy, name: pulsed, pulse: 2 seconds}
  - {kind: copy, name: recent, retention: bytime_sliding 2 seconds}
  edges: [in -> pulsed, pulsed -> recent]
"""


@pytest.mark.parametrize("ends", [[5], [1, 2, 3, 4, 5], [3, 5]])
def test_rows_that_a_tick_releases_come_before_those_that_it_lets_go(ends):
    # Given a tick that releases a pulse, and at which rows below it are too old
    graph = compile_project(parse_yaml(PULSED))
    one, two = (Event(Opcode.INSERT, Flag.NORMAL, (number,)) for number in (1, 2))
    times = {2: 1_002_000_000, 4: 1_004_000_000, 5: 1_009_000_000}
    events = {1: (one,), 3: (two,)}
    blocks = [
        InputBlock(number, "q/in" if number in events else "", events.get(number, ()), tick_us=times.get(number))
        for number in range(1, 6)
    ]
    evaluator, found = Evaluator(graph, wanted=every(graph)), Collected()
    for span in spans(graph, blocks, ends):
        found.add(evaluator.evaluate(span))
    assert found.answer == {path: answer for path, answer in interpret(graph, blocks).answer.items() if answer}
    assert found.answer["q/recent"] == [(2, "I N (1,)"), (4, "I N (2,)"), (4, "D R (1,)"), (4, "D R (2,)")]
