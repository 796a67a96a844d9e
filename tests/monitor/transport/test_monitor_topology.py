"""The document's example of two nodes on a real RabbitMQ, compared with rabbitmqctl; set-up and permissions."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))

from transport_worlds import until

from lockstep.errors import ServerRefused, ServerUnreachable, UsageError
from lockstep.monitor.agent.agent import subscribe_to
from lockstep.monitor.transport import topology
from lockstep.monitor.transport.brokers import Broker, Turn
from lockstep.monitor.transport.errors import PipeMismatch
from lockstep.monitor.transport.port import DIRECT, FANOUT, KEEPALIVES, RESULTS
from lockstep.monitor.transport.topology import Control, Management, Topology, host_of_master, permissions, set_up
from servers.rabbitmq_worlds import control

pytest.importorskip("pika")
pytestmark = pytest.mark.slow
EPOCH = 1_479_577_421


@pytest.fixture
def vhost(rabbitmq_server):
    name = f"sensu-{os.getpid()}"
    control(rabbitmq_server, "add_vhost", name)
    control(rabbitmq_server, "set_permissions", "-p", name, "guest", ".*", ".*", ".*")
    yield name
    control(rabbitmq_server, "delete_vhost", name)


@pytest.fixture
def connected(rabbitmq_server, vhost):
    from lockstep.monitor.transport.amqp import AmqpTransport

    made = []

    def connect(**options):
        place = Broker(port=rabbitmq_server.ports[1], vhost=vhost, **options)
        made.append(AmqpTransport(Turn([place], lambda _: None)))
        until(lambda: made[-1].connected)
        return made[-1]

    yield connect
    for transport in made:
        transport.close()


@pytest.fixture
def control_of(rabbitmq_server, vhost):
    environ = {**os.environ, "HOME": str(rabbitmq_server.folder), "ERL_EPMD_PORT": str(rabbitmq_server.ports[3])}
    return Control(node="rabbit@localhost", vhost=vhost, environ=environ)


def listed(server, vhost, what, *columns):
    rows = json.loads(control(server, what, "-p", vhost, *columns, "--formatter", "json"))
    return sorted(tuple(row[column] for column in columns) for row in rows)


def test_the_example_of_two_nodes(rabbitmq_server, vhost, connected, control_of):
    # Given a server on node1 that reads keepalives and results, and publishes the check `dev`
    server = connected()
    for pipe in (KEEPALIVES, RESULTS):
        server.subscribe(DIRECT, pipe, pipe, lambda message: message.ack(), ack=True, exclusive=pipe == RESULTS)
    # And a client on each of the two nodes
    queues = [f"node{number}.localhost-0.26.5-{EPOCH}" for number in (1, 2)]
    for number, queue in enumerate(queues, 1):
        client = connected()
        client.publish(DIRECT, KEEPALIVES, b"{}")
        for subscription in ("dev", f"client:node{number}.localhost"):
            client.subscribe(*subscribe_to(subscription, queue), lambda _: None)
        client.publish(DIRECT, RESULTS, b"{}")
    server.publish(FANOUT, "dev", b"{}")
    # Then the broker holds what the document draws, transient and auto-deleted
    exchanges = [("client:node1.localhost", "fanout"), ("client:node2.localhost", "fanout"), ("dev", "fanout"),
                 ("keepalives", "direct"), ("results", "direct")]  # fmt: skip
    found = listed(rabbitmq_server, vhost, "list_exchanges", "name", "type", "durable", "auto_delete")
    assert [row for row in found if row[0] and not row[0].startswith("amq.")] == [
        (name, kind, False, False) for name, kind in exchanges
    ]
    found = listed(rabbitmq_server, vhost, "list_queues", "name", "durable", "auto_delete", "consumers")
    assert found == sorted((name, False, True, 1) for name in (*queues, "keepalives", "results"))
    bindings = [("client:node1.localhost", queues[0], ""), ("client:node2.localhost", queues[1], ""),
                ("dev", queues[0], ""), ("dev", queues[1], ""), ("keepalives", "keepalives", ""),
                ("results", "results", "")]  # fmt: skip
    found = listed(rabbitmq_server, vhost, "list_bindings", "source_name", "destination_name", "routing_key")
    assert [row for row in found if row[0]] == bindings
    # And so `monitor transport show` says: also one channel for each of the three, named by its peer's address
    shown = control_of.topology()
    assert [(view.name, view.kind) for view in shown.exchanges] == exchanges
    assert [(view.exchange, view.queue, view.routing_key) for view in shown.bindings] == bindings
    assert [(view.name, view.consumers, view.master) for view in shown.queues] == sorted(
        (name, 1, "rabbit@localhost") for name in (*queues, "keepalives", "results")
    )
    assert [(view.peer, view.user, view.prefetch) for view in shown.channels] == [("127.0.0.1", "guest", 1)] * 3
    assert all(view.name.startswith("127.0.0.1:") for view in shown.channels)
    assert shown.master_of(RESULTS) == "localhost"
    json.dumps(shown.document())


def test_set_up_has_both_queues_mirrored(rabbitmq_server, vhost, connected, control_of):
    connected().subscribe(DIRECT, RESULTS, RESULTS, lambda _: None)
    set_up(control_of)
    [policy] = json.loads(control(rabbitmq_server, "list_policies", "-p", vhost, "--formatter", "json"))
    assert (policy["name"], policy["pattern"], policy["apply-to"]) == (
        "ha-sensu", "^(results$|keepalives$)", "queues",
    )  # fmt: skip
    assert json.loads(policy["definition"]) == {"ha-mode": "all", "ha-sync-mode": "automatic"}
    until(lambda: [view.policy for view in control_of.topology().queues] == ["ha-sensu"])


def test_the_printed_permissions_keep_agents_from_reading_results(rabbitmq_server, vhost, connected):
    server = connected()
    for pipe in (KEEPALIVES, RESULTS):
        server.subscribe(DIRECT, pipe, pipe, lambda _: None)
    user = f"agent-{os.getpid()}"
    control(rabbitmq_server, "add_user", user, "geheim")
    line = next(line for line in permissions(vhost, agent=user) if f"set_permissions -p {vhost} {user}" in line)
    control(rabbitmq_server, *[word.strip("'") for word in line.split()[1:]])
    agent = connected(user=user, password="geheim")
    # An agent does what agents do
    agent.publish(DIRECT, KEEPALIVES, b"{}")
    agent.publish(DIRECT, RESULTS, b"{}")
    agent.subscribe(FANOUT, "dev", f"{user}-0.26.5-1", lambda _: None)
    agent.subscribe(DIRECT, "roundrobin:x", "roundrobin:x", lambda _: None)
    # And can neither read what others send, nor have a copy of it
    for wanted in ((DIRECT, RESULTS, RESULTS), (DIRECT, KEEPALIVES, KEEPALIVES), (DIRECT, RESULTS, "mine")):
        with pytest.raises(ServerRefused):
            agent.subscribe(*wanted, lambda _: None)
    agent.publish(DIRECT, RESULTS, b"{}")
    agent.close()
    control(rabbitmq_server, "delete_user", user)


def test_exchanges_that_are_there_as_something_else_are_named(connected):
    first, second = connected(), connected(durable=True)
    first.publish(FANOUT, "dev", b"{}")
    with pytest.raises(PipeMismatch, match="dev"):
        second.publish(FANOUT, "dev", b"{}")


def test_a_node_that_does_not_answer(rabbitmq_server, vhost):
    environ = {**os.environ, "HOME": str(rabbitmq_server.folder), "ERL_EPMD_PORT": str(rabbitmq_server.ports[3])}
    with pytest.raises(ServerUnreachable, match="rabbitmqctl"):
        Control(node="nobody@localhost", vhost=vhost, environ=environ).topology()


def test_without_rabbitmqctl(monkeypatch):
    monkeypatch.setattr(topology, "CONTROL_PLACES", ())
    with pytest.raises(UsageError, match="rabbitmqctl is not installed"):
        Control(environ={"PATH": "/nowhere"})


def test_the_management_api(monkeypatch):
    answers = {
        "queues/sensu%2F": [{"name": "results", "node": "rabbit@mq-2", "slave_nodes": ["rabbit@mq-1"], "messages": 3,
                             "consumers": 1, "durable": True, "auto_delete": False, "policy": "ha-sensu"}],
        "exchanges/sensu%2F": [{"name": "", "type": "direct", "durable": True, "auto_delete": False},
                               {"name": "dev", "type": "fanout", "durable": False, "auto_delete": False}],
        "bindings/sensu%2F": [{"source": "", "destination": "results", "routing_key": "results"},
                              {"source": "results", "destination": "results", "routing_key": ""}],
        "vhosts/sensu%2F/channels": [{"name": "10.0.0.1:1 -> 10.0.0.2:5672 (1)", "user": "u", "prefetch_count": 1,
                                      "messages_unacknowledged": 2, "consumer_count": 1,
                                      "connection_details": {"peer_host": "10.0.0.1"}}],
    }  # fmt: skip
    place = Broker(host="mq-1", vhost="sensu/", management="http://mq-1:15672")
    monkeypatch.setattr(Management, "_ask", lambda self, path, body=None: json.dumps(answers[path]).encode())
    found = Management("http://mq-1:15672/", place).topology()
    assert isinstance(found, Topology)
    assert (found.queues[0].master, found.queues[0].mirrors) == ("rabbit@mq-2", ("rabbit@mq-1",))
    assert [view.name for view in found.exchanges] == ["dev"]
    assert [(view.exchange, view.queue) for view in found.bindings] == [("results", "results")]
    assert found.channels[0].peer == "10.0.0.1"
    # and a connection to the master is preferred
    brokers = [
        Broker(host="mq-1", management="http://mq-1:15672", vhost="sensu/"),
        Broker(host="mq-2"),
        Broker(host="mq-3"),
    ]
    turn = Turn(brokers, lambda left: left.reverse(), host_of_master)
    assert [turn.next().host for _ in range(4)] == ["mq-2", "mq-3", "mq-1", "mq-2"]


def test_a_management_api_that_is_not_there():
    with pytest.raises(ServerUnreachable):
        Management("http://127.0.0.1:1", Broker()).topology()
    with pytest.raises(UsageError):
        Management("ftp://x", Broker())
    assert host_of_master([Broker(management="http://127.0.0.1:1"), Broker()]) is None
