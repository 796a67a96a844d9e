"""Engines of one project in one process, without Spark, on one bus in memory and in virtual time.

    cluster = LocalCluster(sums_graph(), WANTED, tmp_path)
    a, b = cluster.start("a"), cluster.start("b")
    cluster.publish("q/in", [trade(1)])
    a.kill()
    cluster.settle()    # until everything that was decided is out
    cluster.check()     # what subscribers got is what the interpreter says

Everything but Spark is the engine's own; steps come in a random order that the seed decides.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from cluster_oracle import Oracle, Recorder
from kernel_worlds import texts
from local_machine import Killed, Machine, MachineBus
from local_spark import Disk, MachineCompute

from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event
from lockstep.engine.events.frames import encode_frame
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.runtime.control.engine_control import EngineControl
from lockstep.engine.runtime.control.leadership import ACTIVE, RoleChange
from lockstep.engine.runtime.control.reports import Report, latest_reports
from lockstep.engine.runtime.engine import Engine, EngineOptions
from lockstep.engine.runtime.output.spool import SpoolFill, WorkerProgress
from lockstep.engine.runtime.requests.channel import REPLIES, Reply, Request, RequestClient
from lockstep.engine.runtime.sequence.entries import Decision
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.errors import LockstepError
from lockstep.events.positions import Position
from lockstep.events.subscriber import OutSource, SubscribeOptions, Subscription
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.config import StreamConfig
from lockstep.log.memory import MemoryBroker
from lockstep.log.port import Log
from lockstep.streams.client import Lockstep
from lockstep.testing.virtual import VirtualRuntime
from memory_driver import MemoryServer

LEASE_S = 0.5
SETTLE_S = 60.0
PATIENCE_S = 10.0
"""How long a subscriber waits for a block that is missing."""
IDLE_PACE_S = 0.12
"""Between the steps of a machine while everybody only waits for that: a quarter of the lease."""


class LocalNode:
    """One engine with its disk: it can be started again after it was killed."""

    def __init__(self, cluster: LocalCluster, name: str, options: EngineOptions, graph: Graph) -> None:
        self.cluster, self.name, self.options, self.graph = cluster, name, options, graph
        self.wanted = cluster.wanted
        self.disk = Disk(cluster.folder / name)
        self.roles: list[RoleChange] = []
        self.starts = 0
        self.wall_ahead_s = 0.0
        self.failure: LockstepError | None = None
        self._engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        assert self._engine is not None
        return self._engine

    @property
    def is_alive(self) -> bool:
        """Whether it runs, perhaps paused."""
        return self._engine is not None and not self.machine.is_dead

    @property
    def is_awake(self) -> bool:
        return self.is_alive and not self.machine.is_paused

    @property
    def is_active(self) -> bool:
        return self.is_alive and self.engine.role == ACTIVE

    def start(self) -> LocalNode:
        """A new process on the same disk."""
        assert not self.is_alive
        cluster = self.cluster
        self.starts += 1
        self.failure = None
        self.machine = Machine(cluster.clock, f"{self.name}{self.starts}", cluster.seed)
        self.machine.jump_wall(self.wall_ahead_s)
        self.bus = MachineBus(cluster.grid, self.machine, f"memory:{cluster.name}-{self.name}-{self.starts}")
        self.bus.before_trim = cluster.recorder.keep
        self._engine = Engine(
            self.graph, self.wanted, self.bus, self.disk.folder, self.machine, self.options, self.roles.append,
            self._compute_of,
        )  # fmt: skip
        try:
            self.engine.start()
        except BaseException:
            self.kill()
            raise
        self.machine.spawn("main", self._check, self.machine.waiter(), self._failed)
        return self

    def kill(self) -> None:
        """As kill -9 does: memory is gone, the disk stays."""
        self.machine.kill()
        self._let_go()

    def stop(self) -> None:
        """In order, as when it is asked to end."""
        self.engine.stop()
        self.machine.kill()

    def pause(self) -> None:
        self.machine.pause()

    def wake(self) -> None:
        self.machine.wake()

    def hand_over(self) -> Reply:
        """Ask whoever leads to let a standby lead."""
        return self.cluster.ask("handover")

    def slow(self, seconds: float) -> None:
        """Each batch takes so long from now on."""
        self.computing.slow_s = seconds

    def jump_wall(self, seconds: float) -> None:
        """Somebody sets the clock of its host; it stays so over restarts."""
        self.wall_ahead_s += seconds
        if self.is_alive:
            self.machine.jump_wall(seconds)

    def kill_at(self, ending: str, *, skip: int = 0, after: bool = False) -> None:
        """It dies at an append to a stream whose name ends so: before it happens, or right after."""
        self.bus.trap(ending, self._die, skip=skip, after=after)

    def stall_at(self, ending: str, meanwhile: Callable[[], None], *, skip: int = 0, after: bool = False) -> None:
        """It stands still at an append to a stream whose name ends so, while something else happens."""
        self.bus.trap(ending, lambda: self.machine.stand_still(meanwhile), skip=skip, after=after)

    def lose_spool(self) -> int:
        """Somebody deletes the oldest part of its buffer; returns how many parts there were."""
        parts = [path for spool in self.computing.spools for path in sorted(spool.folder.glob("*.spool"))]
        for path in parts[:1]:
            path.unlink()
        return len(parts)

    @property
    def control(self) -> EngineControl:
        """Its parts, and what can be done with them."""
        return self.engine._running()

    @property
    def computing(self) -> MachineCompute:
        found = self.engine._compute
        assert isinstance(found, MachineCompute)
        return found

    def computed(self) -> WorkerProgress:
        return self.computing.computed() or WorkerProgress()

    def buffer(self) -> SpoolFill:
        return self.computing.buffer()

    def ask_for(self, decision: Decision) -> None:
        """Have its sequencer decide on something, if it leads."""
        self.control.sequencer.ask(decision)

    def _compute_of(self, setup: Any, project: str, divided: frozenset[str]) -> MachineCompute:
        return MachineCompute(setup, project, divided, self.machine, self.bus, self.disk)

    def _check(self) -> float:
        """What the main thread does: an engine that can't go on says why, and ends."""
        try:
            self.engine.check()
        except LockstepError as error:
            self._failed(error)
        return 0.1

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, LockstepError) and not self.machine.is_dead:
            self.failure = error
            self.kill()
        elif not isinstance(error, Killed):
            self.cluster.surprises.append(error)

    def _die(self) -> None:
        self._let_go()
        self.machine.die()

    def _let_go(self) -> None:
        """What the system does with the things of a process that is gone."""
        if self._engine is not None and self._engine._folder is not None:
            self._engine._folder.close()
            self._engine._folder = None
        if self._engine is not None and self._engine._compute is not None:
            self.computing.forget()


class Subscriber:
    """Reads an out stream all the time with the reader that users get, and stops at the first error."""

    def __init__(self, source: OutSource, machine: Machine, waiter: Any, patience_s: float) -> None:
        log, node = source.log, source.node
        start = Position(stream=log.name, identity=log.identity, offset=0, last=0)
        self.stream = log.name
        self._subscription = Subscription(source, machine, SubscribeOptions(patience_s=patience_s), after=start)
        self.got: list[tuple[int, str]] = []
        self.failed: list[BaseException] = []
        waiter.watch(log)
        machine.spawn(f"subscriber {node.path}", self.step, waiter, self.failed.append)

    def step(self) -> float:
        while (block := self._subscription.next_block(0.0)) is not None:
            self.got += texts(block.number, block.events())
        return 1.0


class LocalCluster:
    """See module."""

    def __init__(
        self,
        graph: Graph,
        wanted: frozenset[str],
        folder: Path,
        *,
        seed: int = 0,
        server: MemoryServer | None = None,
        patience_s: float = PATIENCE_S,
        others: Mapping[str, StreamConfig] = MappingProxyType({}),
        **options: Any,
    ) -> None:
        """`server`: what is shared is a server with topics, whose offsets have gaps, and not tables in memory.

        `others`: streams that are not the project's own, whose records it takes.
        """
        self.graph, self.wanted, self.folder, self.seed = graph, wanted, folder, seed
        self.shards, self.patience_s = int(options.get("shards", 1)), patience_s
        self.name = f"{folder.name}-{id(self)}"
        self.clock, self.grid = VirtualRuntime(seed), server or MemoryBroker(dedupe=False)
        self.random = random.Random(f"cluster {seed}")
        self.bus = self.grid.bus(self.clock)
        self.streams = ProjectStreams(cluster="local", project=graph.project.name)
        for name, config in others.items():
            Lockstep(self.bus, self.clock).create(name, config)
        self.streams.create(self.bus, graph, wanted)
        self.recorder = Recorder(self.bus, self.streams)
        self._options = {"lease_s": LEASE_S, "snapshot_every_s": 0.0, "ticks": False, "entry_events": 1, **options}
        self.nodes: dict[str, LocalNode] = {}
        self.surprises: list[BaseException] = []
        self.sent = 0
        self.may_lose = False
        """Whether the bus loses what it acknowledged: subscribers may then end with an error."""
        self._outside = Machine(self.clock, "outside", seed)
        self.subscribers: dict[str, Subscriber] = {}
        self.subscribe(node for node in graph.nodes if node.path in wanted)

    def subscribe(self, nodes: Iterable[Node]) -> None:
        """Read windows that were not read so far."""
        for node in sorted(nodes, key=lambda node: node.path):
            if node.path not in self.subscribers:
                self.subscribers[node.path] = self.new_subscriber(node)

    def new_subscriber(self, node: Node) -> Subscriber:
        """One that reads a window from the beginning."""
        control, log = self.bus.open(self.streams.control), self.bus.open(self.streams.output(node))
        source = OutSource(self.bus, log, control, node)
        return Subscriber(source, self._outside, self.bus.waiter(), self.patience_s)

    def node(self, name: str, *, graph: Graph | None = None, **options: Any) -> LocalNode:
        """An engine that is not started yet."""
        made = EngineOptions(**{**self._options, "name": name, **options})
        self.nodes[name] = LocalNode(self, name, made, graph or self.graph)
        return self.nodes[name]

    def start(self, name: str, **options: Any) -> LocalNode:
        """A new engine, and a moment later."""
        node = self.node(name, **options).start()
        self.advance(0.2)
        return node

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)
        for error in self.surprises:
            raise error
        for subscriber in self.subscribers.values() if not self.may_lose else ():
            for error in subscriber.failed:
                raise error

    def until(self, is_so: Callable[[], bool], *, timeout: float = SETTLE_S) -> None:
        """Let time pass until something is so."""
        end = self.clock.monotonic() + timeout
        while not is_so():
            assert self.clock.monotonic() < end, self.describe()
            self.advance(0.05)

    def publish(
        self, path: str, *blocks: Sequence[Event], transactional: bool = False, graph: Graph | None = None
    ) -> None:
        """Blocks for a source, each one a record of its input; `graph` is the model in force, if it was replaced."""
        node = (graph or self.graph).find(path)
        assert node is not None
        for events in blocks:
            self.sent += len(events)
            number = np.array([1], np.int64)
            batch = EventBatch.of(node.schema, [(1, events)])
            frame = encode_frame(batch, numbers=number, transactional=number if transactional else number[:0])
            put_record(self.bus.open(self.streams.input(node)), frame)

    def put(self, path: str, value: bytes) -> None:
        """A raw record for the input of a source."""
        put_record(self.input(path), value)

    def input(self, path: str) -> Log:
        node = self.graph.find(path)
        assert node is not None
        return self.bus.open(self.streams.input(node))

    def output(self, path: str) -> Log:
        node = self.graph.find(path)
        assert node is not None
        return self.bus.open(self.streams.output(node))

    def told(self, stream: str) -> list[dict[str, Any]]:
        """The JSON records of a stream."""
        log = self.bus.open(stream)
        bounds = log.bounds()
        return [json.loads(value) for _, value in values_between(log, bounds.first, bounds.next)]

    def reports(self) -> dict[str, Report]:
        return latest_reports(self.bus.open(self.streams.reports))

    def ask(self, kind: str, params: Mapping[str, Any] | None = None, **more: Any) -> Reply:
        """As a person would, over the bus; time passes meanwhile."""
        return RequestClient(self.bus, self.streams, self.clock).ask(kind, params or {}, **more)

    def ask_later(self, kind: str, params: Mapping[str, Any] | None = None, *, id_: str | None = None) -> str:
        """Ask and do not wait: the reply stream, which is left to the engines to sweep."""
        reply = self.streams.replies(self.clock.new_id().hex())
        self.bus.create(reply, REPLIES)
        request = Request(id_ or self.clock.new_id().hex(), kind, params or {}, reply, self.clock.wall_ns())
        data = json.dumps(asdict(request)).encode()
        put_record(self.bus.open(self.streams.requests), data)
        return reply

    @property
    def awake(self) -> list[LocalNode]:
        return [node for node in self.nodes.values() if node.is_awake]

    @property
    def active(self) -> LocalNode:
        """The one engine that is active, of those that are awake."""
        found = [node for node in self.awake if node.is_active]
        assert len(found) == 1, self.describe()
        return found[0]

    @property
    def standbys(self) -> list[LocalNode]:
        return [node for node in self.awake if not node.is_active]

    def until_active(self, *names: str) -> LocalNode:
        """Wait until one engine is active: one of these, if any are given."""
        self.until(
            lambda: len(found := [n for n in self.awake if n.is_active]) == 1 and (not names or found[0].name in names)
        )
        return self.active

    def is_settled(self) -> bool:
        """Whether one leads, everything on the inputs is out, and all have computed everything."""
        leading = [node for node in self.awake if node.is_active and node.control.sequencer.leads]
        if len(leading) != 1 or not leading[0].engine._is_caught_up():
            return False
        decided = leading[0].control.sequencer.position
        is_out = leading[0].control.publisher.published == decided.block
        return is_out and all(node.computed().number == decided.number for node in self.awake)

    def settle(self) -> None:
        """Wait until everything is done that can be done."""
        self.until(self.is_settled)
        self.advance(0.1)

    def settle_or_fail(self) -> None:
        """Wait until everything is done, or no engine is left that could do it."""
        self.until(lambda: self.is_settled() or not self.awake)
        for machine in (self._outside, *(node.machine for node in self.awake)):
            machine.pace_s = IDLE_PACE_S
        self.advance(2 * self.patience_s + 2.0)  # a block that was lost is looked for twice

    def oracle(self) -> Oracle:
        """What the interpreter says to what was decided."""
        return Oracle.of(self.recorder, self.graph)

    def check(self) -> None:
        """Subscribers got the interpreter's answer, nothing of the input was lost, and all engines agree."""
        expected = self.oracle()
        assert expected.events == self.sent or expected.changes
        assert not expected.left_over(self.recorder)
        for path, subscriber in self.subscribers.items():
            subscriber.step()
            assert subscriber.got == expected.answer[path], path
        for node in self.awake:
            assert node.computed().counts == expected.counts, node.name

    def replica(self) -> Any:
        """A copy of everything on the bus, as a replica holds it that follows with a lag."""
        if isinstance(self.grid, MemoryServer):
            return {name: list(topic.messages) for name, topic in self.grid.topics.items()}
        with self.grid.store.read() as tables:
            return copy.deepcopy((tables._values, tables._keys))

    def promote(self, replica: Any) -> None:
        """The bus fails over to a replica: what was appended since it was copied is lost, although it was told."""
        if isinstance(self.grid, MemoryServer):
            for name, topic in self.grid.topics.items():
                topic.messages[:] = replica.get(name, [])
            return
        with self.grid.store.read() as tables:
            tables._values, tables._keys = copy.deepcopy(replica)

    def check_visible(self) -> None:
        """On a bus that lost something: everybody has the right answer, or an error that says what is wrong."""
        if not self.awake:
            assert any(node.failure for node in self.nodes.values())
            return
        expected = Oracle.of(Recorder(self.bus, self.streams), self.graph)
        for path, subscriber in self.subscribers.items():
            if not subscriber.failed:
                assert subscriber.got == expected.answer[path], path
        for node in self.awake:
            assert node.computed().counts == expected.counts, node.name

    def remove_disk(self, node: LocalNode) -> None:
        """The disk of an engine that does not run is lost."""
        assert not node.is_alive
        shutil.rmtree(node.disk.folder)

    def describe(self) -> str:
        """How everybody is, for whoever reads a failed test."""
        lines = [f"at {self.clock.monotonic():.2f} s"]
        for node in self.nodes.values():
            if not node.is_alive:
                lines.append(f"{node.name}: gone, {node.failure!r}")
                continue
            engine, control = node.engine, node.control
            lines.append(
                f"{node.name}: {engine.role}, {control.state}, paused {node.machine.is_paused}, "
                f"decided {control.sequencer.position.number}, computed {node.computed().number}, "
                f"published {control.publisher.published} of {control.decided.block}, crash {engine._crash!r}"
            )
        return "\n".join(lines)


def put_record(log: Log, value: bytes) -> None:
    """Append one record, as somebody without a name."""
    log.append([pack([value], producer=NO_PRODUCER, sequence=0, created_ns=0)])
