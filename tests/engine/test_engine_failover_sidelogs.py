"""Bad records, notices and mail: each once, whoever writes them and whoever dies."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from local_cluster import LocalCluster, LocalNode
from run_worlds import HEAD_DAMAGED, TRADES, sums_graph, trade

from lockstep.connectors.mailer import Mailer
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import Channel, NotificationWindow, SmtpServer, SourceWindow
from lockstep.streams.carrier import Carrier
from lockstep.streams.client import Lockstep
from lockstep.streams.deliveries import Deliveries
from lockstep.streams.options import GroupOptions
from lockstep.streams.outbox import Item

pytestmark = pytest.mark.slow
Place = tuple[int, int]


def notifying_graph() -> Graph:
    """A message for each trade."""
    channel = Channel(kind="email", sender="me@example.org", to="you@example.org", subject="$ID", body="$price")
    windows = (
        SourceWindow(name="in", schema=TRADES, insert_only=True),
        NotificationWindow(name="note", smtp=SmtpServer(host="localhost"), channels=(channel,)),
    )
    query = ContinuousQuery(name="q", windows=windows, edges=(Edge(source="in", target="note"),))
    return compile_project(Project(name="p", queries=(query,)))


class MailRoom:
    """Where the messages of all engines arrive."""

    def __init__(self) -> None:
        self.items: list[tuple[int, bool]] = []
        self.take: Callable[[Item], None] = self.note

    def note(self, item: Item) -> None:
        self.items.append((json.loads(item.body)["block"], item.in_doubt))

    @property
    def sent(self) -> list[int]:
        return [block for block, _ in self.items]

    def join(self, node: LocalNode) -> Carrier:
        """A carrier beside an engine, on its machine."""
        client, streams = Lockstep(node.bus, node.machine), node.engine.streams
        carrier = Carrier(client, streams.notices, streams.mail_group, group_options=GroupOptions(lease_s=0.5))
        carrier.on("email", lambda item: self.take(item))
        return carrier.start()


@pytest.fixture
def room():
    return MailRoom()


@pytest.fixture
def notifying(tmp_path):
    return LocalCluster(notifying_graph(), frozenset({"q/in"}), tmp_path)


@pytest.fixture
def cluster(tmp_path):
    return LocalCluster(sums_graph(), frozenset({"q/in", "q/sums"}), tmp_path)


def pair(cluster: LocalCluster) -> tuple[LocalNode, LocalNode]:
    active = cluster.start("a")
    cluster.until_active("a")
    return active, cluster.start("b")


def send(cluster: LocalCluster, *ids: int) -> None:
    for one in ids:
        if one == 0:
            cluster.put("q/in", HEAD_DAMAGED)
        else:
            cluster.publish("q/in", [trade(one)])


def places(cluster: LocalCluster, stream: str) -> list[Place]:
    return [(record["block"], record["index"]) for record in cluster.told(stream)]


def without_copies(found: list[Place]) -> list[Place]:
    """As readers take them: what is not after the last one is a copy."""
    kept: list[Place] = []
    for place in found:
        if not kept or place > kept[-1]:
            kept.append(place)
    return kept


def test_bad_records_are_there_once_over_takeovers(cluster):
    active, standby = pair(cluster)
    send(cluster, 1, 1, 0, 2)
    cluster.settle()
    active.slow(1e6)
    send(cluster, 2, 3, 0, 1, 4)
    cluster.until(lambda: standby.computed().block == 9)
    active.kill()
    cluster.settle()
    active.start()
    send(cluster, 0, 5, 5)
    cluster.settle()
    cluster.check()
    expected = cluster.oracle().bad
    assert [block for block, _ in places(cluster, cluster.streams.bad)] == expected == [2, 3, 5, 7, 8, 10, 12]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("stream", [".B", ".C", "q.sums.O"])
def test_bad_records_are_there_once_wherever_the_active_engine_dies(cluster, stream, after):
    active, _ = pair(cluster)
    active.kill_at(stream, after=after, skip=1)
    for one in (1, 1, 0, 2, 2, 3, 3):
        send(cluster, one)
        cluster.advance(0.05)
    cluster.until(lambda: not active.is_alive)
    cluster.settle()
    cluster.check()
    assert [block for block, _ in places(cluster, cluster.streams.bad)] == cluster.oracle().bad == [2, 3, 5, 7]


@pytest.mark.parametrize("after", [False, True])
def test_a_leader_that_slept_writes_copies_of_bad_records_that_readers_can_tell(cluster, after):
    sleeper, standby = pair(cluster)

    def meanwhile() -> None:
        cluster.until_active("b")
        send(cluster, 2, 2)
        cluster.until(lambda: standby.control.publisher.published == 4)
        cluster.advance(1.0)

    sleeper.stall_at(".B", meanwhile, after=after)
    send(cluster, 1, 1)
    cluster.until(lambda: standby.is_active and not sleeper.is_active)
    send(cluster, 3, 3)
    cluster.settle()
    cluster.check()
    found = places(cluster, cluster.streams.bad)
    assert [block for block, _ in without_copies(found)] == cluster.oracle().bad == [2, 4, 6]


def test_counts_of_bad_records_are_the_same_for_all(cluster):
    active, standby = pair(cluster)
    send(cluster, 1, 1, 2, 2, 2)
    cluster.settle()
    assert active.computed().counts == standby.computed().counts
    active.kill()
    send(cluster, 2)
    cluster.settle()
    assert standby.control.publisher.counts["q/in"].bad == {"duplicate-key": 4}


def test_notices_are_there_once_over_takeovers(notifying):
    active, standby = pair(notifying)
    send(notifying, 1, 2, 3)
    notifying.settle()
    active.slow(1e6)
    send(notifying, 4, 5, 6)
    notifying.until(lambda: standby.computed().block == 6)
    active.kill()
    notifying.settle()
    assert [block for block, _ in places(notifying, notifying.streams.notices)] == list(range(1, 7))
    assert notifying.oracle().notices == list(range(1, 7))


def test_mail_that_was_sent_is_not_sent_again_by_who_takes_over(notifying, room):
    active, standby = pair(notifying)
    room.join(active), room.join(standby)
    send(notifying, 1, 2, 3)
    notifying.settle()
    notifying.until(lambda: len(room.sent) == 3)
    active.kill()
    notifying.until_active("b")
    send(notifying, 4)
    notifying.until(lambda: len(room.sent) > 3)
    # And again by one that was active before
    active.start()
    room.join(active)
    standby.kill()
    notifying.until_active("a")
    send(notifying, 5)
    notifying.until(lambda: len(room.sent) > 4)
    notifying.advance(2.0)
    assert room.items == [(block, False) for block in (1, 2, 3, 4, 5)]


def test_mail_is_sent_once_though_its_notice_is_there_twice(notifying, room):
    sleeper, standby = pair(notifying)

    def meanwhile() -> None:
        notifying.until_active("b")
        send(notifying, 2)
        notifying.until(lambda: standby.control.publisher.published == 2)
        notifying.advance(1.0)

    sleeper.stall_at(".N", meanwhile)
    send(notifying, 1)
    notifying.until(lambda: standby.is_active and not sleeper.is_active)
    room.join(standby)
    send(notifying, 3)
    notifying.settle()
    notifying.advance(3.0)
    assert [block for block, _ in places(notifying, notifying.streams.notices)] == [1, 2, 1, 3]
    assert room.sent == [1, 2, 3]


def test_sending_begins_when_a_replaced_model_begins_to_notify(tmp_path):
    project = notifying_graph().project
    (query,) = project.queries
    silent = compile_project(replace(project, queries=(replace(query, windows=query.windows[:1], edges=()),)))
    cluster = LocalCluster(silent, frozenset({"q/in"}), tmp_path)
    node = cluster.start("a")
    cluster.until_active("a")
    mailer = Mailer(Lockstep(node.bus, node.machine), cluster.streams, {})
    mailer.look(node.engine.graph)
    assert mailer.carrier is None
    cluster.ask("replace", {"model": to_yaml(project)})
    mailer.look(node.engine.graph)
    assert mailer.carrier is not None


def test_a_machine_that_slept_while_it_sent_repeats_nothing_and_what_it_was_at_is_in_doubt(notifying, room):
    active, standby = pair(notifying)
    room.join(active)
    send(notifying, 1)
    notifying.until(lambda: room.sent == [1])
    room.join(standby)

    def sleep_first(item: Item) -> None:
        room.take = room.note
        active.machine.stand_still(lambda: notifying.until(lambda: len(room.sent) == 4))
        room.note(item)

    # Given a machine that falls asleep while it hands its second message over, and another that goes on
    room.take = sleep_first
    send(notifying, 2, 3, 4)
    notifying.until(lambda: len(room.sent) >= 5)
    notifying.advance(5.0)
    # Then it sends nothing more when it wakes, and the copy of what it was at says that there may be one
    assert room.items == [(1, False), (2, True), (3, False), (4, False), (2, False)]
    client = Lockstep(notifying.bus, notifying.clock)
    [doubt] = Deliveries(client, notifying.streams.notices, notifying.streams.mail_group).doubts()
    assert (doubt.offset, doubt.fate) == (1, "done and tried again")
