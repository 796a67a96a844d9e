"""The port that carries every bus: append a batch, read in order, know the bounds, wait, trim.

A log holds batches. The log gives each batch a base offset; record i of it has offset base + i, and the next base is
above the last record. Nothing more may be assumed: offsets may have gaps, others may trim, an append whose
acknowledgement was lost may have landed, may land late, or twice. A Kafka partition, a RabbitMQ or Redis stream and a
Hazelcast ring carry this with one message for each batch and bases that are multiples of a fixed stride.

"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from lockstep.log.batch import Batch
from lockstep.log.config import StreamConfig
from lockstep.runtime import Waiter

T = TypeVar("T")

READ_BYTES_DEFAULT = 1 << 20
DROPPED_BY_BUS = "dropped by the bus, unless the producer was silent for an hour"
DROPPED_BY_READERS = (
    "dropped by readers: all of them while a reader goes on; after a start or a seek those whose original is among the"
    " last 10,000 appends, or 4 MiB, before the position (256 appends at least); for the last 4,096 producers"
)
"""What readers do on a bus that keeps copies of an append; `lockstep.streams.cursor` does it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Promises:
    """What a bus guarantees, to be asked at run time."""

    durability: str
    """When an append is acknowledged: memory, relaxed (given to the system), fsync (on disk)."""
    may_lose: str
    """In words: what can be lost of what was acknowledged, and when."""
    opened_by: str
    """Who may open it: process, host or network."""
    retention: tuple[str, ...]
    """What can bound a stream: capacity, bytes, age, protect."""
    sync_replicas: int = 0
    """Copies that are written before an acknowledgement."""
    async_replicas: int = 0
    """Copies that follow in the background."""
    atomic: bool = False
    """Several streams, positions and small state can change in one step."""
    conditional: bool = False
    """An append can be made to depend on the last offset."""
    dedupe: bool = False
    """The bus itself drops copies of a producer's batch; where it does not, readers do."""
    notifies: bool = False
    """Waiting readers are woken; where they are not, they look again after short pauses."""
    history: bool = False
    """A stream can hand records that its retention drops to a history."""
    copies: str = ""
    """In words: which copies of an append, sent again because its acknowledgement was lost, are dropped."""
    ordered_times: bool = False
    """Append times of a stream never go back; where they may, only those of one writer never do."""
    ordered_cells: bool = False
    """Cells can be read in the order of their keys."""
    takes_back: bool = False
    """A reader may see a record before its copies exist. If it is lost then, readers that saw it get an error."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How a log numbers its records, and how much it takes at once."""

    stride: int = 1
    """1: offsets have no gaps. Else each append is one message with a base that is a multiple of this."""
    append_bytes: int | None = None
    """The most that one append may hold; None sets no limit."""
    append_setting: str = ""
    """The setting of the server that decides it."""
    append_records: int | None = None
    """The most records that one append may hold."""
    batch_records: int | None = None
    """The most records that one batch may hold; 1 where others read them one by one."""


DENSE = Limits()


@dataclass(frozen=True, slots=True)
class Bounds:
    """The readable part of a log: the first offset, and the offset after the last record."""

    first: int
    next: int

    @property
    def count(self) -> int:
        """At most this many records; exact where offsets have no gaps."""
        return self.next - self.first


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored batch, as bytes, with the offset of its first record."""

    base: int
    data: bytes


class Log(Protocol):
    """One totally ordered log.

    Contract (checked by lockstep.testing.contract for every backend): an append is all or nothing and returns after
    the durability point in the bus's promises; every reader reads the same records at the same offsets in the same
    order; reading changes nothing; offsets grow and are never used twice, not even after trimming everything.
    """

    name: str
    identity: str
    """Random, given when the log is made: a log deleted and made anew is another log."""
    config: StreamConfig
    limits: Limits

    def append(self, batches: Sequence[Batch], *, expected_next: int | None = None, wake: bool = True) -> list[int]:
        """Add batches in one step and return the base offset of each.

        A batch that the producer sent before is not added again; its offset is returned. Raises OffsetConflict if
        `expected_next` is given and the log ends elsewhere, StoreFull if there is no room; nothing is written then.
        AppendUncertain says that it may or may not have been written: send the same batches again. With `wake` False
        nobody is in a hurry: those who wait may be left to find it when they look again.
        """

    def read(self, offset: int, *, max_bytes: int = READ_BYTES_DEFAULT) -> list[Entry]:
        """Stored batches from the one that holds `offset` (or the next, if it falls into a gap), never waiting.

        At least one batch if there is any, whatever its size. Empty at the end. Raises Trimmed below the first offset.
        """

    def reread(self, offset: int) -> Entry | None:
        """The stored batch that holds an offset that was read before, or the next one, asked for at the store.

        `read` may answer from what this handle has fetched before; this does not, so it tells whether a store that
        lost something has something else there now. None if the log ends before the offset.
        """

    def bounds(self) -> Bounds:
        """The readable range now."""

    def trim(self, before: int) -> None:
        """Make everything below `before` unreadable; its space is used again. Never goes back."""

    def hold(self, holder: str, offset: int | None) -> None:
        """On a protected stream, keep everything from `offset` on for `holder`; None lets go."""

    def close(self) -> None:
        """Give back what this handle uses; the log stays."""


class LogWaiter(Waiter, Protocol):
    """Wakes when something was appended to a watched log. A wake-up means look, not that there is something."""

    def watch(self, log: Log) -> None:
        """Wake for this log from now on; look once more after calling this."""

    def unwatch(self, log: Log) -> None:
        """No longer wake for this log."""

    def fileno(self) -> int | None:
        """A descriptor that becomes readable on wake-up, for event loops, or None."""

    def close(self) -> None:
        """Give back what it uses."""


class Transaction(Protocol):
    """Changes to several logs and cells of a bus that happen together or not at all."""

    def append(self, log: str, batches: Sequence[Batch], *, expected_next: int | None = None) -> list[int]:
        """As Log.append."""

    def read(self, log: str, offset: int) -> Iterator[Entry]:
        """Stored batches from `offset` on, with what this transaction appended. Trimmed below the first offset."""

    def identity(self, log: str) -> str:
        """The identity of the log that has this name now; StreamNotFound if there is none."""

    def bounds(self, log: str) -> Bounds:
        """As Log.bounds, with what this transaction appended."""

    def hold(self, log: str, holder: str, offset: int | None) -> None:
        """As Log.hold."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a cell."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set a cell; None removes it."""

    def scan(self, prefix: bytes, start: bytes | None = None, *, down: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Cells whose key begins with `prefix`, in order, from `start` on; `down` begins at the last one.

        Change no cell while scanning. UnsupportedByBackend unless the bus promises ordered cells.
        """


class Bus(Protocol):
    """A place with named logs."""

    url: str
    promises: Promises

    def create(self, name: str, config: StreamConfig) -> Log:
        """Make a log, or open it if it is there with the same configuration; else ConfigMismatch."""

    def open(self, name: str) -> Log:
        """Open a log as it was made; StreamNotFound if it was not."""

    def alter(self, name: str, config: StreamConfig) -> Log:
        """Give a log another configuration; ConfigMismatch if it differs in what can't be altered.

        Open handles, of other processes too, follow with their next append, or after a second or so.
        """

    def delete(self, name: str) -> None:
        """Remove a log and what it holds."""

    def names(self) -> list[str]:
        """The names of all logs, in order."""

    def waiter(self) -> LogWaiter:
        """A new waiter that watches nothing yet."""

    def atomic(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` as one transaction, or raise UnsupportedByBackend. If it raises, nothing happened."""

    def snapshot(self) -> AbstractContextManager[Transaction]:
        """A consistent view for reading, or UnsupportedByBackend; writing through it is refused."""

    def close(self) -> None:
        """Give back what this handle uses."""


_OVERHEAD = 64
"""Overhead in bytes: of a batch in a message, and of a message."""


def split_appends(batches: Sequence[Batch], limits: Limits) -> Iterator[Sequence[Batch]]:
    """Split batches into parts that fit one append; a batch that is too large is a part of its own."""
    if limits.append_bytes is None and limits.append_records is None:
        yield batches
        return
    part: list[Batch] = []
    size = records = 0
    for batch in batches:
        size, records = size + batch.size + _OVERHEAD, records + batch.count
        too_large = limits.append_bytes is not None and size + _OVERHEAD > limits.append_bytes
        too_many = limits.append_records is not None and records > limits.append_records
        if part and (too_large or too_many):
            yield part
            part, size, records = [], batch.size + _OVERHEAD, batch.count
        part.append(batch)
    yield part
