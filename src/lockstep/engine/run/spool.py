"""The spool: what workers computed, in files, until it is published. A file appears whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import msgpack

from lockstep.errors import LockstepError

_SUFFIX, _FAILURE = ".spool", "failure.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class SpoolPart:
    """The output of blocks `first` to `last` of one shard.

    The frames of a window that is divided over shards carry places; the others are ready to be published.
    """

    first: int
    last: int
    position: Mapping[str, Any]
    """How far the inputs were read for `last`, as plain values."""
    frames: Mapping[str, Sequence[bytes | memoryview]]
    bad: list[Any] = field(default_factory=list)
    notices: list[Any] = field(default_factory=list)
    counts: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    """How long it took to compute."""


def _part(data: bytes) -> SpoolPart:
    """A part as it was written: the size of the head, the head, and the frames, which are not copied."""
    view, at = memoryview(data), 8 + int.from_bytes(data[:8], "little")
    fields = msgpack.unpackb(view[8:at], strict_map_key=False)
    frames: dict[str, list[memoryview]] = {}
    for path, sizes in fields["frames"].items():
        frames[path] = []
        for size in sizes:
            frames[path].append(view[at : at + size])
            at += size
    return SpoolPart(**{**fields, "frames": frames})


class Spool:
    """One folder of parts: written by a worker, taken away by a publisher."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, part: SpoolPart) -> None:
        """Add a part; one that covers the same blocks is replaced by its equal."""
        final = self.folder / f"{part.first:020d}-{part.last:020d}{_SUFFIX}"
        temporary = final.with_suffix(".tmp")
        sizes = {path: [len(frame) for frame in frames] for path, frames in part.frames.items()}
        fields = {name: getattr(part, name) for name in SpoolPart.__dataclass_fields__} | {"frames": sizes}
        head = msgpack.packb(fields)
        try:
            with temporary.open("wb", buffering=0) as file:
                file.writelines([len(head).to_bytes(8, "little"), head, *chain.from_iterable(part.frames.values())])
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        temporary.replace(final)

    def has(self, block: int) -> bool:
        """Whether the part that holds a block is there yet."""
        return any(first <= block <= last for _, first, last in self._files())

    def remove_before(self, block: int) -> None:
        """Remove parts that end before a block: they are published."""
        for path, _, last in self._files():
            if last < block:
                path.unlink()

    def part_with(self, block: int) -> SpoolPart | None:
        """The part that holds a block, if it is there yet; parts that end before it are removed."""
        for path, first, last in self._files():
            if last < block:
                path.unlink()
            elif first <= block:
                return _part(path.read_bytes())
        return None

    def fail(self, error: LockstepError) -> None:
        """Leave word of what stopped the worker."""
        told = {"code": error.code, "params": {name: str(value) for name, value in error.params.items()}}
        temporary = self.folder / "failure.tmp"
        temporary.write_text(json.dumps(told))
        temporary.replace(self.folder / _FAILURE)

    def failure(self) -> LockstepError | None:
        """What stopped the worker, as it was raised there."""
        path = self.folder / _FAILURE
        if not path.exists():
            return None
        told = json.loads(path.read_text())
        kinds = {kind.code: kind for kind in all_errors(LockstepError)}
        return kinds[told["code"]](**told["params"])

    def waiting(self) -> int:
        """How many parts wait."""
        return len(self._files())

    def _files(self) -> list[tuple[Path, int, int]]:
        found = []
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            first, _, last = path.stem.partition("-")
            found.append((path, int(first), int(last)))
        return found


def all_errors(kind: type[LockstepError]) -> list[type[LockstepError]]:
    """A kind of error and everything below it."""
    return [kind, *(found for child in kind.__subclasses__() for found in all_errors(child))]
