"""Connections to RabbitMQ, subscriptions and publishers on them, against a server that answers by a script."""

from __future__ import annotations

import socket
import threading
import zlib
from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rstream import schema

from lockstep.errors import ServerRefused, ServerUnreachable
from lockstep.log.network.address import Address, Secret
from lockstep.log.network.driver import Ends
from lockstep.log.port import Limits
from lockstep.log.rabbitmq import errors, frames
from lockstep.log.rabbitmq import topic as topics
from lockstep.log.rabbitmq.client import RabbitClient
from lockstep.log.rabbitmq.connection import Connection, IoLoop
from lockstep.log.rabbitmq.handshake import Login
from lockstep.log.rabbitmq.sender import Sender
from lockstep.log.rabbitmq.subscription import LAST, ReadAhead
from lockstep.runtime import ThreadRuntime

RUNTIME = ThreadRuntime()
HERE = Address("rabbitmq", (("h1", 1),), timeout_s=0.5)
LOGIN = Login("app", Secret("hunter2"), "/", None, 0.5)
BOUND_S = 10.0


class Scripted(Connection):
    """Answers each kind of request with the next code of its script, else yes; stores what is published."""

    def __init__(self):
        ours, self.theirs = socket.socketpair()
        super().__init__(ours, ("h1", 1), ("h1", 1), 60.0, RUNTIME.monotonic)
        self.codes, self.asked, self.stored = defaultdict(list), [], 0
        self.subscribed, self.before = set(), []

    def ask(self, build, deadline):
        frame = build(1)
        self.asked.append(frame)
        codes = self.codes[type(frame)]
        code = codes.pop(0) if codes else errors.OK
        if isinstance(frame, schema.Subscribe) and code == errors.OK:
            self.subscribed.add(frame.subscription_id)
        return SimpleNamespace(response_code=code)

    def write(self, data, deadline):
        if frames.key_of(data[4:]) != frames.PUBLISH:
            return
        for piece in self.before:
            self._take(piece)
        message = data[4 + 21 :]
        for number in self.subscribed & set(self._subscriptions):
            self._subscriptions[number].on_chunk(chunk(self.stored, message))
        self.stored += 1

    def close(self):
        self.sock.close()
        self.theirs.close()


class ToOne(RabbitClient):
    """Everything is led by one server."""

    def __init__(self, connection):
        super().__init__(HERE, LOGIN, RUNTIME)
        self.connection = connection

    def to_leader(self, purpose, stream, deadline):
        return self.connection


def chunk(first, *messages):
    return frames.read_chunk(deliver(first, *messages)[4:])


def deliver(first, *messages):
    data = b"".join(len(message).to_bytes(4, "big") + message for message in messages)
    frame = schema.Deliver(0, 80, 0, len(messages), len(messages), 0, 1, first, zlib.crc32(data), len(data), 0, 0, data)
    return frames.encode(frame)


@pytest.fixture
def connection():
    connection = Scripted()
    yield connection
    connection.close()


@pytest.fixture
def links(connection):
    return ToOne(connection)


@pytest.fixture
def sender(links):
    return Sender(links, "orders~1", "orders", "me")


def test_a_message_is_found_again_after_its_place_could_not_be_watched_at_first(links, connection, sender):
    connection.codes[schema.Subscribe] = [errors.NOT_AVAILABLE]
    assert sender.send(b"a", links.deadline()) == 0
    assert sender.send(b"b", links.deadline()) == 1


def test_a_subscription_that_was_refused_has_no_credit_and_ends_nobody_elses(links, connection):
    connection.codes[schema.Subscribe] = [errors.NOT_AVAILABLE]
    refused, other = (ReadAhead(links, "orders~1", lambda: None) for _ in range(2))
    with pytest.raises(errors.NotReady):
        refused.open(LAST, 8, links.deadline())
    other.open(LAST, 8, links.deadline())
    ended = []
    connection.begin = lambda *words, **more: ended.append(words)
    refused.close()
    assert (refused.credit, ended) == (0, [])
    assert connection._subscriptions == {0: other}


def test_a_number_that_somebody_else_has_by_now_is_not_given_back(connection):
    old, new = object(), object()
    number = connection.add_subscription(old)
    connection.drop_subscription(number, old)
    assert connection.add_subscription(new) == number
    connection.drop_subscription(number, old)
    assert connection._subscriptions == {number: new}


def test_what_another_client_wrote_is_no_reason_not_to_find_our_own(links, connection, sender):
    sender.send(b"a", links.deadline())
    alien = b"\x80\x00\x05" + bytes(8) + b"hello"
    frame = schema.Deliver(0, 80, 0, 1, 5, 0, 1, 1, zlib.crc32(alien), len(alien), 0, 0, alien)
    connection.before, connection.stored = [frames.encode(frame)], 6
    assert sender.send(b"b", links.deadline()) == 6
    assert connection.is_alive


class Heard:
    """Who gets what comes; `fault` is raised at it."""

    stream = "orders~1"

    def __init__(self, fault=None):
        self.came, self.fault = threading.Event(), fault

    def on_chunk(self, chunk):
        self.came.set()
        if self.fault is not None:
            raise self.fault

    def on_lost(self, reason):
        self.came.set()


TOO_SHORT, CUT_OFF = b"\x00\x00\x00\x01x", b"\x00\x00\x00\x04\x00\x08\x00\x01"
WHOLE = deliver(0, b"a")


@pytest.mark.parametrize(
    ("sent", "fault"),
    [(TOO_SHORT, None), (CUT_OFF, None), (WHOLE, RuntimeError("a reader's mistake"))],
    ids=["short", "cut off", "reader"],
)
def test_a_connection_that_brings_what_can_not_be_read_is_lost_and_the_others_go_on(sent, fault):
    broken, good, pump = Scripted(), Scripted(), IoLoop("test", lambda: None)
    lost, heard = Heard(fault), Heard()
    for connection, receiver in ((broken, lost), (good, heard)):
        connection.add_subscription(receiver)
        pump.add(connection)
    broken.theirs.sendall(sent)
    assert lost.came.wait(BOUND_S)
    good.theirs.sendall(WHOLE)
    assert heard.came.wait(BOUND_S)
    pump.close()
    assert "can't be read" in broken.why_lost
    assert good.why_lost == "the bus is closed"
    for connection in (broken, good):
        connection.close()


class Reached(RabbitClient):
    """Servers that hang take all the time that they are given; the clock goes by that alone."""

    def __init__(self, hanging):
        self.clock = 0.0
        super().__init__(replace(HERE, hosts=(("h1", 1), ("h2", 2), ("h3", 3)), timeout_s=9.0), LOGIN, self)
        self.hanging, self.tried, self.made = hanging, [], []

    def monotonic(self):
        return self.clock

    def _connect(self, endpoint, deadline):
        self.tried.append(endpoint[0])
        if endpoint[0] in self.hanging:
            self.clock += deadline.left()
            raise ServerUnreachable(server=endpoint[0], reason="it did not answer in time")
        self.clock += 0.1
        self.made.append(Scripted())
        return self.made[-1]


def test_a_server_that_hangs_leaves_time_for_the_others_and_is_asked_last_from_then_on():
    links = Reached(hanging=("h1", "h2"))
    connection = links.any(links.deadline())
    assert links.tried == ["h1", "h2", "h3"]
    assert links.clock < 9.0
    assert links.any(links.deadline()) is connection
    assert links.tried == ["h1", "h2", "h3"]
    connection.close()


def test_if_all_hang_the_call_ends_in_time():
    links = Reached(hanging=("h1", "h2", "h3"))
    with pytest.raises(ServerUnreachable):
        links.any(links.deadline())
    assert links.clock == pytest.approx(9.0)


def test_a_stream_that_was_not_empty_is_not_ready_while_its_new_leader_shows_nothing(links, monkeypatch):
    shown = [None, None]
    monkeypatch.setattr(topics, "peek_chunks", lambda *given: shown)
    topic = topics.RabbitTopic(links, "orders~1", "orders", Limits(), "me")
    assert topic.ends() == Ends(0, 0)
    shown[:] = [chunk(3, b"a"), chunk(7, b"b")]
    assert topic.ends() == Ends(3, 8)
    shown[:] = [None, None]
    with pytest.raises(ServerUnreachable, match="nobody to lead"):
        topic.ends()


def test_a_publisher_that_was_refused_is_withdrawn_before_it_is_declared_anew(links, connection, sender):
    sent = []
    connection.begin = lambda deadline, *builds, then: sent.extend(build(1) for build in builds)
    sender.send(b"a", links.deadline())
    connection.write = lambda data, deadline: sender.on_refusal(2, errors.REFUSED)
    with pytest.raises(ServerRefused, match="no right to write"):
        sender.send(b"b", links.deadline())
    assert [type(frame) for frame in sent] == [schema.DeletePublisher]
