"""Whatever engines of a project go through, subscribers get the interpreter's answer, and all engines end up alike."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from local_cluster import LocalCluster, LocalNode
from model_strategies import models, scripts, shardable_models

from lockstep.engine.events.block import InputBlock
from lockstep.engine.run.decisions import Decision
from memory_wire import MemoryServer

SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
STREAMS = (".S", ".C", ".O", ".B", ".engines")
FATES = (
    *["nothing"] * 6, "kill", "kill", "kill at", "kill at", "pause", "pause", "wake", "stall at", "stall at", "start",
    "start", "start", "persist", "hand over", "slow", "lose spool", "lose disk", "lost append", "late append",
)  # fmt: skip


class Fates:
    """What may happen to the engines of a cluster, drawn by Hypothesis."""

    def __init__(self, cluster: LocalCluster, draw: Callable[..., object]) -> None:
        self._cluster, self._draw = cluster, draw

    def strike(self) -> None:
        """One thing, or nothing."""
        fate = self.choose(FATES, "fate")
        node = self.choose(list(self._cluster.nodes.values()), "engine")
        assert isinstance(fate, str)
        assert isinstance(node, LocalNode)
        if fate != "nothing":
            getattr(self, fate.replace(" ", "_"))(node)

    def choose(self, options: object, label: str) -> object:
        return self._draw(st.sampled_from(options), label=label)  # type: ignore[call-overload]

    def kill(self, node: LocalNode) -> None:
        if node.is_alive:
            node.kill()

    def pause(self, node: LocalNode) -> None:
        if node.is_alive:
            node.pause()

    def wake(self, node: LocalNode) -> None:
        if node.is_alive:
            node.wake()

    def start(self, node: LocalNode) -> None:
        if not node.is_alive:
            node.start()

    def kill_at(self, node: LocalNode) -> None:
        if node.is_alive:
            node.kill_at(str(self.choose(STREAMS, "stream")), after=bool(self.choose([False, True], "after")))

    def stall_at(self, node: LocalNode) -> None:
        if node.is_alive:
            seconds = self.choose([0.3, 1.0, 3.0], "seconds")
            assert isinstance(seconds, float)
            stream, after = str(self.choose(STREAMS, "stream")), bool(self.choose([False, True], "after"))
            node.stall_at(stream, lambda: self._cluster.clock.advance(seconds), after=after)

    def persist(self, _: LocalNode) -> None:
        self._cluster.ask_later("persist")

    def hand_over(self, _: LocalNode) -> None:
        self._cluster.ask_later("handover")

    def slow(self, node: LocalNode) -> None:
        if node.is_alive:
            node.slow(0.5)

    def lose_spool(self, node: LocalNode) -> None:
        """The oldest of several parts: that something is missing is seen by what is behind it."""
        if node.is_alive and node.buffer().files > 1:
            node.lose_spool()

    def lose_disk(self, node: LocalNode) -> None:
        if not node.is_alive and node.disk.folder.exists():
            self._cluster.remove_disk(node)

    def lost_append(self, node: LocalNode) -> None:
        if node.is_alive:
            node.bus.plan.drop(log=self._cluster.streams.sequence).lose_ack(log=self._cluster.streams.control)

    def late_append(self, node: LocalNode) -> None:
        if node.is_alive:
            for subscriber in self._cluster.subscribers.values():
                node.bus.plan.late(log=subscriber.stream)

    def end(self) -> None:
        """Everybody is well again."""
        for node in self._cluster.nodes.values():
            if node.is_alive:
                node.bus.clear_traps()
                node.slow(0.0)
                node.wake()
        self._cluster.advance(0.1)
        for node in self._cluster.nodes.values():
            if not node.is_alive:
                assert node.failure is None, node.failure
                node.start()


def feed(cluster: LocalCluster, block: InputBlock) -> None:
    """Put a block on its input; a tick is asked of who leads, and is lost with him."""
    if block.tick_us is None:
        path = block.window or cluster.graph.nodes[0].path
        cluster.publish(path, block.events, transactional=block.transactional)
        return
    for node in cluster.awake:
        if node.team.sequencer.leads:
            node.ask_for(Decision((), 0, 0, block.tick_us))


@pytest.mark.slow
@SETTINGS
@given(st.data())
def test_whatever_happens_subscribers_get_the_interpreters_answer(data):
    shards = data.draw(st.sampled_from([1, 1, 1, 2]), label="shards")
    graph = data.draw(models() if shards == 1 else shardable_models())
    blocks = data.draw(scripts(graph))
    wanted = frozenset(node.path for node in graph.nodes)
    with tempfile.TemporaryDirectory() as folder:
        cluster = LocalCluster(
            graph, wanted, Path(folder),
            seed=data.draw(st.integers(0, 1000), label="seed"), shards=shards,
            server=MemoryServer() if data.draw(st.booleans(), label="on a server") else None,
            persist_to=Path(folder) / "kept",
            entry_events=data.draw(st.sampled_from([1, 3, 50]), label="entry"),
            batch_events=data.draw(st.sampled_from([1, 1000]), label="batch"),
            snapshot_every_s=data.draw(st.sampled_from([0.0, 1e9]), label="snapshots"),
        )  # fmt: skip
        for name in "abc"[: data.draw(st.integers(2, 3), label="engines")]:
            cluster.start(name)
        fates = Fates(cluster, data.draw)
        for block in blocks:
            feed(cluster, block)
            cluster.advance(data.draw(st.sampled_from([0.0, 0.05, 0.3, 1.0]), label="pause"))
            fates.strike()
        cluster.advance(0.5)
        fates.end()
        cluster.settle()
        cluster.check()
