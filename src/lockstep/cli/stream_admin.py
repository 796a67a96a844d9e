"""Making streams, looking at them, and taking them away."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lockstep.cli.connection import bus_url, label, opened
from lockstep.cli.output import Output, confirm, plural
from lockstep.cli.values import span
from lockstep.errors import BadOffset, StreamExists, UsageError
from lockstep.log.config import StreamConfig, check_name
from lockstep.log.offsets import records_between, step_back
from lockstep.streams import views
from lockstep.streams.shards import split_log, stream_name

if TYPE_CHECKING:
    from lockstep.log.port import Log
    from lockstep.streams.client import Lockstep

_SETTINGS = ("capacity", "retain_bytes", "compression", "shards", "max_record_bytes", "history", "sync_replicas")


def create(options: argparse.Namespace, output: Output) -> None:
    """Make a stream."""
    check_name("Stream", options.name)
    config = config_from(options)
    with opened(bus_url(options), create=True, lasting=True) as client:
        exists = options.name in client.streams()
        if exists and options.new:
            raise StreamExists(name=options.name)
        if exists and config is not None:
            client.config(options.name).check_same(options.name, config)  # 'stream alter' is the way to change it
        stored = client.config(options.name) if exists and config is None else client.create(options.name, config)
        _report_created(client, output, options.name, stored, created=not exists)


def config_from(options: argparse.Namespace) -> StreamConfig | None:
    """The settings given by options and file, checked; None if there are none."""
    given = {
        name: getattr(options, name)
        for name in _SETTINGS
        if hasattr(options, name) and (name == "capacity" or getattr(options, name) is not None)
    }
    if options.retain_age is not None:
        given["retain_age_s"] = options.retain_age
    if options.protect:
        given["protect"] = True
    if options.history is not None:
        from lockstep.log.urls import split_url

        split_url(options.history)
    if options.config is None and not given:
        return None
    if options.config is None:
        return StreamConfig(**given)
    return replace(StreamConfig.from_file(options.config), **given)


_ALTERABLE = (
    "capacity", "retain_bytes", "retain_age_s", "protect", "protect_bytes", "compression", "max_record_bytes",
    "shards", "history",
)  # fmt: skip


def alter(options: argparse.Namespace, output: Output) -> None:
    """Change settings of a stream."""
    changes = {name: getattr(options, name) for name in _ALTERABLE if hasattr(options, name)}
    if not changes:
        raise UsageError(reason="Name at least one setting to change, for example --retain-age 30d.")
    with opened(bus_url(options)) as client:
        before = client.config(options.name)
        after = before.altered(options.name, changes)
        if not options.dry_run:
            if _keeps_less(before, after):
                action = f"have stream {options.name} keep less, so that records may go: {_kept(after)}"
                confirm(options, options.name, action)
            after = client.alter(options.name, **{name: getattr(after, name) for name in changes})
    if output.json:
        line = {"name": options.name, "applied": not options.dry_run, "config": after.to_dict()}
        output.json_line({**line, "changed": before.differences(after)})
        return
    output.line(f"{'Would alter' if options.dry_run else 'Altered'} stream {options.name}: {_kept(after)}.")


def _keeps_less(before: StreamConfig, after: StreamConfig) -> bool:
    """Whether records that are kept now may go."""
    limits = ("capacity", "retain_bytes", "retain_age_s")
    pairs = [(getattr(before, name), getattr(after, name)) for name in limits]
    return (before.protect and not after.protect) or any(
        new is not None and (old is None or new < old) for old, new in pairs
    )


def _report_created(client: Lockstep, output: Output, name: str, config: StreamConfig, *, created: bool) -> None:
    promised = client.promises
    if output.json:
        copies = {
            "sync": promised.sync_replicas,
            "async": promised.async_replicas,
            "sync_wanted": config.sync_replicas,
        }
        output.json_line({"name": name, "created": created, "config": config.to_dict(), "copies": copies})
        return
    if created:
        output.line(f"Created stream {name} on {client.url}: {_kept(config)}.")
    else:
        output.line(f"Stream {name} exists already on {client.url}: {_kept(config)}.")
    have, wanted = promised.sync_replicas, config.sync_replicas
    if wanted > have:
        output.warn(
            f"the stream wants {_copies(wanted)} before a record counts as stored; the bus writes {have or 'none'}. "
            f"Add one with --bus '{client.url}?replica=FOLDER', or create the stream with --sync-replicas {have}."
        )
    elif have:
        output.note(f"The bus writes {_copies(have)} before a record counts as stored.")
    else:
        output.note("The bus keeps one copy: the folder itself.")


def _copies(count: int) -> str:
    return f"{count} more {'copy' if count == 1 else 'copies'}"


def _kept(config: StreamConfig) -> str:
    kept = "keeps all records" if config.capacity is None else f"keeps the last {plural(config.capacity, 'record')}"
    parts = [kept]
    if config.retain_bytes is not None:
        parts.append(f"at most {config.retain_bytes:,} bytes")
    if config.retain_age_s is not None:
        parts.append(f"for {span(config.retain_age_s)}")
    if config.protect:
        parts.append("and what groups have not confirmed")
    if config.shards > 1:
        parts.append(f"in {config.shards} shards")
    return ", ".join(parts)


def ls(options: argparse.Namespace, output: Output) -> None:
    """List the streams."""
    with opened(bus_url(options)) as client:
        groups = views.group_views(client) if options.groups else None
        rows = [views.stream_row(client, name, groups) for name in client.streams()]
    if output.json:
        for row in rows:
            output.json_line(row)
        return
    if not rows:
        output.note("There are no streams. Make one with 'lockstep stream create NAME'.")
        return
    sharded = any(row["shards"] > 1 for row in rows)
    names = ["name", "records", "first", "next", *(["shards"] if sharded else [])]
    cells = [[row[name] for name in names] for row in rows]
    if options.groups:
        names.append("groups")
        cells = [[*line, ", ".join(row["groups"]) or None] for line, row in zip(cells, rows, strict=True)]
    output.table(names, cells)


def show(options: argparse.Namespace, output: Output) -> None:
    """Show a stream."""
    with opened(bus_url(options)) as client:
        detail = views.stream_detail(client, options.name)
    if output.json:
        output.json_line(detail)
        return
    output.facts({"stream": detail["name"], **_bounds_facts(detail["bounds"])})
    output.heading("settings")
    output.facts({name: views.setting(value) for name, value in detail["config"].items()})
    output.heading("the bus promises")
    output.facts({name: views.setting(value) for name, value in detail["promises"].items()})
    output.heading("groups")
    if not detail["groups"]:
        output.line("none")
        return
    names = ("owner", "confirmed", "next", "end", "lag")
    rows = [[row["group"], label(row), *(row[name] for name in names), span(row["lag_s"])] for row in detail["groups"]]
    output.table(["group", "stream", *names, "behind"], rows)


def _bounds_facts(shards: list[dict[str, Any]]) -> dict[str, str]:
    facts = {"records": f"{sum(shard['records'] for shard in shards):,}"}
    for shard in shards:
        label = "offsets" if shard["shard"] is None else f"shard {shard['shard']}"
        last = f"{shard['first']} to {shard['next'] - 1}" if shard["records"] else "none"
        facts[label] = f"{last}; the next record gets {shard['next']}"
    return facts


def trim(options: argparse.Namespace, output: Output) -> None:
    """Forget the oldest records."""
    with opened(bus_url(options)) as client:
        plan = [_trimmed(log, options) for log in client.logs(options.name)]
        removed = sum(part["removed"] for part in plan)
        if not options.dry_run and removed:
            _warn_of_lagging(client, output, options.name, plan)
            confirm(options, options.name, f"remove {plural(removed, 'record')} of stream {options.name}, for good")
            for log, part in zip(client.logs(options.name), plan, strict=True):
                log.trim(part["first"])
    if output.json:
        output.json_line({"stream": options.name, "removed": removed, "applied": not options.dry_run, "shards": plan})
        return
    does = "Would remove" if options.dry_run else "Removed"
    output.line(f"{does} {plural(removed, 'record')} of stream {options.name}.")
    for part in plan:
        where = label({**part, "stream": stream_name(options.name)})
        output.line(f"{where} begins at offset {part['first']} and ends before {part['next']}.")


def _trimmed(log: Log, options: argparse.Namespace) -> dict[str, Any]:
    bounds = log.bounds()
    if options.before is not None and options.before > bounds.next:
        raise BadOffset(offset=options.before, stream=log.name, reason=f"the stream ends at {bounds.next}")
    wanted = options.before if options.before is not None else step_back(log, bounds.next, options.keep, bounds.first)
    begin = max(bounds.first, wanted)
    removed = records_between(log, bounds.first, begin)
    return {"shard": split_log(log.name)[1], "first": begin, "next": bounds.next, "removed": removed}


def _warn_of_lagging(client: Lockstep, output: Output, name: str, plan: list[dict[str, Any]]) -> None:
    first = {part["shard"]: part["first"] for part in plan}
    for group in views.group_views(client):
        for progress in group.streams:
            stream, shard = split_log(progress.stream)
            if stream == stream_name(name) and shard in first and (progress.next or 0) < first[shard]:
                output.warn(f"group {group.name} has not confirmed offsets {progress.next or 0} to {first[shard] - 1}.")


def delete(options: argparse.Namespace, output: Output) -> None:
    """Remove a stream."""
    with opened(bus_url(options)) as client:
        row = views.stream_row(client, options.name, views.group_views(client))
        held = f"stream {options.name} with {plural(row['records'], 'record')}"
        if row["groups"]:
            output.note(f"Groups that read it: {', '.join(row['groups'])}.")
        if not options.dry_run:
            confirm(options, options.name, f"delete {held}, for good")
            client.delete(options.name)
    if output.json:
        output.json_line({"stream": options.name, "records": row["records"], "deleted": not options.dry_run})
        return
    output.line(f"{'Would delete' if options.dry_run else 'Deleted'} {held}.")
