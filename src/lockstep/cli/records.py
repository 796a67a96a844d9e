"""Records from arguments, lines and JSON, before they are published."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from lockstep.cli.times import parse_time_ns
from lockstep.errors import UsageError

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
    """A value so many times, {n} in it being 1, 2, 3 and so on."""
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
