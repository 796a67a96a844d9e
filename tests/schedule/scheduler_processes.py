"""Processes of a scheduler in virtual time: each has a clock of its own, can be paused, killed and cut off."""

from __future__ import annotations

import heapq
from collections import Counter
from itertools import count

from lockstep.core.ladder import Ladder
from lockstep.errors import AppendUncertain, ServerUnreachable
from lockstep.log.memory import MemoryBroker
from lockstep.schedule.client import SchedulerClient
from lockstep.schedule.delivery.port import Outcome, Result
from lockstep.schedule.node import Node, NodeOptions
from lockstep.schedule.store.cells import CellStore
from lockstep.schedule.streams import SchedulerStreams
from lockstep.streams.client import Lockstep
from lockstep.streams.grouplog import GroupLog
from lockstep.streams.options import GroupOptions
from lockstep.testing.faults import FaultPlan, FaultyBus
from lockstep.testing.virtual import VirtualRuntime
from lockstep.testing.virtual_process import Killed, ProcessRuntime

GROUP = GroupOptions(lease_s=2.0, beat_s=0.5, revoke_s=3.0)


class StoreOnOrder:
    """A store whose commits fail, hang, or end the process, as `before` and `after` say."""

    def __init__(self, inner, before, after, committed, *, is_remote, is_late=lambda: False):
        self._inner, self._before, self._after, self._committed = inner, before, after, committed
        self.is_remote, self._is_late = is_remote, is_late

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def commit(self, changes):
        self._before()
        refused = self._inner.commit(changes)
        self._committed([change for change in changes if change.shard not in refused])
        self._after()
        return refused

    def begin(self, changes):
        """A server may store it at once, or not before somebody waits for it."""
        if self.is_remote and self._is_late():
            return lambda: self.commit(changes)
        if not self.is_remote:
            refused = self.commit(changes)
            return lambda: refused
        self._before()
        refused = self._inner.commit(changes)
        self._committed([change for change in changes if change.shard not in refused])

        def end():
            self._after()
            return refused

        return end


class SlowCourier:
    """Deliveries that take their time; `receive` decides what becomes of each."""

    def __init__(self, runtime, delay, receive):
        self._runtime, self._delay, self._receive = runtime, delay, receive
        self._waiting, self._numbers = [], count()
        self.waiter = runtime.waiter()
        self._task = runtime.spawn("courier", self._step, self.waiter, _raise)

    def check(self, tenant):
        """Any tenant will do."""

    def forget(self, tenant):
        """Nothing is kept."""

    def deliver(self, delivery, done):
        heapq.heappush(self._waiting, (self._runtime.monotonic() + self._delay(), next(self._numbers), delivery, done))
        self.waiter.wake()

    def _step(self):
        now = self._runtime.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, delivery, done = heapq.heappop(self._waiting)
            outcome = self._receive(delivery)
            done(Result(delivery, outcome, None if outcome is Outcome.TAKEN else f"it was {outcome.value}"))
        return self._waiting[0][0] - now if self._waiting else 60.0

    def close(self):
        self._task.stop()


def _raise(error):
    raise error


class NodeProcess:
    """One process with a node."""

    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name
        self.runtime = ProcessRuntime(cluster.clock)
        self.plan = FaultPlan()
        self.bus = FaultyBus(cluster.grid.bus(self.runtime), self.plan)
        client = Lockstep(self.bus, self.runtime)
        self.grouplog = GroupLog(self.bus, cluster.streams.group, self.runtime)
        self.node = None
        inner = cluster.open_store(self)
        self.store = StoreOnOrder(
            inner, self._before, self._after, self._committed, is_remote=cluster.is_remote or inner.is_remote,
            is_late=cluster.is_late,
        )  # fmt: skip
        self.courier = SlowCourier(self.runtime, cluster.delivery_s, lambda delivery: cluster.receive(self, delivery))
        self.node = Node(
            client, cluster.streams, self.store, self.courier, self.grouplog, name=name, options=cluster.options
        )

    def owners(self, changes):
        known = self.grouplog.load() if self.node is None else self.node.member.group_state
        return self.grouplog.state_in(changes, known)

    def _before(self):
        self.cluster.before_commit(self)

    def _after(self):
        self.cluster.after_commit(self)

    def _committed(self, changes):
        self.cluster.committed(self, changes)

    @property
    def is_alive(self):
        return not self.runtime.dead

    def kill(self):
        self.runtime.dead = True
        self.node.member.close = lambda: None  # nobody is left to say goodbye
        for task in (self.node._task, self.node.member._task, self.courier._task):
            task.stop()

    def hang(self, seconds):
        """The thread that calls this stands still, and the others go on."""
        self.runtime.clock.waiter().wait(seconds)
        if self.runtime.dead:
            raise Killed


class Cluster:
    """One scheduler: a bus, node processes and clients. Subclasses say what goes wrong."""

    def __init__(self, seed=0, *, shards=3, options=None, is_remote=False):
        self.is_remote = is_remote
        self.clock = VirtualRuntime(seed, max_steps_per_instant=1000, max_steps_per_call=50_000)
        self.grid = MemoryBroker(dedupe=False)
        self.streams = SchedulerStreams("jobs")
        self.options = options or NodeOptions(ladder=Ladder(), group=GROUP)
        self.bus = Lockstep(self.grid.bus(self.clock), self.clock)
        self.streams.create(self.bus, shards=shards)
        self.nodes = {}
        self.store = CellStore(self.bus.bus, self.streams.name, self.clock, lambda _: None)
        self.counts = Counter()

    # what subclasses change

    def open_store(self, process):
        return CellStore(process.bus, self.streams.name, process.runtime, process.owners)

    def before_commit(self, process):
        """Called before each transaction of a node."""

    def after_commit(self, process):
        """Called after each transaction of a node."""

    def committed(self, process, changes):
        """What was stored."""

    def is_late(self):
        """Whether a commit that was begun is stored when its end is waited for, and not before."""
        return False

    def delivery_s(self):
        return 0.05

    def receive(self, process, delivery):
        return Outcome.TAKEN

    # processes

    def start(self, name):
        self.nodes[name] = NodeProcess(self, name)
        return self.nodes[name]

    def kill(self, name):
        self.nodes.pop(name).kill()

    def client(self, plan=None):
        bus = Lockstep(FaultyBus(self.grid.bus(self.clock), plan), self.clock)
        return SchedulerClient(bus, self.streams, self.store)

    def live(self):
        return [process for process in self.nodes.values() if process.is_alive]

    # what became of it

    def records(self, stream):
        found = []
        for log in self.bus.logs(stream):
            subscriber = self.bus.subscriber(log.name, initial="earliest", create=False)
            while batch := list(subscriber.poll(0)):
                found += batch
            subscriber.close()
        return found

    @property
    def now(self):
        """Milliseconds since 1970."""
        return self.clock.wall_ns() // 10**6


def unreachable():
    return ServerUnreachable(server="the store", reason="it is away on order")


def uncertain():
    return AppendUncertain(stream="the store", reason="the answer was lost on order")
