"""How the clients of librdkafka are set up for an address."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError

from lockstep.errors import BadUrl
from lockstep.log.network.address import Address

Settings = Mapping[str, Any]
Note = Callable[[KafkaError], None]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OPTIONS = ("mechanism", "replication", "min_insync", "max_message_bytes", "layout", "compression")
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
MESSAGE_BYTES = 64 << 20
"""How large a message may be in topics that we make, unless the URL says otherwise."""
MESSAGE_BYTES_MIN = 4096
_MESSAGE_BYTES_MAX = 1_000_000_000
READER_WAIT_MS, TAIL_WAIT_MS = 10, 50
"""How long a fetch waits at the broker for something new. It holds up whatever else goes over that connection."""
_QUEUED_KB = 16 << 10
_SOCKET_MS_MAX = 300_000
_GIVEN_UP_MS = 5_000
"""The sender gives up first, and all messages of a call at once. The client gives up one by one, the oldest first."""


def common(address: Address, note: Note) -> dict[str, Any]:
    """What every client needs: the servers, who we are, and bounds on every wait."""
    whole_ms = min(max(int(address.timeout_s * 1000), 10), _SOCKET_MS_MAX)
    return {
        "bootstrap.servers": address.servers,
        "client.id": "lockstep",
        "log_level": 0,  # librdkafka would write to standard error; what matters comes as errors
        "error_cb": note,
        "socket.timeout.ms": whole_ms,
        "socket.connection.setup.timeout.ms": max(whole_ms, 1000),
        "socket.nagle.disable": True,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "topic.metadata.propagation.max.ms": 1000,
        "receive.message.max.bytes": 1_500_000_000,
        "allow.auto.create.topics": False,  # a topic that was deleted must not come back by being asked for
        **_security(address),
    }


def producer(address: Address, note: Note) -> dict[str, Any]:
    """A producer whose acknowledgements mean that every replica in sync has the message, once and in order."""
    whole_ms = max(int(address.timeout_s * 1000), 10)
    return {
        **common(address, note),
        "acks": "all",
        "enable.idempotence": True,
        "compression.type": choice(address, "compression", COMPRESSIONS),
        "linger.ms": 0,
        "message.max.bytes": _MESSAGE_BYTES_MAX,  # the topic decides
        "message.timeout.ms": whole_ms + _GIVEN_UP_MS,
        "request.timeout.ms": whole_ms,
    }


def consumer(address: Address, note: Note, *, wait_ms: int, eof: bool) -> dict[str, Any]:
    """A consumer that reads partitions it is given, belongs to no group and commits nothing."""
    return {
        **common(address, note),
        "group.id": f"{address.prefix}_lockstep",  # wanted by the client, used for nothing
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "enable.partition.eof": eof,
        "fetch.wait.max.ms": wait_ms,
        "fetch.error.backoff.ms": 50,
        "fetch.queue.backoff.ms": 5,
        "fetch.message.max.bytes": 4 << 20,
        "queued.max.messages.kbytes": _QUEUED_KB,
    }


def choice(address: Address, name: str, known: tuple[str, ...]) -> str:
    """An option that is one of some words; the first of them if it is not given."""
    text = address.options.get(name, known[0])
    if text not in known:
        reason = f"its option {name} must be one of {', '.join(known)}, not {text!r}"
        raise BadUrl(url=address.safe_url, reason=reason)
    return text


def _security(address: Address) -> dict[str, Any]:
    named = address.user is not None
    protocol = ("SASL_" if named else "") + ("SSL" if address.tls else "PLAINTEXT")
    found: dict[str, Any] = {"security.protocol": protocol}
    mechanism = choice(address, "mechanism", MECHANISMS)
    if named:
        secret = address.password.reveal() if address.password else ""
        found |= {"sasl.mechanism": mechanism, "sasl.username": address.user, "sasl.password": secret}
    if address.tls:
        files = {"ca": address.tls.ca, "certificate": address.tls.cert, "key": address.tls.key}
        found |= {f"ssl.{name}.location": path for name, path in files.items() if path}
    return found
