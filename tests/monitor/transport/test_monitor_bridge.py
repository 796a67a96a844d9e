"""The bridge between a broker and a monitor's streams: acknowledged when durable, in order, marked when redelivered."""

from __future__ import annotations

import json
import os

import pytest
from transport_worlds import AmqpWorld, Inbox, MemoryWorld, until

from lockstep.errors import Unavailable
from lockstep.monitor.agent.sender import Sender
from lockstep.monitor.agent.spool import MemorySpool
from lockstep.monitor.transport.bridge import Bridge
from lockstep.monitor.transport.port import DIRECT, FANOUT
from lockstep.streams.client import connect
from lockstep.streams.outbox import item_headers
from servers.rabbitmq_worlds import control


@pytest.fixture
def bus(tmp_path):
    with connect(f"lmdb:{tmp_path / 'bus'}") as opened:
        yield opened


@pytest.fixture(params=["memory", "rabbitmq"])
def world(request):
    if request.param == "memory":
        made = MemoryWorld(prefetch=50)
    else:
        pytest.importorskip("pika")
        made = AmqpWorld(request.getfixturevalue("rabbitmq_server").ports[1], prefetch=50)
    yield made
    made.close()


def records(bus, count, stream="monitor.input", *, told_apart=len):
    """What is in the input once there are so many; `told_apart` counts copies once."""
    with bus.subscriber(stream, initial="earliest") as subscriber:
        found = []
        until(lambda: found.extend(subscriber.poll(0.1)) or told_apart(found) >= count)
        return [(record.key.decode(), record.value) for record in found]


def numbers(found):
    """How many numbers of messages are among records."""
    return len({json.loads(record.value)["_n"] for record in found})


def started(bus, transport, **options):
    bridge = Bridge(bus, transport, **options)
    bridge.start()
    return bridge


def test_what_agents_send_comes_into_the_input_in_order(world, bus):
    bridge = started(bus, world.connection())
    watcher = world.connection()
    until(lambda: watcher.stats("results").consumers)
    agent = world.connection()
    agent.publish(DIRECT, "keepalives", b'{"name": "web-1"}')
    for number in range(200):
        agent.publish(DIRECT, "results", json.dumps({"client": "web-1", "check": {"n": number}}).encode())
    found = records(bus, 201)
    assert ("k:web-1", b'{"name": "web-1"}') in found
    results = [json.loads(value)["check"]["n"] for key, value in found if key == "r:web-1"]
    assert results == list(range(200))
    until(lambda: agent.stats("results").messages == 0)
    bridge.close()
    assert (bridge.taken, bridge.refused) == (201, 0)


def test_requests_go_to_the_exchanges_of_their_subscriptions(world, bus):
    bridge = started(bus, world.connection())
    client, all_of_them, one = world.connection(), Inbox(), Inbox()
    client.subscribe(FANOUT, "bridge-all", world.name("own"), all_of_them)
    client.subscribe(DIRECT, "roundrobin:bridge", "roundrobin:bridge", one)
    with bus.publisher("monitor.requests") as publisher:
        for subscription in ("bridge-all", "roundrobin:bridge", "nobody"):
            headers = item_headers(id=f"request.c.{subscription}")
            publisher.publish(b'{"name":"c"}', key=subscription.encode(), headers=headers)
    until(lambda: all_of_them.bodies and one.bodies)
    assert (all_of_them.bodies, one.bodies) == ([b'{"name":"c"}'], [b'{"name":"c"}'])
    if world.__class__ is AmqpWorld:
        assert all_of_them.messages[0].id == "request.c.bridge-all"
    bridge.close()


def test_what_was_not_appended_comes_again_and_is_marked():
    # Given a bridge whose bus takes nothing, and dies with 3 messages in its hands
    world = MemoryWorld(prefetch=50)
    reader, inbox = world.connection(), Inbox(acks=False)
    reader.subscribe(DIRECT, "results", "results", inbox, ack=True)
    agent = world.connection()
    for number in range(3):
        agent.publish(DIRECT, "results", b'{"client":"c","n":%d}' % number)
    with connect("memory:bridge-again") as bus:
        second = world.connection()
        bridge = started(bus, second)
        # When it loses them, another server gets them
        reader.close()
        # Then they say so
        assert [value for _, value in records(bus, 3)] == [
            b'{"_redelivered":true,"client":"c","n":%d}' % number for number in range(3)
        ]
        bridge.close()


def test_a_message_is_acknowledged_after_its_append_and_tried_again_until_then(monkeypatch):
    world = MemoryWorld(prefetch=50)
    with connect("memory:bridge-ack") as bus:
        bridge = Bridge(bus, world.connection())
        fails = [True, True]
        real = bridge._publisher.publish_many

        def publish_many(values, keys):
            if fails:
                assert world.connection().stats("results").messages == 0
                fails.pop()
                raise Unavailable(reason="not now")
            return real(values, keys=keys)

        monkeypatch.setattr(bridge._publisher, "publish_many", publish_many)
        monkeypatch.setattr("lockstep.monitor.transport.bridge._PAUSE_S", 0.01)
        bridge.start()
        world.connection().publish(DIRECT, "results", b'{"client":"c"}')
        assert records(bus, 1) == [("r:c", b'{"_redelivered":true,"client":"c"}')]
        bridge.close()


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'"x"', b"\xff", b'{"client": 5}', b"{}", b"[" * 999])
def test_what_is_no_document_is_left_to_the_model_to_refuse(body):
    world = MemoryWorld()
    with connect("memory:") as bus:
        bridge = started(bus, world.connection())
        world.connection().publish(DIRECT, "results", body)
        world.connection().publish(DIRECT, "results", b'{"client":"c"}')
        assert records(bus, 2) == [("r:", body), ("r:c", b'{"client":"c"}')]
        bridge.close()


def test_what_is_too_large_is_dropped_with_a_count_and_does_not_come_again():
    world = MemoryWorld()
    with connect("memory:") as bus:
        bridge = started(bus, world.connection(), message_bytes=100)
        agent = world.connection()
        agent.publish(DIRECT, "results", b"x" * 101)
        agent.publish(DIRECT, "results", b'{"client":"c"}')
        assert records(bus, 1) == [("r:c", b'{"client":"c"}')]
        until(lambda: bridge.refused == 1)
        assert agent.stats("results").messages == 0
        bridge.close()


def test_two_servers_and_a_kill_lose_and_reorder_nothing(rabbitmq_server, tmp_path):
    pytest.importorskip("pika")
    vhost = f"bridge-{os.getpid()}"
    control(rabbitmq_server, "add_vhost", vhost)
    control(rabbitmq_server, "set_permissions", "-p", vhost, "guest", ".*", ".*", ".*")
    world = AmqpWorld(rabbitmq_server.ports[1], prefetch=20, durable=True, vhost=vhost)
    with connect(f"lmdb:{tmp_path / 'bus'}") as bus:
        bridges = [started(bus, world.connection(), name="two") for _ in range(2)]
        watcher = world.connection()
        until(lambda: watcher.stats("results").consumers == 2)
        sender = Sender(world.connection(), MemorySpool(), "a")
        for number in range(300):
            sender.result({"client": "c", "check": {"n": number}})
            if number in (100, 200):
                sender.send_next()
                world.proxy.cut()  # of both servers and the agent: some messages come again, or are sent again
        while sender.is_busy:
            if not sender.send_next():
                until(lambda: all(made.connected for made in world.made))
        last, taken = 0, []
        for _, value in records(bus, 300, "two.input", told_apart=numbers):
            document = json.loads(value)
            if document["_n"] > last:
                last = document["_n"]
                taken.append(document["check"]["n"])
        assert taken == list(range(300))
        for bridge in bridges:
            bridge.close()
    world.close()
    control(rabbitmq_server, "delete_vhost", vhost)
