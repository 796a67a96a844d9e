"""What comes out of a window, to a file or a socket."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.cli.adapter import ALL, NEW, SNAPSHOT, model_of, project_of
from lockstep.cli.adapter_ends import Outlet, ResumedFile, SocketOutlet, Stopping, connected, is_socket
from lockstep.cli.connection import bus_url, opened
from lockstep.cli.model_files import STANDARD, check_writable, find_window
from lockstep.cli.output import Output, plural
from lockstep.errors import Conflict, UsageError

if TYPE_CHECKING:
    from lockstep.engine.events.schema import Schema
    from lockstep.events.connection import ProjectEvents
    from lockstep.events.subscriber import Block, Subscription

_GATHER_BLOCKS, _GATHER_EVENTS = 1000, 50_000
_LOOK_S = 0.2
_SAVE_S = 0.2
"""Positions are saved at most so often, and at the end."""


def subscribe(options: argparse.Namespace, output: Output) -> int:
    """Write what comes out of a window until the end that the options set, or a signal."""
    model = model_of(options)
    _check(options)
    options.type = options.type or ("json" if output.json and options.out == STANDARD else "csv")
    if model is not None:
        find_window(model, options.window)
    with Stopping().watching() as stopping, opened(bus_url(options)) as client:
        project = project_of(options, client, model)
        project.output(find_window(project.graph, options.window).path)  # or an error, before any file is made
        progress = output.progress("events", beside_data=options.out == STANDARD)
        with _outlet(options, output, stopping) as outlet:
            file = outlet if isinstance(outlet, ResumedFile) else None
            with _subscription(project, options, file) as subscription:
                writer = _Writer(options, subscription, outlet, file)
                try:
                    for block in _blocks(subscription, options, stopping, writer):
                        writer.take(block)
                        progress.add(len(block.batch))
                finally:
                    progress.end()
                    writer.finish()
        _tell(options, output, subscription, writer, file)
    return stopping.code


def _check(options: argparse.Namespace) -> None:
    if options.begin == NEW and exits(options):
        raise UsageError(reason="--new would write nothing and exit: add --follow, or begin with --all.")
    is_path = options.out != STANDARD and not is_socket(options.out)
    if is_path:
        check_writable(Path(options.out))
    if options.resume and not is_path:
        raise UsageError(reason="--resume needs a file: -o FILE.")
    if options.resume and options.overwrite:
        raise UsageError(reason="--resume goes on with a file, and --overwrite empties it: choose one.")
    if is_path and not (options.resume or options.overwrite or exits(options)):
        _check_empty(Path(options.out))


def _check_empty(path: Path) -> None:
    """Refuse to begin a file that grows where another one is, which would be lost at once."""
    if path.is_file() and path.stat().st_size:
        ways = "add --overwrite to write it anew, --resume to go on with one that was begun so, or name another file"
        raise Conflict(reason=f"{path} is there and not empty: {ways}.")


def exits(options: argparse.Namespace) -> bool:
    """Whether to end when everything that is published now is written."""
    if options.exit is not None:
        return bool(options.exit)
    has_end = (options.until_block, options.idle, options.count) != (None, None, None)
    return bool(options.exits_by_default) and not has_end


@contextmanager
def _outlet(options: argparse.Namespace, output: Output, stopping: Stopping) -> Iterator[Outlet]:
    if options.out == STANDARD:
        yield _Standard(output)
    elif is_socket(options.out):
        with connected(options.out, lambda: None, stopping, lambda at: _listening(output, at)) as link:
            far = SocketOutlet(link, options.out)
            yield far
            far.close()
    elif options.resume:
        names = ("window", "type", "collapse", "rmretdel", "header", "delimiter", "date_format", "cluster")
        file = ResumedFile(Path(options.out), {name: getattr(options, name) for name in names})
        try:
            yield file
        finally:
            file.close()
    else:
        with _plain(Path(options.out), whole=exits(options)) as outlet:
            yield outlet


@contextmanager
def _plain(path: Path, *, whole: bool) -> Iterator[Outlet]:
    """A file that grows, or one that appears when it is `whole`."""
    from lockstep.engine.events.atomic_files import new_file, unwritable

    with unwritable(path), new_file(path) if whole else path.open("wb") as file:
        yield _File(file.write, file.flush)


def _listening(output: Output, address: str) -> None:
    if output.json:
        output.json_line({"event": "listening", "address": address})
        output.flush()
    output.note(f"Listening on {address}.")


@dataclass(frozen=True, slots=True)
class _File:
    put: Callable[[bytes], int]
    flush: Callable[[], None]

    def write(self, data: bytes) -> None:
        self.put(data)
        self.flush()


@dataclass(frozen=True, slots=True)
class _Standard:
    output: Output

    def write(self, data: bytes) -> None:
        self.output.raw(data)
        self.output.flush()


def _subscription(project: ProjectEvents, options: argparse.Namespace, file: ResumedFile | None) -> Subscription:
    return project.subscribe(
        options.window,
        after=None if file is None else file.position,
        snapshot=options.begin == SNAPSHOT,
        collapse=options.collapse,
        rmretdel=options.rmretdel,
        begin="start" if options.begin == ALL else "now",
    )


class _Writer:
    """Buffers blocks and writes them in the requested format."""

    def __init__(
        self, options: argparse.Namespace, subscription: Subscription, outlet: Outlet, file: ResumedFile | None
    ) -> None:
        self.events = self.blocks = self.last = 0
        self._outlet, self._file = outlet, file
        self._form = _form(options, subscription.node.schema)
        self._waiting: list[Block] = []
        self._gathered = 0
        self._is_broken = False
        self._position = subscription.position
        self._saved_at = time.monotonic()
        if file is not None and not file.is_resumed:
            # What a snapshot held is not known any more after a crash: it is taken anew, and so is its file.
            file.save(None if options.begin == SNAPSHOT else self._position)
        if file is None or not file.size:
            self._put(_header(options, subscription.node.schema))

    def take(self, block: Block) -> None:
        """Have a block written soon."""
        self._waiting.append(block)
        self._gathered += len(block.batch)
        self.events, self.blocks, self.last = self.events + len(block.batch), self.blocks + 1, block.number
        if len(self._waiting) >= _GATHER_BLOCKS or self._gathered >= _GATHER_EVENTS:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered."""
        if self._waiting:
            self._put(self._form(self._waiting))
            self._position = self._waiting[-1].position
            self._waiting, self._gathered = [], 0
            if time.monotonic() - self._saved_at >= _SAVE_S:
                self._save()

    def finish(self) -> None:
        """Write the rest, and say how far it is; where writing failed, what is known to be written stays so."""
        if not self._is_broken:
            self.flush()
            self._save()

    def _put(self, data: bytes) -> None:
        if data:
            self._is_broken = True  # until it is written whole
            self._outlet.write(data)
            self._is_broken = False

    def _save(self) -> None:
        if self._file is not None:
            self._file.save(self._position)
            self._saved_at = time.monotonic()


def _header(options: argparse.Namespace, schema: Schema) -> bytes:
    from lockstep.engine.events.csv_format import CsvOutput, header_line

    if options.type != "csv":
        return b""
    return header_line(schema, CsvOutput(header=options.header, delimiter=options.delimiter))


def _form(options: argparse.Namespace, schema: Schema) -> Callable[[Sequence[Block]], bytes]:
    from lockstep.engine.events.columns import concat
    from lockstep.engine.events.csv_format import CsvOutput, write_csv
    from lockstep.engine.events.json_format import write_json
    from lockstep.events.rows import frame_with_length

    csv = CsvOutput(delimiter=options.delimiter, date_format=options.date_format)

    def as_csv(blocks: Sequence[Block]) -> bytes:
        lines = BytesIO()
        write_csv(concat([block.batch for block in blocks]), lines, csv)
        return lines.getvalue()

    def as_json(blocks: Sequence[Block]) -> bytes:
        lines = BytesIO()
        for block in blocks:
            write_json(block.events(), schema, lines, options.date_format)
        return lines.getvalue()

    def as_frames(blocks: Sequence[Block]) -> bytes:
        return b"".join(frame_with_length(block.batch) for block in blocks if len(block.batch))

    return {"csv": as_csv, "json": as_json, "binary": as_frames}[options.type]


def _blocks(
    subscription: Subscription, options: argparse.Namespace, stopping: Stopping, writer: _Writer
) -> Iterator[Block]:
    """Yield the requested blocks; buffered output is written whenever no more input is available."""
    heard_at = time.monotonic()
    while not stopping:
        block = subscription.next_block(timeout=0)
        if block is None:
            writer.flush()
            if _is_over(subscription, options, time.monotonic() - heard_at):
                return
            block = subscription.next_block(timeout=_LOOK_S)
        if block is None:
            continue
        heard_at = time.monotonic()
        if options.until_block is not None and block.number > options.until_block and not block.is_snapshot:
            return
        yield block
        if options.until_block == block.number or writer.events >= (options.count or float("inf")):
            return


def _is_over(subscription: Subscription, options: argparse.Namespace, idle_s: float) -> bool:
    if exits(options) and subscription.is_at_end():
        return True
    if options.idle is not None and idle_s >= options.idle:
        return True
    return options.until_block is not None and subscription.is_published(options.until_block)


def _tell(
    options: argparse.Namespace, output: Output, subscription: Subscription, writer: _Writer, file: ResumedFile | None
) -> None:
    if options.out == STANDARD:
        return
    node = subscription.node
    if output.json:
        output.json_line({"event": "done", "window": node.path, "stream": subscription.stream, "file": options.out,
                          "events": writer.events, "blocks": writer.blocks, "last": writer.last,
                          "resumed": file is not None and file.is_resumed})  # fmt: skip
        return
    output.line(f"Wrote {plural(writer.events, 'event')} of {node.path} to {options.out}.")
