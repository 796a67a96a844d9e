"""Transports under test: a world makes connections, and waits for what other threads do."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

sys.path.append(str(Path(__file__).parents[2]))

from lockstep.monitor.transport.brokers import Broker as Place
from lockstep.monitor.transport.brokers import Turn
from lockstep.monitor.transport.memory import Broker, MemoryTransport
from lockstep.monitor.transport.streams import StreamsTransport
from lockstep.streams.client import connect
from servers.tcp_proxy import proxied


def until(holds, seconds=30.0):
    """Wait until something holds, and return what it gave."""
    end, pause = time.monotonic() + seconds, threading.Event()
    while not (found := holds()):
        assert time.monotonic() < end, "it did not come"
        pause.wait(0.01)
    return found


def quietly(transport, seconds=0.2):
    """Give other threads the time in which they would do what they must not do."""
    del transport
    threading.Event().wait(seconds)


class Inbox:
    """Messages that came, in order; acknowledged if a test says so."""

    def __init__(self, *, acks=True):
        self.messages, self._acks = [], acks

    def __call__(self, message):
        self.messages.append(message)
        if self._acks:
            message.ack()

    @property
    def bodies(self):
        return [message.body for message in self.messages]


class World:
    """Connections of one kind to one broker, with names that nobody else uses."""

    def __init__(self):
        self.made = []
        self.suffix = uuid4().hex[:8]

    def name(self, text):
        return f"{text}-{self.suffix}"

    def connection(self, **options):
        made = self._connect(**options)
        self.made.append(made)
        until(lambda: made.connected)
        return made

    def close(self):
        for made in self.made:
            made.close()


class MemoryWorld(World):
    def __init__(self, prefetch=1, durable=False):
        super().__init__()
        self.broker = Broker(prefetch=prefetch, durable=durable)

    def _connect(self):
        return MemoryTransport(self.broker)

    def cut(self, transport):
        transport.lose()

    def mend(self, transport):
        transport.restore()


class StreamsWorld(World):
    def __init__(self, url):
        super().__init__()
        self.url = url

    def _connect(self, client=None):
        return StreamsTransport(lambda: connect(self.url), client=client)


class AmqpWorld(World):
    def __init__(self, port, prefetch=1, durable=False, vhost="/"):
        super().__init__()
        self.port, self.prefetch, self.durable, self.vhost = port, prefetch, durable, vhost
        self.proxy, self._proxies = None, ExitStack()

    def _connect(self):
        from lockstep.monitor.transport.amqp import AmqpTransport

        if self.proxy is None:
            self.proxy = self._proxies.enter_context(proxied())
            self.proxy.target = self.port
        place = Place(port=self.proxy.port, vhost=self.vhost, prefetch=self.prefetch, durable=self.durable)
        return AmqpTransport(Turn([place], lambda places: None))

    def cut(self, transport):
        """All connections are cut, as one proxy serves them."""
        self.proxy.cut()

    def mend(self, transport):
        for made in self.made:
            until(lambda made=made: made.connected)

    def close(self):
        super().close()
        self._proxies.close()


def world_of(request, kind, tmp_path, **options):
    """The world of a kind; needs pika and a server for RabbitMQ."""
    if kind == "memory":
        return MemoryWorld(**options)
    if kind == "streams":
        return StreamsWorld(f"lmdb:{tmp_path / 'bus'}")
    pytest.importorskip("pika")
    return AmqpWorld(request.getfixturevalue("rabbitmq_server").ports[1], **options)
