"""Files in, files out: what is fed to a model, in which order, and where the events and rows of windows are written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import nsmallest
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from lockstep.engine.errors import BadEventText, FileMissing, NoLineTaken, WindowNotFound
from lockstep.engine.events.atomic_files import new_file
from lockstep.engine.events.columns import EventBatch, Int64s
from lockstep.engine.events.csv_format import BadLine, CsvOptions, CsvOutput, header_line, lines_of, read_csv
from lockstep.engine.events.event import Event, Flag, Opcode, changes
from lockstep.engine.events.schema import Schema, Value
from lockstep.engine.events.script import ScriptBlock, read_script
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import EVENTS, SourceWindow, Window
from lockstep.engine.reference.operator import WindowCounts
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.errors import from_os_error
from lockstep.log.port import Log

BAD_LINES_SHOWN = 20
REFUSED_SHOWN = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class FileInputs:
    """What to feed: files one after the other, or a script that gives the exact order."""

    files: tuple[tuple[str, Path], ...] = ()
    script: Path | None = None
    csv: CsvOptions = field(default_factory=CsvOptions)


def over_files(graph: Graph) -> Graph:
    """The same model where files hold the events of all sources, also of those that take records of a stream."""
    project = graph.project
    queries = tuple(replace(query, windows=tuple(map(_of_events, query.windows))) for query in project.queries)
    return graph if queries == project.queries else compile_project(replace(project, queries=queries))


def _of_events(window: Window) -> Window:
    if not isinstance(window, SourceWindow) or not window.takes_records:
        return window
    return replace(window, form=EVENTS, stream=None, decode=None, avro_schema=None, date_format=None, upsert=False)


@dataclass(frozen=True, slots=True)
class InputPiece:
    """A piece of input: blocks for one source window, or a tick. Only the order of block numbers matters."""

    node: Node | None
    batch: EventBatch | None = None
    numbers: Int64s | None = None
    """The numbers of all blocks, also of those without events."""
    transactional: bool = False
    tick_us: int | None = None
    lagging: bool = False


@dataclass(slots=True)
class BadLines:
    """Lines that were no events: counted by file and reason, the first ones kept to be shown."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    first: list[tuple[str, BadLine]] = field(default_factory=list)

    def add(self, file: str, bad: BadLine) -> None:
        """Count one."""
        self.counts.setdefault(file, Counter())[bad.reason] += 1
        if len(self.first) < BAD_LINES_SHOWN:
            self.first.append((file, bad))

    @property
    def total(self) -> int:
        """How many."""
        return sum(counts.total() for counts in self.counts.values())

    def check_some_taken(self, events: int) -> None:
        """Raise NoLineTaken if there were lines and none of them was an event, which must not look like success."""
        if self.total and not events:
            reasons = dict(sorted(sum(self.counts.values(), Counter()).items()))
            told = ", ".join(f"{number:,} {reason}" for reason, number in reasons.items())
            raise NoLineTaken(count=f"{self.total:,}", files=", ".join(self.counts), reasons=told)


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """What a run over files gave."""

    counts: Mapping[str, WindowCounts]
    lines: Mapping[str, int]
    """Lines written for each window."""
    events: int
    blocks: int
    seconds: float
    """From the first event to the last result; starting Spark is not in it."""
    started_s: float = 0.0
    """Seconds until Spark was ready."""
    start_parts_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the parts of the start and of the first batch, by name."""
    refused: Sequence[Mapping[str, Any]] = ()
    """The first events that windows refused: window, block, reason and detail."""


def refused_tree(bad: Mapping[str, Any]) -> dict[str, Any]:
    """What is shown of an event that a window refused."""
    return {name: bad[name] for name in ("window", "block", "reason", "detail")}


def first_refused(log: Log, graph: Graph) -> list[dict[str, Any]]:
    """The first bad events of a project, in the order of blocks and windows, however they were computed."""
    order = {node.path: place for place, node in enumerate(graph.nodes)}
    bounds = log.bounds()
    found = (json.loads(value) for _, value in values_between(log, bounds.first, bounds.next))
    first = nsmallest(REFUSED_SHOWN, found, key=lambda bad: (bad["block"], order.get(bad["window"], -1)))
    return [refused_tree(bad) for bad in first]


def source_of(graph: Graph, name: str) -> Node:
    """A source window by name."""
    return _find(graph, name, "source window", [node for node in graph.nodes if node.is_source])


def window_of(graph: Graph, name: str) -> Node:
    """Any window by name."""
    return _find(graph, name, "window", list(graph.nodes))


def _find(graph: Graph, name: str, what: str, nodes: Sequence[Node]) -> Node:
    node = graph.find(name)
    if node is None or node not in nodes:
        known = ", ".join(node.path for node in nodes)
        raise WindowNotFound(model=graph.project.name, what=what, name=name, known=known)
    return node


def input_pieces(graph: Graph, inputs: FileInputs, bad: BadLines) -> Iterator[InputPiece]:
    """The input piece by piece, in order. All files are opened before the first: a missing one changes nothing."""
    if inputs.script is not None:
        yield from _feed_script(graph, inputs.script, inputs.csv, bad)
        return
    with ExitStack() as opened:
        files = [
            (source_of(graph, window), path, opened.enter_context(open_input(path))) for window, path in inputs.files
        ]
        for node, path, file in files:
            for batch in read_csv(file, node.schema, inputs.csv, partial(bad.add, str(path))):
                yield InputPiece(node, batch, None, inputs.csv.transactional)


def _feed_script(graph: Graph, path: Path, options: CsvOptions, bad: BadLines) -> Iterator[InputPiece]:
    with open_input(path) as file:
        blocks = read_script(
            file,
            lambda name: source_of(graph, name).schema,
            lambda line: bad.add(str(path), line),
            source=str(path),
            date_format=options.date_format,
        )
        for block in blocks:
            yield _fed(graph, block)


def _fed(graph: Graph, block: ScriptBlock) -> InputPiece:
    if block.tick_us is not None:
        return InputPiece(None, tick_us=block.tick_us, lagging=block.lagging)
    node = source_of(graph, block.window)
    return InputPiece(
        node, EventBatch.of(node.schema, [(1, block.events)]), np.array([1], np.int64), block.transactional
    )


def open_input(path: Path) -> BinaryIO:
    """A file to be read."""
    try:
        return path.open("rb")
    except OSError as error:
        if isinstance(error, PermissionError):
            raise from_os_error(error, str(path)) from None
        raise FileMissing(path=str(path), reason=error.strerror or str(error)) from error


@contextmanager
def output_files(
    graph: Graph, outputs: Mapping[str, Path], output: CsvOutput
) -> Iterator[dict[str, tuple[Node, BinaryIO]]]:
    """Files for windows' events by path. They appear under their names only if everything went well."""
    with ExitStack() as opened:
        files: dict[str, tuple[Node, BinaryIO]] = {}
        for name, path in outputs.items():
            node = window_of(graph, name)
            file = opened.enter_context(new_file(path))
            file.write(header_line(node.schema, output))
            files[node.path] = (node, file)
        yield files
        for _, written in files.values():  # all of them, before the first takes its place
            written.flush()


_PREFIX = len("I,N,")


def write_final_rows(
    graph: Graph, logs: Mapping[str, Path], tables: Mapping[str, Path], output: CsvOutput
) -> dict[str, int]:
    """Write the rows of each window as CSV, below a line of names; return how many there are.

    The files appear when all of them are written.
    """
    counts = {}
    with ExitStack() as files:
        for path, log in logs.items():
            schema = window_of(graph, path).schema
            rows = final_rows(_events(log, schema, output), schema)
            file = files.enter_context(new_file(tables[path]))
            file.write((output.delimiter.join(schema.names) + "\n").encode())
            events = [Event(Opcode.INSERT, Flag.NORMAL, row) for row in rows]
            file.writelines(line[_PREFIX:].encode() for line in lines_of(events, schema, output))
            counts[path] = len(rows)
    return counts


def final_rows(events: Iterable[Event], schema: Schema) -> list[tuple[Value, ...]]:
    """The rows that are left after all changes, in the order in which their keys appeared."""
    rows: dict[tuple[Value, ...], tuple[Value, ...]] = {}
    for event, _ in changes(events):
        key = schema.key_of(event.values)
        if event.opcode is Opcode.DELETE:
            rows.pop(key, None)
        else:
            rows[key] = event.values
    return list(rows.values())


def _events(log: Path, schema: Schema, output: CsvOutput) -> Iterator[Event]:
    def refuse(bad: BadLine) -> None:
        raise BadEventText(source=str(log), line=bad.line, reason=bad.reason)

    for batch in read_csv(log, schema, CsvOptions(date_format=output.date_format), refuse):
        for _, events in batch.blocks():
            yield from events
