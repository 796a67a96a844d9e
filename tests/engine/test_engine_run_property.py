"""The running engine gives the interpreter's answer, whatever the batches, the kills and the number of shards."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from join_strategies import joins, unions
from kernel_worlds import interpret, texts
from local_engine import LocalEngine
from model_strategies import models, scripts, shardable_models

from lockstep.engine.events.event import InputBlock
from lockstep.engine.model.graph import Graph

SETTINGS = settings(max_examples=40, suppress_health_check=list(HealthCheck))


def feed(engine: LocalEngine, blocks: list[InputBlock]) -> None:
    """Put blocks on the inputs, so that they are sequenced in just this order, one entry each."""
    for block in blocks:
        if block.tick_us is not None:
            engine.sequencer.tick(block.tick_us)
        else:
            node = engine.graph.find(block.window) or engine.graph.nodes[0]
            engine.publishers[node.path].publish(block.events, transactional=block.transactional)
        engine.settle()


def check(graph: Graph, blocks: list[InputBlock], engine: LocalEngine) -> None:
    expected = interpret(graph, blocks)
    for node in graph.nodes:
        found = [line for number, events in engine.out(node.path) for line in texts(number, events)]
        assert found == expected.answer[node.path], node.path
    assert engine.publisher.counts == expected.counts


@pytest.mark.slow
@pytest.mark.timeout(600)  # a failure is made smaller before it is shown
@SETTINGS
@given(st.data())
def test_batches_kills_and_restarts_do_not_show(data):
    graph = data.draw(st.one_of(models(), models(), joins(), unions()))
    blocks = data.draw(scripts(graph))
    wanted = frozenset(node.path for node in graph.nodes)
    with tempfile.TemporaryDirectory() as folder:
        engine = LocalEngine(graph, wanted, Path(folder))
        feed(engine, blocks)
        while engine.committed < engine.sequencer.position.number:
            stop = data.draw(st.integers(engine.committed + 1, engine.sequencer.position.number), label="stop")
            fate = data.draw(st.sampled_from(["fine", "fine", "killed", "unpublished", "restarted"]), label="fate")
            engine.run_batch(stop, commit=fate != "killed", publish=fate != "unpublished")
            if fate != "fine":  # what was committed and not published must come out without any new input
                engine.restart(snapshot_every_s=data.draw(st.sampled_from([0.0, 1e9]), label="snapshots"))
        check(graph, blocks, engine)


@pytest.mark.slow
@pytest.mark.timeout(600)  # a failure is made smaller before it is shown
@SETTINGS
@given(st.data())
def test_shards_do_not_show(data):
    graph = data.draw(shardable_models())
    blocks = data.draw(scripts(graph))
    wanted = frozenset(node.path for node in graph.nodes)
    with tempfile.TemporaryDirectory() as folder:
        engine = LocalEngine(graph, wanted, Path(folder), shards=data.draw(st.integers(1, 4), label="shards"))
        feed(engine, blocks)
        while engine.committed < engine.sequencer.position.number:
            engine.run_batch(data.draw(st.integers(engine.committed + 1, engine.sequencer.position.number)))
            if data.draw(st.booleans(), label="restart"):
                engine.restart()
        check(graph, blocks, engine)
