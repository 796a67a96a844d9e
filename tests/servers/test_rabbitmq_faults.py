"""A real RabbitMQ is killed, paused and cut off under load: nothing lost, nothing doubled, nothing out of order."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import replace

import pytest

from lockstep import Lockstep
from lockstep.errors import AppendUncertain, LockstepError, ServerUnreachable
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import Producer
from lockstep.testing.contract_case import KEEP_ALL, values, views
from servers.rabbitmq_worlds import opened, own_url, wait_for_notes

BOUND_S = 50.0


class Load:
    """One who publishes and one who reads, until told to stop; each has a bus of its own."""

    def __init__(self, url):
        self.told, self.read, self.troubles = [], [], []
        self._stop, self._clock = threading.Event(), ThreadRuntime()
        self._writer, self._reader = (Lockstep(opened(url), self._clock) for _ in range(2))
        self._writer.create("orders", KEEP_ALL)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._publish, self._subscribe)]
        for thread in self._threads:
            thread.start()

    def _publish(self):
        options = {"delivery_timeout_s": BOUND_S, "retry_max_s": 0.2, "batch_records": 20}
        with self._writer.publisher("orders", **options) as publisher:
            for number in itertools.count():
                if self._stop.is_set():
                    return
                self.told.append((b"%d" % number, publisher.publish(b"%d" % number)))
                self._clock.waiter().wait(0.001)

    def _subscribe(self):
        end = None
        on_error = lambda _, error: self.troubles.append(error)  # noqa: E731
        with self._reader.subscriber("orders", initial="earliest", on_gap="fail", on_error=on_error) as subscriber:
            while end is None or not self.read or self.read[-1][0] + 1 < end:
                self.read += [(record.offset, record.value) for record in subscriber.poll(0.2)]
                if self._stop.is_set() and not self._threads[0].is_alive() and end is None:
                    end = self._reader.bounds("orders").next

    def goes_on(self):
        """Wait until something has been read that is published from now on."""
        start = len(self.told)
        end = time.monotonic() + BOUND_S
        while not self.read or int(self.read[-1][1]) <= start:
            assert time.monotonic() < end, f"nothing gets through; {self.troubles[-3:]}"
            self._clock.waiter().wait(0.01)

    def is_troubled(self):
        """Wait until the reader has met an error."""
        before, end = len(self.troubles), time.monotonic() + BOUND_S
        while len(self.troubles) == before:
            assert time.monotonic() < end, "nobody noticed anything"
            self._clock.waiter().wait(0.05)

    def finish(self):
        """Stop, read to the end, and look for anomalies."""
        self._stop.set()
        for thread in self._threads:
            thread.join(BOUND_S)
            assert not thread.is_alive(), f"it does not end; {self.troubles[-3:]}"
        held = values(self._reader.bus.open("orders"))
        self._writer.close()
        self._reader.close()
        stored, outcomes = dict(self.read), {value: outcome(receipt) for value, receipt in self.told}
        found = [value for _, value in self.read]
        known = {at: value for value, at in outcomes.items() if isinstance(at, int)}
        failed = {value for value, at in outcomes.items() if not isinstance(at, int | AppendUncertain)}
        assert len(known) > 100, "too little was published to show anything"
        assert {at: stored.get(at) for at in known} == known, "lost, or at another offset than was told"
        assert len(set(held)) == len(held), "doubled on the server, of which readers see nothing"
        assert held == found, "readers see something else than there is"
        assert found == sorted(found, key=int), "reordered"
        assert not failed & set(found), "phantom"


def outcome(receipt):
    """The offset, or the error."""
    try:
        return receipt.result(0)
    except LockstepError as error:
        return error


@pytest.fixture
def cut_off(proxy, rabbitmq_server):
    """A log behind a proxy, with a short time-out."""
    proxy.target = rabbitmq_server.port
    bus = opened(own_url(rabbitmq_server, port=proxy.port, timeout_s=1))
    yield bus.create("orders", KEEP_ALL)
    bus.close()


def test_a_server_killed_and_restarted_under_load(breakable_rabbitmq):
    server = breakable_rabbitmq.server
    load = Load(own_url(server, timeout_s=5))
    wait_for_notes(server)
    load.goes_on()
    server.kill()
    load.is_troubled()
    server.restart()
    load.goes_on()
    load.finish()


@pytest.mark.parametrize("pauses", [1, pytest.param(5, marks=pytest.mark.soak)])
def test_a_server_paused_for_longer_than_the_time_out(breakable_rabbitmq, pauses):
    server = breakable_rabbitmq.server
    load = Load(own_url(server, timeout_s=2))
    for _ in range(pauses):
        load.goes_on()
        server.pause()
        load.is_troubled()
        server.resume()
    load.goes_on()
    load.finish()


@pytest.mark.parametrize("cuts", [3, pytest.param(30, marks=pytest.mark.soak)])
def test_connections_cut_in_mid_publish_and_mid_read(proxy, rabbitmq_server, cuts):
    proxy.target = rabbitmq_server.port
    load = Load(own_url(rabbitmq_server, port=proxy.port, timeout_s=5))
    for _ in range(cuts):
        load.goes_on()
        before = proxy.accepted
        proxy.cut()
        load.goes_on()
        assert proxy.accepted > before, "nobody had to connect anew"
    load.finish()


@pytest.mark.parametrize("stalls", [1, pytest.param(5, marks=pytest.mark.soak)])
def test_connections_that_stall_and_are_then_cut(proxy, rabbitmq_server, stalls):
    proxy.target = rabbitmq_server.port
    load = Load(own_url(rabbitmq_server, port=proxy.port, timeout_s=2))
    for _ in range(stalls):
        load.goes_on()
        proxy.stall()
        load.is_troubled()
        proxy.cut()
        proxy.resume()
    load.goes_on()
    load.finish()


def test_an_append_that_gets_no_answer_is_uncertain_and_sent_again_is_stored_once(cut_off, proxy, rabbitmq_server):
    producer = Producer()
    cut_off.append([producer.batch(b"a")])
    batch = producer.batch(b"b")
    # Given an append that is held up on its way
    proxy.stall()
    began = time.monotonic()
    with pytest.raises(AppendUncertain):
        cut_off.append([batch])
    assert time.monotonic() - began < 5
    # When what was held up arrives late, and it is sent again
    proxy.resume()
    cut_off.append([batch])
    cut_off.append([producer.batch(b"c")])
    # Then
    assert values(cut_off) == [b"a", b"b", b"c"]


def test_a_message_that_arrives_late_is_dropped_by_the_server(rabbitmq_server, proxy):
    # Given a bus whose message is held up on its way
    proxy.target = rabbitmq_server.port
    bus = opened(own_url(rabbitmq_server, port=proxy.port, timeout_s=1))
    log = bus.create("orders", KEEP_ALL)
    producer = Producer()
    log.append([producer.batch(b"a")])
    late = producer.batch(b"late")
    links = bus.driver._client
    held = [one for ones in links._open.values() for one in ones]
    proxy.stall()
    with pytest.raises(AppendUncertain):
        log.append([late])
    # When it is sent again on a way of its own, and only then the first one gets through
    links.address = replace(links.address, hosts=(("127.0.0.1", rabbitmq_server.port),))
    links._open.clear()
    [base] = log.append([late])
    proxy.resume()
    log.append([producer.batch(b"next")])
    assert held
    # Then it is there once
    assert [(view.base, view.values()) for view in views(log)][1] == (base, (b"late",))
    assert values(log) == [b"a", b"late", b"next"]
    bus.close()


def test_a_server_that_is_away_is_an_error_and_the_same_handle_works_again(cut_off, proxy):
    producer = Producer()
    first = producer.batch(b"a")
    cut_off.append([first])
    assert len(cut_off.read(0)) == 1
    proxy.refuse()
    for call in (lambda: cut_off.append([producer.batch(b"lost")]), lambda: cut_off.read(10**9), cut_off.bounds):
        with pytest.raises(ServerUnreachable):
            call()
    proxy.resume()
    cut_off.append([producer.batch(b"b")])
    assert values(cut_off) == [b"a", b"b"]


def test_a_reader_goes_on_where_it_was_after_a_cut(cut_off, proxy):
    producer = Producer()
    for number in range(50):
        cut_off.append([producer.batch(b"%d" % number)])
    found, at = [], 0
    while entries := cut_off.read(at, max_bytes=1):
        found += entries
        at = found[-1].base + 1
        if len(found) % 7 == 0:
            proxy.cut()
    assert len(found) == 50


def test_those_who_wait_look_again_when_the_connection_is_lost(cut_off, proxy):
    waiter = cut_off._bus.waiter()
    waiter.watch(cut_off)
    assert cut_off.read(0) == []
    proxy.cut()
    began = time.monotonic()
    waiter.wait(30)
    assert time.monotonic() - began < 10
    assert cut_off.read(0) == []
    cut_off.append([Producer().batch(b"a")])
    waiter.wait(30)
    assert values(cut_off) == [b"a"]
    waiter.close()


def test_a_paused_server_is_an_error_within_the_time_out(breakable_rabbitmq):
    server = breakable_rabbitmq.server
    bus = opened(own_url(server, timeout_s=1))
    log = bus.create("orders", KEEP_ALL)
    log.append([Producer().batch(b"a")])
    server.pause()
    calls = [
        (lambda: log.topic.send([b"b"]), AppendUncertain),
        (lambda: log.topic.fetch(10**6, 1), ServerUnreachable),
        (log.topic.ends, ServerUnreachable),
        (lambda: bus.driver.catalogue.find("orders"), ServerUnreachable),
        (lambda: opened(own_url(server, timeout_s=1)), ServerUnreachable),
    ]
    for call, fault in calls:
        began = time.monotonic()
        with pytest.raises(fault):
            call()
        assert time.monotonic() - began < 3
    for call in (lambda: log.append([Producer("x").batch(b"c")]), lambda: log.read(10**9), log.bounds):
        with pytest.raises(ServerUnreachable):
            call()
    began = time.monotonic()
    server.resume()
    while True:
        try:
            found = log.topic.fetch(0, 1 << 20)
            break
        except LockstepError:
            assert time.monotonic() - began < BOUND_S
    assert len(found) in (1, 2), "what was under way when it was paused is there or not"
    assert log.topic.fetch(log.topic.send([b"c"])[0], 1)[0].data == b"c"
    bus.close()
