"""The spool: what workers computed, in files, until it is published. A file appears whole or not at all.

A file is the size of its head (8 bytes), the head, the frames, and the CRC-32C of all that (4 bytes). What fails its
checksum is computed again, and never published.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from io import RawIOBase
from itertools import chain
from pathlib import Path
from typing import Any

import msgpack
from google_crc32c import extend
from google_crc32c import value as crc32c

from lockstep.core.outputs import Lineage
from lockstep.engine.errors import BufferDamaged
from lockstep.engine.events.frame_layout import RESIDUE
from lockstep.errors import LockstepError
from lockstep.log.inotify import IN_MOVED_TO, FileWaiter

_SUFFIX, _FAILURE, _PROGRESS = ".spool", "failure.json", "progress.msgpack"
_SIZE, _SUM = 8, 4
UNKNOWN = (-1, "")
"""What a worker that replayed in silence knows of the last block of a window: nothing."""


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
    lineage: Lineage = ()
    """The digests of the sequence for the blocks from `first` on."""
    before: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """For each window its last block before `first`, with its digest; UNKNOWN if the worker can't say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerProgress:
    """How far a worker is: what it has computed, published or not."""

    number: int = 0
    block: int = 0
    events: int = 0
    seconds: float = 0.0
    """Spent on windows since it began."""
    counts: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class SpoolFill:
    """What waits in a spool."""

    first: int
    last: int
    files: int
    size: int

    @property
    def blocks(self) -> int:
        """How many blocks, at most."""
        return self.last - self.first + 1 if self.files else 0


def _part(data: bytes, path: Path) -> SpoolPart:
    """A part as it was written; its frames are not copied. BufferDamaged if it is not whole."""
    if len(data) < _SIZE + _SUM or crc32c(data) != RESIDUE:
        raise BufferDamaged(place=path, reason=f"its {len(data)} bytes fail their checksum")
    view, at = memoryview(data), _SIZE + int.from_bytes(data[:_SIZE], "little")
    fields = msgpack.unpackb(view[_SIZE:at], strict_map_key=False)
    frames: dict[str, list[memoryview]] = {}
    for window, sizes in fields["frames"].items():
        frames[window] = []
        for size in sizes:
            frames[window].append(view[at : at + size])
            at += size
    lineage = tuple((block, digest) for block, digest in fields["lineage"])
    before = {window: (block, digest) for window, (block, digest) in fields["before"].items()}
    return SpoolPart(**{**fields, "frames": frames, "lineage": lineage, "before": before})


def checksum(chunks: Iterable[bytes | memoryview]) -> int:
    """The CRC-32C of chunks that follow each other."""
    found = 0
    for chunk in chunks:
        found = extend(found, bytes(chunk))  # bytes are not copied
    return found


def write_all(file: RawIOBase, chunks: Iterable[bytes | memoryview]) -> None:
    """Write every byte: a disk that is nearly full takes some, says how many, and fails only at the next write."""
    for chunk in chunks:
        left = memoryview(chunk)
        while left:
            written = file.write(left)
            if not written:
                raise OSError(errno.EIO, "nothing was written")
            left = left[written:]


class Spool:
    """One folder of parts: a worker writes them, a publisher removes them once they are published."""

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
        chunks = [len(head).to_bytes(_SIZE, "little") + head, *chain.from_iterable(part.frames.values())]
        try:
            with temporary.open("wb", buffering=0) as file:
                write_all(file, [*chunks, checksum(chunks).to_bytes(_SUM, "little")])
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
                path.unlink(missing_ok=True)

    def part_with(self, block: int) -> SpoolPart | None:
        """The part that holds a block, if it is there yet; parts that end before it are removed.

        BufferDamaged if its file is not what was written.
        """
        for path, first, last in self._files():
            if last < block:
                path.unlink()
            elif first <= block:
                return _part(path.read_bytes(), path)
        return None

    def fail(self, error: LockstepError) -> None:
        """Write down the error that stopped the worker."""
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

    def fill(self) -> SpoolFill:
        """How much waits; a part that goes away meanwhile counts as gone."""
        files = self._files()
        size = 0
        for path, _, _ in files:
            with suppress(FileNotFoundError):
                size += path.stat().st_size
        last = max((last for _, _, last in files), default=0)
        return SpoolFill(files[0][1] if files else 0, last, len(files), size)

    def note(self, progress: WorkerProgress) -> None:
        """Write down how far the worker is."""
        temporary = self.folder / "progress.tmp"
        temporary.write_bytes(msgpack.packb(asdict(progress)))
        temporary.replace(self.folder / _PROGRESS)

    def progress(self) -> WorkerProgress:
        """How far the worker is; empty if it has written nothing yet."""
        try:
            return WorkerProgress(**msgpack.unpackb((self.folder / _PROGRESS).read_bytes(), strict_map_key=False))
        except FileNotFoundError:
            return WorkerProgress()

    def _files(self) -> list[tuple[Path, int, int]]:
        found = []
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            first, _, last = path.stem.partition("-")
            found.append((path, int(first), int(last)))
        return found


def all_errors(kind: type[LockstepError]) -> list[type[LockstepError]]:
    """A kind of error and everything below it."""
    return [kind, *(found for child in kind.__subclasses__() for found in all_errors(child))]


class SpoolWaiter(FileWaiter):
    """A waiter that ends when a worker of this machine leaves a part in one of the folders: parts appear by a rename.

    `is_told` is false where the kernel tells nothing; then the one who waits has to look.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        super().__init__()
        self.is_told = all(self.add_watch(str(folder), folder, IN_MOVED_TO) for folder in folders)
