"""What a server must be able to do to carry logs: topics of numbered messages, and a catalogue of streams.

Each vendor has one `Driver`. Everything that the port asks for beyond it (batches in messages, bounds, retention,
dropping copies, trimming inside a batch) is done once, above it, in `NetworkBus` and `NetworkLog`.

One append is one message: a batch as it is, or several in a bundle, so that all of them are stored or none.

    magic "LM" | version u8 | - u8 | batches u32 | sizes u32[n] | batches        (little endian)

A driver also reports findings: settings of a server that would break a promise.

"""

from __future__ import annotations

import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Protocol

from lockstep.errors import BatchDamaged, FormatTooNew, ServerUnfit
from lockstep.log.batch import origin, peek
from lockstep.log.config import StreamConfig
from lockstep.log.network.address import Address
from lockstep.log.port import Entry, Limits, Promises
from lockstep.runtime import logger

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
class StreamEntry:
    """What the catalogue says about a stream."""

    name: str
    identity: str
    config: StreamConfig
    head: int = 0
    """Everything below this offset was trimmed, whatever the server still holds."""

    def trimmed(self, head: int) -> StreamEntry:
        """The same, with everything below an offset trimmed; never goes back."""
        return replace(self, head=max(head, self.head))


class TopicGone(Exception):
    """The server has no such topic any more. The caller knows which stream that was."""


class Topic(Protocol):
    """One ordered topic of a server. Used by one handle, which locks around it; `watch` may be called by any thread.

    Every call ends within the time-out of the driver. Calls raise ServerUnreachable, ServerRefused, StoreFull or
    AppendTooLarge where they fit, and TopicGone if the topic was deleted.
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
        """Messages from a number on, in order: at least one if there is any at or after it, however large.

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

    def find(self, name: str) -> StreamEntry | None:
        """What is known about a stream now."""

    def all(self) -> list[StreamEntry]:
        """All streams."""

    def add(self, known: StreamEntry) -> StreamEntry:
        """Make an entry unless there is one; return the entry that was written first."""

    def remove(self, known: StreamEntry) -> bool:
        """Take an entry out, if it is still the one; whether it was."""

    def trim(self, known: StreamEntry, head: int) -> None:
        """Note that everything below an offset is gone."""

    def alter(self, known: StreamEntry, config: StreamConfig) -> None:
        """Give an entry another configuration, if it is still the one."""

    def verify(self) -> None:
        """Before a change: if the server has lost what was read here, forget that, and read what is there now."""

    def close(self) -> None:
        """Give back what it uses."""


class Driver(Protocol):
    """A connection to a server. Safe to share between threads."""

    url: str
    """As the user wrote it, without secrets."""
    promises: Promises
    catalogue: Catalogue

    def make(self, known: StreamEntry) -> None:
        """See that the topic of a stream is there; nothing happens if it is. UnsupportedByBackend if it can't be."""

    def alter(self, known: StreamEntry, config: StreamConfig) -> None:
        """See that the topic of a stream can keep what another configuration asks for; UnsupportedByBackend if not."""

    def remove(self, known: StreamEntry) -> None:
        """Delete the topic of a stream; nothing happens if it is gone."""

    def topic(self, known: StreamEntry) -> Topic:
        """A handle on the topic of a stream."""

    def foreign(self, name: str) -> StreamEntry | None:
        """A topic that others made and that can be read as a stream, where a server has such."""

    def check(self, known: Sequence[StreamEntry]) -> list[Finding]:
        """What would break the promises: settings of the server, and of the topics of some streams."""

    def close(self) -> None:
        """Give back what it uses."""


BUNDLE_MAGIC = b"LM"
BUNDLE_VERSION = 1
_BUNDLE_HEADER = struct.Struct("<2sBxI")


def bundle(batches: Sequence[bytes]) -> bytes:
    """The message that holds some sealed batches."""
    if len(batches) == 1:
        return batches[0]
    sizes = struct.pack(f"<{len(batches)}I", *map(len, batches))
    return b"".join((_BUNDLE_HEADER.pack(BUNDLE_MAGIC, BUNDLE_VERSION, len(batches)), sizes, *batches))


def unbundle(data: bytes, base: int, stream: str) -> list[Entry]:
    """The batches of a message, each with the offset of its first record."""
    entries = []
    for part in _parts(data, base, stream):
        entries.append(Entry(base, part))
        base += peek(part)[0]
    return entries


def first_origin(data: bytes) -> tuple[bytes, int]:
    """Producer and sequence of the first batch of a message."""
    return origin(next(_parts(data, 0, "")))


def _parts(data: bytes, base: int, stream: str) -> Iterator[bytes]:
    if data[:2] != BUNDLE_MAGIC:
        yield data
        return
    if len(data) < _BUNDLE_HEADER.size:
        raise BatchDamaged(offset=base, stream=stream, reason="its message is cut off")
    _, version, number = _BUNDLE_HEADER.unpack_from(data)
    if version > BUNDLE_VERSION:
        raise FormatTooNew(what=f"The message at offset {base} of {stream}", found=version, known=BUNDLE_VERSION)
    start = _BUNDLE_HEADER.size + 4 * number
    if len(data) < start:
        raise BatchDamaged(offset=base, stream=stream, reason="its message is cut off")
    sizes = struct.unpack_from(f"<{number}I", data, _BUNDLE_HEADER.size)
    if len(data) != start + sum(sizes):
        raise BatchDamaged(offset=base, stream=stream, reason="its message has another size than it says")
    for begin, end in pairwise(accumulate(sizes, initial=start)):
        yield data[begin:end]


_OTHER_USERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as the promises need it."""

    server: str
    problem: str
    setting: str
    """What to change."""
    fatal: bool = False
    """Nothing works with it; others are warnings unless somebody is strict."""


def login_findings(address: Address) -> list[Finding]:
    """Whether the password can be read by others: on the way to the server, or in its file."""
    found = []
    if address.password is not None and address.tls is None and not address.is_loopback:
        problem = "the password and everything else goes to it without encryption"
        found.append(Finding(address.servers, problem, "tls=true in the URL, and TLS on the server"))
    if address.password_file is not None:
        path = Path(address.password_file).expanduser()
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & _OTHER_USERS:
            problem = f"its password file {path} can be read by other users (mode {mode:03o})"
            found.append(Finding(address.servers, problem, f"the mode of the file: chmod 600 {path}"))
    return found


def raise_findings(findings: Sequence[Finding]) -> None:
    """Raise for the first of them."""
    for finding in findings:
        raise ServerUnfit(server=finding.server, reason=finding.problem, setting=finding.setting)


def report_findings(findings: Sequence[Finding], *, strict: bool = False) -> None:
    """Raise for what can't be, and also for the rest if strict; else log it."""
    raise_findings([finding for finding in findings if finding.fatal or strict])
    for finding in findings:
        logger.warning(
            "The server may break a promise: %s", finding.problem,
            extra={"action": "preflight", "server": finding.server, "setting": finding.setting},
        )  # fmt: skip
