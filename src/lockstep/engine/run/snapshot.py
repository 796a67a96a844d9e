"""Snapshots: the head that says what the pages are pages of, in a versioned and checked form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgpack
from google_crc32c import value as crc32c

from lockstep.engine.errors import ModelMismatch, SnapshotDamaged
from lockstep.engine.run.position import Position
from lockstep.errors import FormatTooNew

VERSION = 3
HEAD = "head"
Pages = Mapping[str, bytes | None]
"""Pages by name; None removes one."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a snapshot belongs to and where it was taken."""

    fingerprint: str
    position: Position
    marks: tuple[Position, ...]
    last_out: Mapping[str, tuple[int, str]]
    """The last block of each published window, with its digest."""
    model: str = ""
    """The model that the state is of, as YAML, and below the windows whose blocks it publishes."""
    publish: tuple[str, ...] = ()
    past: Mapping[str, Any] | None = None
    """How to read what it was made of again, as plain values."""


_CHECKSUM_BYTES = 4


def seal(body: bytes) -> bytes:
    """A page with its checksum."""
    checksum: int = crc32c(body)
    return checksum.to_bytes(_CHECKSUM_BYTES, "little") + body


def unseal(page: bytes, place: str) -> bytes:
    """The content of a page that is whole."""
    body = page[_CHECKSUM_BYTES:]
    if len(page) < _CHECKSUM_BYTES or crc32c(body) != int.from_bytes(page[:_CHECKSUM_BYTES], "little"):
        raise SnapshotDamaged(place=place, reason="its checksum does not match")
    return body


def encode_head(head: Head) -> bytes:
    """The head as a page."""
    tree = {
        "version": VERSION,
        "fingerprint": head.fingerprint,
        "position": head.position.tree(),
        "marks": [mark.tree() for mark in head.marks],
        "last_out": dict(head.last_out),
        "model": head.model,
        "publish": list(head.publish),
        "past": head.past,
    }
    return seal(msgpack.packb(tree))


def decode_head(page: bytes, fingerprint: str | None, place: str) -> Head:
    """The head of a snapshot, refused if it is of another form, or of another model if one is named."""
    tree: dict[str, Any] = msgpack.unpackb(unseal(page, place), strict_map_key=False)
    if tree["version"] > VERSION:
        raise FormatTooNew(what=f"The snapshot {place}", found=tree["version"], known=VERSION)
    if tree["version"] < VERSION:
        raise SnapshotDamaged(place=place, reason=f"it is of version {tree['version']}, which is too old")
    if fingerprint is not None and tree["fingerprint"] != fingerprint:
        raise ModelMismatch(place=place, found=tree["fingerprint"], wanted=fingerprint)
    marks = tuple(Position.of(mark) for mark in tree["marks"])
    position, publish = Position.of(tree["position"]), tuple(tree["publish"])
    last_out = {path: (block, digest) for path, (block, digest) in tree["last_out"].items()}
    return Head(tree["fingerprint"], position, marks, last_out, tree["model"], publish, tree["past"])
