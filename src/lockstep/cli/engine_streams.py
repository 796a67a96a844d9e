"""CSV lines to the input streams of a project, and events of its out streams as CSV lines."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from lockstep.cli import model_report as report
from lockstep.cli.connecting import bus_url, opened
from lockstep.cli.model_files import STANDARD, check_readable, check_writable, find_source, find_window, load_graph
from lockstep.cli.output import Output, plural
from lockstep.errors import StreamNotFound, UsageError
from lockstep.log.urls import without_secret

if TYPE_CHECKING:
    from lockstep.engine.events.columns import EventBatch
    from lockstep.engine.events.csv_options import CsvOutput
    from lockstep.engine.model.graph import Graph, Node
    from lockstep.engine.run.feeding import EventPublisher
    from lockstep.log.port import Bus, Log

_STDIN = Path("/dev/stdin")
_PIECES_A_SECOND = 20
_WAIT_S = 1.0


def publish(options: argparse.Namespace, output: Output) -> None:
    """Publish the events of a file."""
    from lockstep.engine.events.csvform import CsvOptions, read_csv
    from lockstep.engine.run.catalog import projects
    from lockstep.engine.run.feeding import EventPublisher
    from lockstep.engine.run.files import BadLines, open_input
    from lockstep.engine.run.streams import EVENT_STREAM, ProjectStreams

    graph = load_graph(options.model)
    node = _only_source(graph) if options.window is None else find_source(graph, options.window)
    path = _STDIN if options.file == STANDARD else Path(options.file)
    check_readable(path)
    csv = CsvOptions(
        header=options.csv_header,
        block_size=options.block,
        transactional=options.transactional,
        date_format=options.date_format,
    )
    stream = ProjectStreams(cluster=options.cluster, project=graph.project.name).input(node)
    bad, sent = BadLines(), Sent(output)
    with opened(bus_url(options), create=True) as client, open_input(path) as file:
        client.bus.create(stream, EVENT_STREAM)
        publisher = EventPublisher(client, stream, node.schema)
        try:
            for batch in read_csv(file, node.schema, csv, partial(bad.add, str(path)), chunk=_chunk(options.rate)):
                sent.send(publisher, batch, options)
        finally:
            publisher.close()
            sent.progress.end()
        known = projects(client.bus, options.cluster)
    if output.json:
        tree = report.bad_lines_tree(bad)
        output.json_line({"window": node.path, "stream": stream, "events": sent.events, "blocks": sent.blocks,
                          "bad_lines": tree, "stated": graph.project.name in known})  # fmt: skip
    else:
        report.show_bad_lines(output, bad)
        output.line(f"Published {plural(sent.events, 'event')} in {plural(sent.blocks, 'block')} to {stream}.")
    if graph.project.name not in known:
        warn_nobody_reads(output, graph.project.name, options.cluster, bus_url(options))
    report.check_some_taken(bad, sent.events)


def warn_nobody_reads(output: Output, project: str, cluster: str, url: str) -> None:
    """Events wait on a stream that no engine has read yet: often it is another bus that was meant."""
    where = f"{project} of cluster {cluster} on {without_secret(url)}"
    output.warn(f"No engine has run project {where} yet. The events wait there until one does: "
                "start it on this bus (--bus), or publish to the one that it uses.")  # fmt: skip


def _only_source(graph: Graph) -> Node:
    sources = [node for node in graph.nodes if node.is_source]
    if len(sources) != 1:
        known = ", ".join(node.path for node in sources)
        raise UsageError(reason=f"{graph.project.name} has several sources: say which with --window: {known}.")
    return sources[0]


def _chunk(rate: float | None) -> int:
    """Events to send at once: enough to be quick, or few enough to keep the rate even."""
    return 50_000 if rate is None else max(1, min(50_000, round(rate / _PIECES_A_SECOND)))


class Sent:
    """Sends batches at the rate that is wanted, and counts."""

    def __init__(self, output: Output) -> None:
        self.events = self.blocks = 0
        self.progress = output.progress("events")
        self._began = time.monotonic()

    def send(self, publisher: EventPublisher, batch: EventBatch, options: argparse.Namespace) -> None:
        """Send whole blocks."""
        if options.rate is not None:
            early = self._began + self.events / options.rate - time.monotonic()
            time.sleep(max(0.0, early))
        before = publisher.next_id
        publisher.publish_batch(batch, transactional=options.transactional)
        if options.rate is not None:
            publisher.flush()
        self.events, self.blocks = self.events + len(batch), self.blocks + publisher.next_id - before
        self.progress.add(len(batch))


def subscribe(options: argparse.Namespace, output: Output) -> None:
    """Print what came out of a window, and what follows."""
    from lockstep.engine.events.csv_options import CsvOutput
    from lockstep.engine.run.streams import ProjectStreams

    _check(options)
    graph = load_graph(options.model)
    node = find_window(graph, options.window)
    stream = ProjectStreams(cluster=options.cluster, project=graph.project.name).output(node)
    csv = CsvOutput(collapse=options.collapse, date_format=options.date_format)
    with opened(bus_url(options)) as client:
        log = _open(client.bus, stream)
        reader = OutReader(log, node, at=log.bounds().next if options.new else None)
        with _writer(options, output, node, csv) as write:
            for batch in _batches(client.bus, log, reader, follow=options.follow):
                write(batch)
    if options.out == STANDARD:
        return
    if output.json:
        output.json_line({"window": node.path, "stream": stream, "file": options.out, "events": reader.events})
    else:
        output.line(f"Wrote {plural(reader.events, 'event')} of {node.path} to {options.out}.")


def _check(options: argparse.Namespace) -> None:
    if options.new and not options.follow:
        raise UsageError(reason="--new without --follow would print nothing: add --follow.")
    if options.out != STANDARD:
        check_writable(Path(options.out))


def _open(bus: Bus, stream: str) -> Log:
    try:
        return bus.open(stream)
    except StreamNotFound as error:
        error.add_note("Windows are published if 'lockstep engine run' says so: see --publish there.")
        raise


class OutReader:
    """Reads an out stream block by block, each once; one that is missing is an error, never skipped."""

    def __init__(self, log: Log, node: Node, *, at: int | None) -> None:
        from lockstep.engine.run.feeding import OutFold, WholeBlocks

        self._log = log
        self._at = log.bounds().first if at is None else at
        self._blocks = WholeBlocks(OutFold(log.name, node.schema, 0 if self._at == 0 else None))
        self.events = 0

    def read(self) -> Iterator[EventBatch]:
        """What is there now and was not read yet."""
        from lockstep.engine.run.reading import values_between

        for offset, value in values_between(self._log, self._at, self._log.bounds().next):
            batch = self._blocks.take(offset, value)
            self._at = offset + 1
            self.events += len(batch)
            yield batch


def _batches(bus: Bus, log: Log, reader: OutReader, *, follow: bool) -> Iterator[EventBatch]:
    waiter = bus.waiter()
    try:
        waiter.watch(log)
        yield from reader.read()
        while follow:
            waiter.wait(_WAIT_S)
            yield from reader.read()
    finally:
        waiter.close()


Write = Callable[["EventBatch"], None]


@contextmanager
def _writer(options: argparse.Namespace, output: Output, node: Node, csv: CsvOutput) -> Iterator[Write]:
    """Writes batches: to a file as it grows with --follow, else to one that appears when it is complete."""
    from lockstep.engine.events.csvform import write_csv
    from lockstep.engine.events.jsonform import write_json

    if options.out != STANDARD:
        with _file(Path(options.out), grows=options.follow) as file:
            yield lambda batch: _written(file, batch, csv)
        return

    def show(batch: EventBatch) -> None:
        lines = BytesIO()
        if output.json:
            write_json(batch.events(), node.schema, lines, options.date_format)
        else:
            write_csv(batch, lines, csv)
        output.raw(lines.getvalue())
        output.flush()

    yield show


def _written(file: BinaryIO, batch: EventBatch, csv: CsvOutput) -> None:
    from lockstep.engine.events.csvform import write_csv

    write_csv(batch, file, csv)
    file.flush()


@contextmanager
def _file(path: Path, *, grows: bool) -> Iterator[BinaryIO]:
    from lockstep.engine.events.writing import new_file, unwritable

    with unwritable(path), path.open("wb") if grows else new_file(path) as file:
        yield file
