"""The port that carries every store of a scheduler: rows of a shard are written by its owner, and read by all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lockstep.core.agenda import Event, Status
from lockstep.schedule.rows import Change, CronRow, Fence, Run, ShardState

EARLY_MS = 3_600_000
"""An unfired event may be due before its time: by the lapse offset, or after the clock was set back. A list of events
from a time on begins so much earlier."""


class StoreIdentity(NamedTuple):
    """What tells a store from others: an id that is kept in it, and where it is, without passwords, for messages."""

    id: str
    url: str


class Due(NamedTuple):
    """An event that may be due, by key and time: enough to choose by, and to read it."""

    key: bytes
    due: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """Which events a list has; what is not given sets no limit. Times are milliseconds since 1970."""

    tenant: str | None = None
    status: frozenset[Status] | None = None
    start: int | None = None
    """At or after this."""
    stop: int | None = None
    """Before this."""


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list, and where the next part begins: None at the end."""

    events: list[Event]
    next: str | None = None


class Store(ABC):
    """Rows of events and crons by shard.

    Contract (checked by tests/contract for every backend): `commit` stores a change as a whole or not at all; a change
    whose fence was claimed by a later epoch is refused and changes nothing; what was committed is read by every handle
    from then on; a store that is away raises Unavailable, and nothing is half done. After Unavailable from `commit`
    each change is stored or not: claim the shard again to learn which. OutboxBlocked is the exception: it names streams
    that do not take records, and nothing was stored.
    """

    exactly_once: bool
    """Outgoing records are published in the transaction that stores the rows; else at least once, in order."""

    is_remote: bool = False
    """A commit waits for a server: `begin` returns before it has ended, and a node goes on with other shards."""

    change_bytes: int | None = None
    """How large the payloads and outgoing records of a change may be together; None if there is no limit."""

    @abstractmethod
    def identity(self) -> StoreIdentity:
        """The same for every handle on a store, by whatever name its host is reached."""

    @abstractmethod
    def claim(self, shard: int, fence: Fence) -> ShardState | None:
        """Become the owner of a shard and return its state; None if a later epoch has claimed it."""

    @abstractmethod
    def commit(self, changes: Sequence[Change]) -> set[int]:
        """Store changes of several shards and publish what they send; return the shards whose fence did not hold."""

    def begin(self, changes: Sequence[Change]) -> Callable[[], set[int]]:
        """Begin a commit; what is returned waits for its end, and returns or raises what `commit` does.

        It has to be called, once. What is raised here was not stored, unless it is Unavailable. Until it is called,
        other shards may be read and claimed; whether the rows of these changes are stored is not known.
        """
        refused = self.commit(changes)
        return lambda: refused

    @abstractmethod
    def tenants(self, shard: int) -> dict[str, int]:
        """Tenants with unfired events in a shard, and the due time of the first of each."""

    @abstractmethod
    def due(self, shard: int, tenant: str, start: int, stop: int, limit: int) -> list[Due]:
        """Unfired events of a tenant that are due from `start` up to and including `stop`, in the order of time."""

    @abstractmethod
    def due_events(self, shard: int, tenant: str, start: int, stop: int, limit: int) -> dict[bytes, Event]:
        """The same as `due`, with the events themselves: what is fired is read at once."""

    @abstractmethod
    def next_due(self, shard: int, tenant: str, start: int = 0) -> int | None:
        """When the first unfired event of a tenant is due, at or after `start`."""

    @abstractmethod
    def firing(self, shard: int) -> list[Event]:
        """Events of a shard whose delivery was begun and has no result."""

    @abstractmethod
    def expired(self, shard: int, before: int, limit: int) -> list[Event]:
        """Ended events whose keep time began before a time, oldest first."""

    @abstractmethod
    def get(self, shard: int, keys: Sequence[bytes]) -> dict[bytes, Event]:
        """Events by row key; those that are not stored are left out."""

    @abstractmethod
    def crons(self, shard: int) -> Iterator[CronRow]:
        """All crons of a shard."""

    @abstractmethod
    def cron(self, shard: int, key: bytes) -> CronRow | None:
        """A cron by row key."""

    @abstractmethod
    def runs(self, shard: int, cron: str, limit: int) -> list[Run]:
        """The logged runs of a cron, newest first."""

    @abstractmethod
    def forget_runs(self, shard: int, fence: Fence, before: int) -> int:
        """Remove runs that expired before a time; return how many."""

    @abstractmethod
    def forget_tenants(self, shard: int, fence: Fence) -> int:
        """Remove what is stored of tenants that have no unfired event in a shard any more; return how many."""

    @abstractmethod
    def events(self, shards: Sequence[int], chosen: Filter, limit: int, cursor: str | None = None) -> Page:
        """A page of events in the order of their time; give `next` of a page as `cursor` for the one after it."""

    @abstractmethod
    def forget_stream(self, name: str) -> None:
        """Look a stream up again before the next record for it: it was deleted, perhaps made anew."""

    @abstractmethod
    def close(self) -> None:
        """Give back what this handle uses."""
