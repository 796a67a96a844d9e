"""What may happen to the engines of a project: every fault that failover.md names, drawn by Hypothesis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from change_strategies import edits
from hypothesis import strategies as st
from local_cluster import LocalCluster, LocalNode
from local_machine import APPENDS, READS

from lockstep.engine.errors import LogTooShort
from lockstep.engine.events.event import InputBlock
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.model.plan import make_plan
from lockstep.engine.runtime.sequence.entries import Decision
from lockstep.errors import LockstepError, Trimmed

STREAMS = (".S", ".C", ".O", ".B", ".engines")
"""How the names of the streams end that engines append to."""

PROCESSES = (
    "kill", "kill", "kill_at", "kill_at", "kill_all", "pause", "pause", "wake", "stall_at", "stall_at", "start",
    "start", "start", "slow",
)  # fmt: skip
BUSES = ("drop", "lose_acknowledgement", "late", "duplicate", "duplicate", "cut_off", "cut_off")
DISKS = ("lose_spool", "lose_disk", "fill_disk", "fill_disk", "free_disk")
CLOCKS = ("jump_wall", "jump_wall")
REQUESTS = (
    "persist", "persist", "hand_over", "replace", "replace", "replace_and_kill_all", "reset", "trim", "trim", "restore",
    "stop_and_run",
)  # fmt: skip
FATES = (*["nothing"] * 8, *PROCESSES, *BUSES, *DISKS, *CLOCKS, *REQUESTS)

T = TypeVar("T")


class Fates:
    """Strikes a cluster. `graph` is the newest model that was accepted, and `age` how many there were."""

    def __init__(self, cluster: LocalCluster, draw: Callable[..., object], fates: Sequence[str] = FATES) -> None:
        self._cluster, self._draw, self._fates = cluster, draw, fates
        self.graph, self.age = cluster.graph, 0

    def strike(self) -> None:
        """One thing, or nothing."""
        fate = self.choose(self._fates, "fate")
        node = self.choose(list(self._cluster.nodes.values()), "engine")
        getattr(self, fate)(node)

    def choose(self, options: Sequence[T], label: str) -> T:
        return self._draw(st.sampled_from(options), label=label)  # type: ignore[return-value]

    def end(self) -> None:
        """Everybody is well again."""
        for node in self._cluster.nodes.values():
            node.disk.room = None
            if node.is_alive:
                node.bus.clear_traps()
                node.slow(0.0)
                node.wake()
        self._cluster.advance(0.1)
        for node in self._cluster.nodes.values():
            self.start(node)
        self._ask("state", {"value": "running"})

    def nothing(self, node: LocalNode) -> None:
        """All is well."""

    # Processes

    def kill(self, node: LocalNode) -> None:
        if node.is_alive:
            node.kill()

    def kill_all(self, _: LocalNode) -> None:
        for node in self._cluster.nodes.values():
            self.kill(node)

    def pause(self, node: LocalNode) -> None:
        if node.is_alive:
            node.pause()

    def wake(self, node: LocalNode) -> None:
        if node.is_alive:
            node.wake()

    def start(self, node: LocalNode) -> None:
        """Again, with the file of the model that is in force by now."""
        if node.is_alive or (node.failure is not None and self._cluster.may_lose):
            return
        was_outrun = isinstance(node.failure, Trimmed | LogTooShort)  # `engine run` starts again as well
        assert node.failure is None or was_outrun, node.failure
        try:
            self._look()
            node.graph, node.wanted = self.graph, frozenset(each.path for each in self.graph.nodes)
            node.start()
        except LockstepError as error:
            if not self._cluster.may_lose:
                raise
            node.failure = error

    def kill_at(self, node: LocalNode) -> None:
        if node.is_alive:
            node.kill_at(self.choose(STREAMS, "stream"), after=self.choose([False, True], "after"))

    def stall_at(self, node: LocalNode) -> None:
        if node.is_alive:
            seconds, stream = self.choose([0.3, 1.0, 3.0], "seconds"), self.choose(STREAMS, "stream")
            meanwhile = self.choose([self.nothing, self.kill_the_others], "meanwhile")

            def stand() -> None:
                meanwhile(node)
                self._cluster.clock.advance(seconds)

            node.stall_at(stream, stand, after=self.choose([False, True], "after"))

    def kill_the_others(self, node: LocalNode) -> None:
        for other in self._cluster.nodes.values():
            if other is not node:
                self.kill(other)

    def slow(self, node: LocalNode) -> None:
        if node.is_alive:
            node.slow(0.5)

    # The bus

    def drop(self, node: LocalNode) -> None:
        self._plan(node, lambda name: node.bus.plan.drop(log=name))

    def lose_acknowledgement(self, node: LocalNode) -> None:
        self._plan(node, lambda name: node.bus.plan.lose_ack(log=name))

    def late(self, node: LocalNode) -> None:
        self._plan(node, lambda name: node.bus.plan.late(log=name))

    def duplicate(self, node: LocalNode) -> None:
        self._plan(node, lambda name: node.bus.plan.duplicate(log=name))

    def cut_off(self, node: LocalNode) -> None:
        if node.is_alive:
            sides = [frozenset({APPENDS, READS}), frozenset({APPENDS}), frozenset({READS})]
            node.bus.cut_off(self.choose([0.3, 2.0], "seconds"), self.choose(sides, "of"))

    def _plan(self, node: LocalNode, plan: Callable[[str], object]) -> None:
        streams = self._cluster.streams
        names = [streams.sequence, streams.control, *(each.stream for each in self._cluster.subscribers.values())]
        if node.is_alive:
            plan(self.choose(names, "log"))

    # The disk

    def lose_spool(self, node: LocalNode) -> None:
        """The oldest of several parts: that something is missing is seen by what comes after it."""
        if node.is_alive and node.buffer().files > 1:
            node.lose_spool()

    def lose_disk(self, node: LocalNode) -> None:
        if not node.is_alive and node.disk.folder.exists():
            self._cluster.remove_disk(node)

    def fill_disk(self, node: LocalNode) -> None:
        """Files take so many bytes and no more: nothing, a part of what is written, or all that is small."""
        node.disk.room = self.choose([0, 40, 400, 1500], "bytes")

    def free_disk(self, node: LocalNode) -> None:
        node.disk.room = None

    # Clocks

    def jump_wall(self, node: LocalNode) -> None:
        node.jump_wall(self.choose([-7200.0, -4.0, 4.0, 7200.0], "seconds"))

    # What people ask for

    def persist(self, _: LocalNode) -> None:
        self._cluster.ask_later("persist")

    def hand_over(self, _: LocalNode) -> None:
        self._cluster.ask_later("handover")

    def trim(self, _: LocalNode) -> None:
        """With snapshots before and after whatever came before: two are kept, and what is older may go."""
        for _ in range(self.choose([0, 1, 2], "snapshots")):
            self._ask("persist", {})
        self._ask("trim", {})

    def restore(self, _: LocalNode) -> None:
        self._cluster.ask_later("state", {"value": "restored"})

    def reset(self, _: LocalNode) -> None:
        """Input from before it is let go. An engine that was away meanwhile stops, and begins there when started."""
        self._cluster.ask_later("reset", {"force": True})

    def stop_and_run(self, _: LocalNode) -> None:
        self._cluster.ask_later("state", {"value": "stopped"})
        self._cluster.advance(self.choose([0.0, 0.3], "seconds"))
        self._cluster.ask_later("state", {"value": "running"})

    def replace(self, _: LocalNode) -> None:
        """Another model, or nothing if it is refused."""
        params = self._new_model()
        if params:
            self._ask("replace", params)
            self._cluster.advance(0.1)
            self._look()

    def replace_and_kill_all(self, _: LocalNode) -> None:
        """All engines die at some moment of a replacement: at an append, or between two."""
        params = self._new_model()
        if not params:
            return
        self._cluster.ask_later("replace", params)
        at = self.choose([0.0, 0.05, 0.1, 0.2, 0.4], "seconds")
        stream = self.choose([None, *STREAMS], "stream")
        for node in self._cluster.awake if stream is not None else ():
            node.kill_at(stream, after=self.choose([False, True], "after"))
        self._cluster.advance(at)
        for node in self._cluster.nodes.values():
            self.kill(node)
        self._look()

    def _new_model(self) -> dict[str, object]:
        new = self._draw(edits(self.graph, self.age + 1))
        assert isinstance(new, Graph)
        if not allows(new, self._cluster.shards):
            return {}
        return {"model": to_yaml(new.project), "publish": sorted(node.path for node in new.nodes)}

    def _look(self) -> None:
        """Which model is in force by now: a request that nobody answered may still have been decided."""
        in_force = self._cluster.oracle().graph
        if in_force.fingerprint != self.graph.fingerprint:
            self.age += 1
            self.graph = in_force
            self._cluster.subscribe(in_force.nodes)

    def _ask(self, kind: str, params: dict[str, object]) -> None:
        """As a person would, who does not wait long; what is refused changes nothing."""
        try:
            self._cluster.ask(kind, params, timeout_s=3.0)
        except LockstepError:
            return


def feed(cluster: LocalCluster, block: InputBlock, graph: Graph | None = None) -> None:
    """Put a block on its input; a tick is asked of the leader, and is lost with it."""
    graph = graph or cluster.graph
    if block.tick_us is not None:
        for node in cluster.awake:
            if node.control.sequencer.leads:
                node.ask_for(Decision(tick_us=block.tick_us))
        return
    path = block.window or graph.nodes[0].path
    cluster.publish(path, block.events, transactional=block.transactional, graph=graph)


def allows(graph: Graph, shards: int) -> bool:
    """Whether a model gives the same answer with so many shards."""
    plan = make_plan(graph)
    return plan.max_shards is None or shards <= plan.max_shards
