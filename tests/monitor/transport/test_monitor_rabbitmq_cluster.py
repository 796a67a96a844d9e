"""Three RabbitMQ nodes with mirrored queues: the master of `results` is killed in a flood of confirmed results."""

from __future__ import annotations

import json
import os

import pytest
from transport_worlds import until

from lockstep.monitor.agent.sender import Sender
from lockstep.monitor.agent.spool import MemorySpool
from lockstep.monitor.transport.bridge import Bridge
from lockstep.monitor.transport.brokers import Broker, Turn
from lockstep.monitor.transport.port import RESULTS
from lockstep.monitor.transport.topology import Control, set_up
from lockstep.streams.client import connect
from servers.rabbitmq_cluster import COOKIE, start_cluster

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]
COUNT = 6_000


def test_the_master_is_killed_in_a_flood_and_no_confirmed_result_is_lost(start_server, tmp_path):
    pytest.importorskip("pika")
    from lockstep.monitor.transport.amqp import AmqpTransport

    # Given three nodes that mirror the queues, a bridge, and an agent that sends
    nodes, _ = start_cluster(start_server)
    environ = {**os.environ, "HOME": str(nodes[0].folder), "ERL_EPMD_PORT": str(nodes[0].ports[3]),
               "RABBITMQ_CTL_ERL_ARGS": f"-setcookie {COOKIE}"}  # fmt: skip
    asked = [Control(node=f"node{number}@localhost", environ=environ) for number in (1, 2, 3)]
    set_up(asked[0])
    places = [Broker(port=node.ports[1], durable=True, prefetch=50, heartbeat=5) for node in nodes]
    turns = [Turn(places[at:] + places[:at], lambda _: None) for at in (0, 1)]
    with connect(f"lmdb:{tmp_path / 'bus'}") as bus:
        server, agent = (AmqpTransport(turn) for turn in turns)
        until(lambda: server.connected and agent.connected)
        bridge = Bridge(bus, server)
        bridge.start()
        until(lambda: server.stats(RESULTS).consumers)

        def queue():
            [found] = [view for view in asked[0].topology().queues if view.name == RESULTS]
            return found

        until(lambda: len(queue().mirrors) == 2, 60)
        master = int(queue().master.removeprefix("node").partition("@")[0]) - 1
        sender = Sender(agent, MemorySpool(COUNT), "a")
        # When its master is killed while they are sent
        for number in range(COUNT):
            sender.result({"client": "c", "check": {"n": number}})
        killed = False
        while sender.is_busy:
            if not sender.send_next():
                until(lambda: agent.connected, 60)
            if not killed and sender.waiting <= COUNT // 2:
                nodes[master].kill()
                killed = True
        # Then all of them arrive, in order, and copies are known by their numbers
        with bus.subscriber("monitor.input", initial="earliest") as subscriber:
            last, taken = 0, []

            def arrived():
                nonlocal last
                for record in subscriber.poll(0.1):
                    document = json.loads(record.value)
                    if document["_n"] > last:
                        last = document["_n"]
                        taken.append(document["check"]["n"])
                return last == COUNT

            until(arrived, 90)
        assert taken == list(range(COUNT))
        bridge.close()
        agent.close()
        server.close()
