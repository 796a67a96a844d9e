"""Options of `format("lockstep")` for a window of a project, checked before anything is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lockstep.engine.errors import WindowNotFound
from lockstep.engine.events.event import Opcode
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.loading import load_model
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import SourceWindow
from lockstep.engine.runtime.files import source_of, window_of
from lockstep.engine.runtime.sequence.model_statement import project_graph, published_windows
from lockstep.engine.runtime.sequence.streams import EVENT_STREAM, ProjectStreams, own_input
from lockstep.engine.spark.rows_options import (
    WriteOptions,
    flag,
    known_options,
    name_list,
    one_of,
    parsed,
    positive,
    required,
)
from lockstep.errors import BadConfig
from lockstep.log.config import check_name
from lockstep.log.port import Bus

_PLACE = ("url", "project", "window", "cluster", "model")
_READ = (
    *_PLACE, "rows", "columns", "times", "collapse", "startingBlock", "endingBlock", "maxBytesPerTrigger",
    "failOnDataLoss",
)  # fmt: skip
_WRITE = (*_PLACE, "opcode", "block", "writer", "batch", "allowDuplicates")
_BATCH_ONLY = ("endingBlock",)
_STREAM_ONLY = ("maxBytesPerTrigger",)
_NOT_CURRENT = ("startingBlock", "collapse", "maxBytesPerTrigger")
_INCOMING = tuple(code.name.lower() for code in Opcode if code is not Opcode.UPDATE_BLOCK)


def names_window(options: Mapping[str, str]) -> bool:
    """Whether options are about a window; BadConfig if they name a stream too."""
    given = {name.lower() for name in options}
    is_window = bool(given & {"project", "window"})
    if is_window and "stream" in given:
        raise BadConfig(field="stream", value="...", reason="give either a stream, or a project and a window")
    return is_window


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowPlace:
    """Which window of which project on which bus."""

    url: str
    project: str
    window: str
    cluster: str = "local"
    model: str | None = None
    """A model file, for a project that no engine has run yet."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> WindowPlace:
        """From options by name in lower case."""
        return cls(
            url=required(given, "url"),
            project=check_name("Project", required(given, "project")),
            window=required(given, "window"),
            cluster=parsed(given, "cluster", lambda text: check_name("Cluster", text), "local"),
            model=parsed(given, "model", str, None),
        )

    @property
    def streams(self) -> ProjectStreams:
        """The streams of the project."""
        return ProjectStreams(cluster=self.cluster, project=self.project)

    def graph(self, bus: Bus) -> Graph:
        """The model in force, or the one given."""
        if self.model is None:
            return project_graph(bus, self.cluster, self.project)
        graph = compile_project(load_model(str(Path(self.model))))
        if graph.project.name != self.project:
            reason = f"it is the model of project {graph.project.name!r}"
            raise BadConfig(field="model", value=self.model, reason=reason)
        return graph

    def published(self, bus: Bus) -> Node:
        """The window; WindowNotFound if its blocks do not come out."""
        graph = self.graph(bus)
        node, there = window_of(graph, self.window), published_windows(bus, self.streams, graph)
        if node.path not in [one.path for one in there]:
            names = ", ".join(one.path for one in there) or "none; see --publish of 'lockstep engine run'"
            raise WindowNotFound(model=self.project, what="published window", name=node.path, known=names)
        return node

    def source(self, bus: Bus) -> Node:
        """The source window; its stream is made if no engine did."""
        node = source_of(self.graph(bus), self.window)
        name = own_input(self.streams, node)
        if name not in set(bus.names()):
            bus.create(name, EVENT_STREAM)
        return node


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowReadOptions:
    """What is read of a window. Blocks from `start` up to, not including, `end`."""

    place: WindowPlace
    current: bool = False
    """The rows that the window holds, instead of its changes."""
    columns: tuple[str, ...] | None = None
    integers: bool = False
    """Dates and stamps as numbers."""
    collapse: bool = False
    start: int | str = "earliest"
    end: int | None = None
    max_bytes: int | None = None
    fail_on_data_loss: bool = True

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool | None = None) -> WindowReadOptions:
        """From Spark's options; what fits only the other way of reading is refused once it is known which it is."""
        given = known_options(options, _READ)
        current = parsed(given, "rows", one_of("changes", "current"), "changes") == "current"
        _refuse(given, _BATCH_ONLY if streaming else (), "a stream has no end")
        _refuse(given, _STREAM_ONLY if streaming is False else (), "it is for readStream")
        _refuse(given, _NOT_CURRENT if current else (), "it does not fit rows=current")
        if streaming is False and given.get("startingblock", "").strip().lower() == "latest":
            raise BadConfig(field="startingBlock", value="latest", reason="only a stream can begin there")
        if current and streaming:
            reason = "a stream reads changes; read the current rows with spark.read"
            raise BadConfig(field="rows", value="current", reason=reason)
        start, end = (
            parsed(given, "startingBlock", _first_block, "earliest"),
            parsed(given, "endingBlock", positive, None),
        )
        if isinstance(start, int) and end is not None and end < start:
            raise BadConfig(field="endingBlock", value=end, reason=f"it ends before it begins at {start}")
        return cls(
            place=WindowPlace.of(given),
            current=current,
            columns=parsed(given, "columns", name_list, None),
            integers=parsed(given, "times", one_of("timestamps", "integers"), "timestamps") == "integers",
            collapse=parsed(given, "collapse", flag, False),
            start=start,
            end=end,
            max_bytes=parsed(given, "maxBytesPerTrigger", positive, None),
            fail_on_data_loss=parsed(given, "failOnDataLoss", flag, True),
        )

    @property
    def first_block(self) -> int:
        """The first block that is wanted, where that is a number."""
        return self.start if isinstance(self.start, int) else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowWriteOptions:
    """How rows become events of a source window."""

    place: WindowPlace
    opcode: Opcode | None = None
    """Of rows that have none of their own; None: upsert, or insert where a window takes nothing else."""
    block: int = 1
    given: Mapping[str, str]
    """What says how rows are written to its stream."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WindowWriteOptions:
        """From Spark's options."""
        given = known_options(options, _WRITE)
        return cls(
            place=WindowPlace.of(given),
            opcode=parsed(given, "opcode", lambda text: Opcode[one_of(*_INCOMING)(text).upper()], None),
            block=parsed(given, "block", positive, 1),
            given={name: text for name, text in given.items() if name in ("writer", "batch", "allowduplicates")},
        )

    def on_stream(self, stream: str, *, streaming: bool) -> WriteOptions:
        """How its records are written."""
        return WriteOptions.of({**self.given, "url": self.place.url, "stream": stream}, streaming=streaming)


def usual_opcode(node: Node) -> Opcode:
    """What a row without an opcode is to a source window."""
    window = node.window
    takes_inserts_only = isinstance(window, SourceWindow) and (window.insert_only or window.autogen_key)
    return Opcode.INSERT if takes_inserts_only or not node.is_indexed else Opcode.UPSERT


def _first_block(text: str) -> int | str:
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    try:
        return positive(text)
    except ValueError:
        message = "write earliest, latest, or the number of a block"
        raise ValueError(message) from None


def _refuse(given: Mapping[str, str], names: tuple[str, ...], reason: str) -> None:
    for name in names:
        if name.lower() in given:
            raise BadConfig(field=name, value=given[name.lower()], reason=reason)
