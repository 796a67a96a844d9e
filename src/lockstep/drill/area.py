"""Where a drill happens: a folder, a bus, the names on it; all gone afterwards unless they are to be kept."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lockstep.drill.options import DrillOptions
from lockstep.drill.scene import MODEL, Scene, scene, write_model
from lockstep.errors import BadArgument, UnsupportedByBackend
from lockstep.log.urls import split_url
from lockstep.streams.client import Lockstep, connect

_OWN = "drill"


@dataclass(frozen=True, slots=True)
class Area:
    """The place of one drill."""

    folder: Path
    url: str
    cluster: str

    @property
    def model(self) -> Path:
        """The model's file."""
        return self.folder / MODEL

    def scene(self) -> Scene:
        """The model, as everybody here reads it."""
        return scene(self.model, self.cluster)


@contextmanager
def area(options: DrillOptions) -> Iterator[Area]:
    """A place for one drill, cleared at the end."""
    with _folder(options.keep) as folder:
        if options.bus is not None and split_url(options.bus)[0] == "memory":
            raise UnsupportedByBackend(bus=options.bus, feature="be used by a drill: its processes share a bus")
        write_model(folder / MODEL)
        if options.bus is None:
            yield Area(folder, f"lmdb:{folder / 'bus'}", _OWN)
            return
        place = Area(folder, options.bus, f"{_OWN}-{uuid.uuid4().hex[:8]}")
        try:
            yield place
        finally:
            if options.keep is None:
                with connect(place.url) as client:
                    _delete(client, place.cluster)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        folder = Path(tempfile.mkdtemp(prefix="lockstep-drill-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise BadArgument(name="--keep", value=str(keep), reason="it must be a new or an empty folder")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.resolve()


def _delete(client: Lockstep, cluster: str) -> None:
    """Everything that was made for a drill on a bus of somebody else's."""
    for name in client.bus.names():
        if name.startswith((f"{cluster}.", f"_group.{cluster}.")):
            client.bus.delete(name)
