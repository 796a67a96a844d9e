"""What a scheduler stores besides events: crons, their runs, the state of a shard; and what it publishes with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from lockstep.core.agenda import Event, Form
from lockstep.core.ticks import Policy
from lockstep.log.batch import Headers

KEY_BYTES = 16


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class CronRow:
    """A cron as its shard's owner stores it. Times are milliseconds since 1970, spans are seconds.

    Never changed, but replaced; not frozen, as a node makes a million of them when it starts.
    """

    tenant: str
    id: str
    type: str
    expression: str
    tz: str = "UTC"
    dst: str = "once"
    policy: Policy = field(default_factory=Policy)
    jitter_s: int = 0
    paused: bool = False
    payload: bytes | None = None
    form: Form = Form.TEXT
    """Of the payload, if there is one."""
    log_granularity: str | None = None
    retention: int = 0
    retention_units: str = "DAYS"
    since: int = 0
    """Seconds since 1970: ticks up to then are from before the cron was set up or resumed."""
    updated: int = 0
    executed: int | None = None
    caught_up: int = 0
    """Missed ticks in a row that fired."""
    running: str | None = None
    """The tick that is under way, where ticks must not overlap."""
    fired: tuple[int, ...] = ()
    """Seconds since 1970: first and last of earlier spans in which its ticks fired, then the first of the latest one.

    It is empty unless the clock jumped.
    """

    @property
    def name(self) -> str:
        """Tenant, id and type: what identifies a cron."""
        return f"{self.tenant}/{self.id}/{self.type}"

    @property
    def log_name(self) -> str:
        """What its runs are stored under. Unlike its name it is not that of another cron, wherever a slash is."""
        return f"{self.tenant}\0{self.id}\0{self.type}"

    def ticks_like(self, other: CronRow) -> bool:
        """Whether both tick in the same seconds."""
        return (self.expression, self.tz, self.dst) == (other.expression, other.tz, other.dst)


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a cron that is logged: `bucket` and `at` are milliseconds since 1970, `event` is JSON."""

    cron: str
    bucket: int
    at: int
    event: bytes
    expires: int | None
    """When it may be forgotten; None keeps it."""


@dataclass(frozen=True, slots=True)
class ShardState:
    """Where the owner of a shard goes on."""

    position: int = 0
    """The next offset of the shard's requests."""
    mark: int | None = None
    """Ticks up to this second are decided; None if the shard was never owned."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Who may write a shard: a member of the nodes' group in an epoch of its seat."""

    seat: str
    member: str
    epoch: int


class Outgoing(NamedTuple):
    """A record for a stream, published with the rows."""

    stream: str
    value: bytes
    key: bytes | None = None
    headers: Headers = ()


@dataclass(slots=True)
class Change:
    """All that one step of a shard's owner changes: stored as a whole, if the fence holds, or not at all."""

    shard: int
    fence: Fence
    position: int | None = None
    mark: int | None = None
    """The mark as it is to be stored."""
    ticked: int | None = None
    """Up to which second ticks are decided. Without ticks it moves in memory only, and the mark is stored later."""
    events: dict[bytes, tuple[Event | None, Event | None]] = field(default_factory=dict)
    """By key: the event as stored, and as it is to be stored."""
    crons: dict[bytes, CronRow | None] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    outgoing: list[Outgoing] = field(default_factory=list)
    requests: int = 0
    late_ms: list[int] = field(default_factory=list)
    """Of each event that fired, how late its first try was."""
    retries: int = 0
    failed: int = 0
    """Counts for the node's metrics; not stored."""

    def put(self, key: bytes, before: Event | None, after: Event | None) -> None:
        """Have an event stored, or removed."""
        first = self.events[key][0] if key in self.events else before
        self.events[key] = (first, after)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return not (
            self.events or self.crons or self.runs or self.outgoing
            or self.position is not None or self.mark is not None
        )  # fmt: skip


def routing_key(tenant: str, name: str) -> bytes:
    """The key of an event's or cron's requests, which chooses the shard."""
    return f"{tenant}\0{name}".encode()


def event_key(tenant: str, name: str) -> bytes:
    """The key of an event's row: a digest, so that any name fits."""
    return blake2b(b"event\0" + routing_key(tenant, name), digest_size=KEY_BYTES).digest()


def tick_key(tenant: str, event_id: str) -> bytes:
    """The key of the row of a cron's tick."""
    return blake2b(b"tick\0" + routing_key(tenant, event_id), digest_size=KEY_BYTES).digest()


def row_key(event: Event) -> bytes:
    """The key of an event's row."""
    return tick_key(event.tenant, event.event_id) if event.tick else event_key(event.tenant, event.id)


def cron_key(tenant: str, name: str, kind: str) -> bytes:
    """The key of a cron's row."""
    return blake2b(b"cron\0" + f"{tenant}\0{name}\0{kind}".encode(), digest_size=KEY_BYTES).digest()
