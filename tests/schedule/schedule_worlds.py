"""Schedulers in virtual time: a bus in memory, nodes that can be killed and paused, and a courier that is a table."""

from __future__ import annotations

import json

from lockstep.core.agenda import Option, Remove, Upsert
from lockstep.log.memory import MemoryBroker
from lockstep.schedule.client import SchedulerClient
from lockstep.schedule.delivery.port import Outcome, Result
from lockstep.schedule.node import Node, NodeOptions
from lockstep.schedule.store.cells import CellStore
from lockstep.schedule.streams import SchedulerStreams
from lockstep.schedule.tenants import Registered, Tenant, TenantType
from lockstep.schedule.validation import event_id
from lockstep.streams.client import Lockstep
from lockstep.streams.grouplog import GroupLog
from lockstep.testing.virtual import VirtualRuntime


class TableCourier:
    """Delivers by a table: what each tenant answers, one after the other; the last answer stays."""

    def __init__(self):
        self.answers, self.delivered, self.held = {}, [], []
        self.hold = False

    def check(self, tenant):
        """Any tenant will do."""

    def deliver(self, delivery, done):
        self.delivered.append(delivery)
        if self.hold:
            self.held.append((delivery, done))
            return
        done(self._result(delivery))

    def let_go(self):
        held, self.held = self.held, []
        for delivery, done in held:
            done(self._result(delivery))

    def _result(self, delivery):
        answers = self.answers.get(delivery.tenant.tenant, [Outcome.TAKEN])
        outcome = answers.pop(0) if len(answers) > 1 else answers[0]
        return Result(delivery, outcome, None if outcome is Outcome.TAKEN else "it answered 500")

    def forget(self, tenant):
        """Nothing is kept."""

    def close(self):
        """Nothing is kept."""


class World:
    """One scheduler on a bus in memory; with `is_remote` its nodes take the store for a server."""

    def __init__(self, seed=0, name="jobs", shards=4, is_remote=False):
        self.is_remote = is_remote
        self.clock = VirtualRuntime(seed)
        self.grid = MemoryBroker()
        self.streams = SchedulerStreams(name)
        self.courier = TableCourier()
        self.bus = Lockstep(self.grid.bus(self.clock), self.clock)
        self.streams.create(self.bus, shards=shards)
        self.client = SchedulerClient(self.bus, self.streams, self._store(self.bus, {}))
        self.nodes = {}
        self.client.control(Registered(Tenant(tenant="s", type=TenantType.MESSAGING, props={"topic": "out"})))
        self.client.control(Registered(Tenant(tenant="h", type=TenantType.HTTP, props={"url": "http://localhost/"})))

    def _store(self, bus, holder):
        grouplog = GroupLog(bus.bus, self.streams.group, self.clock)
        holder["grouplog"] = grouplog

        def owners(changes):
            node = holder.get("node")
            known = grouplog.load() if node is None else node.member.group_state
            return grouplog.state_in(changes, known)

        store = CellStore(bus.bus, self.streams.name, self.clock, owners)
        store.is_remote = self.is_remote
        return store

    def start(self, name="n1", **options):
        bus = Lockstep(self.grid.bus(self.clock), self.clock)
        holder = {}
        store = self._store(bus, holder)
        node = Node(
            bus, self.streams, store, self.courier, holder["grouplog"], name=name, options=NodeOptions(**options)
        )
        holder["node"] = node
        self.nodes[name] = node
        return node

    def kill(self, name):
        """The process is gone: nothing more of it runs."""
        node = self.nodes.pop(name)
        node._task.stop()
        node.member._task.stop()

    @property
    def now(self):
        return self.clock.wall_ns() // 10**6

    def upsert(self, name, at, tenant="s", payload=None, option=Option.FULL_EVENT):
        data = None if payload is None else payload.encode()
        return Upsert(tenant, name, at, event_id(self.clock.new_id, option), data, option=option)

    def ask(self, *asked, timeout=10.0):
        return self.client.ask(asked, timeout)

    def schedule(self, name, in_ms, **more):
        return self.ask(self.upsert(name, self.now + in_ms, **more))[0]

    def remove(self, name, tenant="s"):
        return self.ask(Remove(tenant, name))[0]

    def records(self, stream):
        found = []
        for log in self.bus.logs(stream):
            with_subscriber = self.bus.subscriber(log.name, initial="earliest", create=False)
            while records := list(with_subscriber.poll(0)):
                found += records
            with_subscriber.close()
        return found

    def fired(self, stream="out"):
        return [record.key.decode() for record in self.records(stream)]

    def history(self):
        return [json.loads(record.value) for record in self.records(self.streams.history)]
