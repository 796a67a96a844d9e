"""Printing records: the last ones, those of a time, and those to come."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from lockstep.cli.connecting import bus_url, opened
from lockstep.cli.formats import as_json, compile_format
from lockstep.cli.output import Output
from lockstep.cli.reading import Limits, Reading
from lockstep.errors import BadArgument, BadOffset, UsageError
from lockstep.log.config import check_name
from lockstep.log.offsets import step_back
from lockstep.streams.shards import check_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lockstep.log.port import Log
    from lockstep.streams.record import Gap, Record
    from lockstep.streams.subscriber import Subscriber

LAST_DEFAULT = 10


def tail(options: argparse.Namespace, output: Output) -> None:
    """Print records until the end that was asked for, or Ctrl-C."""
    render = _renderer(options, output)
    _check(options)
    with opened(bus_url(options)) as client:
        logs = client.logs(options.name)
        limits = Limits(
            ends={log.name: log.bounds().next for log in logs} if options.exit else None,
            until_ns=options.until,
            records_max=options.max,
        )
        with client.subscriber(
            options.name,
            group=options.group,
            initial="earliest",
            create=False,
            on_gap_found=lambda gap: output.warn(_gap(gap)),
        ) as subscriber:
            if options.group is None:
                _place(subscriber, logs, options, output)
            for records in Reading(subscriber, limits, client.runtime):
                output.raw(b"".join(map(render, records)))
                output.flush()
                if options.group is not None:  # only what was handed over is confirmed
                    subscriber.confirm(records[-1])
            if options.group is not None:
                subscriber.flush_confirms()


def _renderer(options: argparse.Namespace, output: Output) -> Callable[[Record], bytes]:
    if output.json:
        if options.format is not None:
            raise UsageError(reason="--json and --format do not go together.")
        return lambda record: json.dumps(as_json(record), ensure_ascii=False).encode() + b"\n"
    if options.format is None:
        return lambda record: bytes(record.value) + b"\n"
    try:
        return compile_format(options.format)
    except ValueError as error:
        raise BadArgument(name="--format", value=options.format, reason=str(error)) from error


def _check(options: argparse.Namespace) -> None:
    check_stream(options.name)
    if options.exit and options.follow:
        raise UsageError(reason="--exit and --follow do not go together.")
    if options.group is None:
        return
    check_name("Group", options.group)
    if options.last is not None or options.offset is not None or options.since is not None:
        reason = "A group knows where to begin: leave out -n, -o and --since, or move it with 'lockstep group reset'."
        raise UsageError(reason=reason)


def _place(subscriber: Subscriber, logs: Sequence[Log], options: argparse.Namespace, output: Output) -> None:
    """Set the first record to print, on each shard if there are several."""
    for log in logs:
        bounds = log.bounds()
        if options.since is not None:
            subscriber.seek_to_time(options.since, stream=log.name)
        elif options.offset is not None:
            if options.offset > bounds.next:
                reason = f"the readable ones are {bounds.first} to {bounds.next - 1}, and {bounds.next} is the next"
                raise BadOffset(offset=options.offset, stream=log.name, reason=reason)
            if options.offset < bounds.first:
                output.warn(f"{log.name} begins at offset {bounds.first}; what was before it is trimmed.")
            subscriber.seek(max(options.offset, bounds.first), stream=log.name)
        elif not options.from_start:
            last = LAST_DEFAULT if options.last is None else options.last
            subscriber.seek(step_back(log, bounds.next, last, bounds.first), stream=log.name)


def _gap(gap: Gap) -> str:
    return f"offsets {gap.first} to {gap.resumed - 1} of {gap.stream} were trimmed before they were read."
