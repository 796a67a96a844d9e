"""Events from a file or a socket to a source window, alone or standing in for others."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lockstep.cli import model_report as report
from lockstep.cli.adapter import model_of, project_of, source_of
from lockstep.cli.adapter_ends import LOOK_S, Inlet, Stopping, is_socket, opened_inlet
from lockstep.cli.connection import bus_url, opened
from lockstep.cli.model_files import STANDARD, check_readable
from lockstep.cli.output import Output, plural
from lockstep.errors import UsageError
from lockstep.log.urls import without_secret

if TYPE_CHECKING:
    from lockstep.engine.events.columns import EventBatch
    from lockstep.engine.events.csv_reader import BadLine
    from lockstep.engine.model.graph import Node
    from lockstep.events.connection import ProjectEvents
    from lockstep.events.failover import FailoverPublisher, RoleChange
    from lockstep.events.publisher import WindowPublisher

_CHUNK = 50_000
_PIECES_A_SECOND = 20


def publish(options: argparse.Namespace, output: Output) -> int:
    """Publish until the source ends or the command is stopped."""
    from lockstep.engine.runtime.sequence.model_statement import projects

    model = model_of(options)
    _check(options)
    if model is not None:
        source_of(model, options.window)  # or an error, before a bus is made
    with Stopping().watching() as stopping, opened(bus_url(options), create=model is not None) as client:
        project = project_of(options, client, model)
        node = source_of(project.graph, options.window)
        work = _Work(options, output, stopping)
        feed = _feed(project, node, options, output)
        try:
            for batch in work.batches(node, feed):
                work.send(feed, batch)
            if stopping:
                feed.stop()
            else:
                feed.finish(is_whole=not options.growing)
        finally:
            work.progress.end()
            feed.close()
        is_stated = project.name in projects(client.bus, options.cluster)
        work.tell(node, feed, {"stream": project.streams.input(node), "stated": is_stated})
        if not is_stated:
            _warn_nobody_reads(output, project.name, options.cluster, bus_url(options))
        if not stopping:
            report.check_some_taken(work.bad, feed.events)
    return stopping.code


def _check(options: argparse.Namespace) -> None:
    is_path = options.file != STANDARD and not is_socket(options.file)
    if is_path:
        check_readable(Path(options.file))
    if options.repeat > 1 and (not is_path or options.growing):
        raise UsageError(reason="--repeat needs a file that has an end.")
    if options.failover is not None and options.client is not None:
        raise UsageError(reason="--failover names the client after the group: leave out --client.")


def _warn_nobody_reads(output: Output, project: str, cluster: str, url: str) -> None:
    """Say that no engine has read the stream yet: often another bus was meant."""
    where = f"{project} of cluster {cluster} on {without_secret(url)}"
    output.warn(f"No engine has run project {where} yet. The events wait there until one does: "
                "start it on this bus (--bus), or publish to the bus that it uses.")  # fmt: skip


class Feed(Protocol):
    """Sends batches of whole blocks."""

    events: int
    blocks: int

    def send(self, batch: EventBatch) -> None:
        """Send the batch, or buffer it until it may be sent."""

    def rest(self) -> None:
        """Wait briefly; called while the source has nothing new."""

    def finish(self, *, is_whole: bool) -> None:
        """Return when everything given is on the stream; pass `is_whole=False` if more could have come."""

    def stop(self) -> None:
        """Stop: bring as much as possible onto the stream."""

    def close(self) -> None:
        """Close the publisher."""

    def tree(self) -> dict[str, Any]:
        """Return more fields for the report."""


def _feed(project: ProjectEvents, node: Node, options: argparse.Namespace, output: Output) -> Feed:
    if options.failover is None:
        wish = {"block": options.block, "transactional": options.transactional}
        if options.client is not None:
            wish |= {"client": options.client, "next_id": 1}  # the source is read from its start
        return PlainFeed(project.publisher(node.path, **wish))
    return _failover(project, node, options, output)


def _failover(project: ProjectEvents, node: Node, options: argparse.Namespace, output: Output) -> Feed:
    from lockstep.events.failover import FailoverPublisher
    from lockstep.streams.options import GroupOptions

    publisher = FailoverPublisher(
        project,
        node,
        options.failover,
        buffered=options.buffered,
        check_every=options.check_every,
        transactional=options.transactional,
        options=GroupOptions(lease_s=options.lease, beat_s=options.lease / 5),
        on_role=partial(say_role, output),
    )
    return FailoverFeed(publisher)


def say_role(output: Output, change: RoleChange) -> None:
    """Report the active publisher on stderr, or on stdout with --json."""
    if output.json:
        output.json_line({"event": "role", "role": change.role, "epoch": change.epoch, "last": change.last,
                          "current": change.built})  # fmt: skip
        output.flush()
        return
    if change.role == "active":
        output.note(f"Standby sending buffered messages, last message id = {change.last}, "
                    f"current message id = {change.built}")  # fmt: skip
    output.note(f"Hot failover state switched to {change.role}")


@dataclass(slots=True)
class PlainFeed:
    """Sends at once."""

    publisher: WindowPublisher
    events: int = 0
    blocks: int = 0

    def send(self, batch: EventBatch) -> None:
        """Publish the batch; what is still buffered is sent by `finish` or `stop`."""
        sent = self.publisher.publish_batch(batch)
        self.events, self.blocks = self.events + sent.events, self.blocks + sent.blocks

    def rest(self) -> None:
        """Sleep briefly."""
        time.sleep(LOOK_S)

    def finish(self, *, is_whole: bool) -> None:
        """Return when everything given is on the stream."""
        del is_whole  # nobody else reads it
        self.publisher.flush()

    def stop(self) -> None:
        """Return when everything given is on the stream."""
        self.publisher.flush()

    def close(self) -> None:
        """Close the publisher."""
        self.publisher.close()

    def tree(self) -> dict[str, Any]:
        """Return nothing: a plain publisher has no role."""
        return {}


@dataclass(slots=True)
class FailoverFeed:
    """Sends if it is active, keeps blocks until they are seen if it is not."""

    publisher: FailoverPublisher
    events: int = 0
    blocks: int = 0

    def send(self, batch: EventBatch) -> None:
        """Offer each block of the batch to the group, and send what may be sent now."""
        from lockstep.events.rows import single_blocks

        for block in single_blocks(batch):
            self.publisher.offer(block)
            self.events, self.blocks = self.events + len(block), self.blocks + 1
        self.publisher.pump()

    def rest(self) -> None:
        """Send what may be sent now, then wait briefly."""
        self.publisher.pump()
        self.publisher.wait()

    def finish(self, *, is_whole: bool) -> None:
        """Return when all blocks are on the stream, whichever publisher of the group sends them."""
        self.publisher.finish(is_whole=is_whole)

    def stop(self) -> None:
        """Stop taking part in the group, after trying to bring all blocks onto the stream."""
        self.publisher.stop()

    def close(self) -> None:
        """Close the publisher."""
        self.publisher.close()

    def tree(self) -> dict[str, Any]:
        """Return the role of this publisher, its group and the last block it saw on the stream."""
        role = "active" if self.publisher.is_active else "standby"
        return {"role": role, "group": self.publisher.name, "last": self.publisher.relay.seen}


@dataclass(slots=True)
class _Work:
    """One run of the command: its source, its rate and its reports."""

    options: argparse.Namespace
    output: Output
    stopping: Stopping
    bad: Any = None
    progress: Any = None
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        from lockstep.engine.runtime.files import BadLines

        self.bad = BadLines()
        self.progress = self.output.progress("events")

    def batches(self, node: Node, feed: Feed) -> Iterator[EventBatch]:
        """Yield whole blocks, repeating the file as often as asked, up to the limit of events."""
        from lockstep.events.rows import limited

        def all_rounds() -> Iterator[EventBatch]:
            for _ in range(self.options.repeat):
                if not self.stopping:
                    yield from self._round(node, feed)

        return filter(self._is_wanted, limited(all_rounds(), self.options.max_events))

    def _is_wanted(self, batch: EventBatch) -> bool:
        """A block that others might still fill must not be sent by one of a group: they would make another of it."""
        is_open = self.options.growing or bool(self.stopping)
        return self.options.failover is None or not is_open or len(batch) >= self.options.block

    def _round(self, node: Node, feed: Feed) -> Iterator[EventBatch]:
        options = self.options
        inlet = opened_inlet(options.file, grows=options.growing, idle_s=options.idle, rest=feed.rest,
                             stopping=self.stopping, say=self._listening)  # fmt: skip
        with inlet as source:
            yield from read_blocks(source, node, options, partial(self.bad.add, options.file))

    def _listening(self, address: str) -> None:
        if self.output.json:
            self.output.json_line({"event": "listening", "address": address})
            self.output.flush()
        self.output.note(f"Listening on {address}.")

    def send(self, feed: Feed, batch: EventBatch) -> None:
        """Send at the requested rate."""
        rate = self.options.rate
        while rate is not None and self.began + feed.events / rate > time.monotonic() and not self.stopping:
            feed.rest()
        feed.send(batch)
        self.progress.add(len(batch))

    def tell(self, node: Node, feed: Feed, more: dict[str, Any]) -> None:
        """Print the summary; `more` is for programs."""
        output, options = self.output, self.options
        if output.json:
            output.json_line({"event": "done", "window": node.path, "events": feed.events, "blocks": feed.blocks,
                              "bad_lines": report.bad_lines_tree(self.bad), **more, **feed.tree()})  # fmt: skip
            return
        if options.ignore_parse_errors and self.bad.total:
            output.note(f"{plural(self.bad.total, 'line')} left out.")
        elif self.bad.total:
            report.show_bad_lines(output, self.bad)
        said = f"{plural(feed.events, 'event')} in {plural(feed.blocks, 'block')}"
        output.line(f"Published {said} to {node.path}." if not feed.tree() else f"Read {said}; all are on the stream.")


def read_blocks(
    source: Inlet, node: Node, options: argparse.Namespace, on_bad: Callable[[BadLine], None]
) -> Iterator[EventBatch]:
    """The blocks of a source, in batches: large ones unless latency matters."""
    from typing import cast

    from lockstep.engine.events.csv_format import CsvOptions, read_csv
    from lockstep.events.rows import JsonForm, read_frames, read_json_blocks

    file: Any = cast("Any", source)
    if options.type == "json":
        form = JsonForm(options.block, options.transactional, options.date_format)
        return read_json_blocks(file, node.schema, form, on_bad)
    if options.type == "binary":
        return read_frames(file, node.schema, options.file)
    csv = CsvOptions(
        header=options.header,
        add_opcode=options.add_opcode,
        add_flags=options.add_flags,
        upsert=options.upsert,
        no_autogen_field=options.no_key,
        delimiter=options.delimiter,
        date_format=options.date_format,
        block_size=options.block,
        transactional=options.transactional,
    )
    return read_csv(file, node.schema, csv, on_bad, chunk=_chunk(options))


def _chunk(options: argparse.Namespace) -> int | None:
    """Events to send at once: many from a file, few to keep a rate even, what is there if more is still to come.

    Adapters of a failover group, and those of a file that grows, make block after block.
    """
    if options.growing or options.failover:
        return 1
    if options.file == STANDARD or is_socket(options.file):
        return None if options.rate is None else 1
    return _CHUNK if options.rate is None else max(1, min(_CHUNK, round(options.rate / _PIECES_A_SECOND)))
