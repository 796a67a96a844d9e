"""Where a drill happens: its folder, bus, model and streams, and the settings of its processes."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lockstep.drill.options import DrillOptions
from lockstep.engine.data.models import seven_windows
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.loading import load_model, to_yaml
from lockstep.engine.model.validation import compile_project
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.errors import BadArgument, UnsupportedByBackend
from lockstep.log.urls import split_url
from lockstep.streams.client import Lockstep, connect

SOURCE, WINDOW = "trades/TradesSource", "trades/Aggregate24HR"
MODEL = "trades.yaml"


@dataclass(frozen=True, slots=True)
class Scene:
    """A compiled model under the name of a cluster."""

    graph: Graph
    streams: ProjectStreams

    @property
    def source(self) -> Node:
        """Where events go in."""
        return _found(self.graph, SOURCE)

    @property
    def window(self) -> Node:
        """Whose events the subscriber writes down."""
        return _found(self.graph, WINDOW)

    @property
    def input(self) -> str:
        """The stream the publisher writes to."""
        return self.streams.input(self.source)

    @property
    def output(self) -> str:
        """The stream the subscriber reads."""
        return self.streams.output(self.window)


def write_model(path: Path) -> None:
    """Put the model into a file, for the engines."""
    path.write_text(to_yaml(seven_windows()))


def scene(model: Path, cluster: str) -> Scene:
    """Return the compiled model and the stream names that all processes of a drill share."""
    graph = compile_project(load_model(model))
    return Scene(graph, ProjectStreams(cluster=cluster, project=graph.project.name))


def _found(graph: Graph, path: str) -> Node:
    node = graph.find(path)
    assert node is not None, path
    return node


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishErrand:
    """Send the events of a file; start where `progress` says, if it is there."""

    url: str
    model: str
    cluster: str
    file: str
    block: int
    rate: float | None
    piece: int
    client: str
    progress: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SubscribeErrand:
    """Write what comes out of the window to a file until block `until`, and beside it when what arrived."""

    url: str
    model: str
    cluster: str
    block: int
    events: int
    until: int
    file: str
    arrivals: str


def save(errand: PublishErrand | SubscribeErrand, path: Path) -> None:
    """For another process."""
    path.write_text(json.dumps(asdict(errand), indent=1))


def load(path: str) -> dict[str, Any]:
    """In the other process."""
    fields: dict[str, Any] = json.loads(Path(path).read_text())
    return fields


def orphaned() -> Callable[[], bool]:
    """Return a function that is true once the parent process has ended, so that this one is no longer needed."""
    parent = os.getppid()
    return lambda: os.getppid() != parent


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
        """Return the compiled model and the stream names that all processes of the drill share."""
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
    """Delete every stream that the drill created on a bus that is not its own."""
    for name in client.bus.names():
        if name.startswith((f"{cluster}.", f"_group.{cluster}.")):
            client.bus.delete(name)
