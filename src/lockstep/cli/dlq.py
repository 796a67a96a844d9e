"""Dead letters: why they are there, and sending them back."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lockstep.cli.connection import bus_url, opened
from lockstep.cli.formats import bytes_json
from lockstep.cli.output import Output, confirm, plural
from lockstep.cli.values import iso
from lockstep.errors import GroupNotFound, NotFound, StreamNotFound, UsageError
from lockstep.log.offsets import records_between
from lockstep.streams.shards import split_log

if TYPE_CHECKING:
    from lockstep.log.port import Log
    from lockstep.streams.client import Lockstep
    from lockstep.streams.deadletters import DeadLetter

_REASON_SHOWN = 80


def ls(options: argparse.Namespace, output: Output) -> None:
    """List dead-letter streams, or the letters of one."""
    with opened(bus_url(options)) as client:
        if options.name is None:
            if options.shard is not None:
                raise UsageError(reason="--shard needs a STREAM.")
            _list_streams(client, output)
            return
        stream = dead_letter_stream(client, options.name)
        if stream is None:
            output.note(f"Stream {options.name} has no dead letters.")
        else:
            _list_letters(client, output, stream, options.shard)


def redrive(options: argparse.Namespace, output: Output) -> None:
    """Send dead letters back."""
    from lockstep.streams import deadletters

    with opened(bus_url(options)) as client:
        stream = dead_letter_stream(client, options.name)
        waiting = 0 if stream is None else _waiting(client, stream)
        count = waiting if options.limit is None else min(waiting, options.limit)
        if stream is not None and count and not options.dry_run:
            confirm(options, options.name, f"publish {plural(count, 'dead letter')} of {stream} again")
            count = deadletters.redrive(client, stream, limit=count)
    if output.json:
        output.json_line({"stream": stream or options.name, "redriven": count, "applied": not options.dry_run})
        return
    does = "Would send back" if options.dry_run else "Sent back"
    output.line(f"{does} {plural(count, 'dead letter')} of {stream or options.name}.")


def show(options: argparse.Namespace, output: Output) -> None:
    """Print one dead letter whole."""
    from lockstep.streams.deadletters import dead_letters

    with opened(bus_url(options)) as client:
        stream = _needed(client, options.name)
        names = {log.name for log in _logs(client, stream, options.shard)}
        sent = _redriven_up_to(client, stream)
        found = [item for item in dead_letters(client, stream)
                 if item.record.offset == options.offset and item.record.stream in names]  # fmt: skip
    letter = _only(found, stream, options.offset)
    row = {
        **_letter(letter, sent),
        "headers": {name: value.decode(errors="replace") for name, value in letter.record.headers},
    }
    if output.json:
        output.json_line(row)
        return
    headers = row.pop("headers")
    output.facts({name.replace("_", " "): value for name, value in row.items()})
    output.heading("headers")
    output.facts(headers)


def drop(options: argparse.Namespace, output: Output) -> None:
    """Remove dead letters."""
    with opened(bus_url(options)) as client:
        stream = _needed(client, options.name)
        logs = _logs(client, stream, options.shard)
        if len(logs) > 1 and not options.all:
            reason = f"{stream} has {len(logs)} shards, each with offsets of its own: add --shard N to --before."
            raise UsageError(reason=reason)
        plan = [(log, _cut(log, options)) for log in logs]
        count = sum(records_between(log, log.bounds().first, cut) for log, cut in plan)
        if count and not options.dry_run:
            confirm(options, options.name, f"remove {plural(count, 'dead letter')} of {stream}, for good")
            for log, cut in plan:
                log.trim(cut)
    if output.json:
        output.json_line({"stream": stream, "dropped": count, "applied": not options.dry_run})
        return
    output.line(f"{'Would remove' if options.dry_run else 'Removed'} {plural(count, 'dead letter')} of {stream}.")


def _logs(client: Lockstep, stream: str, shard: int | None) -> list[Log]:
    """The log of one shard, or all of them; NotFound for a shard that the stream has not."""
    logs = client.logs(stream)
    chosen = [log for log in logs if shard in (None, split_log(log.name)[1] or 0)]
    if not chosen:
        error = NotFound(what=f"In {stream} shard", name=shard)
        error.add_note(f"There are {len(logs)}, from 0 on." if len(logs) > 1 else "It has no shards.")
        raise error
    return chosen


def _only(found: Sequence[DeadLetter], stream: str, offset: int) -> DeadLetter:
    """The letter that is meant."""
    if not found:
        raise NotFound(what=f"In {stream} dead letter", name=offset)
    if len(found) > 1:
        shards = ", ".join(str(split_log(letter.record.stream)[1]) for letter in found)
        raise UsageError(reason=f"Offset {offset} of {stream} is in the shards {shards}: add --shard N.")
    return found[0]


def _cut(log: Log, options: argparse.Namespace) -> int:
    bounds = log.bounds()
    return bounds.next if options.all else max(bounds.first, min(options.before, bounds.next))


def _needed(client: Lockstep, name: str) -> str:
    stream = dead_letter_stream(client, name)
    if stream is None:
        raise NotFound(what="A dead-letter stream of", name=name)
    return stream


def dead_letter_stream(client: Lockstep, name: str) -> str | None:
    """The dead-letter stream that is meant by its own name or by that of its stream; None if that has none."""
    from lockstep.streams.deadletters import SUFFIX

    known = client.streams()
    if f"{name}{SUFFIX}" in known:
        return f"{name}{SUFFIX}"
    if name in known and name.endswith(SUFFIX):
        return name
    if name not in known:
        raise StreamNotFound(name=name, bus=client.url)
    return name if _first_is_a_letter(client, name) else None


def _first_is_a_letter(client: Lockstep, name: str) -> bool:
    with client.subscriber(name, initial="earliest", create=False) as subscriber:
        batch = subscriber.poll(0.0, max_records=1)
    return bool(batch) and batch.first().header("dlq-stream") is not None


def _redriven_up_to(client: Lockstep, stream: str) -> dict[str, int]:
    """For each log of a dead-letter stream, the first offset that was not sent back yet."""
    from lockstep.streams.deadletters import REDRIVE_GROUP

    try:
        view = client.groups.describe(f"{REDRIVE_GROUP}.{stream}")
    except GroupNotFound:
        return {}
    return {progress.stream: progress.next or 0 for progress in view.streams}


def _waiting(client: Lockstep, stream: str) -> int:
    sent = _redriven_up_to(client, stream)
    waiting = 0
    for log in client.logs(stream):
        bounds = log.bounds()
        waiting += records_between(log, max(bounds.first, sent.get(log.name, 0)), bounds.next)
    return waiting


def _readable(log: Log) -> int:
    bounds = log.bounds()
    return records_between(log, bounds.first, bounds.next)


def _list_streams(client: Lockstep, output: Output) -> None:
    from lockstep.streams.deadletters import dead_letter_streams

    rows: list[dict[str, Any]] = []
    for name in dead_letter_streams(client):
        letters = sum(_readable(log) for log in client.logs(name))
        rows.append({"name": name, "letters": letters, "waiting": _waiting(client, name)})
    if output.json:
        for row in rows:
            output.json_line(row)
        return
    if not rows:
        output.note("There are no dead-letter streams.")
        return
    names = ("name", "letters", "waiting")
    output.table(names, [[row[name] for name in names] for row in rows])


def _list_letters(client: Lockstep, output: Output, stream: str, shard: int | None) -> None:
    from lockstep.streams.deadletters import dead_letters

    names = {log.name for log in _logs(client, stream, shard)}
    sent = _redriven_up_to(client, stream)
    rows = [_letter(letter, sent) for letter in dead_letters(client, stream) if letter.record.stream in names]
    if output.json:
        for row in rows:
            output.json_line(row)
        return
    if not rows:
        output.note(f"There are no dead letters in {stream}.")
        return
    has_shards = any(row["shard"] is not None for row in rows)
    cells = [
        [
            *([row["shard"]] if has_shards else []),
            row["offset"],
            f"{row['stream']}:{row['stream_offset']}",
            row["group"] or None,
            row["attempts"],
            "yes" if row["redriven"] else "no",
            row["reason"][:_REASON_SHOWN],
        ]
        for row in rows
    ]
    head = ["shard"] if has_shards else []
    output.table([*head, "offset", "came from", "group", "attempts", "sent back", "reason"], cells)


def _letter(letter: DeadLetter, sent: dict[str, int]) -> dict[str, Any]:
    record = letter.record
    stream, shard = split_log(record.stream)
    return {
        "dlq": stream,
        "shard": shard,
        "offset": record.offset,
        "stream": letter.stream,
        "stream_offset": letter.offset,
        "group": letter.group,
        "attempts": letter.attempts,
        "reason": letter.reason,
        "redriven": record.offset < sent.get(record.stream, 0),
        **bytes_json("key", record.key),
        **bytes_json("value", record.value),
        "appended": iso(record.appended_ns),
    }
