"""Printing records: the last ones, those of a time, and those to come, until an end."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lockstep.cli.connection import bus_url, opened
from lockstep.cli.formats import as_json, compile_format
from lockstep.cli.output import Output
from lockstep.errors import BadArgument, BadOffset, TimedOut, UsageError
from lockstep.log.config import check_name
from lockstep.log.offsets import step_back
from lockstep.streams.shards import check_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lockstep.log.port import Log
    from lockstep.runtime import Runtime
    from lockstep.streams.record import Gap, Record, RecordBatch
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


JOIN_S = 15.0
_POLL_S = 1.0
_JOINING_POLL_S = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """When to stop; without any limit, never."""

    ends: Mapping[str, int] | None = None
    """For each log, the offset before which to stop."""
    until_ns: int | None = None
    """Stop before the first record appended at or after this time."""
    records_max: int | None = None


class Reading:
    """Lists of records, never empty, up to the limits."""

    def __init__(self, subscriber: Subscriber, limits: Limits, runtime: Runtime) -> None:
        self._subscriber, self._limits, self._runtime = subscriber, limits, runtime
        self._finished: set[str] = set()
        self._left = limits.records_max
        self._join_by = runtime.monotonic() + JOIN_S

    def __iter__(self) -> Iterator[list[Record]]:
        while self._left != 0:
            self._leave_finished()
            if self._is_over():
                return
            batch = self._subscriber.poll(self._wait_s(), max_records=self._left)
            if not batch:
                if self._limits.until_ns is not None and self._runtime.wall_ns() >= self._limits.until_ns:
                    return
                continue
            records = self._within(batch)
            if len(records) < len(batch):
                self._finish(batch.stream)
            if records:
                if self._left is not None:
                    self._left -= len(records)
                yield records

    def _within(self, batch: RecordBatch) -> list[Record]:
        end = None if self._limits.ends is None else self._limits.ends[batch.stream]
        until = self._limits.until_ns
        return [
            record
            for record in batch
            if (end is None or record.offset < end) and (until is None or record.appended_ns < until)
        ]

    def _leave_finished(self) -> None:
        for log, end in (self._limits.ends or {}).items():
            position = self._subscriber.offset(log)
            if position is not None and position >= end:
                self._finish(log)

    def _finish(self, log: str) -> None:
        self._finished.add(log)
        self._subscriber.pause(log)

    def _is_over(self) -> bool:
        """Whether all that may be read is read. In a group, others may have some of the shards."""
        # First what has no owner, then what is ours: in the other order a shard that is won in between is in neither.
        is_shared_out, assigned = not self._subscriber.unowned, self._subscriber.assigned
        has_time = self._runtime.monotonic() < self._join_by
        if not assigned and self._limits.ends is not None and not has_time:
            raise TimedOut(what=f"Waiting for another member of group {self._subscriber.group!r}", seconds=JOIN_S)
        if not is_shared_out and has_time:  # who comes first gets its shards one after the other
            return False
        return bool(assigned) and self._finished.issuperset(assigned)

    def _wait_s(self) -> float:
        if not self._subscriber.is_assigned:
            return _JOINING_POLL_S
        if self._limits.ends is not None:
            return 0.0
        if self._limits.until_ns is None:
            return _POLL_S
        return min(max((self._limits.until_ns - self._runtime.wall_ns()) / 1e9, 0.0), _POLL_S)
