"""Whatever engines of a project go through, subscribers get the interpreter's answer, and all engines end up alike."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from change_strategies import later
from cluster_fates import PROCESSES, Fates, feed
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from local_cluster import LocalCluster
from model_strategies import models, scripts, shardable_models

from lockstep.engine.runtime.output import publisher
from lockstep.engine.runtime.worker import divided_input, history, shard_worker
from memory_driver import MemoryServer

SETTINGS = settings(max_examples=40, suppress_health_check=list(HealthCheck))
PAUSES = [0.0, 0.05, 0.3, 1.0]


@pytest.mark.timeout(900)
@pytest.mark.slow
@pytest.mark.parametrize("server", [None, MemoryServer], ids=["tables", "server"])
@SETTINGS
@given(st.data())
def test_whatever_happens_subscribers_get_the_interpreters_answer(server, data):
    shards = data.draw(st.sampled_from([1, 1, 1, 2]), label="shards")
    graph = data.draw(models() if shards == 1 else shardable_models())
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        frame_bytes = data.draw(st.sampled_from([300, 512 * 1024]), label="frame bytes")
        for module in (shard_worker, publisher):
            patch.setattr(module, "FRAME_BYTES", frame_bytes)
        patch.setattr(shard_worker, "PART_EVENTS", data.draw(st.sampled_from([2, 100_000]), label="part"))
        if shards > 1 and data.draw(st.booleans(), label="small pieces"):
            small_pieces(patch)
        cluster = LocalCluster(
            graph, frozenset(node.path for node in graph.nodes), Path(folder),
            seed=data.draw(st.integers(0, 1000), label="seed"), shards=shards,
            server=server and server(),
            persist_to=Path(folder) / "kept",
            entry_events=data.draw(st.sampled_from([1, 3, 50]), label="entry"),
            batch_events=data.draw(st.sampled_from([1, 1000]), label="batch"),
            snapshot_every_s=data.draw(st.sampled_from([0.0, 1e9]), label="snapshots"),
        )  # fmt: skip
        for name in "abc"[: data.draw(st.integers(2, 3), label="engines")]:
            cluster.start(name)
        run(cluster, data)


def small_pieces(patch: pytest.MonkeyPatch) -> None:
    """Shards divide short input too, and read the past again instead of remembering it."""
    patch.setattr(divided_input, "PIECE_EVENTS", 2)
    patch.setattr(divided_input, "_WORTH_EVENTS", 1)
    patch.setattr(divided_input, "_TURN_LOOKS", 1)
    patch.setattr(history, "_CACHED_EVENTS", 0)
    patch.setattr(history, "_CACHED_SPANS", 1)


def run(cluster: LocalCluster, data: st.DataObject) -> None:
    """Blocks come and faults strike, for as many models as are accepted."""
    fates = Fates(cluster, data.draw)
    blocks, age = data.draw(scripts(cluster.graph)), 0
    while blocks:
        block, *blocks = blocks
        feed(cluster, block, fates.graph)
        cluster.advance(data.draw(st.sampled_from(PAUSES), label="pause"))
        fates.strike()
        if fates.age > age:
            age = fates.age
            note(f"{fates.graph.project.queries[0]}")
            blocks = data.draw(later(fates.graph, 0, age))
    cluster.advance(0.5)
    fates.end()
    cluster.settle()
    cluster.check()


@pytest.mark.timeout(900)
@pytest.mark.slow
@SETTINGS
@given(st.data())
def test_a_bus_that_loses_what_it_acknowledged_is_noticed_by_everybody_it_concerns(data):
    graph = data.draw(models())
    with tempfile.TemporaryDirectory() as folder:
        cluster = LocalCluster(
            graph, frozenset(node.path for node in graph.nodes), Path(folder),
            seed=data.draw(st.integers(0, 1000), label="seed"),
            server=MemoryServer() if data.draw(st.booleans(), label="on a server") else None, patience_s=4.0,
            entry_events=data.draw(st.sampled_from([1, 50]), label="entry"),
            snapshot_every_s=data.draw(st.sampled_from([0.0, 1e9]), label="snapshots"),
        )  # fmt: skip
        cluster.may_lose = True
        for name in "ab":
            cluster.start(name)
        lose(cluster, data)
        cluster.settle_or_fail()
        cluster.check_visible()


def lose(cluster: LocalCluster, data: st.DataObject) -> None:
    """Blocks come, engines are killed and paused, and now and then the bus fails over to a replica with a lag."""
    fates, replica = Fates(cluster, data.draw, PROCESSES), cluster.replica()
    for block in data.draw(scripts(cluster.graph)):
        feed(cluster, block)
        cluster.advance(data.draw(st.sampled_from(PAUSES), label="pause"))
        match data.draw(st.sampled_from(["copy", "copy", "promote", "strike", "strike"]), label="next"):
            case "copy":
                replica = cluster.replica()
            case "promote":
                cluster.promote(replica)
            case "strike":
                fates.strike()
    cluster.advance(0.5)
    fates.end()
