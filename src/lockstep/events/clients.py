"""Clients that number their messages: who they are, and how far they are on an input stream."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from lockstep.engine.model.graph import Node
from lockstep.engine.runtime.sequence.beats import whole_position
from lockstep.engine.runtime.sequence.entries import SequencePosition
from lockstep.engine.runtime.sequence.reader import head_of, values_between
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.errors import BadArgument
from lockstep.log.port import Bus, Log

CLIENT_BYTES = 16


def client_id(name: str | bytes) -> bytes:
    """The sixteen bytes by which engines know a client; a name gives always the same."""
    if isinstance(name, bytes):
        if len(name) != CLIENT_BYTES:
            raise BadArgument(name="client", value=name, reason=f"give a name, or {CLIENT_BYTES} bytes")
        return name
    if not name:
        raise BadArgument(name="client", value=name, reason="a client has a name")
    return blake2b(name.encode(), digest_size=CLIENT_BYTES).digest()


class ClientTail:
    """Reads a client's messages on an input stream as engines count them: each number once, in order.

    `last` is the last number that counted, `at` the offset up to which the stream was read for that.
    """

    def __init__(self, log: Log, client: bytes, last: int, at: int) -> None:
        self._log, self._client = log, client
        self.last, self.at = last, at

    @classmethod
    def begin(cls, bus: Bus, streams: ProjectStreams, node: Node, client: bytes) -> ClientTail:
        """From where the newest beat knows the client, or from the start of the stream."""
        log = bus.open(streams.input(node))
        first = log.bounds().first
        if streams.control in set(bus.names()):
            known = whole_position(bus.open(streams.control))
            position = SequencePosition.of(known) if known else SequencePosition()
            if position.ends.get(node.path, -1) >= first:
                last = position.clients.get(f"{node.path}/{client.hex()}", 0)
                return cls(log, client, last, position.ends[node.path])
        return cls(log, client, 0, first)

    def read(self, most: int | None = None) -> Iterator[tuple[int, int, bytes]]:
        """Yield the new frames that count, each with its first and last number; at most as many as asked for."""
        for offset, value in values_between(self._log, self.at, self._log.bounds().next):
            self.at = offset + 1
            head = head_of(value)
            if head is None or head.client != self._client or head.last <= self.last:
                continue
            if self.last and head.first > self.last + 1:
                continue  # engines refuse it: messages before it are missing
            first, self.last = max(head.first, self.last + 1), head.last
            yield first, head.last, value
            most = None if most is None else most - 1
            if most == 0:
                return

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing more now."""
        return self.at >= self._log.bounds().next
