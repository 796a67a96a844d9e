"""What every transport does, by the letters of sensu.md A; skipped where a transport does not claim it."""

from __future__ import annotations

import pytest
from transport_worlds import Inbox, quietly, until, world_of

from lockstep.errors import UnsupportedByBackend
from lockstep.monitor.transport.errors import PipeMismatch, TransportDown
from lockstep.monitor.transport.port import DIRECT, FANOUT, TOPIC, QueueStats

KINDS = ["memory", "streams", "rabbitmq"]
WITH_QUEUES = ["memory", "rabbitmq"]


@pytest.fixture
def world(request, tmp_path):
    kind = request.param if isinstance(request.param, tuple) else (request.param, {})
    made = world_of(request, kind[0], tmp_path, **kind[1])
    yield made
    made.close()


every = pytest.mark.parametrize("world", KINDS, indirect=True)
with_queues = pytest.mark.parametrize("world", WITH_QUEUES, indirect=True)
many_at_once = pytest.mark.parametrize("world", [(kind, {"prefetch": 3}) for kind in WITH_QUEUES], indirect=True,
                                       ids=WITH_QUEUES)  # fmt: skip
lasting = pytest.mark.parametrize("world", [(kind, {"durable": True}) for kind in WITH_QUEUES], indirect=True,
                                  ids=WITH_QUEUES)  # fmt: skip


@every
def test_a4_a_fanout_pipe_gives_a_copy_to_each_funnel(world):
    server, pipe, inboxes = world.connection(), world.name("dev"), [Inbox(), Inbox()]
    for number, inbox in enumerate(inboxes):
        world.connection().subscribe(FANOUT, pipe, world.name(f"own-{number}"), inbox)
    for body in (b"1", b"2", b"3"):
        server.publish(FANOUT, pipe, body)
    for inbox in inboxes:
        until(lambda inbox=inbox: len(inbox.bodies) == 3)
        assert inbox.bodies == [b"1", b"2", b"3"]


@every
def test_a2_one_funnel_for_several_pipes_has_one_handler(world):
    server, client, inbox, other = world.connection(), world.connection(), Inbox(), Inbox()
    funnel = world.name("own")
    client.subscribe(FANOUT, world.name("a"), funnel, inbox)
    client.subscribe(FANOUT, world.name("b"), funnel, other)
    server.publish(FANOUT, world.name("a"), b"a")
    server.publish(FANOUT, world.name("b"), b"b")
    until(lambda: len(inbox.bodies) == 2)
    assert sorted(inbox.bodies) == [b"a", b"b"]
    assert other.bodies == []


@with_queues
def test_a5_a_pipe_that_nobody_reads_drops_messages(world):
    server, client, inbox, pipe = world.connection(), world.connection(), Inbox(), world.name("dev")
    server.publish(FANOUT, pipe, b"lost")
    client.subscribe(FANOUT, pipe, world.name("own"), inbox)
    server.publish(FANOUT, pipe, b"seen")
    until(lambda: inbox.bodies)
    assert inbox.bodies == [b"seen"]


@every
def test_nothing_comes_after_unsubscribe(world):
    server, client, inbox, pipe = world.connection(), world.connection(), Inbox(), world.name("dev")
    client.subscribe(FANOUT, pipe, world.name("own"), inbox)
    client.unsubscribe()
    server.publish(FANOUT, pipe, b"1")
    quietly(client)
    assert inbox.bodies == []
    client.subscribe(FANOUT, pipe, world.name("own"), inbox)
    server.publish(FANOUT, pipe, b"2")
    until(lambda: inbox.bodies)
    assert inbox.bodies == [b"2"]


@every
def test_a_closed_transport_says_so(world):
    client = world.connection()
    client.close()
    assert not client.connected
    with pytest.raises(TransportDown):
        client.publish(FANOUT, world.name("dev"), b"1")
    client.close()


@every
def test_empty_and_large_messages(world):
    server, client, inbox, pipe = world.connection(), world.connection(), Inbox(), world.name("dev")
    client.subscribe(FANOUT, pipe, world.name("own"), inbox)
    for body in (b"", b"x" * 2_000_000, "ü\0".encode()):
        server.publish(FANOUT, pipe, body)
    until(lambda: len(inbox.bodies) == 3)
    assert list(map(len, inbox.bodies)) == [0, 2_000_000, 3]


@with_queues
def test_a3_a_direct_pipe_is_a_work_queue_served_in_turn(world):
    server, pipe, inboxes = world.connection(), world.name("roundrobin:x"), [Inbox(), Inbox()]
    for inbox in inboxes:
        world.connection().subscribe(DIRECT, pipe, pipe, inbox)
    for number in range(6):
        server.publish(DIRECT, pipe, b"%d" % number)
    until(lambda: sum(len(inbox.bodies) for inbox in inboxes) == 6)
    assert [len(inbox.bodies) for inbox in inboxes] == [3, 3]


@with_queues
def test_a6_a_queue_ends_with_its_last_reader_and_what_is_in_it(world):
    server, pipe, inbox = world.connection(), world.name("results"), Inbox(acks=False)
    first = world.connection()
    first.subscribe(DIRECT, pipe, pipe, inbox, ack=True)
    server.publish(DIRECT, pipe, b"1")
    server.publish(DIRECT, pipe, b"2")
    until(lambda: inbox.bodies)
    first.close()
    late = Inbox()
    world.connection().subscribe(DIRECT, pipe, pipe, late)
    server.publish(DIRECT, pipe, b"3")
    until(lambda: late.bodies)
    assert late.bodies == [b"3"]


@lasting
def test_a6_a_durable_queue_lasts(world):
    server, pipe, inbox = world.connection(), world.name("results"), Inbox()
    reader = world.connection()
    reader.subscribe(DIRECT, pipe, pipe, Inbox())
    reader.close()
    server.publish(DIRECT, pipe, b"kept")
    world.connection().subscribe(DIRECT, pipe, pipe, inbox)
    until(lambda: inbox.bodies)
    assert inbox.bodies == [b"kept"]


@many_at_once
def test_a7_a_reader_has_at_most_so_many_without_acknowledgement(world):
    server, client, pipe, inbox = world.connection(), world.connection(), world.name("results"), Inbox(acks=False)
    client.subscribe(DIRECT, pipe, pipe, inbox, ack=True)
    for number in range(10):
        server.publish(DIRECT, pipe, b"%d" % number)
    until(lambda: len(inbox.bodies) == 3)
    quietly(client)
    assert len(inbox.bodies) == 3
    inbox.messages[0].ack()
    until(lambda: len(inbox.bodies) == 4)
    assert inbox.bodies == [b"0", b"1", b"2", b"3"]


@with_queues
def test_a8_without_acknowledgement_a_message_counts_as_done(world):
    server, client, pipe, inbox = world.connection(), world.connection(), world.name("x"), Inbox(acks=False)
    client.subscribe(DIRECT, pipe, pipe, inbox)
    for number in range(5):
        server.publish(DIRECT, pipe, b"%d" % number)
    until(lambda: len(inbox.bodies) == 5)
    until(lambda: server.stats(pipe) == QueueStats(0, 1))


@many_at_once
def test_a9_what_was_not_acknowledged_comes_again_in_order_and_is_marked(world):
    server, pipe, inbox = world.connection(), world.name("results"), Inbox(acks=False)
    first, second = world.connection(), world.connection()
    first.subscribe(DIRECT, pipe, pipe, inbox, ack=True)
    for number in range(5):
        server.publish(DIRECT, pipe, b"%d" % number)
    until(lambda: len(inbox.bodies) == 3)
    inbox.messages[0].ack()
    until(lambda: len(inbox.bodies) == 4)
    again = Inbox()
    second.subscribe(DIRECT, pipe, pipe, again, ack=True)
    first.close()
    until(lambda: len(again.bodies) == 4)
    assert {message.body: message.redelivered for message in again.messages} == {
        b"1": True, b"2": True, b"3": True, b"4": False,
    }  # fmt: skip


@with_queues
def test_a10_stats_count_and_make_the_queue(world):
    server, pipe = world.connection(), world.name("results")
    assert server.stats(pipe) == QueueStats(0, 0)
    client = world.connection()
    client.subscribe(DIRECT, pipe, pipe, Inbox(acks=False), ack=True)
    for number in range(4):
        server.publish(DIRECT, pipe, b"%d" % number)
    until(lambda: server.stats(pipe) == QueueStats(3, 1))


@with_queues
def test_a14_a_lost_connection_is_made_again_with_its_subscriptions(world):
    server, client, pipe, inbox = world.connection(), world.connection(), world.name("dev"), Inbox()
    said = []
    client.before_reconnect = lambda: said.append("before")
    client.after_reconnect = lambda: said.append("after")
    client.subscribe(FANOUT, pipe, world.name("own"), inbox)
    world.cut(client)
    until(lambda: said)
    world.mend(client)
    until(lambda: said == ["before", "after"])
    server.publish(FANOUT, pipe, b"1")
    until(lambda: inbox.bodies)
    assert inbox.bodies == [b"1"]


@with_queues
def test_an_acknowledgement_after_the_connection_was_lost_does_nothing(world):
    server, client, pipe, inbox = world.connection(), world.connection(), world.name("results"), Inbox(acks=False)
    other = world.connection()
    client.subscribe(DIRECT, pipe, pipe, inbox, ack=True)
    server.publish(DIRECT, pipe, b"1")
    until(lambda: inbox.bodies)
    late = Inbox()
    other.subscribe(DIRECT, pipe, pipe, late, ack=True)
    client.close()
    inbox.messages[0].ack()
    until(lambda: late.bodies)
    assert (late.bodies, late.messages[0].redelivered) == ([b"1"], True)


@with_queues
def test_a15_messages_can_be_fetched_one_by_one(world):
    server, pipe = world.connection(), world.name("results")
    server.stats(pipe)
    assert server.fetch(pipe) is None


@pytest.mark.parametrize("world", ["streams"], indirect=True)
def test_what_streams_do_not_claim_is_refused(world):
    client = world.connection()
    assert not client.features.queues
    for call in (client.stats, client.fetch):
        with pytest.raises(UnsupportedByBackend):
            call("results")


@with_queues
def test_a_pipe_has_one_kind(world):
    server, pipe = world.connection(), world.name("dev")
    server.publish(FANOUT, pipe, b"1")
    with pytest.raises(PipeMismatch):
        server.publish(TOPIC, pipe, b"1")
    with pytest.raises(PipeMismatch):
        server.subscribe(DIRECT, pipe, world.name("own"), Inbox())
    server.publish(FANOUT, pipe, b"2")


@pytest.mark.parametrize("world", [("rabbitmq", {"prefetch": 3})], indirect=True, ids=["rabbitmq"])
def test_of_readers_who_want_a_queue_alone_one_gets_all_and_the_next_goes_on_in_order(world):
    server, pipe, inboxes = world.connection(), world.name("results"), [Inbox(acks=False), Inbox()]
    readers = [world.connection(), world.connection()]
    for reader, inbox in zip(readers, inboxes, strict=True):
        reader.subscribe(DIRECT, pipe, pipe, inbox, ack=True, exclusive=True)
    for number in range(5):
        server.publish(DIRECT, pipe, b"%d" % number)
    until(lambda: len(inboxes[0].bodies) == 3)
    inboxes[0].messages[0].ack()
    until(lambda: len(inboxes[0].bodies) == 4)
    assert inboxes[1].bodies == []
    readers[0].close()
    until(lambda: len(inboxes[1].bodies) == 4)
    assert inboxes[1].bodies == [b"1", b"2", b"3", b"4"]
    assert server.stats(pipe) == QueueStats(0, 1)


@pytest.mark.parametrize("world", ["rabbitmq"], indirect=True)
def test_a_queue_that_is_there_is_shared(world):
    server, pipe, inbox = world.connection(), world.name("results"), Inbox()
    server.stats(pipe)
    world.connection().subscribe(DIRECT, pipe, pipe, inbox, ack=True, exclusive=True)
    server.publish(DIRECT, pipe, b"1")
    until(lambda: inbox.bodies)


@many_at_once
def test_other_readers_of_a_connection_go_on_when_one_is_cancelled(world):
    server, client = world.connection(), world.connection()
    inboxes = {pipe: Inbox() for pipe in (world.name("a"), world.name("b"))}
    first, _ = [client.subscribe(DIRECT, pipe, pipe, inbox, ack=True) for pipe, inbox in inboxes.items()]
    first.cancel()
    [(_, _), (pipe, inbox)] = inboxes.items()
    for number in range(10):
        server.publish(DIRECT, pipe, b"%d" % number)
    until(lambda: len(inbox.bodies) == 10)
    until(lambda: server.stats(pipe) == QueueStats(0, 1))


@many_at_once
def test_acknowledgements_in_any_order(world):
    server, client, pipe, inbox = world.connection(), world.connection(), world.name("x"), Inbox(acks=False)
    client.subscribe(DIRECT, pipe, pipe, inbox, ack=True)
    for number in range(9):
        server.publish(DIRECT, pipe, b"%d" % number)
    for given in (3, 6, 9):
        until(lambda given=given: len(inbox.bodies) == given)
        for message in reversed(inbox.messages[given - 3 : given]):
            message.ack()
            message.ack()  # once more does nothing
    client.close()
    assert server.stats(pipe) == QueueStats(0, 0)
