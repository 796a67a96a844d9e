"""What every means of publishing and subscribing has to offer to be measured: one module each, ours and the plain ones.

A module has SETTINGS (what a reader of the figures should know), make, remove, sender and reader. Publishers and
subscribers are processes, so a means goes to them by the name of its module.
"""

from __future__ import annotations

import importlib
import os
from contextlib import AbstractContextManager
from typing import Protocol, cast

from lockstep.log.network.address import Address, parse_address
from lockstep.log.urls import split_url


class Sender(Protocol):
    """Publishes runs of records, in order."""

    def start(self, values: list[bytes]) -> None:
        """Send all of them."""

    def wait(self) -> None:
        """Return when everything sent is acknowledged; raises if something was not."""


class Reader(Protocol):
    """Reads everything from the beginning, in order."""

    def read(self, timeout: float) -> list[bytes]:
        """What has come, as soon as there is something; empty after the time."""


class Means(Protocol):
    """One way to publish and to subscribe."""

    SETTINGS: str

    def make(self, url: str, stream: str) -> None:
        """Make the stream."""

    def remove(self, url: str, stream: str) -> None:
        """Take it away."""

    def sender(self, url: str, stream: str) -> AbstractContextManager[Sender]:
        """A connected publisher."""

    def reader(self, url: str, stream: str) -> AbstractContextManager[Reader]:
        """A connected subscriber."""


PORTS = {"kafka": 9092, "rabbitmq": 5552, "redis": 6379, "hazelcast": 5701}
OURS, PLAIN_KAFKA_FSYNC = "compare_lockstep", "plain_kafka_fsync"


def plain(bus: str) -> str:
    """The name of the module with the vendor's own client."""
    return f"plain_{bus}"


def load(name: str) -> Means:
    """The module of that name; its client is imported with it."""
    return cast(Means, importlib.import_module(f"lockstep.bench.{name}"))


def address_of(url: str) -> Address:
    """Where the server of a URL is, for a client that knows nothing of our URLs."""
    scheme, target, options = split_url(url)
    known = tuple(options)
    return parse_address(scheme, target, options, environ=os.environ, default_port=PORTS[scheme], known=known)
