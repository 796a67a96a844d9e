"""Brokers killed, paused and cut off under load: nothing acknowledged is lost, doubled, out of order or made up."""

from __future__ import annotations

import subprocess
import threading
import time
from contextlib import contextmanager

import pytest

from lockstep import Lockstep
from lockstep.dev.kafka import kafka
from lockstep.errors import AppendUncertain, ServerUnreachable, Unavailable
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import values, views
from servers.kafka_worlds import KEEP_ALL, SOON_S, admin, fresh, one, opened, with_settings

BOUND_S = 90.0
PACE_S = 0.002
ENOUGH = 150

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


class Load:
    """Somebody who publishes numbers all the time, and somebody who reads them, each on a bus of their own."""

    def __init__(self, url, **options):
        self.options = {"prefix": fresh(), "timeout_s": 6, **options}
        self.url, self.receipts, self.read, self.troubles = url, [], [], []
        self.offsets = {}
        self._stopping, self._done = threading.Event(), threading.Event()
        self._failed = []

    @contextmanager
    def running(self):
        with opened(self.url, **self.options) as writing, opened(self.url, **self.options) as reading:
            writing.create("numbers", KEEP_ALL)
            works = (lambda: self._publish(writing), lambda: self._read(reading))
            threads = [threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in works]
            for thread in threads:
                thread.start()
            try:
                yield self
                self._stopping.set()
                threads[0].join(BOUND_S)
                threads[1].join(BOUND_S)
                assert not self._failed, self._failed
                assert not any(thread.is_alive() for thread in threads), (
                    f"{len(self.read)} of {len(self.receipts)} read"
                )
            finally:
                self._stopping.set()
                self._done.set()
                for thread in threads:
                    thread.join(BOUND_S)

    def until_read(self, count):
        """Wait until so many more were read."""
        wanted, end = len(self.read) + count, time.monotonic() + BOUND_S
        pause = threading.Event()
        while len(self.read) < wanted:
            assert not self._failed, self._failed
            assert time.monotonic() < end, (
                f"{len(self.read)} of {len(self.receipts)} read, {len(self.troubles)} troubles: {self.troubles[-3:]}"
            )
            pause.wait(0.02)

    def check(self):
        """The anomalies: lost, doubled, out of order, made up, or acknowledged with another offset than it has."""
        acknowledged = {at for at, receipt in enumerate(self.receipts) if receipt.exception(0) is None}
        told = {at: self.receipts[at].result(0) for at in acknowledged}
        wrong = {at: (told[at], found) for at, found in self.offsets.items() if told.get(at, found) != found}
        assert not wrong, f"acknowledged with one offset, read at another: {wrong}"
        assert self.read == sorted(set(self.read)), "doubled or out of order"
        assert not acknowledged.difference(self.read), "lost"
        assert set(self.read) <= set(range(len(self.receipts))), "made up"
        assert len(acknowledged) == len(self.receipts), "the publisher had time for all of them"

    def _publish(self, bus):
        node = Lockstep(bus, ThreadRuntime())
        publisher = node.publisher("numbers", delivery_timeout_s=BOUND_S)
        while not self._stopping.wait(PACE_S):
            self.receipts.append(publisher.publish(b"%d" % len(self.receipts)))
        publisher.close(BOUND_S)
        self._done.set()

    def _read(self, bus):
        node = Lockstep(bus, ThreadRuntime())
        subscriber = node.subscriber("numbers", initial="earliest", create=False)
        while not self._done.is_set() or len(self.read) < len(self.receipts):
            try:
                for record in subscriber.poll(0.25):
                    self.read.append(int(record.value))
                    self.offsets[self.read[-1]] = record.offset
            except Unavailable as error:
                self.troubles.append(str(error))
        subscriber.close()

    def _guarded(self, work):
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the test shows it
            self._failed.append(error)
            self._done.set()


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.soak)])
def test_a_broker_killed_and_restarted_under_load(breakable_kafka, kills):
    server = breakable_kafka.server
    with Load(server.url).running() as load:
        for _ in range(kills):
            load.until_read(ENOUGH)
            server.kill()
            server.restart()
        load.until_read(ENOUGH)
    load.check()


@pytest.mark.parametrize("cuts", [3, pytest.param(30, marks=pytest.mark.soak)])
def test_connections_cut_in_mid_publish_and_in_mid_read(breakable_kafka, cuts):
    with Load(breakable_kafka.server.url).running() as load:
        for _ in range(cuts):
            load.until_read(ENOUGH // 2)
            breakable_kafka.proxy.cut()
        load.until_read(ENOUGH)
    load.check()


def test_a_network_that_stalls_for_longer_than_the_time_out(breakable_kafka):
    with Load(breakable_kafka.server.url, timeout_s=2).running() as load:
        load.until_read(ENOUGH)
        breakable_kafka.proxy.stall()
        _let_pass(3)
        breakable_kafka.proxy.resume()
        load.until_read(ENOUGH)
    load.check()


def test_a_broker_paused_for_longer_than_the_time_out(breakable_kafka):
    server = breakable_kafka.server
    with Load(server.url, timeout_s=2).running() as load:
        load.until_read(ENOUGH)
        server.pause()
        _let_pass(3)
        server.resume()
        load.until_read(ENOUGH)
    load.check()


def test_one_of_three_brokers_killed_under_load(kafka_cluster):
    with Load(kafka_cluster.url).running() as load:
        load.until_read(ENOUGH)
        node = leader_of(kafka_cluster, f"{load.options['prefix']}numbers")
        node.kill()
        load.until_read(ENOUGH)
        node.restart()
        load.until_read(ENOUGH)
    load.check()


@pytest.mark.soak
def test_a_full_disk_stops_the_broker_and_loses_nothing(start_server, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)]
    if subprocess.run(mounted, capture_output=True).returncode != 0:
        pytest.skip("no small disk can be mounted here")
    try:
        server = start_server(with_settings(kafka(), {"log.dirs": str(disk / "data")}))
        with opened(server.url, prefix=fresh(), timeout_s=6) as bus:
            log = bus.create("orders", KEEP_ALL)
            told = []
            with pytest.raises(AppendUncertain, match=rf"{server.port}.*log\.dirs"):
                fill(log, told)
            assert 10 < len(told) < 64
            # When there is room again
            subprocess.run(["mount", "-o", "remount,size=256m", str(disk)], check=True)
            server.restart()
            log.append([one(b"end", 1000)])
            stored = [view.sequence for view in views(log)]
            assert stored[: len(told)] == list(range(len(told)))
            assert stored[-1] == 1000
        server.destroy()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_three_brokers_promise_a_copy_before_the_acknowledgement(kafka_cluster):
    with opened(kafka_cluster.url, prefix=fresh(), strict="true") as bus:
        assert (bus.promises.sync_replicas, bus.promises.async_replicas) == (1, 1)
        bus.create("orders", KEEP_ALL)
        assert bus.check() == []


@pytest.mark.soak
def test_streams_made_while_a_broker_is_away_have_as_many_copies_as_the_others(kafka_cluster):
    prefix = fresh()
    with opened(kafka_cluster.url, prefix=prefix):
        node = kafka_cluster.nodes[2]
        node.kill()
    try:
        with opened(kafka_cluster.url, prefix=prefix, timeout_s=30) as bus:
            bus.create("orders", KEEP_ALL)
            topics = admin(kafka_cluster.url).list_topics(timeout=SOON_S).topics
            assert len(topics[f"{prefix}orders"].partitions[0].replicas) == 3
    finally:
        node.restart()
        kafka_cluster.wait_ready()


def test_two_replicas_of_three_are_found_too_few(kafka_cluster, caplog):
    with opened(kafka_cluster.url, prefix=fresh(), replication=2) as bus:
        assert "2 replicas" in caplog.text
        assert (bus.promises.sync_replicas, bus.promises.async_replicas) == (0, 1)


@pytest.mark.soak
def test_while_a_server_is_away_calls_end_in_time_and_afterwards_the_same_handle_works(breakable_kafka):
    server = breakable_kafka.server
    with opened(server.url, prefix=fresh(), timeout_s=2, patience_s=0.1) as bus:
        log = bus.create("orders", KEEP_ALL)
        log.append([one(b"a")])
        server.kill()
        for call, kind in (
            (lambda: log.read(1), ServerUnreachable),
            (log.bounds, ServerUnreachable),
            (lambda: log.append([one(b"b", 1)]), (ServerUnreachable, AppendUncertain)),  # the former: nothing was sent
            (lambda: bus.open("orders"), ServerUnreachable),
            (lambda: bus.create("more", KEEP_ALL), (ServerUnreachable, AppendUncertain)),
        ):
            begun = time.monotonic()
            with pytest.raises(kind, match=str(breakable_kafka.proxy.port)):
                call()
            assert time.monotonic() - begun < 20
        server.restart()
        log.append([one(b"b", 1)])
        assert sorted(set(values(log))) == [b"a", b"b"]
        assert bus.names()[-1] == "orders"


def fill(log, told):
    """Append a MiB at a time, and tell what was acknowledged."""
    for number in range(100):
        told += log.append([one(b"%d" % number + bytes(1 << 20), number)])


def leader_of(cluster, topic):
    """The broker that leads a topic."""
    client = admin(cluster.url)
    number = client.list_topics(topic, timeout=BOUND_S).topics[topic].partitions[0].leader
    return cluster.nodes[number - 1]


def _let_pass(seconds):
    """The fault itself is that time passes."""
    threading.Event().wait(seconds)
