"""Publishing records from arguments, a file or stdin."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from lockstep.cli.connecting import bus_url, opened
from lockstep.cli.output import Output
from lockstep.cli.records import NewRecord, Shape, pieces, repeated
from lockstep.errors import BadArgument, RecordTooLarge, StreamNotFound, UsageError, from_os_error
from lockstep.log.config import StreamConfig, check_name
from lockstep.streams.shards import split_log

if TYPE_CHECKING:
    from lockstep.streams.client import Lockstep
    from lockstep.streams.publisher import Publisher

_STDIN = "-"


def publish(options: argparse.Namespace, output: Output) -> None:
    """Publish records and print their offsets."""
    check_name("Stream", options.name)
    shape = _shape(options)
    largest = _check_ahead(options, shape)
    with _input(options) as given, _opened(options) as client:
        _prepare(client, options, output, largest)
        with client.publisher(options.name, create=False) as publisher:
            sending = Sending(publisher, output)
            sending.run(paced(shape.records(given, _what(options)), options.rate))


def _opened(options: argparse.Namespace) -> AbstractContextManager[Lockstep]:
    return opened(bus_url(options), create=not options.no_create, lasting=True)


def _shape(options: argparse.Namespace) -> Shape:
    """Refuse what does not go together, before anything is opened."""
    _refuse(options.json_lines and options.key_separator is not None, "--json-lines", "--key-separator")
    _refuse(options.key is not None and options.key_separator is not None, "--key", "--key-separator")
    _refuse(bool(options.values) and options.file is not None, "VALUE", "--file")
    _refuse(options.null and options.json_lines, "--null", "--json-lines")
    if options.key_separator == "":
        raise BadArgument(name="--key-separator", value="", reason="it must not be empty")
    if options.count is not None and len(options.values) != 1:
        raise UsageError(reason="--count needs exactly one VALUE to repeat, for example 'order {n}'.")
    return Shape(
        key=None if options.key is None else options.key.encode(),
        separator=None if options.key_separator is None else options.key_separator.encode(),
        headers=tuple(options.headers),
        is_json=options.json_lines,
    )


def _refuse(both: bool, one: str, other: str) -> None:
    if both:
        raise UsageError(reason=f"{one} and {other} do not go together.")


def _check_ahead(options: argparse.Namespace, shape: Shape) -> int:
    """Look at everything that can be looked at twice, so that a bad record keeps all out. The largest size."""
    if _from_stdin(options):
        return 0
    with _input(options) as given:
        return max((record.size for record in shape.records(given, _what(options))), default=0)


def _from_stdin(options: argparse.Namespace) -> bool:
    return not options.values and options.file in (None, _STDIN)


def _what(options: argparse.Namespace) -> str:
    return "Value" if options.values else "Record" if options.null else "Line"


@contextmanager
def _input(options: argparse.Namespace) -> Iterator[Iterable[bytes]]:
    if options.count is not None:
        yield repeated(options.values[0], options.count)
    elif options.values:
        yield [value.encode(errors="surrogateescape") for value in options.values]
    elif _from_stdin(options):
        yield pieces(_stdin(), _end(options))
    else:
        try:
            source = Path(options.file).open("rb")  # noqa: SIM115 - closed below; only opening it is guarded
        except OSError as error:
            raise from_os_error(error, options.file) from error
        with source:
            yield pieces(source, _end(options))


def _stdin() -> BinaryIO:
    if sys.stdin.isatty():
        sys.stderr.write("Type one record a line; end with Ctrl-D.\n")
    return sys.stdin.buffer


def _end(options: argparse.Namespace) -> bytes:
    return b"\0" if options.null else b"\n"


def _prepare(client: Lockstep, options: argparse.Namespace, output: Output, largest: int) -> None:
    """Make the stream if it is missing, unless a record would not fit."""
    exists = options.name in client.streams()
    if not exists and options.no_create:
        raise StreamNotFound(name=options.name, bus=client.url)
    limit = client.config(options.name).max_record_bytes if exists else StreamConfig().max_record_bytes
    if largest > limit:
        raise RecordTooLarge(size=largest, stream=options.name, limit=limit)
    if not exists:
        client.create(options.name)
        output.note(f"Created stream {options.name} on {client.url}.")


def paced(records: Iterable[NewRecord], rate: float | None) -> Iterator[NewRecord]:
    """At most `rate` records a second."""
    if rate is None:
        yield from records
        return
    started = time.monotonic()
    for number, record in enumerate(records):
        early = started + number / rate - time.monotonic()
        if early > 0:
            time.sleep(early)
        yield record


class Sending:
    """Publishes, and prints each offset as soon as it is known. A reader of the offsets who goes away stops nothing."""

    def __init__(self, publisher: Publisher, output: Output) -> None:
        self._publisher, self._output = publisher, output
        self._prints = not output.quiet
        self._lock = threading.Lock()
        self._asked = self._known = 0
        self._error: BaseException | None = None
        self._progress = output.progress("records", beside_data=True)

    def run(self, records: Iterable[NewRecord]) -> None:
        """Publish all; raises the first error, after everything queued before it is stored."""
        try:
            for record in records:
                if self._error is not None:
                    break
                self._asked += 1
                receipt = self._publisher.publish(
                    record.value, key=record.key, headers=record.headers, created_ns=record.created_ns
                )
                receipt.add_done_callback(partial(self._done, receipt.log))
        finally:
            self._publisher.flush()
            self._progress.end()
            self._print_safely(b"", flush=True)
        if self._error is not None:
            raise self._error

    def _done(self, log: str, offset: int | None, error: BaseException | None) -> None:
        """Called from the publisher's thread."""
        with self._lock:
            self._known += 1
            if offset is None:
                self._error = self._error or error
                return
            if self._prints:
                self._print_offset(log, offset)
            self._progress.add(1)

    def _print_offset(self, log: str, offset: int) -> None:
        stream, shard = split_log(log)
        if self._output.json:
            import json

            text = json.dumps({"stream": stream, "shard": shard, "offset": offset})
        else:
            text = str(offset) if shard is None else f"{shard}:{offset}"
        self._print_safely(text.encode() + b"\n", flush=self._known == self._asked)

    def _print_safely(self, data: bytes, *, flush: bool) -> None:
        try:
            self._output.raw(data)
            if flush:
                self._output.flush()
        except BrokenPipeError:
            self._prints = False
