"""Copying a stream, on its bus or to another, so that a second run goes on and nothing is copied twice.

A group on the source remembers how far it is. On one bus, the copies and the group's confirmation are written in one
step. To another bus, the position is written there in one step with the copies, and confirmed on the source after.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.cli.connection import bus_url, opened
from lockstep.cli.output import Output, plural
from lockstep.cli.stream_read import Limits, Reading
from lockstep.errors import GroupNotFound, UsageError
from lockstep.log.config import check_name
from lockstep.log.offsets import records_between
from lockstep.log.urls import split_url
from lockstep.streams.shards import check_stream

if TYPE_CHECKING:
    from lockstep.log.port import Log
    from lockstep.streams.client import Lockstep
    from lockstep.streams.record import Record
    from lockstep.streams.subscriber import Subscriber
    from lockstep.streams.transaction import Transaction


def copy(options: argparse.Namespace, output: Output) -> None:
    """Copy what was not copied yet."""
    source_url, target_url = bus_url(options), options.to_bus or bus_url(options)
    same = place(source_url) == place(target_url)
    group = _check(options, target_url, same_bus=same)
    with ExitStack() as stack:
        source = stack.enter_context(opened(source_url))
        logs = source.logs(options.source)
        todo = _todo(source, group, logs, options)
        if options.dry_run:
            _report(output, options, sum(todo.values()), group)
            return
        target = source if same else stack.enter_context(opened(target_url, create=True, lasting=True))
        check_other(logs, target, options.target)
        _prepare_target(source, target, group, options, output)
        if not sum(todo.values()) and not options.follow:
            _report(output, options, 0, group)
            return
        _set_start(source, group, logs, options)
        subscriber = stack.enter_context(source.subscriber(options.source, group=group, create=False))
        copier = Copier(subscriber, target, options.target, logs, same_bus=same)
        _run(copier, subscriber, source, logs, options, output, sum(todo.values()))
        _report(output, options, copier.copied, group)


def place(url: str) -> str:
    """Where a URL leads to, however it is spelled."""
    scheme, target, _ = split_url(url)
    return f"lmdb:{Path(target).expanduser().resolve()}" if scheme == "lmdb" else f"{scheme}:{target}"


def _check(options: argparse.Namespace, target_url: str, *, same_bus: bool) -> str:
    """The group, after refusing what can't be."""
    check_stream(options.source)
    check_name("Stream", options.target)
    if same_bus and options.source == options.target:
        raise UsageError(reason="Source and target are the same stream; give another name or --to-bus.")
    elsewhere = "" if same_bus else f".{zlib.crc32(place(target_url).encode()):08x}"
    return check_name("Group", options.group or f"copy.{options.target}{elsewhere}")


def check_other(logs: Sequence[Log], target: Lockstep, stream: str) -> None:
    """Refuse a target that is the source by another name of its server: with --follow it would feed itself."""
    if stream not in target.streams():
        return
    known = {log.identity for log in logs}
    if any(log.identity in known for log in target.logs(stream)):
        raise UsageError(reason=f"Source and target are the same stream: {target.url} is the same bus by another name.")


def _todo(source: Lockstep, group: str, logs: Sequence[Log], options: argparse.Namespace) -> dict[str, int]:
    """For each log, how many records lie between where it would begin and the end."""
    at = _positions(source, group)
    todo = {}
    for log in logs:
        bounds = log.bounds()
        begin = at[log.name] if log.name in at else source.groups.target(log.name, options.start)
        todo[log.name] = records_between(log, max(begin, bounds.first), bounds.next)
    return todo


def _positions(source: Lockstep, group: str) -> dict[str, int]:
    try:
        view = source.groups.describe(group)
    except GroupNotFound:
        return {}
    return {progress.stream: progress.next for progress in view.streams if progress.next is not None}


def _prepare_target(
    source: Lockstep, target: Lockstep, group: str, options: argparse.Namespace, output: Output
) -> None:
    if options.target in target.streams():
        return
    target.create(options.target, replace(source.config(options.source), history=None))
    output.note(f"Created stream {options.target} on {target.url}, with the settings of {options.source}.")
    done = sorted(set(_positions(source, group)) & {log.name for log in source.logs(options.source)})
    if done:
        output.warn(
            f"group {group} was here before and goes on where it ended; "
            f"'lockstep group delete {group}' lets the next run begin anew."
        )


def _set_start(source: Lockstep, group: str, logs: Sequence[Log], options: argparse.Namespace) -> None:
    """Have a group without a position begin where --from says."""
    from lockstep.streams.grouplog import GroupLog

    at = _positions(source, group)
    GroupLog(source.bus, group, source.runtime).close()
    for log in logs:
        if log.name not in at and options.start != "earliest":
            source.groups.reset(group, log.name, options.start, force=True)


def _run(
    copier: Copier,
    subscriber: Subscriber,
    source: Lockstep,
    logs: Sequence[Log],
    options: argparse.Namespace,
    output: Output,
    total: int,
) -> None:
    ends = None if options.follow else {log.name: log.bounds().next for log in logs}
    progress = output.progress("records", None if options.follow else total)
    try:
        for records in Reading(subscriber, Limits(ends=ends), source.runtime):
            copier.take(records)
            progress.add(len(records))
    finally:
        progress.end()
    copier.end()


class Copier:
    """Writes what a subscriber reads into another stream."""

    def __init__(
        self, subscriber: Subscriber, target: Lockstep, stream: str, logs: Sequence[Log], *, same_bus: bool
    ) -> None:
        self._subscriber, self._target, self._stream, self._same_bus = subscriber, target, stream, same_bus
        self._cells = {log.name: f"copy/{subscriber.group}/{log.name}@{log.identity}" for log in logs}
        self.copied = 0

    def take(self, records: Sequence[Record]) -> None:
        """Copy records of one log, all in one step."""
        if self._same_bus:
            with self._target.group_transaction(self._subscriber) as together:
                self._publish(together, records)
                together.confirm(records[-1])
            return
        cell = self._cells[records[0].stream]
        with self._target.transaction() as together:
            stored = together.get(cell)
            together.expect(cell, stored)  # a copier that was stopped and wakes up late must not write
            self._publish(together, [record for record in records if record.offset >= int(stored or b"0")])
            together.put(cell, b"%d" % (records[-1].offset + 1))
        self._subscriber.confirm(records[-1])

    def end(self) -> None:
        """Make sure that the group's position is stored."""
        if not self._same_bus:
            self._subscriber.flush_confirms()

    def _publish(self, together: Transaction, records: Sequence[Record]) -> None:
        for record in records:
            together.publish(
                self._stream, record.value, key=record.key, headers=record.headers, created_ns=record.created_ns
            )
        self.copied += len(records)


def _report(output: Output, options: argparse.Namespace, copied: int, group: str) -> None:
    if output.json:
        output.json_line(
            {
                "source": options.source,
                "target": options.target,
                "copied": copied,
                "group": group,
                "applied": not options.dry_run,
            }
        )
        return
    does = "Would copy" if options.dry_run else "Copied"
    where = f" on {options.to_bus}" if options.to_bus else ""
    output.line(f"{does} {plural(copied, 'record')} from {options.source} to {options.target}{where}.")
