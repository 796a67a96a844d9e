"""A model over files with the plain interpreter, one event at a time: slow, obvious, and what Spark is compared to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lockstep.engine.events.csv_format import CsvOutput, lines_of
from lockstep.engine.events.event import InputBlock
from lockstep.engine.model.graph import Graph
from lockstep.engine.reference.interpreter import Interpreter
from lockstep.engine.reference.operator import BadEvent
from lockstep.engine.runtime.files import (
    REFUSED_SHOWN,
    BadLines,
    FileInputs,
    FileOutcome,
    InputPiece,
    input_pieces,
    output_files,
    refused_tree,
)
from lockstep.engine.runtime.output.side_streams import bad_tree
from lockstep.runtime import Runtime

_TELL_EVERY = 10_000


def run_reference(
    graph: Graph,
    inputs: FileInputs,
    outputs: Mapping[str, Path],
    output: CsvOutput,
    bad: BadLines,
    runtime: Runtime,
    progress: Callable[[int], None],
) -> FileOutcome:
    """Run it; `progress` is told the number of events now and then."""
    refused: list[dict[str, Any]] = []

    def refuse(bad: BadEvent) -> None:
        if len(refused) < REFUSED_SHOWN:
            refused.append(refused_tree(bad_tree(bad)))

    interpreter = Interpreter(graph, on_bad=refuse, on_notice=lambda _: None)
    lines: Counter[str] = Counter()
    events = blocks = 0
    with output_files(graph, outputs, output) as files:
        began = runtime.monotonic()
        for block in numbered(input_pieces(graph, inputs, bad)):
            blocks, events = block.number, events + len(block.events)
            found = interpreter.evaluate(block)
            for path, (node, file) in files.items():
                if found[path]:
                    texts = list(lines_of(found[path], node.schema, output))
                    lines[path] += len(texts)
                    file.write("".join(texts).encode())
            if events % _TELL_EVERY == 0:
                progress(events)
        seconds = runtime.monotonic() - began
        bad.check_some_taken(events)  # before the files take their places
    written = {path: lines[path] for path in files}
    return FileOutcome(interpreter.counts, written, events, blocks, seconds, refused=refused)


def numbered(pieces: Iterator[InputPiece]) -> Iterator[InputBlock]:
    """The blocks of the pieces, numbered from 1 on."""
    number = 0
    for piece in pieces:
        if piece.tick_us is not None:
            number += 1
            yield InputBlock(number, tick_us=piece.tick_us, lagging=piece.lagging)
        elif piece.node is not None and piece.batch is not None:
            for _, events in piece.batch.blocks() or [(0, [])]:
                number += 1
                yield InputBlock(number, piece.node.path, tuple(events), piece.transactional)
