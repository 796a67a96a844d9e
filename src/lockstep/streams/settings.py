"""The keyword options of the client as types, for completion and type checkers.

Each is compared with the dataclass that holds the defaults (see options.py, config.py and receiver.py) by a test.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypedDict, TypeVar

from lockstep.errors import BadConfig
from lockstep.streams.handling import OnFailure
from lockstep.streams.options import GroupOptions, OnError, OnStream
from lockstep.streams.record import Gap

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
