"""A real Redis that is killed, cut off and paused under load: nothing acknowledged is lost, doubled or out of order."""

from __future__ import annotations

import itertools
import threading
import uuid

import pytest

from lockstep import Lockstep, StreamConfig
from lockstep.errors import AppendUncertain, Fenced, LockstepError, ServerUnreachable
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import Producer, values

BOUND_S = 50.0
KEEP = StreamConfig(capacity=None)


class Load:
    """A publisher and a reader, each with a bus of its own, that go on whatever happens."""

    def __init__(self, url):
        self.runtime = ThreadRuntime()
        self._buses = [open_bus(url, self.runtime) for _ in range(2)]
        self._out, self._in = (Lockstep(bus, self.runtime) for bus in self._buses)
        self._out.create("orders", KEEP)
        self.receipts, self.read, self.troubles = [], [], []
        self._stopping, self._reading = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=call, daemon=True) for call in (self._publish, self._read)]
        for thread in self._threads:
            thread.start()

    def until(self, condition, what):
        """Wait for a condition, with a bound."""
        end, pause = self.runtime.monotonic() + BOUND_S, self.runtime.waiter()
        while not condition():
            assert self.runtime.monotonic() < end, f"{what} did not come true; troubles: {self.troubles[-3:]}"
            pause.wait(0.005)

    def goes_on(self):
        """Wait until something that was published from now on has been read."""
        start = len(self.receipts)
        self.until(lambda: self.read and int(self.read[-1][1]) > start, "reading what is published now")

    def finish(self):
        """Stop publishing, read to the end, and check."""
        self._stopping.set()
        self._threads[0].join(BOUND_S)
        end = self._in.bounds("orders").next
        self.until(lambda: (self.read[-1][0] + 1 if self.read else 0) >= end, "reading to the end")
        self._reading.set()
        self._threads[1].join(BOUND_S)
        for one in (self._out, self._in):
            one.close()
        assert not any(thread.is_alive() for thread in self._threads)
        self._check()

    def _publish(self):
        pause = self.runtime.waiter()
        with self._out.publisher("orders", delivery_timeout_s=BOUND_S, retry_max_s=0.1) as publisher:
            for number in itertools.count():
                if self._stopping.is_set():
                    break
                self.receipts.append(publisher.publish(b"%d" % number))
                pause.wait(0.0005)

    def _read(self):
        options = {"on_error": lambda _, error: self.troubles.append(error), "on_gap": "fail"}
        with self._in.subscriber("orders", initial="earliest", **options) as subscriber:
            while not self._reading.is_set():
                self.read += [(record.offset, record.value) for record in subscriber.poll(0.2)]

    def _check(self):
        sent = {b"%d" % number: receipt for number, receipt in enumerate(self.receipts)}
        found = [value for _, value in self.read]
        offsets = [offset for offset, _ in self.read]
        where = dict(zip(found, offsets, strict=True))
        results = {value: result_of(receipt) for value, receipt in sent.items()}
        acked = {value: result for value, result in results.items() if isinstance(result, int)}
        unknown = {value for value, result in results.items() if isinstance(result, AppendUncertain)}
        failed = set(sent) - set(acked) - unknown
        assert len(acked) > 100, "the load was too small to say anything"
        assert {v: where.get(v) for v in acked} == acked, "acknowledged, and lost or elsewhere"
        assert len(set(found)) == len(found), "doubled"
        assert [int(value) for value in found] == sorted(int(value) for value in found), "out of order"
        assert offsets == sorted(set(offsets)), "read twice or backwards"
        assert set(found) <= set(sent), "never sent"
        assert not failed & set(found), "said to have failed, and is there"
        assert all(isinstance(error, LockstepError) for error in self.troubles)


def result_of(receipt):
    """The offset, or the error."""
    try:
        return receipt.result(0)
    except LockstepError as error:
        return error


def with_prefix(url, **options):
    """The URL with a prefix of its own."""
    given = "".join(f"&{name}={value}" for name, value in options.items())
    return f"{url}?prefix={uuid.uuid4().hex}{given}"


@pytest.fixture
def log_and_bus(proxy, redis_server):
    proxy.target = redis_server.port
    bus = open_bus(with_prefix(f"redis://{proxy.address}", timeout_s=1, patience_s=1), ThreadRuntime())
    yield bus.create("orders", KEEP), bus
    bus.close()


def test_a_server_that_is_killed_and_restarted_under_load_loses_nothing(start_server):
    server = start_server("redis")
    load = Load(with_prefix(server.url, timeout_s=5))
    for _ in range(3):
        load.goes_on()
        server.kill()
        server.restart()
    load.goes_on()
    load.finish()


def test_connections_cut_in_mid_publish_and_mid_read_lose_nothing(proxy, redis_server):
    proxy.target = redis_server.port
    load = Load(with_prefix(f"redis://{proxy.address}", timeout_s=5))
    for _ in range(20):
        load.goes_on()
        proxy.cut()
    load.goes_on()
    load.finish()


def test_a_server_paused_for_longer_than_the_time_out_loses_nothing(start_server):
    server = start_server("redis")
    load = Load(with_prefix(server.url, timeout_s=0.5, patience_s=0.5))
    for _ in range(2):
        load.goes_on()
        server.pause()
        seen = len(load.troubles)
        load.until(lambda seen=seen: len(load.troubles) > seen, "an error of the reader")
        server.resume()
    load.goes_on()
    load.finish()
    assert all(isinstance(error, ServerUnreachable) for error in load.troubles)


def test_an_append_that_is_not_answered_is_uncertain_and_sent_again_counts_once(proxy, log_and_bus):
    log, _ = log_and_bus
    producer = Producer()
    log.append([producer.batch(b"a")])
    batch = producer.batch(b"b")
    proxy.stall()
    with pytest.raises(AppendUncertain, match="orders"):
        log.append([batch])
    # Then it lands late, and the same batch is sent again
    proxy.resume()
    assert log.append([batch]) == [1]
    assert values(log) == [b"a", b"b"]


def test_while_a_server_is_away_calls_fail_in_time_and_then_the_same_handle_works(proxy, log_and_bus):
    log, bus = log_and_bus
    producer = Producer()
    log.append([producer.batch(b"a")])
    proxy.refuse()
    runtime = ThreadRuntime()
    for call in (lambda: log.append([producer.batch(b"lost")]), lambda: log.read(0), log.bounds, bus.names):
        began = runtime.monotonic()
        with pytest.raises(ServerUnreachable, match=proxy.address):
            call()
        assert runtime.monotonic() - began < 10
    proxy.resume()
    log.append([producer.batch(b"b")])
    assert values(log) == [b"a", b"b"]


def test_what_was_uncertain_stays_so_while_the_server_is_away(proxy, log_and_bus):
    log, _ = log_and_bus
    batch = Producer().batch(b"a")
    proxy.stall()
    with pytest.raises(AppendUncertain):
        log.append([batch])
    proxy.refuse()
    with pytest.raises(AppendUncertain):
        log.append([batch])
    proxy.resume()
    log.append([batch])
    assert values(log) == [b"a"]


def test_a_wait_ends_though_the_connection_that_listens_was_cut(proxy, log_and_bus, redis_server):
    log, bus = log_and_bus
    other = open_bus(f"{redis_server.url}?prefix={bus.keys.catalogue[1:33]}", ThreadRuntime())
    waiter, runtime = bus.waiter(), ThreadRuntime()
    waiter.watch(log)
    for number in range(5):
        proxy.cut()
        other.open("orders").append([Producer(str(number)).batch(b"x")])
        end = runtime.monotonic() + BOUND_S
        while len(values(log)) <= number:
            assert runtime.monotonic() < end
            waiter.wait(1)
    waiter.close()
    other.close()


def test_a_transaction_that_is_not_answered_is_uncertain_and_whole(proxy, log_and_bus):
    log, bus = log_and_bus

    def work(changes):
        changes.append("orders", [Producer().batch(b"a")])
        changes.put(b"cell", b"1")
        proxy.stall()

    with pytest.raises(AppendUncertain):
        bus.atomic(work)
    proxy.resume()
    with bus.snapshot() as view:
        assert (view.get(b"cell") == b"1") == (values(log) == [b"a"])


class Copier:
    """A member of a group that copies records to another stream, each in one transaction with its confirmation."""

    def __init__(self, url, done):
        self.runtime = ThreadRuntime()
        self._done, self.retried = done, 0
        self._node = Lockstep(open_bus(url, self.runtime), self.runtime)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def close(self):
        self._thread.join(BOUND_S)
        assert not self._thread.is_alive()
        self._node.close()

    def _work(self):
        with self._node.subscriber(
            "in", group="copiers", initial="earliest", max_records=20, on_error=lambda *_: None
        ) as subscriber:
            while not self._done.is_set():
                for record in subscriber.poll(0.1):
                    if not self._copy(subscriber, record):
                        break

    def _copy(self, subscriber, record):
        while not self._done.is_set():
            try:
                with self._node.group_transaction(subscriber) as together:
                    together.confirm(record)
                    together.publish("out", record.value)
            except (AppendUncertain, ServerUnreachable):
                self.retried += 1  # the same again: if it was committed, it changes nothing
                continue
            except Fenced:
                return False  # it is handed out again
            return True
        return False


def test_transactions_count_once_though_connections_are_cut_and_the_server_is_killed(start_server, proxy):
    server, runtime, done = start_server("redis"), ThreadRuntime(), threading.Event()
    proxy.target = server.port
    prefix = uuid.uuid4().hex
    through = f"redis://{proxy.address}?prefix={prefix}&timeout_s=5"
    node = Lockstep(open_bus(f"{server.url}?prefix={prefix}", runtime), runtime)
    for stream in ("in", "out"):
        node.create(stream, KEEP)
    sent = [b"%d" % number for number in range(400)]
    with node.publisher("in") as publisher:
        publisher.publish_many(sent).result(BOUND_S)
    copiers = [Copier(through, done) for _ in range(2)]
    end, pause, faults = runtime.monotonic() + BOUND_S, runtime.waiter(), 0
    while (copied := node.bounds("out").next) < len(sent):
        assert runtime.monotonic() < end, f"{copied} copied"
        if copied >= 15 * (faults + 1):
            faults += 1
            proxy.cut()
            if faults % 10 == 0:
                server.kill()
                server.restart()
        pause.wait(0.002)
    done.set()
    for copier in copiers:
        copier.close()
    with node.subscriber("out", initial="earliest") as subscriber:
        found = []
        while batch := subscriber.poll():
            found += [record.value for record in batch]
    node.close()
    assert found == sent
    assert faults >= 10


def test_scripts_that_the_server_forgot_are_sent_again(redis_server):
    bus = open_bus(with_prefix(redis_server.url), ThreadRuntime())
    log, producer = bus.create("orders", KEEP), Producer()
    log.append([producer.batch(b"a")])
    bus.client.ask(("SCRIPT", "FLUSH"))
    log.append([producer.batch(b"b")])
    assert values(log) == [b"a", b"b"]
    bus.close()
