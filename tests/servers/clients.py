"""The vendors' own clients, for the two things that these tests need: put something, and get it back."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from contextlib import closing, suppress

from lockstep.dev.servers import RunningServer

TOPIC, WAIT_S = "kept", 60.0
_LOOK_S = 0.05


def eventually(condition: Callable[[], bool], what: str, within_s: float = WAIT_S) -> None:
    """Wait for a condition, and fail if it does not come true in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        threading.Event().wait(_LOOK_S)


def put_redis(server: RunningServer, value: str) -> None:
    import redis

    with redis.Redis.from_url(server.url) as client:
        client.set(TOPIC, value)


def get_redis(server: RunningServer) -> str:
    import redis

    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        return str(client.get(TOPIC))


def kafka_settings(server: RunningServer) -> dict[str, object]:
    return {"bootstrap.servers": server.url.removeprefix("kafka://"), "log_level": 0, "error_cb": lambda _error: None}


def put_kafka(server: RunningServer, value: str) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(kafka_settings(server))
    if TOPIC not in admin.list_topics(timeout=WAIT_S).topics:
        admin.create_topics([NewTopic(TOPIC, num_partitions=1)])[TOPIC].result(WAIT_S)
    failed: list[object] = []
    producer = Producer({**kafka_settings(server), "acks": "all", "enable.idempotence": True})
    producer.produce(TOPIC, value, on_delivery=lambda error, _message: failed.append(error) if error else None)
    assert producer.flush(WAIT_S) == 0
    assert failed == []


def get_kafka(server: RunningServer) -> str:
    """The newest record."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**kafka_settings(server), "group.id": "g", "enable.auto.commit": False})
    with closing(consumer):
        high = _end_of(consumer, TopicPartition(TOPIC, 0))
        consumer.assign([TopicPartition(TOPIC, 0, high - 1)])
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.error() is None
        return message.value().decode()


def _end_of(consumer, partition):
    """After a broker is gone its partitions have no leader for a while, or one that does not know their end yet."""
    from confluent_kafka import KafkaException

    found = []

    def told() -> bool:
        with suppress(KafkaException):
            found.append(consumer.get_watermark_offsets(partition, timeout=10.0)[1])
        return bool(found)

    eventually(told, f"the end of {partition}")
    return found[0]


def _amqp(server: RunningServer):
    import pika

    return closing(pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", server.ports[1])))


def put_rabbitmq(server: RunningServer, value: str) -> None:
    with _amqp(server) as connection:
        channel = connection.channel()
        channel.queue_declare(TOPIC, durable=True, arguments={"x-queue-type": "stream"})
        channel.confirm_delivery()
        channel.basic_publish("", TOPIC, value.encode())
    eventually(lambda: rabbitmq_is_settled(server), "the coordinator of streams is on disk")


def rabbitmq_is_settled(server: RunningServer) -> bool:
    """Whether streams outlive a kill: the first of a new server does not within the second after it was made.

    That the coordinator of all streams exists is written to disk with a delay; without it the stream is there, and
    nobody leads it ever again.
    """
    names = server.folder.glob("data/*/coordination/*/names.dets")
    return any(b"rabbit_stream_coordinator" in file.read_bytes() for file in names)


def get_rabbitmq(server: RunningServer) -> str:
    """The newest record, once the stream has found its leader again."""
    import pika.exceptions

    found: list[str] = []

    def has_read() -> bool:
        try:
            found.append(_read_rabbitmq(server))
        except pika.exceptions.ChannelClosedByBroker:
            return False  # the server is up, and the stream's leader is not yet
        return True

    eventually(has_read, "the stream can be read")
    return found[0]


def _read_rabbitmq(server: RunningServer) -> str:
    with _amqp(server) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=10)
        found = channel.consume(TOPIC, arguments={"x-stream-offset": "last"}, inactivity_timeout=WAIT_S)
        method, _properties, body = next(found)
        assert method is not None, "nothing came from the stream"
        channel.basic_ack(method.delivery_tag)
        return body.decode()


def hazelcast_client(server: RunningServer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the client imports asyncore where Python still has it
        import hazelcast

    return hazelcast.HazelcastClient(
        cluster_name="dev", cluster_members=[node.address for node in server.nodes], cluster_connect_timeout=WAIT_S
    )


def put_hazelcast(server: RunningServer, value: str) -> None:
    client = hazelcast_client(server)
    try:
        client.get_map(TOPIC).blocking().put("key", value)
    finally:
        client.shutdown()


def get_hazelcast(server: RunningServer) -> str:
    client = hazelcast_client(server)
    try:
        return str(client.get_map(TOPIC).blocking().get("key"))
    finally:
        client.shutdown()


def _kazoo(server: RunningServer):
    from kazoo.client import KazooClient

    client = KazooClient(hosts=server.url, timeout=WAIT_S)
    client.start(timeout=WAIT_S)
    return client


def put_zookeeper(server: RunningServer, value: str) -> None:
    client = _kazoo(server)
    try:
        client.ensure_path(f"/{TOPIC}")
        client.set(f"/{TOPIC}", value.encode())
    finally:
        client.stop()
        client.close()


def get_zookeeper(server: RunningServer) -> str:
    client = _kazoo(server)
    try:
        return client.get(f"/{TOPIC}")[0].decode()
    finally:
        client.stop()
        client.close()


def put_postgresql(server: RunningServer, value: str) -> None:
    import psycopg

    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (value text)")
        connection.execute("INSERT INTO kept VALUES (%s)", [value])


def get_postgresql(server: RunningServer) -> str:
    import psycopg

    with psycopg.connect(server.url) as connection:
        return str(connection.execute("SELECT value FROM kept").fetchone()[0])


def _cassandra(server: RunningServer):
    from cassandra.cluster import Cluster

    return Cluster(["127.0.0.1"], port=server.port, protocol_version=4)


def put_cassandra(server: RunningServer, value: str) -> None:
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    with _cassandra(server) as cluster:
        session = cluster.connect()
        session.execute(f"CREATE KEYSPACE IF NOT EXISTS kept WITH replication = {replication}")
        session.execute("CREATE TABLE IF NOT EXISTS kept.kept (key text PRIMARY KEY, value text)")
        session.execute("INSERT INTO kept.kept (key, value) VALUES ('key', %s)", [value])


def get_cassandra(server: RunningServer) -> str:
    with _cassandra(server) as cluster:
        return str(cluster.connect().execute("SELECT value FROM kept.kept WHERE key = 'key'").one()[0])


PUT: dict[str, Callable[[RunningServer, str], None]] = {
    "redis": put_redis,
    "kafka": put_kafka,
    "kafka3": put_kafka,
    "rabbitmq": put_rabbitmq,
    "hazelcast": put_hazelcast,
    "hazelcast3": put_hazelcast,
    "zookeeper": put_zookeeper,
    "postgresql": put_postgresql,
    "cassandra": put_cassandra,
}
GET: dict[str, Callable[[RunningServer], str]] = {
    "redis": get_redis,
    "kafka": get_kafka,
    "kafka3": get_kafka,
    "rabbitmq": get_rabbitmq,
    "hazelcast": get_hazelcast,
    "hazelcast3": get_hazelcast,
    "zookeeper": get_zookeeper,
    "postgresql": get_postgresql,
    "cassandra": get_cassandra,
}
