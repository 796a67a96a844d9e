"""Nodes whose store goes away and comes back: nothing is lost, duplicated or half done, and firing resumes."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from collections import Counter
from contextlib import ExitStack

import pytest

from lockstep.core.agenda import Status, Upsert
from lockstep.errors import Unavailable
from lockstep.log.memory import MemoryBroker
from lockstep.runtime import ThreadRuntime
from lockstep.schedule.assembly import open_scheduler
from lockstep.schedule.store.port import Filter
from lockstep.server.schedule import ScheduleServer
from lockstep.streams.client import Lockstep
from servers.clients import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

EVENTS = 60


class Nodes:
    """Two nodes of a scheduler in this process, on one bus, and a client with the API."""

    def __init__(self, stack, url):
        grid, name = MemoryBroker(), f"jobs-{uuid.uuid4().hex}"
        runtime = ThreadRuntime()

        def scheduler(node_name, *, node=True):
            bus = stack.enter_context(Lockstep(grid.bus(runtime), runtime))
            return stack.enter_context(open_scheduler(bus, name, node=node, store=url, node_name=node_name))

        self.nodes = [scheduler(number) for number in ("one", "two")]
        self.scheduler = scheduler(None, node=False)
        self.client, self.runtime = self.scheduler.client, runtime
        self.server = stack.enter_context(ScheduleServer(self.scheduler, port=0))
        self.scheduler._ensure("default")

    def send(self, names):
        """Store requests for events that are due within the next second, and do not wait for answers."""
        now = self.runtime.wall_ns() // 10**6
        self.client.send([Upsert("default", name, now + 10 * place, f"id-{name}") for place, name in enumerate(names)])

    def fired(self):
        """How often each event was published."""
        with self.scheduler.bus.subscriber(
            self.scheduler.streams.fired("default"), initial="earliest", create=False
        ) as subscriber:
            return Counter(record.key.decode() for record in subscriber.poll(0, max_records=10_000, max_bytes=1 << 26))

    def answer(self, name):
        """What the API answers when it is asked for an event."""
        try:
            with urllib.request.urlopen(f"{self.server.url}/v2/events/default/{name}") as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


def outage_of(nodes, begin, end):
    """Have the store go away in the middle of the work, and come back."""
    names = [f"e{number}" for number in range(2 * EVENTS)]
    nodes.send(names[:EVENTS])
    eventually(lambda: nodes.fired().total() >= EVENTS // 4, "the nodes fire")
    begin()
    try:
        nodes.send(names[EVENTS:])  # requests go to the bus
        with pytest.raises(Unavailable):
            nodes.client.find("default", "e0")
        status, answer = nodes.answer("e0")
        assert (status, answer["error"]["code"]) == (503, "SERVER_UNREACHABLE")
        assert "Check the address and that the server runs" in answer["error"]["advice"]
    finally:
        end()
    eventually(lambda: set(nodes.fired()) == set(names), "all events have fired")
    eventually(lambda: nodes.answer("e0")[0] == 200, "the API answers")
    assert set(nodes.fired().values()) == {1}
    stored = nodes.client.events(Filter(tenant="default"), 1000).events
    assert Counter(event.id for event in stored) == Counter(names)
    assert {event.status for event in stored} == {Status.DONE}
    assert [one.node.error for one in nodes.nodes] == [None, None]


@pytest.fixture
def stack():
    with ExitStack() as made:
        yield made


@pytest.mark.parametrize("how", ["paused", "killed"])
def test_postgresql_goes_away_under_two_nodes(breakable_postgresql, stack, how):
    server = breakable_postgresql.server
    nodes = Nodes(stack, f"{server.url}?timeout_s=4")
    begin, end = (server.pause, server.resume) if how == "paused" else (server.kill, server.restart)
    outage_of(nodes, begin, end)


def test_cassandra_is_paused_under_two_nodes(cassandra_server, stack):
    nodes = Nodes(stack, f"{cassandra_server.url}?timeout_s=4")
    outage_of(nodes, cassandra_server.pause, cassandra_server.resume)


@pytest.mark.soak
def test_large_events_that_are_due_at_once_all_fire_on_cassandra(cassandra_server, stack):
    """Together they are more than a transaction takes."""
    nodes = Nodes(stack, cassandra_server.url)
    shard = nodes.client.shard_of("default", "e0")
    names = [f"e{number}" for number in range(2000)]
    names = [name for name in names if nodes.client.shard_of("default", name) == shard][:20]
    nodes.scheduler.pause_tenant("default")
    for name in names:
        nodes.client.ask([Upsert("default", name, 1, f"id-{name}", b"x" * (1 << 20))])
    nodes.scheduler.resume_tenant("default")
    eventually(lambda: nodes.fired() == Counter(names), "all events have fired")


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_cassandra_is_killed_under_two_nodes(start_server, stack):
    server = start_server("cassandra")
    nodes = Nodes(stack, f"{server.url}?timeout_s=3")
    outage_of(nodes, server.kill, server.restart)
