"""The parts of the Kafka bus that need no server."""
# ruff: noqa: E402 - the client is optional, and what needs it is imported only where it is installed

from __future__ import annotations

from types import SimpleNamespace

import pytest

confluent_kafka = pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError, KafkaException, Message

from lockstep.errors import (
    AppendTooLarge,
    BadArgument,
    BadUrl,
    ServerRefused,
    ServerUnfit,
    ServerUnreachable,
    StoreFull,
    UnsupportedByBackend,
)
from lockstep.log.batch import NO_PRODUCER, BatchView, pack
from lockstep.log.config import crc32_partition, murmur2_partition
from lockstep.log.kafka import client as cluster_module
from lockstep.log.kafka import errors
from lockstep.log.kafka import reader as reading
from lockstep.log.kafka.client import (
    OPTIONS,
    Layout,
    Partition,
    common_settings,
    partition_of,
    producer_settings,
)
from lockstep.log.kafka.driver import (
    copy_findings,
    message_number,
    open_bus,
    partition_findings,
    promises_of,
    retention_findings,
    topic_settings,
)
from lockstep.log.kafka.follower import KEPT_MESSAGES, PartitionTail
from lockstep.log.kafka.reader import ReaderPool
from lockstep.log.kafka.sender import GRACE_S
from lockstep.log.kafka.topic import (
    Appends,
    EntryTopic,
    KafkaClients,
    KafkaTopic,
    Records,
    _reason_not_stored,
    from_kafka,
    to_kafka,
)
from lockstep.log.network.address import parse_address
from lockstep.log.network.driver import Ends, TopicGone
from lockstep.log.network.driver import Message as StoredMessage
from lockstep.runtime import ThreadRuntime
from lockstep.testing import VirtualRuntime

ONE = Layout(brokers=1, partitions=1, replicas=1, in_sync=1, has_leaders=True)
THREE = Layout(brokers=3, partitions=1, replicas=3, in_sync=3, has_leaders=True)


def address(target="//h:1", **options):
    return parse_address("kafka", target, options, environ={}, default_port=9092, known=OPTIONS)


@pytest.mark.parametrize(
    ("stream", "partition"),
    [
        ("orders", Partition("p.orders", 0)),
        ("_group.workers", Partition("p._group.workers", 0)),
        ("orders/3", Partition("p.orders", 3)),
        ("x.R.00ff", Partition("p.x.R.00ff", 0)),
    ],
)
def test_a_stream_is_a_partition_of_its_topic(stream, partition):
    assert partition_of("p.", stream) == partition


@pytest.mark.parametrize("stream", ["", "x" * 1000, "a b", "a/b", "a/-1", "ä"])
def test_a_name_that_no_topic_can_have_has_no_place(stream):
    assert partition_of("p.", stream) is None


GOLDEN = [
    (b"a", 5, 4), (b"kafka", 3, 6), (b"customer-7", 6, 5), (b"orders", 1, 5), (b"0123456789", 1, 3),
    (bytes(range(256)), 3, 5),
]  # fmt: skip
"""Where keys landed in a real topic of seven partitions, sent with murmur2_random and with consistent_random."""


@pytest.mark.parametrize(("key", "java", "librdkafka"), GOLDEN)
def test_keys_go_where_other_clients_put_them(key, java, librdkafka):
    assert murmur2_partition(key, 7) == java == confluent_kafka.murmur2(key, 7)
    assert crc32_partition(key, 7) == librdkafka == confluent_kafka.consistent(key, 7)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._TRANSPORT, ServerUnreachable),
        (KafkaError._TIMED_OUT, ServerUnreachable),
        (KafkaError._AUTHENTICATION, ServerRefused),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ServerRefused),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicGone),
        (KafkaError.KAFKA_STORAGE_ERROR, StoreFull),
        (KafkaError._UNSUPPORTED_FEATURE, ServerUnfit),
        (KafkaError.INVALID_REPLICATION_FACTOR, ServerUnfit),
    ],
)
def test_an_error_of_kafka_is_one_of_ours_that_names_the_server(code, kind):
    found = errors.translated(KafkaError(code, "what it says."), "host:9092")
    assert type(found) is kind
    assert "what it says" in str(found)
    assert kind is TopicGone or "host:9092" in str(found)


def test_a_login_is_in_the_settings_and_nowhere_else():
    given = address("//app:se%20cret@h:1", mechanism="SCRAM-SHA-512", tls="true")
    found = common_settings(given, lambda _: None)
    assert found["security.protocol"] == "SASL_SSL"
    assert (found["sasl.mechanism"], found["sasl.username"]) == ("SCRAM-SHA-512", "app")
    assert found["sasl.password"] == "se cret"
    assert "se cret" not in repr(given)


@pytest.mark.parametrize(
    ("target", "options", "protocol"),
    [("//h:1", {}, "PLAINTEXT"), ("//h:1", {"tls": "true"}, "SSL"), ("//u:p@h:1", {}, "SASL_PLAINTEXT")],
)
def test_the_address_decides_how_a_connection_is_made(target, options, protocol):
    assert common_settings(address(target, **options), lambda _: None)["security.protocol"] == protocol


def test_an_acknowledgement_means_all_in_sync_and_once():
    found = producer_settings(address(timeout_s="4"), lambda _: None)
    assert (found["acks"], found["enable.idempotence"], found["compression.type"]) == ("all", True, "none")
    assert found["request.timeout.ms"] == 4000
    assert found["message.timeout.ms"] > 4000 + 1000 * GRACE_S, "the client must not give up single messages before us"


@pytest.mark.parametrize(("brokers", "replication", "min_insync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (9, 3, 2)])
def test_topics_are_made_as_safe_as_the_brokers_allow(brokers, replication, min_insync):
    wish = topic_settings(address(), brokers)
    assert (wish.replication, wish.min_insync) == (replication, min_insync)
    assert wish.config["retention.ms"] == wish.config["retention.bytes"] == "-1"
    assert wish.config["max.message.bytes"] == str(64 << 20)


@pytest.mark.parametrize(
    "options",
    [
        {"replication": "0"}, {"replication": "x"}, {"replication": "2", "min_insync": "3"}, {"layout": "rows"},
        {"mechanism": "NTLM"}, {"compression": "zip"}, {"max_message_bytes": "1"}, {"prefix": "a/b"}, {"colour": "red"},
    ],
)  # fmt: skip
def test_a_wrong_option_is_refused_before_anything_is_connected(options):
    with pytest.raises(BadUrl, match=next(iter(options))):
        open_bus("//127.0.0.1:1", options, ThreadRuntime(), {})


def test_a_path_is_refused():
    with pytest.raises(BadUrl, match="path"):
        open_bus("//127.0.0.1:1/x", {}, ThreadRuntime(), {})


def test_promises_say_what_a_cluster_keeps():
    alone, many = promises_of(ONE, {"min.insync.replicas": "1"}), promises_of(THREE, {"min.insync.replicas": "2"})
    assert (alone.durability, alone.sync_replicas, alone.async_replicas) == ("relaxed", 0, 0)
    assert (many.sync_replicas, many.async_replicas, many.opened_by) == (1, 1, "network")
    assert "disk" in alone.may_lose
    assert "min.insync.replicas=2" in many.may_lose


def test_checks_find_what_would_break_the_promise():
    sound = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false", "retention.ms": "-1"}
    assert copy_findings("h", "t", THREE, sound) == []
    assert retention_findings("h", "t", sound) == []
    weak = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    found = [finding.setting.split(" of ")[0] for finding in copy_findings("h", "t", THREE, weak)]
    assert found == ["min.insync.replicas", "unclean.leader.election.enable"]
    short = {"cleanup.policy": "compact,delete", "retention.ms": "1000", "retention.bytes": "5"}
    found = [finding.setting.split(" of ")[0] for finding in retention_findings("h", "t", short)]
    assert found == ["cleanup.policy", "retention.ms", "retention.bytes"]
    assert partition_findings("h", "t", 3, 3) == []
    assert partition_findings("h", "t", 3, 1)[0].fatal


def test_why_an_append_hangs_is_told_from_the_layout():
    assert _reason_not_stored(THREE) == ""
    assert "log.dirs" in _reason_not_stored(Layout(3, 1, 3, 3, has_leaders=False))
    assert "min.insync.replicas" in _reason_not_stored(Layout(3, 1, 3, 1, has_leaders=True))


def kafka_message(value=b"v", key=None, headers=None, offset=7, stamp=(1, 1234)):
    return Message(topic="t", partition=0, offset=offset, key=key, value=value, headers=headers, timestamp=stamp)


def test_a_record_becomes_a_plain_message_and_comes_back():
    sealed = pack(
        [b"v"], producer=b"p" * 16, sequence=9, created_ns=5, keys=[b"k"], headers=[(("a", b"1"), ("a", b"2"))]
    ).seal(6)
    out = to_kafka(sealed, "orders")
    assert (out.value, out.key, out.headers[:2]) == (b"v", b"k", (("a", b"1"), ("a", b"2")))
    back = from_kafka(kafka_message(out.value, out.key, list(out.headers)))
    assert (back.number, back.data) == (7, sealed)


def test_a_message_of_others_has_no_producer_and_the_time_of_the_message():
    view = BatchView(7, from_kafka(kafka_message(None, b"k", [("lockstep", b"?"), ("n", None)])).data, "t")
    assert (view.producer, view.values(), view.created_ns) == (NO_PRODUCER, (b"",), 1_234_000_000)
    assert view.headers() == ((("lockstep", b"?"), ("n", b"")),)


def test_several_records_are_not_one_plain_message():
    sealed = pack([b"a", b"b"], producer=NO_PRODUCER, sequence=0, created_ns=1).seal(1)
    with pytest.raises(BadArgument):
        to_kafka(sealed, "orders")


def fed(*numbers):
    feed = PartitionTail(Partition("t", 0), "i")
    feed.begin(numbers[0])
    for number in numbers:
        feed.push(kafka_message(offset=number))
    return feed


def offsets(messages):
    return [message.offset() for message in messages]


def test_what_came_in_is_at_hand_from_any_number_on():
    feed = fed(3, 4, 6)
    assert offsets(feed.take(3, 100)) == [3, 4, 6]
    assert offsets(feed.take(5, 100)) == [6]
    assert offsets(feed.take(3, 1)) == [3]
    assert feed.take(7, 100) == feed.take(2, 100) == []


def test_what_is_kept_at_hand_is_bounded():
    feed = fed(*range(3 * KEPT_MESSAGES))
    assert feed.take(0, 100) == []
    assert len(feed.take(2 * KEPT_MESSAGES, 1 << 30)) == KEPT_MESSAGES


def test_a_feed_that_begins_anew_forgets():
    feed = fed(3, 4)
    feed.push(kafka_message(offset=2))
    assert offsets(feed.take(3, 100)) == [3, 4]
    feed.begin(-1)
    feed.push(kafka_message(offset=5))
    assert (feed.take(3, 100), feed.is_followed) == ([], False)


class OneMessage:
    """A topic with message 2, which holds two records."""

    limits = Appends().limits("t", 1 << 20)

    def fetch(self, number, max_bytes):
        sealed = pack([b"a", b"b"], producer=NO_PRODUCER, sequence=0, created_ns=1).seal(1)
        return [Appends().back(kafka_message(sealed, offset=2))] if number <= 2 else []


@pytest.mark.parametrize(
    ("position", "number"), [(0, 0), (2_000_000, 2), (2_000_001, 2), (2_000_002, 3), (1_000_005, 2), (9_000_001, 10)]
)
def test_a_message_read_in_part_is_still_needed(position, number):
    assert message_number(OneMessage(), position, "orders") == number


def test_the_name_of_a_stream_with_shards_holds_nothing_itself():
    topic = EntryTopic("kafka://h:1", "orders")
    assert (topic.ends(), topic.fetch(0, 1)) == (Ends(0, 0), [])
    topic.watch(lambda: None)()
    topic.drop(1)
    topic.close()
    with pytest.raises(UnsupportedByBackend, match="shards"):
        topic.send([b"a"])


class Recorder:
    """A sender that numbers what it gets."""

    def __init__(self):
        self.pieces = []

    def send(self, partition, messages):
        start = sum(map(len, self.pieces))
        self.pieces.append(messages)
        return list(range(start, start + len(messages)))


def small_topic(message_bytes):
    sender = Recorder()
    link = KafkaClients("kafka://h:1", None, sender, None, None, None)
    limits = Records().limits("t", message_bytes)
    return KafkaTopic(link, Partition("t", 0), "orders", "i", Records(), limits), sender


def sealed_ones(count, size):
    return [pack([bytes(size)], producer=NO_PRODUCER, sequence=0, created_ns=1).seal(1) for _ in range(count)]


def test_records_go_in_pieces_that_a_topic_with_a_low_limit_takes():
    topic, sender = small_topic(4000)
    assert topic.send(sealed_ones(100, 100)) == list(range(100))
    assert len(sender.pieces) > 1
    assert all(sum(message.size for message in piece) <= topic.limits.append_bytes for piece in sender.pieces)


def test_records_go_in_one_piece_where_the_client_keeps_the_limit_by_itself():
    topic, sender = small_topic(2 << 20)
    topic.send(sealed_ones(100, 100_000))
    assert len(sender.pieces) == 1


def test_one_record_above_the_limit_keeps_all_of_them_out():
    topic, sender = small_topic(4000)
    with pytest.raises(AppendTooLarge, match=r"max\.message\.bytes of the topic t"):
        topic.send([*sealed_ones(2, 10), *sealed_ones(1, 5000)])
    assert sender.pieces == []


class StuckReader:
    """The reader of a client that waits for a leader that is dead."""

    topic = "t"

    def __init__(self, clock):
        self.clock, self.is_closed = clock, False

    def start(self, partition, number, within_s):
        """Nothing happens."""

    def read(self, limit):
        self.clock.advance(limit.deadline.left())

    def stop(self):
        """Nothing happens."""

    def close(self):
        self.is_closed = True


class NewReader(StuckReader):
    """The reader of a client that asked who leads now."""

    def __init__(self, set_up, monotonic):
        """As a reader is made."""

    def read(self, limit):
        return [kafka_message(offset=0)]


def test_a_reader_that_got_no_answer_is_not_used_again(monkeypatch):
    # Given a free reader whose client is stuck
    clock = VirtualRuntime(0)
    stuck, readers = StuckReader(clock), ReaderPool({}, clock.monotonic)
    readers.take_back(stuck)
    monkeypatch.setattr(reading, "Reader", NewReader)
    cluster = SimpleNamespace(address=SimpleNamespace(timeout_s=6.0, servers="h:1"), ends=lambda *_: Ends(0, 1))
    tail = SimpleNamespace(find=lambda *_: None)
    link = KafkaClients("kafka://h:1", cluster, None, readers, tail, clock)
    topic = KafkaTopic(link, Partition("t", 0), "orders", "i", Appends(), Appends().limits("t", 1 << 20))
    # When it answers nothing within the time-out
    with pytest.raises(ServerUnreachable, match="could not be read in time"):
        topic.fetch(0, 100)
    # Then it is ended, and the next call is answered by another
    assert stuck.is_closed
    assert [message.number for message in topic.fetch(0, 100)] == [0]


class ReaderWithoutLeader(StuckReader):
    """A reader whose partition has no leader for as long as anybody looks."""

    def read(self, limit):
        self.clock.advance(2.5)
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))


def test_all_tries_of_one_read_share_one_deadline(monkeypatch):
    # Given a partition without a leader, and a time-out of six seconds
    clock, asked = VirtualRuntime(0), []
    monkeypatch.setattr(reading, "Reader", lambda *_: ReaderWithoutLeader(clock))

    def ends(_partition, within_s):
        asked.append(round(within_s, 1))
        return Ends(0, 1)

    cluster = SimpleNamespace(address=SimpleNamespace(timeout_s=6.0, servers="h:1"), ends=ends)
    link = KafkaClients(
        "kafka://h:1", cluster, None, ReaderPool({}, clock.monotonic), SimpleNamespace(find=lambda *_: None), clock
    )
    topic = KafkaTopic(link, Partition("t", 0), "orders", "i", Appends(), Appends().limits("t", 1 << 20))
    # When it is read
    with pytest.raises(ServerUnreachable, match="could not be read in time"):
        topic.fetch(0, 100)
    # Then every question for the ends gets the time that is left, and no time-out of its own
    assert asked == [6.0, 3.5, 0.9]
    assert clock.monotonic() < 6.0 + 2.5


class ChangingReader(NewReader):
    """The reader of a server that has another message in the same place each time."""

    def read(self, limit):
        ChangingReader.reads += 1
        return [kafka_message(offset=0, value=b"%d" % ChangingReader.reads)]


def test_what_was_read_before_a_message_is_read_again_is_not_handed_out_afterwards(monkeypatch):
    monkeypatch.setattr(reading, "Reader", ChangingReader)
    monkeypatch.setattr(ChangingReader, "reads", 0, raising=False)
    clock = VirtualRuntime(0)
    cluster = SimpleNamespace(address=SimpleNamespace(timeout_s=6.0, servers="h:1"), ends=lambda *_: Ends(0, 1))
    link = KafkaClients(
        "kafka://h:1", cluster, None, ReaderPool({}, clock.monotonic), SimpleNamespace(find=lambda *_: None), clock
    )
    topic = KafkaTopic(link, Partition("t", 0), "orders", "i", Appends(), Appends().limits("t", 1 << 20))
    assert [topic.fetch(0, 100)[0].data for _ in range(2)] == [b"1", b"1"]
    assert topic.reread(0).data == b"2"
    assert topic.fetch(0, 100)[0].data == b"3"


class SilentConsumer:
    """A client that asks a leader that is dead."""

    made = 0

    def __init__(self, _set_up):
        SilentConsumer.made += 1

    def get_watermark_offsets(self, _asked, timeout):
        if SilentConsumer.made == 1:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return 0, 7

    def poll(self, _timeout):
        """Nothing is to be said."""


def test_who_got_no_answer_asks_with_a_new_client(monkeypatch):
    monkeypatch.setattr(cluster_module, "Consumer", SilentConsumer)
    SilentConsumer.made = 0
    cluster = cluster_module.Cluster(address(timeout_s="0.05"), ThreadRuntime())
    with pytest.raises(ServerUnreachable):
        cluster.ends(Partition("t", 0))
    assert cluster.ends(Partition("t", 0)) == Ends(0, 7)


class LateConsumer:
    """Asks brokers of which the first ones asked have not heard of a new topic yet."""

    unaware = 0

    def __init__(self, *_arguments, **_options) -> None:
        self.asked = 0

    def list_topics(self, topic, timeout):
        assert timeout > 0
        self.asked += 1
        if self.asked <= self.unaware:
            error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
            return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions={})}, brokers={})
        partition = SimpleNamespace(replicas=[1, 2], isrs=[1, 2], leader=1)
        return SimpleNamespace(
            topics={topic: SimpleNamespace(error=None, partitions={0: partition})}, brokers={1: 1, 2: 2}
        )

    def poll(self, _timeout):
        """Nothing is to be said."""


@pytest.mark.parametrize(("unaware", "is_found"), [(3, True), (10**6, False)])
def test_a_topic_that_a_broker_has_not_heard_of_yet_is_not_missing(monkeypatch, unaware, is_found):
    monkeypatch.setattr(cluster_module, "Consumer", LateConsumer)
    monkeypatch.setattr(LateConsumer, "unaware", unaware)
    cluster = cluster_module.Cluster(address(timeout_s="5"), ThreadRuntime())
    assert (cluster.layout("t", is_expected=True) is not None) is is_found
    monkeypatch.setattr(LateConsumer, "unaware", 1)
    assert cluster_module.Cluster(address(timeout_s="5"), ThreadRuntime()).layout("t") is None


class Pool:
    """Readers as a topic sees them: notes what becomes of each."""

    def __init__(self) -> None:
        self.back: list[object] = []
        self.gone: list[object] = []
        self.made: list[object] = []
        self.during = lambda: None

    def lend(self, _topic):
        self.made.append(self)
        return self

    def start(self, _place, _number, _timeout_s):
        pass

    def read(self, _aim):
        self.during()
        return [kafka_message(offset=3)]

    def ready(self, _max_bytes):
        return []

    def take_back(self, reader):
        self.back.append(reader)

    def discard(self, reader):
        self.gone.append(reader)


def topic_of(pool: Pool) -> KafkaTopic:
    cluster = SimpleNamespace(ends=lambda *_: Ends(0, 10))
    tail = SimpleNamespace(find=lambda _place, _identity: None)
    link = SimpleNamespace(
        readers=pool, cluster=cluster, follower=tail, runtime=ThreadRuntime(), timeout_s=5.0, server="s"
    )
    form = SimpleNamespace(back=lambda message: StoredMessage(message.offset(), b""))
    return KafkaTopic(link, Partition("t", 0), "orders", "id", form, None)


def test_a_topic_that_is_closed_by_another_thread_while_it_is_read_gives_its_reader_back_once():
    pool = Pool()
    topic = topic_of(pool)
    pool.during = topic.close
    assert [message.number for message in topic.fetch(3, 100)] == [3]
    assert (len(pool.made), pool.back, pool.gone) == (1, [pool], [])


def test_a_topic_keeps_its_reader_from_one_read_to_the_next():
    pool = Pool()
    topic = topic_of(pool)
    topic.fetch(3, 100)
    topic._last = None
    topic.fetch(4, 100)
    assert (len(pool.made), pool.back) == (1, [])
    topic.close()
    assert pool.back == [pool]
