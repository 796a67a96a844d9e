"""Clients of the old shape over a real RabbitMQ: a peer that shares no code with us, and servers that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

pytest.importorskip("pika")

sys.path.append(str(Path(__file__).parents[1]))
from sensu_peer import SensuPeer

from lockstep.drill.processes import Child
from lockstep.errors import NotFound
from lockstep.monitor.client import MonitorClient
from lockstep.streams.client import connect
from servers.rabbitmq_cluster import COOKIE, start_cluster

pytestmark = [pytest.mark.slow, pytest.mark.acceptance]

NEVER_S = 10**8
IN_HANDS = 45
"""Results that a server is given while it is paused: it is killed when it has begun to store them."""
CHECKS = {
    "disk": {"command": "check-disk", "subscribers": ["linux"], "interval": NEVER_S},
    "turn": {"command": "check-turn", "subscribers": ["roundrobin:web"], "publish": False, "interval": NEVER_S},
}


def until(holds, seconds=60.0):
    end, pause = time.monotonic() + seconds, threading.Event()
    while not (found := holds()):
        assert time.monotonic() < end, "it did not come"
        pause.wait(0.05)
    return found


class Servers:
    """Processes of `lockstep monitor server` on one bus and one broker."""

    def __init__(self, folder, transport, rabbitmq=None):
        self.folder, self.transport = folder, transport
        self.children, self.urls = {}, {}
        settings = {"checks": CHECKS, **({"rabbitmq": rabbitmq} if rabbitmq else {})}
        (folder / "conf.d").mkdir()
        (folder / "conf.d" / "all.json").write_text(json.dumps(settings))

    def start(self, name):
        command = [
            sys.executable, "-m", "lockstep.cli.main", "monitor", "server", "--json", "--http", "0",
            "--config", str(self.folder / "conf.d"), "--server-name", name, "--state", str(self.folder / name),
            "--runner", "local", "--bus", f"lmdb:{self.folder / 'bus'}",
            *(["--transport", self.transport] if self.transport else []),
        ]  # fmt: skip
        self.children[name] = Child(name, command, self.folder / f"{name}.log", environ=os.environ)
        self.urls[name] = until(lambda: self._url(name), 120)
        return MonitorClient(self.urls[name])

    def _url(self, name):
        for _, line in self.children[name].lines():
            if line.startswith("{") and (told := json.loads(line)).get("event") == "started":
                return told["url"]
        assert self.children[name].code is None, self.children[name].failure("it did not start")
        return None

    def stop(self):
        for child in self.children.values():
            child.stop()


@pytest.fixture
def peers():
    made = []
    yield lambda *arguments, **options: made.append(SensuPeer(*arguments, **options)) or made[-1]
    for peer in made:
        peer.close()


@pytest.fixture
def serving():
    made = []
    yield lambda *arguments, **options: made.append(Servers(*arguments, **options)) or made[-1]
    for servers in made:
        servers.stop()


def found(fleet, *path):
    """What a route answers once it is not 404 any more."""

    def look():
        try:
            return fleet.get(*path)
        except NotFound:
            return None

    return until(look)


def end_of_input(servers):
    """The next offset of the input."""
    with connect(f"lmdb:{servers.folder / 'bus'}") as bus:
        return bus.bounds("monitor.input").next


def results_in_input(servers):
    """What was taken from the broker: how often each output came, and how often with the mark of a redelivery."""
    taken, marked = Counter(), Counter()
    with (
        connect(f"lmdb:{servers.folder / 'bus'}") as bus,
        bus.subscriber("monitor.input", initial="earliest") as reader,
    ):
        while records := reader.poll(0.5):
            for record in records:
                if record.key.startswith(b"r:"):
                    document = json.loads(record.value)
                    taken[document["check"]["output"]] += 1
                    marked[document["check"]["output"]] += "_redelivered" in document
    return taken, marked


def test_a_peer_with_sensus_bytes_registers_is_asked_and_loses_nothing_when_a_server_is_killed(
    tmp_path, rabbitmq_server, peers, serving
):
    # Given two servers, and a peer that subscribes as 0.26 does
    servers = serving(tmp_path, f"amqp://guest:guest@127.0.0.1:{rabbitmq_server.ports[1]}")
    first, second = servers.start("first"), servers.start("second")
    peer = peers(rabbitmq_server.ports[1], subscriptions=["linux", "roundrobin:web"])
    # When it sends a keepalive, it is registered on any server
    peer.keepalive()
    client = found(second, "clients", "old-1")
    assert (client["address"], client["version"]) == ("10.0.0.7", "0.26.5")
    # When a result fails, there is an event, with the definition that the servers have of its check
    peer.result("disk", 2, "full")
    event = found(first, "events", "old-1", "disk")
    assert (event["check"]["output"], event["check"]["interval"], event["occurrences"]) == ("full", NEVER_S, 1)
    # When checks are requested, the requests come to its queue
    first.request("disk")
    second.request("disk", ["client:old-1"])
    first.request("turn")  # of a shared subscription one member gets it, at its own exchange
    until(lambda: len(peer.requests) == 3)
    asked = sorted((exchange, request["name"], request["command"]) for exchange, request in peer.requests)
    own, turn = ("client:old-1", "disk", "check-disk"), ("client:old-1", "turn", "check-turn")
    assert asked == [own, turn, ("linux", "disk", "check-disk")]
    for _, request in peer.requests:
        assert type(request["issued"]) is int
        assert not request.keys() & {"subscribers", "interval"}
    # When the server that takes results is killed in a flood of confirmed ones
    killed_at, total = 60, 120
    for number in range(total):
        peer.result("flood", number % 3, f"result {number}")
        if number == killed_at:
            servers.children["first"].kill()
    # Then the other one has all of them, and history has each once
    until(lambda: found(second, "results", "old-1", "flood")["check"]["output"] == f"result {total - 1}")
    history = second.get("results", "old-1", "flood")["check"]["history"]
    assert history == [number % 3 for number in range(total)][-21:]
    taken, marked = results_in_input(servers)
    assert {output for output in taken if output != "full"} == {f"result {number}" for number in range(total)}
    assert all(count - 1 <= marked[output] for output, count in taken.items())
    counters = second.get("counters")
    assert counters["results"] == total + 1
    assert counters["copies"] == sum(taken.values()) - total - 1


class Cluster:
    """Three nodes on which queues of results and keepalives are mirrored."""

    def __init__(self, start_server):
        self.nodes, _ = start_cluster(start_server)
        policy = '{"ha-mode": "all", "ha-sync-mode": "automatic"}'
        self._ctl(1, "set_policy", "ha-sensu", "^(results$|keepalives$)", policy, "--apply-to", "queues")

    def _ctl(self, number, *arguments):
        node = self.nodes[number - 1]
        environ = {**os.environ, "HOME": str(node.folder), "ERL_EPMD_PORT": str(self.nodes[0].ports[3])}
        command = ["rabbitmqctl", "-q", "-n", f"node{number}@localhost", "--erlang-cookie", COOKIE, *arguments]
        return subprocess.run(command, env=environ, check=True, capture_output=True, text=True, timeout=60).stdout

    def master(self):
        """The number of the node that has the queue of results."""
        for line in self._ctl(1, "list_queues", "name", "pid", "--no-table-headers").splitlines():
            name, pid = line.split()
            if name == "results":
                return int(pid.removeprefix("<node").partition("@")[0])
        raise AssertionError


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("prefetch", [1, 50])
def test_a_master_and_a_server_that_are_killed_in_a_flood_lose_no_confirmed_result(
    tmp_path, start_server, peers, serving, prefetch
):
    # Given three nodes, two servers, and a peer that is not on the node that has the queue
    cluster, total = Cluster(start_server), 3_000
    places = [
        {"host": "127.0.0.1", "port": node.ports[1], "prefetch": prefetch, "durable": True} for node in cluster.nodes
    ]
    servers = serving(tmp_path, None, rabbitmq=places)
    servers.start("first")
    fleet = servers.start("second")
    master = cluster.master()
    peer = peers(cluster.nodes[master % 3].ports[1], durable=True)
    numbers = iter(range(total))

    def flood(count):
        for number in islice(numbers, count):
            peer.result("flood", number % 3, f"result {number}")

    # When the node and then the server that takes results are killed while one client floods
    flood(total // 3)
    cluster.nodes[master - 1].kill()
    flood(total // 3)
    servers.children["first"].pause()
    before = end_of_input(servers)
    flood(IN_HANDS)
    servers.children["first"].signal_all(signal.SIGCONT)
    until(lambda: end_of_input(servers) > before)
    servers.children["first"].kill()
    flood(total)
    # Then every result that the broker confirmed counts once
    last = f"result {total - 1}"
    until(lambda: found(fleet, "results", "old-1", "flood")["check"]["output"] == last, 300)
    assert fleet.get("results", "old-1", "flood")["check"]["history"] == [number % 3 for number in range(total)][-21:]
    taken, _ = results_in_input(servers)
    assert set(taken) == {f"result {number}" for number in range(total)}
    assert fleet.get("counters")["results"] == total
