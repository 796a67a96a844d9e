"""The threads in the background of a bus outlive what fails in them: nobody waits for a thread that is dead."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace

import pytest

from lockstep.log.kafka import follower as tails
from lockstep.log.kafka.client import Partition
from lockstep.log.kafka.follower import Follower
from lockstep.log.network.address import Address
from lockstep.log.network.driver import Ends
from lockstep.log.rabbitmq import connection as pumps
from lockstep.log.rabbitmq.connection import Connection, IoLoop
from lockstep.log.redis.listener import Listener
from lockstep.runtime import ThreadRuntime

BOUND_S = 10.0
RUNTIME = ThreadRuntime()
ORDERS = Partition("orders", 0)


class Consumer:
    """A consumer that fails in the way it is told, or has one message."""

    def __init__(self, fault):
        self._fault, self._messages = fault, [Message()]

    def list_topics(self, topic, timeout):
        """Knows every topic."""

    def incremental_assign(self, places):
        """Takes every partition."""

    def poll(self, timeout):
        if self._fault is not None:
            raise self._fault
        return self._messages.pop() if self._messages else threading.Event().wait(0.001) or None

    def consume(self, count, timeout):
        return []

    def close(self):
        """Nothing to give back."""


class Message:
    def topic(self):
        return ORDERS.topic

    def partition(self):
        return ORDERS.number

    def error(self):
        return None

    def offset(self):
        return 7

    def __len__(self):
        return 1


def test_a_kafka_tail_that_fails_starts_again_and_wakes_readers(monkeypatch, caplog):
    monkeypatch.setattr(tails, "_RETRY_S", 0.01)
    consumers = [Consumer(RuntimeError("broken")), Consumer(None)]
    tail = Follower({}, lambda partition, within_s: Ends(0, 7), RUNTIME, make=lambda set_up: consumers.pop(0))
    came = threading.Event()

    def wake():
        feed = tail.find(ORDERS, "id")
        if feed is not None and feed.take(7, 1):
            came.set()

    tail.watch(ORDERS, "id", wake)
    assert came.wait(BOUND_S)
    assert not consumers
    assert "broken" in caplog.text
    tail.close()


def test_a_kafka_tail_that_fails_hands_out_nothing_from_before(monkeypatch):
    monkeypatch.setattr(tails, "_RETRY_S", 0.01)
    stop = threading.Event()
    consumers = [Consumer(RuntimeError("broken"))]

    def make(set_up):
        if consumers:
            return consumers.pop()
        stop.wait(BOUND_S)
        return Consumer(None)

    tail = Follower({}, lambda partition, within_s: Ends(0, 7), RUNTIME, make=make)
    unwatch = tail.watch(ORDERS, "id", lambda: None)
    feed = tail.find(ORDERS, "id")
    while consumers or feed.is_followed:
        stop.wait(0.001)
    assert feed.take(7, 1) == []
    unwatch()
    stop.set()
    tail.close()


class Line(Connection):
    """A connection whose reading or ticking fails, if it is told so."""

    def __init__(self, fault=None):
        ours, self.theirs = socket.socketpair()
        super().__init__(ours, ("h1", 1), ("h1", 1), 60.0, RUNTIME.monotonic)
        self.fault, self.is_read = fault, threading.Event()

    def on_readable(self):
        if self.fault == "read":
            raise RuntimeError("can't read")
        self.sock.recv(100)
        self.is_read.set()

    def on_tick(self):
        if self.fault == "tick":
            raise RuntimeError("can't tick")


@pytest.fixture
def line():
    made = []

    def begin(fault=None):
        made.append(Line(fault))
        return made[-1]

    yield begin
    for one in made:
        one.theirs.close()
        one.sock.close()


@pytest.fixture
def pump():
    made = []

    def begin(tick=lambda: None):
        made.append(IoLoop("test", tick))
        return made[-1]

    yield begin
    for one in made:
        one.close()


@pytest.mark.parametrize("fault", ["read", "tick"])
def test_a_rabbitmq_connection_that_fails_is_lost_and_the_others_are_read(line, pump, fault):
    broken, good, reading = line(fault), line(), pump()
    for one in (broken, good):
        one.theirs.send(b"x")  # before it is read: one that fails is closed at once
        reading.add(one)
    assert good.is_read.wait(BOUND_S)
    while broken.is_alive:
        threading.Event().wait(0.001)
    assert "reading it failed" in str(broken.unreachable())
    assert good.is_alive


def test_a_rabbitmq_pump_goes_on_although_its_tick_fails(line, pump):
    good, reading = line(), pump(lambda: (_ for _ in ()).throw(RuntimeError("no tick")))
    reading.add(good)
    good.theirs.send(b"x")
    assert good.is_read.wait(BOUND_S)


def test_a_rabbitmq_pump_that_fails_loses_its_connections_and_reads_new_ones(line, pump, monkeypatch):
    monkeypatch.setattr(pumps, "_TICK_S", 0.01)
    old, new, reading = line(), line(), pump()
    reading.add(old)
    old.theirs.send(b"x")
    assert old.is_read.wait(BOUND_S)
    look, failed = IoLoop._look, threading.Event()

    def fail_once(self, selector, lines):
        if failed.is_set():
            return look(self, selector, lines)
        failed.set()
        raise RuntimeError("no selector")

    monkeypatch.setattr(IoLoop, "_look", fail_once)
    assert failed.wait(BOUND_S)
    reading.add(new)
    new.theirs.send(b"x")
    assert new.is_read.wait(BOUND_S)
    assert not old.is_alive


def test_a_redis_listener_goes_on_although_it_failed():
    follower = Listener(SimpleNamespace(address=Address("redis", (("h1", 1),))), RUNTIME)
    tried = threading.Semaphore(0)

    def connect(what):
        tried.release()
        raise RuntimeError("no line")

    follower._connector.connect = connect
    follower.watch("bell", lambda: None)
    assert all(tried.acquire(timeout=BOUND_S) for _ in range(2))
    follower.close()
