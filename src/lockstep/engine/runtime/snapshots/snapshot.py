"""Snapshots: the head that says what the pages are pages of, in a versioned and checked form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgpack
from google_crc32c import value as crc32c

from lockstep.engine.errors import ModelMismatch, SnapshotDamaged
from lockstep.engine.runtime.sequence.position import Position
from lockstep.errors import FormatTooNew

VERSION = 5
OLDEST = 3
"""Older ones are refused. What is of this version or a later one is read, and stored again as it changes."""
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
        "marks": _mark_trees(head.marks),
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
    if tree["version"] < OLDEST:
        raise SnapshotDamaged(place=place, reason=f"it is of version {tree['version']}, which is too old")
    if fingerprint is not None and tree["fingerprint"] != fingerprint:
        raise ModelMismatch(place=place, found=tree["fingerprint"], wanted=fingerprint)
    marks = _marks_of(tree["marks"])
    position, publish = Position.of(tree["position"]), tuple(tree["publish"])
    last_out = {path: (block, digest) for path, (block, digest) in tree["last_out"].items()}
    return Head(tree["fingerprint"], position, marks, last_out, tree["model"], publish, tree["past"])


_SENDERS = ("clients", "producers")
"""Of a mark only those that sent since the mark before: thousands are known, and there are thousands of marks."""


def _mark_trees(marks: Sequence[Position]) -> list[dict[str, Any]]:
    before, trees = Position(), []
    for mark in marks:
        changed = {name: _since(getattr(before, name), getattr(mark, name)) for name in _SENDERS}
        trees.append({**mark.tree(), **changed})
        before = mark
    return trees


def _marks_of(trees: Sequence[Mapping[str, Any]]) -> tuple[Position, ...]:
    marks: list[Position] = []
    before = Position()
    for tree in trees:
        senders = {name: _senders(getattr(before, name), tree[name]) for name in _SENDERS if name in tree}
        before = Position.of({**tree, **senders})
        marks.append(before)
    return tuple(marks)


def _since(before: Mapping[str, int], now: Mapping[str, int]) -> tuple[int, dict[str, int]]:
    """How many stand first that stood there before, in this order, and those after them."""
    earlier, kept = iter(before.items()), 0
    for each in now.items():
        if each not in earlier:  # which looks on from where it was
            break
        kept += 1
    found = kept, dict(islice(now.items(), kept, None))
    return found if list(_senders(before, found).items()) == list(now.items()) else (0, dict(now))


def _senders(before: Mapping[str, int], told: Mapping[str, int] | Sequence[Any]) -> dict[str, int]:
    """All senders of a mark: who was silent for longest is forgotten first. Earlier versions wrote all of them."""
    if isinstance(told, Mapping):
        return dict(told)
    kept, changed = told
    rest = [each for each in before.items() if each[0] not in changed]
    return {**dict(rest[len(rest) - kept :]), **changed}
