"""Worlds to test in: one bus, seen by as many processes as a test opens, in real or in virtual time."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import suppress

from lockstep import GroupOptions, Lockstep
from lockstep.errors import AppendUncertain, PublishFailed
from lockstep.log.memory import MemoryBroker
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing import FaultPlan, FaultyBus, VirtualRuntime
from memory_driver import MemoryServer

BOUND_S = 20.0
CALM = GroupOptions(lease_s=5.0, beat_s=0.1, confirm_s=0.01, revoke_s=5.0)
"""Only a clean hand-over moves a stream: for tests of everything but failure."""
HASTY = GroupOptions(lease_s=0.4, beat_s=0.1, confirm_s=0.01, revoke_s=0.3)
"""A silent member is soon replaced."""


class Outage(FaultPlan):
    """A member that is cut off from its group: what it appends there is lost, and it reads nothing new."""

    def __init__(self):
        super().__init__()
        self._of = None

    def begin(self, bus, group):
        self._of = f"_group.{group}"
        bus.stall(self._of)

    def end(self, bus):
        self._of = None
        bus.unstall()

    def take(self, operation, log):
        if operation == "append" and log is not None and log == self._of:
            self.counts["outage"] += 1
            raise AppendUncertain(stream=log, reason="the member is cut off")
        return super().take(operation, log)


class World:
    """A bus; `node` is one more process that opens it."""

    def __init__(self, runtime, open_node_bus):
        self.runtime = runtime
        self._open_bus = open_node_bus
        self._nodes = []

    def node(self):
        """One more process's connection."""
        return self._add(self._open_bus())

    def promises(self):
        """What its bus promises."""
        bus = self._open_bus()
        try:
            return bus.promises
        finally:
            bus.close()

    def shaky(self, plan=None):
        """A connection whose bus misbehaves on order, and that bus."""
        bus = FaultyBus(self._open_bus(), plan)
        return self._add(bus), bus

    def outage(self):
        """A connection that can be cut off from its groups: the connection, begin(group) and end()."""
        plan = Outage()
        node, bus = self.shaky(plan)
        return node, lambda group: plan.begin(bus, group), lambda: plan.end(bus)

    def until(self, condition, what="the condition"):
        """Wait for a condition, with a bound."""
        end = self.runtime.monotonic() + BOUND_S
        pause = self.runtime.waiter()
        while not (found := condition()):
            assert self.runtime.monotonic() < end, f"{what} did not come true"
            pause.wait(0.005)
        return found

    def close(self):
        for node in reversed(self._nodes):
            with suppress(PublishFailed):  # many tests make records fail, and look at that themselves
                node.close()

    def _add(self, bus):
        node = Lockstep(bus, self.runtime)
        self._nodes.append(node)
        return node


def memory_world():
    runtime, grid = ThreadRuntime(), MemoryBroker()
    world = World(runtime, lambda: grid.bus(runtime))
    world.grid = grid
    return world


def virtual_world(*, dedupe=True, seed=0):
    runtime, grid = VirtualRuntime(seed), MemoryBroker(dedupe=dedupe)
    world = World(runtime, lambda: grid.bus(runtime))
    world.grid = grid
    return world


def wire_world():
    """The layer that all buses over a network share, over a server in memory."""
    runtime, server = ThreadRuntime(), MemoryServer()
    return World(runtime, lambda: server.bus(runtime))


def server_world(url):
    """A real server; names of its own keep tests apart."""
    runtime = ThreadRuntime()
    own = f"{url}{'&' if '?' in url else '?'}prefix=t{uuid.uuid4().hex[:12]}."
    return World(runtime, lambda: open_bus(own, runtime))


def lmdb_world(folder):
    runtime = ThreadRuntime()
    return World(runtime, lambda: open_bus(f"lmdb:{folder / 'bus'}?map_bytes={1 << 28}", runtime))


def promised(promises):
    """The names of everything that a bus promises to do, as `@pytest.mark.needs` names it."""
    flags = {name for name in ("atomic", "conditional", "history") if getattr(promises, name)}
    return flags | set(promises.retention)


def publish(node, stream, *values, **options):
    """Publish values one by one; their offsets."""
    with node.publisher(stream, **options) as publisher:
        receipts = [publisher.publish(value) for value in values]
    return [receipt.result(0) for receipt in receipts]


def take(subscriber, count):
    """The next `count` records, whatever number of polls it needs."""
    found = []
    for _ in range(int(BOUND_S / 0.25)):
        found += subscriber.poll(0.25, max_records=max(count - len(found), 1))
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} records came, not {count}: {found}")


def values(records):
    return [record.value for record in records]


def offsets(records):
    return [record.offset for record in records]


def everything(node, stream):
    """All readable records of a stream, by a reader of its own."""
    with node.subscriber(stream, initial="earliest", create=False) as subscriber:
        found = []
        while batch := subscriber.poll():
            found += batch
        return found


def has_gaps(node, stream):
    """Whether offsets of this stream may have gaps, as on buses where an append is one message."""
    return node.bus.open(stream).limits.stride > 1


def in_parallel(*calls):
    """Run calls on threads of their own; the first error is raised here."""
    errors = []

    def guarded(call):
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 2 * BOUND_S
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
        assert not thread.is_alive(), "a thread did not end"
    if errors:
        raise errors[0]
