"""What goes wrong with a Kafka server is said clearly, soon, and nothing is lost."""

from __future__ import annotations

import socket
import struct
import threading
import time

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from lockstep.dev.kafka import kafka
from lockstep.errors import (
    AppendTooLarge,
    BadUrl,
    ServerUnfit,
    ServerUnreachable,
    StreamNotFound,
    Trimmed,
    UnsupportedByBackend,
)
from lockstep.log.config import StreamConfig
from lockstep.log.network.driver import STRIDE
from lockstep.streams.cursor import Cursor
from lockstep.testing.contract import records, values
from servers.kafka_worlds import (
    KEEP_ALL,
    SOON_S,
    admin,
    fresh,
    make_topic,
    one,
    opened,
    plain_messages,
    plain_producer,
    servers_of,
    with_settings,
)
from servers.server_fixtures import free_ports


@pytest.fixture
def prefix():
    return fresh()


@pytest.fixture
def bus(kafka_server, prefix):
    with opened(kafka_server.url, prefix=prefix) as bus:
        yield bus


def set_up(url, topic, **settings):
    """Change settings of a topic, as an operator would."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    client, wanted = admin(url), ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    client.incremental_alter_configs([wanted])[wanted].result(SOON_S)


def test_nobody_at_the_address(capfd):
    [port] = free_ports(1)
    begun = time.monotonic()
    with pytest.raises(ServerUnreachable, match=f"127.0.0.1:{port}.*refused"), opened(f"kafka://127.0.0.1:{port}"):
        pass
    assert time.monotonic() - begun < 10
    assert capfd.readouterr() == ("", "")


def test_somebody_who_never_answers():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        begun = time.monotonic()
        with pytest.raises(ServerUnreachable, match=str(port)), opened(f"kafka://127.0.0.1:{port}", timeout_s=2):
            pass
        assert time.monotonic() - begun < 10


def test_a_server_of_long_ago():
    with (
        _ancient_broker() as port,
        pytest.raises(ServerUnfit, match=f"127.0.0.1:{port}.*too old"),
        opened(f"kafka://127.0.0.1:{port}", timeout_s=5),
    ):
        pass


def test_a_topic_that_is_not_there_is_not_made_by_asking_for_it(kafka_server, bus, prefix):
    with pytest.raises(StreamNotFound, match="missing"):
        bus.open("missing")
    client = admin(kafka_server.url)
    assert f"{prefix}missing" not in client.list_topics(timeout=SOON_S).topics


def test_several_partitions_have_no_one_order(kafka_server, bus, prefix):
    make_topic(kafka_server.url, f"{prefix}wide", partitions=3)
    with pytest.raises(ServerUnfit, match=rf"{prefix}wide has 3 partitions.*wide/0"):
        bus.open("wide")
    with pytest.raises(ServerUnfit, match="3 partitions"):
        bus.create("wide", KEEP_ALL)
    assert values(bus.open("wide/2")) == []
    with pytest.raises(StreamNotFound):
        bus.open("wide/3")


def test_a_topic_in_the_way_with_other_partitions_than_the_stream_has_shards(kafka_server, bus, prefix):
    make_topic(kafka_server.url, f"{prefix}orders", partitions=2)
    with pytest.raises(ServerUnfit, match="2 partitions"):
        bus.create("orders", KEEP_ALL)


def test_an_append_above_the_limit_of_the_topic_is_refused_before_it_is_sent(kafka_server, prefix):
    with opened(kafka_server.url, prefix=prefix, max_message_bytes=10_000) as bus:
        log = bus.create("orders", KEEP_ALL)
        log.append([one(b"a")])
        with pytest.raises(AppendTooLarge, match=f"max.message.bytes of the topic {prefix}orders"):
            log.append([one(b"x" * 20_000, 1)])
        log.append([one(b"b", 1)])
        assert values(log) == [b"a", b"b"]


def test_an_append_above_a_limit_that_was_lowered_since_is_refused_by_the_server(kafka_server, bus, prefix):
    log = bus.create("orders", KEEP_ALL)
    log.append([one(b"a")])
    set_up(kafka_server.url, f"{prefix}orders", max_message_bytes="5000")
    with pytest.raises(AppendTooLarge, match=r"max\.message\.bytes"):
        log.append([one(b"x" * 20_000, 1)])
    log.append([one(b"b", 1)])
    assert values(log) == [b"a", b"b"]


def test_an_append_as_large_as_the_limit_goes_through(bus):
    log = bus.create("orders", KEEP_ALL)
    value = bytes(log.limits.append_bytes - 64)
    log.append([one(value)])
    assert values(log) == [value]
    with pytest.raises(AppendTooLarge):
        log.append([one(value + b"x", 1)])


def test_what_others_trimmed_is_said_to_be_trimmed(kafka_server, bus, prefix):
    log = bus.create("orders", KEEP_ALL)
    bases = [log.append([one(b"%d" % number, number)])[0] for number in range(5)]
    client = admin(kafka_server.url)
    [done] = client.delete_records([TopicPartition(f"{prefix}orders", 0, 3)]).values()
    done.result(SOON_S)
    with pytest.raises(Trimmed) as caught:
        log.read(bases[1])
    assert caught.value.params["first"] == bases[3]
    assert records(log) == [(bases[3], b"3"), (bases[4], b"4")]


def test_a_reader_that_is_overtaken_by_a_trim_is_told_and_reads_on_behind_it(kafka_server, bus, prefix):
    # Given a reader that has begun, and more behind it than the client fetches in advance
    log = bus.create("orders", KEEP_ALL)
    for number in range(10):
        log.append([one(bytes(5 << 20), number)])
    reader = Cursor(log, 0, on_gap="skip")
    taken, _ = reader.read(1, 1)
    # When others delete all of it
    client = admin(kafka_server.url)
    [done] = client.delete_records([TopicPartition(f"{prefix}orders", 0, 10)]).values()
    done.result(SOON_S)
    log.append([one(b"new", 10)])
    # Then it gets what it had at hand already, is told what is missing, and skips nothing by itself
    numbers, gaps = [segment.view.sequence for segment in taken], []
    while 10 not in numbers:
        segments, gap = reader.read(100, 1)
        numbers += [segment.view.sequence for segment in segments]
        gaps += [gap] if gap else []
    had = numbers[:-1]
    assert had == list(range(len(had)))
    assert [(gap.first, gap.resumed) for gap in gaps] == [((len(had) - 1) * STRIDE + 1, 10 * STRIDE)]


def test_a_deleted_topic_does_not_come_back_where_the_server_makes_topics_by_itself(start_server, prefix):
    server = start_server(with_settings(kafka(), {"auto.create.topics.enable": "true"}))
    with opened(server.url, prefix=prefix, patience_s=0.5) as bus, opened(server.url, prefix=prefix) as other:
        log = bus.create("orders", KEEP_ALL)
        log.append([one(b"a")])
        other.delete("orders")
        with pytest.raises(StreamNotFound):
            log.append([one(b"b", 1)])
        assert f"{prefix}orders" not in admin(server.url).list_topics(timeout=SOON_S).topics


def test_a_topic_whose_messages_are_all_gone_goes_on_where_it_was(kafka_server, bus, prefix):
    make_topic(kafka_server.url, f"{prefix}theirs")
    log = bus.open("theirs")
    for number in range(3):
        log.append([one(b"%d" % number, number)])
    client = admin(kafka_server.url)
    [done] = client.delete_records([TopicPartition(f"{prefix}theirs", 0, 3)]).values()
    done.result(SOON_S)
    fresh_handle = bus.open("theirs")
    assert (fresh_handle.bounds().first, fresh_handle.bounds().next) == (3, 3)
    assert fresh_handle.read(3) == []
    assert fresh_handle.append([one(b"3", 3)]) == [3]


def test_a_certificate_that_is_none_is_named(tmp_path, kafka_server):
    (tmp_path / "ca.pem").write_text("nothing")
    with (
        pytest.raises(BadUrl, match="does not take its options"),
        opened(kafka_server.url, tls="true", ca=tmp_path / "ca.pem"),
    ):
        pass


def test_a_name_that_kafka_takes_for_another(bus):
    bus.create("a.b", KEEP_ALL)
    with pytest.raises(ServerUnfit, match=r"collide"):
        bus.create("a_b", KEEP_ALL)
    assert bus.names() == ["a.b"]


def test_more_replicas_than_brokers(kafka_server):
    with pytest.raises(ServerUnfit, match="replication"), opened(kafka_server.url, prefix=fresh(), replication=3):
        pass


def test_one_broker_is_a_warning_and_an_error_for_the_strict(kafka_server, caplog):
    with opened(kafka_server.url, prefix=fresh()) as bus:
        assert "one broker" in caplog.text
        assert [finding.fatal for finding in bus.check()] == [False]
    with (
        pytest.raises(ServerUnfit, match=f"{servers_of(kafka_server.url)}.*one broker"),
        opened(kafka_server.url, prefix=fresh(), strict="true"),
    ):
        pass


def test_settings_of_a_topic_that_would_break_the_promise_are_found(kafka_server, bus, prefix):
    bus.create("orders", KEEP_ALL)
    for name in ("wide/0", "wide/1", "wide/2", "wide"):
        bus.create(name, StreamConfig(capacity=None, shards=3))
    assert len(bus.check()) == 1
    set_up(kafka_server.url, f"{prefix}orders", retention_ms="60000", cleanup_policy="compact")
    found = {finding.setting: finding.problem for finding in bus.check()[1:]}
    assert found.keys() == {
        f"cleanup.policy of the topic {prefix}orders to delete",
        f"retention.ms of the topic {prefix}orders to -1",
    }


def test_a_deleted_topic_is_gone_for_other_processes_too(kafka_server, bus, prefix):
    with opened(kafka_server.url, prefix=prefix) as other:
        log = bus.create("orders", KEEP_ALL)
        log.append([one(b"a")])
        elsewhere = other.open("orders")
        assert values(elsewhere) == [b"a"]
        bus.delete("orders")
        for call in (elsewhere.bounds, lambda: elsewhere.append([one(b"b", 1)]), lambda: elsewhere.read(1_000_000)):
            begun = time.monotonic()
            with pytest.raises(StreamNotFound):
                call()
            assert time.monotonic() - begun < 15


def test_a_topic_of_others_is_not_deleted(kafka_server, bus, prefix):
    make_topic(kafka_server.url, f"{prefix}theirs")
    with plain_producer(kafka_server.url) as producer:
        producer.produce(f"{prefix}theirs", b"a")
    with pytest.raises(UnsupportedByBackend, match="theirs"):
        bus.delete("theirs")
    assert [message.value() for message in plain_messages(kafka_server.url, f"{prefix}theirs")] == [b"a"]


@pytest.mark.parametrize(
    "options",
    [
        {"replication": "0"}, {"replication": "x"}, {"replication": "2", "min_insync": "3"}, {"layout": "rows"},
        {"mechanism": "NTLM"}, {"compression": "zip"}, {"max_message_bytes": "1"}, {"prefix": "a/b"}, {"colour": "red"},
    ],
)  # fmt: skip
def test_a_wrong_option_is_refused_without_a_server(options):
    with pytest.raises(BadUrl, match=next(iter(options))), opened("kafka://127.0.0.1:1", **options):
        pass


class _ancient_broker:
    """Speaks only what a broker of 2016 did: no idempotence, no headers."""

    def __enter__(self):
        self._server = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._open = []
        self._threads[0].start()
        return self._server.getsockname()[1]

    def __exit__(self, *_):
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for connection in self._open:
            connection.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self):
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._open.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _serve(self, connection):
        try:
            while size := connection.recv(4, socket.MSG_WAITALL):
                request = connection.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)
                kind, version, number = struct.unpack(">hhi", request[:8])
                body = self._versions(version) if kind == 18 else self._metadata(request[8:])
                connection.sendall(struct.pack(">ii", len(body) + 4, number) + body)
        except (OSError, struct.error):
            return

    def _versions(self, version):
        if version > 0:
            return struct.pack(">hi", 35, 0)  # unsupported version, ask for version 0
        known = [(0, 0, 2), (1, 0, 2), (2, 0, 0), (3, 0, 1), (18, 0, 0)]
        return struct.pack(">hi", 0, len(known)) + b"".join(struct.pack(">hhh", *each) for each in known)

    def _metadata(self, request):
        host, port = b"127.0.0.1", self._server.getsockname()[1]
        broker = struct.pack(">iih", 1, 1, len(host)) + host + struct.pack(">ih", port, -1)
        names = request[2 + struct.unpack_from(">h", request)[0] :]
        asked, at = [], 4
        for _ in range(max(struct.unpack_from(">i", names)[0], 0)):
            end = at + 2 + struct.unpack_from(">h", names, at)[0]
            asked.append(struct.pack(">h", 3) + names[at:end] + struct.pack(">bi", 0, 0))  # there is none of that name
            at = end
        return broker + struct.pack(">ii", 1, len(asked)) + b"".join(asked)
