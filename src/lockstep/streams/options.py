"""How publishers, subscribers and groups behave: every bound and wait; and their types for completion."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, TypeVar

from lockstep.errors import BadConfig
from lockstep.log.config import PARTITIONERS
from lockstep.streams import arguments
from lockstep.streams.arguments import bad_setting
from lockstep.streams.handlers import OnFailure
from lockstep.streams.record import Gap

INITIAL = ("auto", "earliest", "latest", "none")
OnError = Callable[[str, BaseException | None], None]
OnStream = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class PublisherOptions:
    """How a publisher buffers and sends."""

    batch_records: int = 1000
    """Most records in one stored batch."""
    batch_bytes: int = 64_000
    """Most bytes in one stored batch; a larger record gets a batch of its own."""
    linger_s: float = 0.0
    """How long to wait for more records before a batch that is not full is sent."""
    buffer_records: int = 100_000
    """Most records that wait to be stored."""
    buffer_bytes: int = 64 << 20
    """Most bytes that wait to be stored."""
    when_full: str = "block"
    """What publish() does when the buffer is full: block, raise (BufferFull) or drop-oldest (their receipts fail)."""
    delivery_timeout_s: float = 30.0
    """A record not stored by then fails."""
    retry_s: float = 0.05
    """First pause before an append is tried again; doubles up to retry_max_s."""
    retry_max_s: float = 2.0
    """Longest pause between two tries."""
    pipeline: bool = False
    """Serialize in the background instead of in publish(). A value that can't be serialized then fails its receipt."""
    partitioner: str | None = None
    """The partitioner that the stream must have, and is made with; None takes the one in the stream's settings."""

    def __post_init__(self) -> None:
        if self.partitioner is not None and self.partitioner not in PARTITIONERS:
            reason = f"choose {' or '.join(PARTITIONERS)}"
            raise BadConfig(field="partitioner", value=self.partitioner, reason=reason)
        for name in ("batch_records", "batch_bytes", "buffer_records", "buffer_bytes"):
            arguments.integer(name, getattr(self, name), least=1, refuse=bad_setting)
        for name in ("linger_s", "delivery_timeout_s", "retry_s", "retry_max_s"):
            arguments.seconds(name, getattr(self, name), finite=name != "delivery_timeout_s", refuse=bad_setting)
        if self.when_full not in ("block", "raise", "drop-oldest"):
            raise BadConfig(field="when_full", value=self.when_full, reason="choose block, raise or drop-oldest")


@dataclass(frozen=True, kw_only=True, slots=True)
class SubscriberOptions:
    """How a subscriber reads."""

    max_records: int = 10_000
    """Most records of one poll."""
    max_bytes: int = 1 << 20
    """About how many stored bytes one poll takes."""
    on_gap: str = "auto"
    """When retention was faster: skip (the batch names the gap), fail (Trimmed is raised), or auto: fail in a group,
    skip alone."""
    stale_margin: float = 0.0
    """After a gap, keep this part of the capacity as a lead, so that a slow reader is not overtaken at once."""
    on_error: OnError | None = None
    """Gets errors of polling and of the background; without it, poll raises them."""
    on_gap_found: Callable[[Gap], None] | None = None
    """Gets every gap."""
    on_assigned: OnStream | None = None
    """A stream is this member's from now on."""
    on_revoked: OnStream | None = None
    """A stream moves to another member: called after the work at hand, before it is handed over."""
    on_lost: OnStream | None = None
    """A stream is gone already: what was read of it will be delivered to another member."""

    def __post_init__(self) -> None:
        if self.on_gap not in ("auto", "skip", "fail"):
            raise BadConfig(field="on_gap", value=self.on_gap, reason="choose auto, skip or fail")
        margin = self.stale_margin
        if isinstance(margin, bool) or not isinstance(margin, (int, float)) or not 0.0 <= margin < 1.0:
            raise BadConfig(field="stale_margin", value=margin, reason="it must be from 0 up to 1")
        for name in ("max_records", "max_bytes"):
            arguments.integer(name, getattr(self, name), least=1, refuse=bad_setting)
        for name in ("on_error", "on_gap_found", "on_assigned", "on_revoked", "on_lost"):
            if getattr(self, name) is not None:
                arguments.function(name, getattr(self, name), refuse=bad_setting)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupOptions:
    """How a group shares its streams. All members of a group should use the same."""

    lease_s: float = 1.0
    """A member not heard for so long loses its streams to the others."""
    beat_s: float = 0.2
    """How often a member says that it is alive."""
    confirm_s: float = 0.05
    """Confirmations are written at most so often; only the newest of each stream counts."""
    max_processing_s: float = 300.0
    """A member that did not poll for so long gives its streams up, if another member could take them."""
    revoke_s: float = 5.0
    """How long a stream that moves to another member may take to finish its work at hand."""

    def __post_init__(self) -> None:
        for name in ("lease_s", "beat_s"):
            arguments.seconds(name, getattr(self, name), above_zero=True, finite=True, refuse=bad_setting)
        arguments.seconds("max_processing_s", self.max_processing_s, above_zero=True, refuse=bad_setting)
        for name in ("confirm_s", "revoke_s"):
            arguments.seconds(name, getattr(self, name), finite=True, refuse=bad_setting)
        if self.beat_s * 2 > self.lease_s:
            raise BadConfig(field="beat_s", value=self.beat_s, reason="two beats must fit into one lease")


T = TypeVar("T")
Initial = Literal["auto", "earliest", "latest", "none"]
Confirm = Literal["handled", "periodic", "off"]


class PublisherSettings(TypedDict, total=False):
    """The fields of PublisherOptions as keyword arguments."""

    batch_records: int
    batch_bytes: int
    linger_s: float
    buffer_records: int
    buffer_bytes: int
    when_full: Literal["block", "raise", "drop-oldest"]
    delivery_timeout_s: float
    retry_s: float
    retry_max_s: float
    pipeline: bool
    partitioner: Literal["crc32", "murmur2"] | None


class SubscriberSettings(TypedDict, total=False):
    """The fields of SubscriberOptions as keyword arguments."""

    max_records: int
    max_bytes: int
    on_gap: Literal["auto", "skip", "fail"]
    stale_margin: float
    on_error: OnError | None
    on_gap_found: Callable[[Gap], None] | None
    on_assigned: OnStream | None
    on_revoked: OnStream | None
    on_lost: OnStream | None


class ReceiverSettings(TypedDict, total=False):
    """The options of Receiver as keyword arguments."""

    on_failure: OnFailure | None
    confirm: Confirm
    confirm_every_s: float
    workers: int
    prefetch: int


class StreamSettings(TypedDict, total=False):
    """The settings of a stream that can be altered; see StreamConfig."""

    capacity: int | None
    retain_bytes: int | None
    retain_age_s: float | None
    protect: bool
    protect_bytes: int
    max_record_bytes: int
    compression: Literal["none", "lz4", "zstd", "gzip", "snappy"]
    sync_replicas: int
    async_replicas: int


def check_options(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """BadConfig for an option that does not exist, with the one that was probably meant."""
    names = sorted(known)
    for name in given:
        if name in names:
            continue
        hint = ""
        if near := difflib.get_close_matches(name, names, n=1):
            hint = f"; did you mean {near[0]}?"
        elif name in GroupOptions.__dataclass_fields__:
            hint = f"; give {name} in group_options=GroupOptions(...)"
        reason = f"{what} has no such option{hint} (it has {', '.join(names)})"
        raise BadConfig(field=name, value="...", reason=reason)


def made(kind: type[T], what: str, given: dict[str, Any]) -> T:
    """Options from keywords."""
    check_options(what, given, kind.__dataclass_fields__)  # type: ignore[attr-defined]
    return kind(**given)
