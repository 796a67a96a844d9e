"""Streams and groups as plain data: what --json prints and tables are made of. Shapes are tested and stay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lockstep.errors import LockstepError
from lockstep.log.offsets import records_between
from lockstep.streams.shards import split_log

if TYPE_CHECKING:
    from lockstep.streams.admin import GroupView, StreamProgress
    from lockstep.streams.client import Lockstep


def group_views(client: Lockstep) -> list[GroupView]:
    """All groups that can be read; one deleted meanwhile is left out."""
    found = []
    for name in client.groups.names():
        try:
            found.append(client.groups.describe(name))
        except LockstepError as error:
            if error.code != "GROUP_NOT_FOUND":
                raise
    return found


def heard_views(client: Lockstep, found: list[GroupView]) -> list[GroupView]:
    """The views of groups; where members seem silent by the clocks of hosts, after listening to them."""
    from lockstep.streams.admin import listen

    return listen(client.bus, client.runtime, found) if any(group.silent for group in found) else found


def bounds(client: Lockstep, name: str) -> list[dict[str, Any]]:
    """What can be read of a stream, for each of its shards."""
    found = []
    for log in client.logs(name):
        readable = log.bounds()
        shard = split_log(log.name)[1]
        records = records_between(log, readable.first, readable.next)
        found.append({"shard": shard, "first": readable.first, "next": readable.next, "records": records})
    return found


def stream_row(client: Lockstep, name: str, groups: Iterable[GroupView] | None) -> dict[str, Any]:
    """A stream in a list. `first` and `next` are None for a stream with shards: each has its own.

    `groups` is None where they were not asked for: to know who reads a stream, the log of every group has to be read.
    """
    shards = bounds(client, name)
    alone = shards[0] if len(shards) == 1 else {"first": None, "next": None}
    return {
        "name": name,
        "records": sum(shard["records"] for shard in shards),
        "first": alone["first"],
        "next": alone["next"],
        "shards": len(shards),
        "groups": None if groups is None else [group.name for group in groups if reads(group, name)],
    }


def reads(group: GroupView, stream: str) -> bool:
    """Whether a group has a position on a stream."""
    return any(stream in (progress.stream, split_log(progress.stream)[0]) for progress in group.streams)


def stream_detail(client: Lockstep, name: str) -> dict[str, Any]:
    """Everything about one stream."""
    config = client.config(name)
    return {
        "name": name,
        "config": config.to_dict(),
        "bounds": bounds(client, name),
        "promises": promises(client),
        "groups": [
            {"group": group.name, **progress_row(progress)}
            for group in group_views(client)
            for progress in group.streams
            if name in (progress.stream, split_log(progress.stream)[0])
        ],
    }


def promises(client: Lockstep) -> dict[str, Any]:
    """What the bus keeps."""
    return {**asdict(client.promises), "retention": list(client.promises.retention)}


def progress_row(progress: StreamProgress) -> dict[str, Any]:
    """How far a group is on one stream or shard."""
    stream, shard = split_log(progress.stream)
    return {
        "stream": stream,
        "shard": shard,
        "owner": progress.owner,
        "epoch": progress.epoch,
        "confirmed": progress.confirmed,
        "next": progress.next,
        "end": progress.end,
        "lag": progress.lag,
        "lag_s": round(progress.lag_s, 3),
    }


def group_row(group: GroupView) -> dict[str, Any]:
    """A group in a list."""
    return {
        "name": group.name,
        "members": len(group.members),
        "silent": len(group.silent),
        "streams": sorted({split_log(progress.stream)[0] for progress in group.streams}),
        "lag": sum(progress.lag for progress in group.streams),
    }


def group_detail(group: GroupView) -> dict[str, Any]:
    """Everything about one group."""
    return {
        "name": group.name,
        "members": [
            {
                "member": member,
                "streams": sorted({split_log(log)[0] for log in logs}),
                "silent": member in group.silent,
            }
            for member, logs in group.members.items()
        ],
        "streams": [progress_row(progress) for progress in group.streams],
    }


def setting(value: object) -> str:
    """A setting as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "none" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
