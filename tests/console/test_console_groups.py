"""The page of a group: who is silent by listening, lag over several streams, and resets with their preview."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from console_worlds import ConsoleWorld

import lockstep
from lockstep.console.group_watch import GroupWatch
from lockstep.core.group import Beat, Leave
from lockstep.errors import GroupNotFound
from lockstep.log.memory import MemoryBroker
from lockstep.server.access import Role
from lockstep.streams.client import Lockstep
from lockstep.streams.grouplog import GroupLog
from lockstep.testing import VirtualRuntime

HOUR_NS = 3600 * 10**9


class Fleet:
    """A group whose members beat as they are told, and a watch whose wall clock is another one than theirs."""

    def __init__(self, ahead_ns: int = 0) -> None:
        grid = MemoryBroker()
        self.clock = VirtualRuntime(wall_ns=10**18)
        self.theirs = VirtualRuntime(wall_ns=10**18 + ahead_ns)
        self.log = GroupLog(grid.bus(self.theirs), "g", self.theirs)
        self.client = Lockstep(grid.bus(self.clock), self.clock)
        self.watch = GroupWatch(self.client)
        self._numbers: dict[str, int] = {}

    def beat(self, *members: str, lease: float = 1.0) -> None:
        for member in members:
            self._numbers[member] = self._numbers.get(member, 0) + 1
            self.log.append([Beat(member, self._numbers[member], ("s@1",), {}, lease)])

    def words(self) -> dict[str, str]:
        found = self.watch.describe("g")
        return {member: found.word(member) for member in found.view.members}


@pytest.mark.parametrize("ahead_ns", [0, HOUR_NS, -HOUR_NS])
def test_who_is_silent_is_known_by_listening_whatever_the_clocks_of_hosts_say(ahead_ns):
    fleet = Fleet(ahead_ns)
    fleet.beat("a", "b")
    assert fleet.words() == {"a": "listening", "b": "listening"}
    for _ in range(3):
        fleet.clock.advance(0.5)
        fleet.beat("a")
        words = fleet.words()
    assert words == {"a": "heard", "b": "silent"}
    fleet.beat("b")
    assert fleet.words() == {"a": "heard", "b": "heard"}


def test_a_member_that_comes_while_the_group_is_watched_is_heard_at_once():
    fleet = Fleet()
    fleet.beat("a")
    fleet.words()
    fleet.beat("b")
    assert fleet.words()["b"] == "heard"
    fleet.log.append([Leave("b", 10)])
    assert "b" not in fleet.words()


def test_each_member_is_measured_by_its_own_lease():
    fleet = Fleet()
    fleet.beat("quick", lease=1.0)
    fleet.beat("slow", lease=30.0)
    fleet.words()
    fleet.clock.advance(5.0)
    assert fleet.words() == {"quick": "silent", "slow": "listening"}
    fleet.clock.advance(40.0)
    assert fleet.words()["slow"] == "silent"


def test_a_group_that_is_deleted_and_made_anew_is_listened_to_anew():
    fleet = Fleet()
    fleet.beat("a")
    fleet.words()
    fleet.clock.advance(5.0)
    assert fleet.words() == {"a": "silent"}
    fleet.watch._client.groups.delete("g", force=True)
    with pytest.raises(GroupNotFound):
        fleet.words()
    fleet.log = GroupLog(fleet.log.bus, "g", fleet.theirs)
    fleet.beat("a")
    assert fleet.words() == {"a": "listening"}


def test_a_member_that_is_suspected_by_time_stamps_is_told_with_a_doubt():
    fleet = Fleet(ahead_ns=-HOUR_NS)
    fleet.beat("a")
    assert fleet.watch.describe("g").suspects == {"a"}
    fleet.clock.advance(5.0)
    found = fleet.watch.describe("g")
    assert (found.suspects, found.view.silent) == (frozenset(), {"a"})


def test_the_home_page_tells_of_silence_as_the_rounds_of_the_sampler_listened():
    fleet = Fleet(ahead_ns=-HOUR_NS)
    world = ConsoleWorld(fleet.client)

    def reasons() -> list[str]:
        return [row["reason"] for row in world.get("/api/v1/").tree["problems"]]

    fleet.beat("a")
    world.sampler.sample()
    assert reasons() == ["a did not report lately, by the time stamps of the bus; this server listens to be sure."]
    fleet.clock.advance(0.5)
    fleet.beat("a")
    world.sampler.sample()
    assert reasons() == []
    fleet.clock.advance(5.0)
    world.sampler.sample()
    assert reasons() == ["a did not report within the lease: killed or paused."]
    world.close()


@pytest.fixture
def client():
    with lockstep.connect("memory:") as client:
        yield client


@pytest.fixture
def world(client):
    world = ConsoleWorld(client)
    yield world
    world.close()


def publish(client, stream: str, count: int) -> None:
    with client.publisher(stream) as publisher:
        publisher.publish_many([b"x"] * count)


def joined(client, group: str, *streams: str) -> None:
    """A group that has confirmed all there is on some streams, and whose member has left."""
    with client.subscriber(*streams, group=group) as subscriber:
        assert subscriber.wait_assigned(20.0)
        seen = 0
        wanted = sum(log.bounds().next for stream in streams for log in client.logs(stream))
        while seen < wanted:
            batch = subscriber.poll(5.0)
            seen += len(batch)
            subscriber.confirm(batch)
        subscriber.flush_confirms()


def test_lag_is_that_of_all_streams_and_a_deleted_stream_counts_no_more(world, client):
    for stream in ("one", "two"):
        publish(client, stream, 5)
    joined(client, "g", "one", "two")
    publish(client, "one", 3)
    publish(client, "two", 4)
    world.sampler.sample()
    tree = world.get("/api/v1/groups/g").tree
    assert {row["stream"]: row["lag"] for row in tree["streams"]} == {"one": 3, "two": 4}
    assert (tree["lag"], tree["lags"]) == (7, [7.0])
    client.delete("two")
    world.sampler.sample()
    tree = world.get("/api/v1/groups/g").tree
    assert ([row["stream"] for row in tree["streams"]], tree["lags"]) == (["one"], [7.0, 3.0])
    client.create("two")
    assert [row["stream"] for row in world.get("/api/v1/groups/g").tree["streams"]] == ["one"], "another stream"
    page = world.get("/groups/g", accept="text/html")
    assert page.status == 200
    assert "Lag" in page.text


def test_a_reset_is_previewed_for_each_shard_and_leaves_other_streams_alone(world, client):
    client.create("cut", lockstep.StreamConfig(shards=3))
    publish(client, "cut", 30)
    publish(client, "whole", 5)
    joined(client, "g", "cut", "whole")
    operator = world.token(Role.OPERATOR)
    preview = world.post("/api/v1/groups/g/reset", {"stream": "cut", "to": "earliest", "dry_run": True}, operator).tree
    assert sorted(row["stream"] for row in preview["rows"]) == ["cut/0", "cut/1", "cut/2"]
    assert sum(row["lag after"] for row in preview["rows"]) == 30
    assert preview["effect"].startswith("Group g goes on from there: 30 records more are read, 0 are passed by.")
    assert preview["effect"].endswith("Its positions on whole stay.")
    answer = world.post("/api/v1/groups/g/reset", {"stream": "cut", "to": "earliest", "confirm": "g"}, operator)
    assert answer.status == 200, answer.text
    assert {row["stream"]: row["lag"] for row in world.get("/api/v1/groups/g").tree["streams"]}["whole"] == 0
    assert world.get("/api/v1/groups/g").tree["lag"] == 30


@pytest.mark.parametrize("to", ["--5", "-5", "٣", "9" * 30, "6", "someday", "time:x", "1e3", ""])
def test_a_reset_to_what_is_no_position_is_refused(world, client, to):
    publish(client, "orders", 5)
    joined(client, "g", "orders")
    fields = {"stream": "orders", "to": to, "confirm": "g"}
    assert world.post("/api/v1/groups/g/reset", fields, world.token(Role.OPERATOR)).status == 422
    assert world.get("/api/v1/groups/g").tree["lag"] == 0


@pytest.mark.parametrize(("to", "lag"), [("1h", 5), ("2999-01-01T00:00Z", 0), ("latest", 0), ("2", 3)])
def test_a_reset_takes_times_and_offsets(world, client, to, lag):
    publish(client, "orders", 5)
    joined(client, "g", "orders")
    fields = {"stream": "orders", "to": to, "dry_run": True}
    assert world.post("/api/v1/groups/g/reset", fields, world.token(Role.OPERATOR)).tree["rows"][0]["lag after"] == lag


def test_a_reset_on_a_stream_that_is_gone_is_not_found(world, client):
    publish(client, "orders", 5)
    joined(client, "g", "orders")
    client.delete("orders")
    fields = {"stream": "orders", "to": "earliest", "confirm": "g"}
    answer = world.post("/api/v1/groups/g/reset", fields, world.token(Role.OPERATOR))
    assert (answer.status, answer.tree["error"]["code"]) == (404, "STREAM_NOT_FOUND")
