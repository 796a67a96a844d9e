"""The rows that windows have at the end of a run over files, made of the changes that they wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from lockstep.engine.errors import BadEventText
from lockstep.engine.events.csvform import BadLine, CsvOptions, CsvOutput, lines_of, read_csv
from lockstep.engine.events.event import Event, Flag, Opcode, changes
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.types import Value
from lockstep.engine.events.writing import new_file
from lockstep.engine.model.graph import Graph
from lockstep.engine.runtime.files import window_of

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
