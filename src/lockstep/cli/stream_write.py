"""Publishing records from arguments, lines, JSON, a file or stdin."""

from __future__ import annotations

import argparse
import base64
import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from lockstep.cli.connection import bus_url, opened
from lockstep.cli.output import Output
from lockstep.cli.values import parse_time_ns
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


_CHUNK_BYTES = 1 << 16
_HEADER_BYTES = 6  # what the stream's limit counts for each header besides its name and value
_FIELDS = ("value", "value_base64", "key", "key_base64", "headers", "created")
_IGNORED = ("stream", "shard", "offset", "appended")

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to be published."""

    value: bytes
    key: bytes | None = None
    headers: Headers = ()
    created_ns: int | None = None

    @property
    def size(self) -> int:
        """As the stream's limit counts it."""
        headers = sum(len(name) + len(value) + _HEADER_BYTES for name, value in self.headers)
        return len(self.value) + len(self.key or b"") + headers


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """How a piece of input becomes a record."""

    key: bytes | None = None
    separator: bytes | None = None
    headers: Headers = ()
    is_json: bool = False

    def records(self, pieces: Iterable[bytes], what: str = "Record") -> Iterator[NewRecord]:
        """A record for each piece; UsageError names the piece that is none, counting from 1."""
        for number, piece in enumerate(pieces, 1):
            if self.is_json and not piece.strip():
                continue
            try:
                yield self.record(piece)
            except ValueError as error:
                raise UsageError(reason=f"{what} {number} is not a record: {error}.") from error

    def record(self, piece: bytes) -> NewRecord:
        """One record. ValueError says what is wrong."""
        if self.is_json:
            made = from_json(piece)
            key = self.key if made.key is None else made.key
            return NewRecord(made.value, key, (*self.headers, *made.headers), made.created_ns)
        if self.separator is None:
            return NewRecord(piece, self.key, self.headers)
        key, found, value = piece.partition(self.separator)
        if not found:
            message = f"it has no key separator {self.separator.decode()!r}"
            raise ValueError(message)
        return NewRecord(value, key, self.headers)


def pieces(source: BinaryIO, end: bytes) -> Iterator[bytes]:
    """What stands between line ends, or NUL bytes; the last one need not have one. As soon as it is there."""
    if end == b"\n":
        for line in source:
            yield line.removesuffix(b"\n")
        return
    rest = b""
    read = getattr(source, "read1", source.read)
    while chunk := read(_CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(end)
        yield from whole
    if rest:
        yield rest


def repeated(template: str, count: int) -> Iterator[bytes]:
    """Yield a value `count` times, with {n} replaced by 1, 2, 3 and so on."""
    return (template.replace("{n}", str(number)).encode() for number in range(1, count + 1))


def from_json(line: bytes) -> NewRecord:
    """A record from {"value", "key", "headers", "created"}; what `tail --json` adds is ignored."""
    try:
        given = json.loads(line)
    except ValueError as error:
        message = f"it is no JSON ({error})"
        raise ValueError(message) from error
    if not isinstance(given, dict):
        message = "it is no JSON object"
        raise ValueError(message)
    for name in given:
        if name not in _FIELDS and name not in _IGNORED:
            message = f"it has {name!r}; there are {', '.join(_FIELDS)}"
            raise ValueError(message)
    value = _bytes(given, "value")
    if value is None:
        message = "it has no value"
        raise ValueError(message)
    created = given.get("created")
    return NewRecord(value, _bytes(given, "key"), _headers(given.get("headers")), _created(created))


def _created(created: Any) -> int | None:
    if created is None:
        return None
    return parse_time_ns(str(created), 0)


def _headers(given: Any) -> Headers:
    """From {name: value} or a list of {"name", "value"}."""
    if given is None:
        return ()
    listed = [{"name": name, "value": value} for name, value in given.items()] if isinstance(given, dict) else given
    if not isinstance(listed, list) or not all(isinstance(item, dict) and "name" in item for item in listed):
        message = 'its headers are neither {name: value} nor a list of {"name", "value"}'
        raise ValueError(message)
    return tuple((_text("header name", item["name"]), _bytes(item, "value") or b"") for item in listed)


def _bytes(given: dict[str, Any], name: str) -> bytes | None:
    encoded = given.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(_text(name, encoded), validate=True)
        except ValueError as error:
            message = f"its {name}_base64 is not base64"
            raise ValueError(message) from error
    plain = given.get(name)
    return None if plain is None else _text(name, plain).encode()


def _text(name: str, given: Any) -> str:
    if not isinstance(given, str):
        message = f"its {name} is not a text"
        raise ValueError(message)
    return given
