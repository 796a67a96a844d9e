"""What the tests of the Kafka bus share: buses of their own, plain clients, and a broker with locks on its doors."""

from __future__ import annotations

import subprocess
import time
import uuid
from contextlib import contextmanager
from dataclasses import replace

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lockstep.dev.kafka import kafka
from lockstep.dev.recipe import HOST, Plan, Recipe, Site
from lockstep.log.batch import pack
from lockstep.log.config import StreamConfig
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime

KEEP_ALL = StreamConfig(capacity=None)
SOON_S = 40.0
PROPERTIES = "broker-1.properties"


def fresh():
    """A prefix that nobody uses."""
    return f"t{uuid.uuid4().hex[:12]}."


@contextmanager
def opened(url, runtime=None, **options):
    """A bus, closed in the end."""
    query = "&".join(f"{name}={value}" for name, value in options.items())
    bus = open_bus(f"{url}?{query}" if query else url, runtime or ThreadRuntime())
    try:
        yield bus
    finally:
        bus.close()


def one(value, sequence=0, producer=b"p" * 16, **columns):
    """A batch of one record."""
    return pack([value], producer=producer, sequence=sequence, created_ns=1, **columns)


def servers_of(url):
    return url.removeprefix("kafka://")


def admin(url):
    return AdminClient({"bootstrap.servers": servers_of(url), "log_level": 0})


def make_topic(url, name, partitions=1, **config):
    settings = {key.replace("_", "."): value for key, value in config.items()}
    client = admin(url)  # a client that nobody holds ends its calls
    client.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(SOON_S)
    end = time.monotonic() + SOON_S
    while name not in client.list_topics(timeout=SOON_S).topics:  # the broker answers before it knows the topic itself
        assert time.monotonic() < end, f"the broker does not know {name}"


@contextmanager
def plain_producer(url, **settings):
    """A producer as anybody has."""
    names = {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer({"bootstrap.servers": servers_of(url), "log_level": 0, **names})
    yield producer
    assert producer.flush(SOON_S) == 0
    producer.close()


def plain_messages(url, topic, partition=0):
    """Everything in a partition, as a consumer of anybody reads it."""
    settings = {"group.id": "outside", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": servers_of(url), "log_level": 0, **settings})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = []
    while True:
        message = consumer.poll(SOON_S)
        assert message is not None, "nothing came"
        if message.error() is None:
            found.append(message)
        elif message.error().code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return found


def with_settings(recipe, settings):
    """The same broker, set up otherwise."""

    def plan(site: Site) -> Plan:
        made = recipe.plan(site)
        lines = [line for line in made.files[PROPERTIES].splitlines() if line.partition("=")[0] not in settings]
        lines += [f"{name}={value}" for name, value in settings.items()]
        return replace(made, files={**made.files, PROPERTIES: "\n".join(lines) + "\n"})

    return replace(recipe, plan=plan)


_LOCKS = """
listener.security.protocol.map=CLIENT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT,TLS:SSL
listener.name.login.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.login.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_alice="{secret}" user_bob="{secret}";
listener.name.login.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.tls.ssl.keystore.type=PEM
listener.name.tls.ssl.keystore.location={folder}/server.pem
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:alice;User:carol
"""
SECRET = "a-long-and-secret-word"


def locked(folder):
    """A broker that also listens for logins (ports[3]) and for TLS (ports[4]); alice may do everything, bob nothing."""
    inner = kafka()

    def plan(site: Site) -> Plan:
        made = inner.plan(Site(folder=site.folder, ports=site.ports[:3], jars=site.jars))
        lines = [_with_doors(line, site) for line in made.files[PROPERTIES].splitlines()]
        text = "\n".join(lines) + _LOCKS.format(secret=SECRET, folder=folder)
        return replace(made, files={**made.files, PROPERTIES: text})

    certificate(folder)
    return Recipe(name="kafka-locked", port_count=5, plan=plan, programs=inner.programs, jars=inner.jars)


def _with_doors(line, site):
    if line.startswith(("listeners=", "advertised.listeners=")):
        return f"{line},LOGIN://{HOST}:{site.ports[3]},TLS://{HOST}:{site.ports[4]}"
    return "" if line.startswith("listener.security.protocol.map=") else line


def certificate(folder):
    """A key and a certificate that it signed itself: server.pem holds both, ca.pem the certificate."""
    key, cert = folder / "key.pem", folder / "ca.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command, *names], check=True, capture_output=True)
    (folder / "server.pem").write_text(key.read_text() + cert.read_text())
