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
"""Message 3 holds the offsets from 3,000,000 on: easy to read, and room for any append."""


@dataclass(frozen=True, slots=True)
class Message:
    """One stored message; its number is the server's."""

    number: int
    data: bytes
    time_ns: int | None = None
    """When the server stored it, by the server's clock; None where the server does not tell."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The numbers a topic holds now: the first one, and the lowest one that the next message can get."""

    first: int
    next: int


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """The entry of a stream in the catalogue."""

    name: str
    identity: str
    config: StreamConfig
    head: int = 0
    """Everything below this offset was trimmed, even if the server still has it."""

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
        """Store messages in order and return the number of each, once they are as safe as the promises say.

        One message is stored or not. Of several (only where `limits.batch_records` is 1) the first ones may be stored
        alone. AppendUncertain if something may or may not have been stored.
        """

    def ends(self) -> Ends:
        """Ask the server which numbers it holds now."""

    def fetch(self, number: int, max_bytes: int) -> list[Message]:
        """Messages from a number on, in order: at least one if there is any at or after it, however large.

        Waits only for what is stored already. Whatever was acknowledged before the call is found. Numbers that are
        no longer there are passed over.
        """

    def reread(self, number: int) -> Message | None:
        """The message with a number, or the next one, read from the server and not from what was fetched before."""

    def drop(self, before: int) -> None:
        """Allow the server to reclaim the space of all messages below a number. A hint; the server may ignore it."""

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` from any thread soon after something was stored, until the returned function is called."""

    def close(self) -> None:
        """Release its resources."""


class Catalogue(Protocol):
    """The streams of a bus. A change that one process has written is visible to the next call of any other."""

    def find(self, name: str) -> StreamEntry | None:
        """The entry of a stream, or None."""

    def all(self) -> list[StreamEntry]:
        """The entries of all streams."""

    def add(self, known: StreamEntry) -> StreamEntry:
        """Make an entry unless there is one; return the entry that was written first."""

    def remove(self, known: StreamEntry) -> bool:
        """Remove an entry if it is still the current one for its name; return whether it was."""

    def trim(self, known: StreamEntry, head: int) -> None:
        """Record that everything below an offset is trimmed."""

    def alter(self, known: StreamEntry, config: StreamConfig) -> None:
        """Change the configuration of an entry if it is still the current one for its name."""

    def verify(self) -> None:
        """Called before a change: if the server has lost entries that were read here, read the catalogue again."""

    def close(self) -> None:
        """Release its resources."""


class Driver(Protocol):
    """A connection to a server. Safe to share between threads."""

    url: str
    """The URL as the user wrote it, without secrets."""
    promises: Promises
    catalogue: Catalogue

    def make(self, known: StreamEntry) -> None:
        """Create the topic of a stream unless it exists. Raises UnsupportedByBackend if the server can't have it."""

    def alter(self, known: StreamEntry, config: StreamConfig) -> None:
        """Prepare the topic of a stream for another configuration. Raises UnsupportedByBackend if it can't."""

    def remove(self, known: StreamEntry) -> None:
        """Delete the topic of a stream if it exists."""

    def topic(self, known: StreamEntry) -> Topic:
        """A handle on the topic of a stream."""

    def foreign(self, name: str) -> StreamEntry | None:
        """The entry for a topic that another program created and that can be read as a stream, or None."""

    def check(self, known: Sequence[StreamEntry]) -> list[Finding]:
        """Findings about the settings of the server and of the topics of some streams."""

    def close(self) -> None:
        """Release its resources."""


BUNDLE_MAGIC = b"LM"
BUNDLE_VERSION = 1
_BUNDLE_HEADER = struct.Struct("<2sBxI")


def bundle(batches: Sequence[bytes]) -> bytes:
    """Pack sealed batches into one message."""
    if len(batches) == 1:
        return batches[0]
    sizes = struct.pack(f"<{len(batches)}I", *map(len, batches))
    return b"".join((_BUNDLE_HEADER.pack(BUNDLE_MAGIC, BUNDLE_VERSION, len(batches)), sizes, *batches))


def unbundle(data: bytes, base: int, stream: str) -> list[Entry]:
    """The batches of a message, each with the offset of its first record. Raises BatchDamaged or FormatTooNew."""
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
    """One setting that would break a promise of the bus."""

    server: str
    problem: str
    setting: str
    """Which setting to change, and to what."""
    fatal: bool = False
    """The bus can't be used. Other findings are warnings, unless the URL says strict=true."""


def login_findings(address: Address) -> list[Finding]:
    """Findings about a password that others can read on the network or in its file."""
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
    """Raise ServerUnfit for the first finding, if there is one."""
    for finding in findings:
        raise ServerUnfit(server=finding.server, reason=finding.problem, setting=finding.setting)


def report_findings(findings: Sequence[Finding], *, strict: bool = False) -> None:
    """Raise ServerUnfit for fatal findings, and for all findings if `strict`; log the others as warnings."""
    raise_findings([finding for finding in findings if finding.fatal or strict])
    for finding in findings:
        logger.warning(
            "The server may break a promise: %s", finding.problem,
            extra={"action": "preflight", "server": finding.server, "setting": finding.setting},
        )  # fmt: skip
