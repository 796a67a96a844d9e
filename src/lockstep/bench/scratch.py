"""A bus that lives as long as one measurement."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lockstep


@contextmanager
def scratch_folder(parent: str | None = None) -> Iterator[Path]:
    """A new folder, removed at the end."""
    place = Path(tempfile.mkdtemp(prefix="lockstep-bench-", dir=parent))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def scratch_bus(durability: str, parent: str | None = None) -> Iterator[str]:
    """The URL of a new bus in a folder that is removed at the end."""
    with scratch_folder(parent) as place:
        yield f"lmdb:{place / 'bus'}?durability={durability}"


def make_stream(url: str, name: str, capacity: int | None, codec: str = "none") -> None:
    """Make a stream before the processes start that use it."""
    with lockstep.connect(url) as bus:
        bus.create(name, lockstep.StreamConfig(capacity=capacity, compression=codec))
