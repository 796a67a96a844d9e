"""What would break the promises on this server."""

from __future__ import annotations

from collections.abc import Sequence

from rstream import schema

from lockstep.log.network.address import Address
from lockstep.log.network.checks import Finding
from lockstep.log.network.driver import Known
from lockstep.log.network.retention import is_bounded
from lockstep.log.rabbitmq import errors, retention
from lockstep.log.rabbitmq.client import Links
from lockstep.log.rabbitmq.connection import Receiver
from lockstep.log.rabbitmq.subscription import Glimpse
from lockstep.log.rabbitmq.timing import Deadline

LEAST_VERSION = (3, 9)


def check_version(server: str, version: str) -> list[Finding]:
    """Streams came with 3.9."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if len(numbers) == len(LEAST_VERSION) and numbers < LEAST_VERSION:
        problem = f"its version is {version}, and streams need 3.9 or newer"
        return [Finding(server, problem, "the version of the server", fatal=True)]
    return []


def check_replicas(server: str, replicas: int) -> list[Finding]:
    """One node alone loses everything with its disk."""
    if replicas:
        return []
    problem = "it keeps its streams on one node: they are gone if its disk is, and away while it is"
    return [Finding(server, problem, "the number of nodes of the cluster (3 or more)")]


def check_disk(links: Links, stream: str, deadline: Deadline) -> list[Finding]:
    """A server with a disk alarm refuses new publishers at once."""
    connection = links.fresh(deadline)
    try:
        number = connection.add_publisher(_nobody(links, stream))
        answer = connection.ask(lambda n: schema.DeclarePublisher(n, number, "", stream), deadline)
    finally:
        connection.lose("it was for one question")
    if answer.response_code != errors.PRECONDITION:
        return []
    problem = "it has a disk alarm and takes no messages"
    return [Finding(connection.server, problem, "disk_free_limit in rabbitmq.conf, or the disk")]


def check_room(address: Address, known: Sequence[Known]) -> list[Finding]:
    """A stream that is bounded by a number of records only grows on the server."""
    setting = "the option max_bytes or max_age_s in the URL before the stream is made, or give it retain_bytes"
    return [
        Finding(
            address.servers,
            f"stream {one.name!r} keeps a number of records, which this server can't count: its disk is not given back",
            setting,
        )
        for one in known
        if is_bounded(one.config) and not retention.gives_room_back(one.config, address)
    ]


def _nobody(links: Links, stream: str) -> Receiver:
    return Glimpse(links, stream)
