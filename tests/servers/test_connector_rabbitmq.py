"""RabbitMQ connectors with a real RabbitMQ: each block once in persistent mode, over takeovers and kills."""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import uuid4

import pytest

sys.path.append(str(Path(__file__).parents[1] / "connectors"))
from connector_worlds import World, connector, csv, model, running, until

from lockstep.connectors.errors import ConnectorDown, SourceForgot
from lockstep.engine.events.frames import read_head

pika = pytest.importorskip("pika")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def port(rabbitmq_server) -> int:
    return rabbitmq_server.ports[1]


@pytest.fixture
def plain(port):
    """A plain client."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    yield connection.channel()
    if connection.is_open:
        connection.close()


@pytest.fixture
def exchange() -> str:
    return f"x{uuid4().hex}"


@pytest.fixture
def world_of(tmp_path):
    made = []

    def world(**what) -> World:
        made.append(World(f"lmdb:{tmp_path / 'bus'}", model(**what)))
        return made[-1]

    yield world
    for one in made:
        one.close()


def rmq(name, direction, port, exchange, **properties):
    wish = {"rmqhost": "127.0.0.1", "rmqport": port, "rmquserid": "guest", "rmqpassword": "guest",
            "rmqexchange": exchange, "urlhostport": "esp:5555", "rmqtype": "csv", **properties}  # fmt: skip
    return [connector("rmq", name, type=direction, **wish)]


IN, OUT = "esp:5555/desk/q/Trades/I", "esp:5555/desk/q/Copy/O"


# --- in -----------------------------------------------------------------------------------------------------------


def test_persistent_messages_are_read_once_whoever_takes_over(port, exchange, plain, world_of):
    # Given an engine that reads, and makes the exchange and a durable queue that keeps what was read
    world = world_of(into=rmq("in", "pub", port, exchange, buspersistence="true"))
    first = world.engine()
    for number in (1, 2):
        plain.basic_publish(exchange, IN, csv(number).encode())
    first.until(lambda: world.taken() == [1, 2])
    first.die()
    # When nobody leads, and then another one does
    plain.basic_publish(exchange, IN, csv(3).encode())
    second = world.engine()
    plain.basic_publish(exchange, IN, csv(4, 5).encode())
    second.until(lambda: world.taken() == [1, 2, 3, 4, 5])
    second.die()


def test_an_old_leader_that_wakes_adds_nothing(port, exchange, plain, world_of):
    world = world_of(into=rmq("in", "pub", port, exchange, buspersistence="true"))
    old = world.engine()
    for number in range(1, 11):
        plain.basic_publish(exchange, IN, csv(number).encode())
    new = world.engine()
    new.until(lambda: len(world.taken()) == 10)
    old.until(lambda: old.work.last == 10)
    old.die()
    new.die()
    assert world.taken() == list(range(1, 11))


LIMITS = {"x-queue-type": "stream", "x-max-length-bytes": 2000, "x-stream-max-segment-size-bytes": 500}


def test_messages_that_the_queue_dropped_are_an_error_that_says_so(port, exchange, plain, world_of):
    # Given a queue that keeps little, of which two messages were read
    plain.queue_declare(exchange, durable=True, arguments=LIMITS)
    world = world_of(into=rmq("in", "pub", port, exchange, buspersistence="true", buspersistencequeue=exchange))
    first = world.engine()
    for number in (1, 2):
        plain.basic_publish(exchange, IN, csv(number).encode())
    first.until(lambda: world.taken() == [1, 2])
    first.die()
    # When many more come while nobody leads
    plain.confirm_delivery()
    for number in range(3, 203):
        plain.basic_publish(exchange, IN, csv(number).encode())
    # Then whoever leads does not go on as if nothing were missing
    second = world.engine()
    with pytest.raises(SourceForgot, match=rf"{exchange} from 2 on, and it begins at \d+"):
        second.until(lambda: False)
    second.die()
    assert world.taken() == [1, 2]


def test_a_queue_that_is_no_stream_is_told(port, exchange, plain, world_of):
    plain.queue_declare(exchange, durable=True)
    world = world_of(into=rmq("in", "pub", port, exchange, buspersistence="true", buspersistencequeue=exchange))
    with pytest.raises(ConnectorDown, match=f"'{exchange}' in vhost '/' of queue type rabbit_classic_queue"):
        world.engine()


def test_direct_messages_are_lost_while_nobody_leads(port, exchange, plain, world_of):
    world = world_of(into=rmq("in", "pub", port, exchange))
    first = world.engine()
    plain.basic_publish(exchange, IN, csv(1).encode())
    first.until(lambda: world.taken() == [1])
    first.die()
    plain.basic_publish(exchange, IN, csv(2).encode())
    second = world.engine()
    plain.basic_publish(exchange, IN, csv(3).encode())
    second.until(lambda: world.taken() == [1, 3])
    second.die()


# --- out ----------------------------------------------------------------------------------------------------------


def listening(plain, exchange: str, topic: str = OUT):
    """A queue that gets everything from now on, and what it has so far."""
    queue = plain.queue_declare("", exclusive=True).method.queue
    plain.queue_bind(queue, exchange, topic)

    def got() -> list:
        found = []
        while (message := plain.basic_get(queue, auto_ack=True))[0] is not None:
            found.append(message)
        return found

    return got


@pytest.mark.parametrize("persistence", ["true", "false"])
def test_killed_between_sending_and_noting_nothing_is_lost_or_doubled(
    port, exchange, plain, world_of, monkeypatch, persistence
):
    # Given a connector that has sent blocks 1 and 2
    wish = {"rmqtype": "binary", "hotfailover": "true", "numbufferedmsgs": 10, "buspersistence": persistence}
    world = world_of(out=rmq("out", "sub", port, exchange, **wish))
    world.prepare()
    first = world.engine()
    got = listening(plain, exchange)
    world.come_out(1, 2)
    first.until(lambda: first.work.sent == 2)
    # When it sends 3 and 4 and is killed before it notes that
    world.come_out(3, 4)
    monkeypatch.setattr(first.work._notes, "write", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        first.until(lambda: False)
    monkeypatch.undo()
    first.die()
    # Then the next one looks at the last message, and goes on behind it
    second = world.engine()
    assert second.work.sent == 4
    world.come_out(5)
    second.until(lambda: second.work.sent == 5)
    second.die()
    messages = got()
    assert [read_head(body).last for _, _, body in messages] == [1, 2, 3, 4, 5]
    assert [properties.message_id for _, properties, _ in messages] == ["1", "2", "3", "4", "5"]


def test_two_engines_never_send_at_once(port, exchange, world_of):
    world = world_of(out=rmq("out", "sub", port, exchange, rmqtype="binary"))
    world.prepare()
    asleep = world.engine()
    with pytest.raises(ConnectorDown, match="cannot obtain exclusive access"):
        world.engine()
    asleep.die()
    world.engine().die()


def test_text_goes_on_behind_what_was_noted(port, exchange, plain, world_of):
    world = world_of(out=rmq("out", "sub", port, exchange, rmqcontenttype="text/csv", rmqheaders="a=1,b=2"))
    world.prepare()
    first = world.engine()
    got = listening(plain, exchange)
    world.come_out(1)
    first.until(lambda: first.work.sent == 1)
    first.die()
    second = world.engine()
    world.come_out(2)
    second.until(lambda: second.work.sent == 2)
    second.die()
    messages = got()
    assert [body.decode() for _, _, body in messages] == [csv(1), csv(2)]
    assert messages[0][1].content_type == "text/csv"
    assert messages[0][1].headers == {"a": "1", "b": "2"}


def test_an_exchange_that_is_there_is_taken_as_it_is(port, exchange, plain, world_of):
    plain.exchange_declare(exchange, "topic", durable=False)
    world = world_of(out=rmq("out", "sub", port, exchange, rmqtopic="my.topic", buspersistence="true"))
    world.prepare()
    got = listening(plain, exchange, "my.*")
    engine = world.engine()
    world.come_out(1)
    engine.until(lambda: engine.work.sent == 1)
    engine.die()
    assert len(got()) == 1


def test_a_wrong_password_is_told_without_it(port, exchange, world_of):
    world = world_of(out=rmq("out", "sub", port, exchange, rmqpassword="hush-hush"))
    world.prepare()
    with pytest.raises(ConnectorDown, match="q/Copy/out") as failed:
        world.engine()
    assert "hush" not in str(failed.value)
    assert "hush" not in repr(world.only())


def test_a_server_that_is_away_is_waited_for(exchange, world_of, caplog, breakable_rabbitmq):
    server = breakable_rabbitmq.server
    wish = {"rmqtype": "binary", "buspersistence": "true"}
    world = world_of(out=rmq("out", "sub", server.ports[1], exchange, **wish))
    with running(world) as connectors:
        world.come_out(1)
        until(lambda: connectors.have_sent({"q/Copy/out": 1}))
        server.kill()
        world.come_out(2)
        until(lambda: "is tried again" in caplog.text)
        server.restart()
        until_long(lambda: connectors.have_sent({"q/Copy/out": 2}))
    again = World.engine(world)
    assert again.work.sent == 2
    again.die()


def until_long(condition) -> None:
    for _ in range(5):
        try:
            return until(condition)
        except AssertionError:
            continue
    raise AssertionError("it did not come about")
