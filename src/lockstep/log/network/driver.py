"""What a server must be able to do to carry logs: topics of numbered messages, and a catalogue of streams.

A vendor's module is one `Wire`. Everything that the port asks for beyond this (batches in messages, bounds, retention,
copies, trimming inside a batch) is done once, above it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from lockstep.log.config import StreamConfig
from lockstep.log.network.checks import Finding
from lockstep.log.port import Limits, Promises

STRIDE = 1_000_000
"""Message 3 holds the offsets from 3,000,000 on: numbers that people can read, and room for any append."""


@dataclass(frozen=True, slots=True)
class Message:
    """One stored message; its number is the server's."""

    number: int
    data: bytes
    time_ns: int | None = None
    """When the server stored it, by the server's clock; None where the server does not tell."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The numbers a topic holds now: the first one, and the one that the next message gets at the least."""

    first: int
    next: int


@dataclass(frozen=True, slots=True)
class Known:
    """What the catalogue says about a stream."""

    name: str
    identity: str
    config: StreamConfig
    head: int = 0
    """Everything below this offset was trimmed, whatever the server still holds."""

    def trimmed(self, head: int) -> Known:
        """The same, with everything below an offset trimmed; never goes back."""
        return replace(self, head=max(head, self.head))


class TopicGone(Exception):
    """The server has no such topic any more; whoever meets this knows which stream that was."""


class Topic(Protocol):
    """One ordered topic of a server. Used by one handle, which locks around it; `watch` may be called by any thread.

    Every call ends within the time-out of the wire. ServerUnreachable, ServerRefused, StoreFull and AppendTooLarge are
    raised where they fit, TopicGone if the topic was deleted.
    """

    limits: Limits

    def send(self, messages: Sequence[bytes]) -> list[int]:
        """Store messages in order, and return when they are as safe as the promises say: the number of each.

        One message is stored or not. Of several (only where `limits.batch_records` is 1) the first ones may be stored
        alone. AppendUncertain if something may or may not have been stored.
        """

    def ends(self) -> Ends:
        """What the server holds now, asked for at the server."""

    def fetch(self, number: int, max_bytes: int) -> list[Message]:
        """Messages from a number on, in order: at least one if there is any at or behind it, however large.

        Waits only for what is stored already. Whatever was acknowledged before the call is found. Numbers that are
        no longer there are passed over.
        """

    def reread(self, number: int) -> Message | None:
        """The message with a number, or the next one, from the server, whatever was fetched before."""

    def drop(self, before: int) -> None:
        """Let the server use the room of all messages below a number again, if it can; a hint."""

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` from any thread soon after something was stored, until the returned function is called."""

    def close(self) -> None:
        """Give back what it uses."""


class Catalogue(Protocol):
    """The streams of a bus. The same for everybody: what one has written, the next call of another sees."""

    def find(self, name: str) -> Known | None:
        """What is known about a stream now."""

    def all(self) -> list[Known]:
        """All streams."""

    def add(self, known: Known) -> Known:
        """Make an entry unless there is one: whoever was first is returned to all."""

    def remove(self, known: Known) -> bool:
        """Take an entry out, if it is still the one; whether it was."""

    def trim(self, known: Known, head: int) -> None:
        """Note that everything below an offset is gone."""

    def alter(self, known: Known, config: StreamConfig) -> None:
        """Give an entry another configuration, if it is still the one."""

    def verify(self) -> None:
        """Before a change: if the server has lost what was read here, forget that, and read what is there now."""

    def close(self) -> None:
        """Give back what it uses."""


class Wire(Protocol):
    """A connection to a server. Safe to share between threads."""

    url: str
    """As the user wrote it, without secrets."""
    promises: Promises
    catalogue: Catalogue

    def make(self, known: Known) -> None:
        """See that the topic of a stream is there; nothing happens if it is. UnsupportedByBackend if it can't be."""

    def alter(self, known: Known, config: StreamConfig) -> None:
        """See that the topic of a stream can keep what another configuration asks for; UnsupportedByBackend if not."""

    def remove(self, known: Known) -> None:
        """Delete the topic of a stream; nothing happens if it is gone."""

    def topic(self, known: Known) -> Topic:
        """A handle on the topic of a stream."""

    def foreign(self, name: str) -> Known | None:
        """A topic that others made and that can be read as a stream, where a server has such."""

    def check(self, known: Sequence[Known]) -> list[Finding]:
        """What would break the promises: settings of the server, and of the topics of some streams."""

    def close(self) -> None:
        """Give back what it uses."""
