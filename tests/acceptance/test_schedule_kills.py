"""Three nodes of a scheduler, real processes: killed and paused while events fall due, and so are their servers.

Every accepted event fires, never early; streams get it once, HTTP receivers at least once with the same key; one that
was cancelled does not fire; every second of a cron has one outcome.
"""

from __future__ import annotations

import random
import signal
import threading
from contextlib import contextmanager

import pytest
from schedule_nodes import HTTP, ROLES, STREAM, Site, Trap, now_ms, opened, wait_until

from lockstep.core.agenda import Remove
from lockstep.errors import TimedOut

FAULTS = ("kill", "pause")
MOMENTS = ("before the claim", "claimed", "delivered", "in mid-load")
FEW = 9
"""Shards on Kafka, where each is a topic, and on Cassandra, where each commits by itself."""
AWAY_S = 4.0
"""How long a server is away before others have to wait for it."""
BATCH, CANCELLED = 60, 3
ENOUGH = 100
"""Events that arrived before a fault in mid-load."""

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


@pytest.fixture
def on_lmdb(tmp_path):
    return Site(f"lmdb:{tmp_path}/bus")


@pytest.fixture
def on_postgresql_and_kafka(kafka_server, postgresql_server):
    return Site(kafka_server.url, postgresql_server.url, FEW)


class Fault:
    """One node, killed or paused."""

    def __init__(self, world, victim, how):
        self._world, self._victim, self._how = world, victim, how

    def strike(self):
        """Called once, from any thread."""
        if self._how == "kill":
            self._world.nodes.signal(self._victim, signal.SIGKILL)
        else:
            self._world.pause(self._victim)

    def heal(self):
        """Start another node in place of a dead one; let a paused one go on after others have taken over."""
        if self._how == "kill":
            self._world.nodes.forget(self._victim)
            self._world.nodes.start()
            self._world.nodes.wait_started()
        else:
            self._world.wait_settled(without=self._victim)
            self._world.nodes.signal(self._victim, signal.SIGCONT)
        self._world.wait_settled()


def events(world, chance, *, within_ms, after_ms=0, size=BATCH, node=None):
    start = now_ms() + after_ms
    return [
        (tenant, world.new_id(tenant, node), start + chance.randrange(within_ms))
        for tenant in (STREAM, HTTP) for _ in range(size // 2)
    ]  # fmt: skip


def request_and_cancel(world, node, chance, asked):
    """Ask for events, and cancel a few of them, but not the first; some may have fired by then."""
    if world.post(node, asked):
        for tenant, name, _ in chance.sample(asked[1:], CANCELLED):
            world.cancel(node, tenant, name)


@contextmanager
def steady_load(world, node, chance):
    """Requests of a client that goes to another node if its own does not answer."""
    done = threading.Event()

    def work():
        api = node
        while not done.is_set():
            asked = events(world, chance, within_ms=1500)
            request_and_cancel(world, api, chance, asked)
            if (STREAM, asked[0][1]) in world.unanswered:
                api = next(name for name in sorted(world.nodes.urls) if name != api)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def strike_at(world, fault, moment, victim, api, chance):
    """Have a node fail at a moment in the life of events that it owns, then have it heal."""
    if moment == "in mid-load":
        with steady_load(world, api, chance):
            wait_arrived(world, ENOUGH)
            fault.strike()
            fault.heal()
        return
    if moment == "before the claim":
        request_and_cancel(world, api, chance, events(world, chance, after_ms=2000, within_ms=1000, node=victim))
        fault.strike()
    else:
        trap = Trap(fault.strike, after_answer=moment == "delivered")
        name = world.new_id(HTTP, victim)
        world.callbacks.traps[name] = trap
        asked = [(HTTP, name, now_ms() + 700), *events(world, chance, within_ms=1500, node=victim)]
        request_and_cancel(world, api, chance, asked)
        wait_until(trap.sprung.is_set, lambda: f"{name} arrives")
    fault.heal()


def wait_arrived(world, more):
    world.read()
    wanted = len(world.arrived) + more

    def is_there():
        world.read()
        return len(world.arrived) >= wanted

    wait_until(is_there, lambda: f"{wanted} events arrive")


def check(world):
    """Nothing is lost, duplicated, early or fired after a cancel; since the world began, not only in this test."""
    world.wait_fired()
    assert world.anomalies() == {}
    print(world.counts())


def test_killed_and_paused_nodes_lose_duplicate_and_hasten_nothing(on_lmdb):
    chance = random.Random(7)
    with opened(on_lmdb) as world:
        roles = world.roles()
        with steady_load(world, roles["api"], chance):
            for role, how in (("owner", "pause"), ("api", "kill"), ("master", "kill")):
                wait_arrived(world, ENOUGH)
                fault = Fault(world, roles[role], how)
                fault.strike()
                fault.heal()
        check(world)


def test_a_killed_and_a_paused_node_on_postgresql_and_kafka(on_postgresql_and_kafka):
    chance = random.Random(8)
    with opened(on_postgresql_and_kafka) as world:
        for role, how, moment in (("owner", "kill", "in mid-load"), ("master", "pause", "claimed")):
            roles = world.roles()
            fault = Fault(world, roles[role], how)
            strike_at(world, fault, moment, roles[role], roles["api"], chance)
        check(world)


@pytest.fixture(scope="module", params=["lmdb", "kafka"])
def world(request, tmp_path_factory):
    """Nodes that live through the whole matrix, with their rows on the bus on disk, or in PostgreSQL beside Kafka."""
    site = Site(f"lmdb:{tmp_path_factory.mktemp('matrix')}/bus")
    if request.param == "kafka":
        servers = [request.getfixturevalue(name) for name in ("kafka_server", "postgresql_server")]
        site = Site(*(server.url for server in servers), FEW)
    with opened(site) as made:
        yield made


@pytest.mark.soak
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("how", FAULTS)
@pytest.mark.parametrize("role", ROLES)
def test_a_node_fails_at_a_moment_in_the_life_of_its_events(world, role, how, moment, request):
    chance = random.Random(request.node.name)
    roles = world.roles()
    strike_at(world, Fault(world, roles[role], how), moment, roles[role], roles["api"], chance)
    check(world)


def fail_server(world, server, how, chance):
    """Kill or pause the server of the rows under load. What is sent meanwhile is carried out when it is back."""
    api = world.roles()["api"]
    with steady_load(world, api, chance):
        wait_arrived(world, ENOUGH)
        server.kill() if how == "kill" else server.pause()
        with pytest.raises(TimedOut):
            world.client.ask([Remove(STREAM, "none")], timeout=AWAY_S)
        world.send(events(world, chance, within_ms=1000))
        server.restart() if how == "kill" else server.resume()
        wait_arrived(world, ENOUGH)
    world.wait_settled()


@pytest.mark.soak
@pytest.mark.parametrize("how", FAULTS)
def test_postgresql_fails_under_its_nodes(kafka_server, breakable_postgresql, how):
    with opened(Site(kafka_server.url, breakable_postgresql.server.url, FEW)) as world:
        fail_server(world, breakable_postgresql.server, how, random.Random(how))
        check(world)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_cassandra_fails_under_its_nodes(start_server, tmp_path):
    server = start_server("cassandra")
    with opened(Site(f"lmdb:{tmp_path}/bus", server.url, FEW), exactly_once=False) as world:
        for how in FAULTS:
            fail_server(world, server, how, random.Random(how))
        check(world)
