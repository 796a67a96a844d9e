"""The fleet as a window of an engine's model: records of the input stream come in, rows of the changelog go out.

    model = monitor_model("monitor", "monitor.input")

All that it decides is in `lockstep.monitor.core`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from lockstep.engine.model.builder import ProjectBuilder
from lockstep.engine.model.project import Project
from lockstep.monitor.core import fleet as core
from lockstep.monitor.core.output import Notice as CoreNotice
from lockstep.monitor.core.output import Output, Row
from lockstep.windows import Change, Delete, Made, Notice, Opcode, PagedWindow, Setup, State

QUERY, SOURCE, WINDOW = "monitor", "Input", "Fleet"
INPUT_SCHEMA = "offset*:int64,key:blob,value:blob,time:stamp"
SCHEMA = "id*:string,kind:string,client:string,name:string,body:string"
_UPSERT, _DELETE = int(Opcode.UPSERT), int(Opcode.DELETE)


def monitor_model(name: str, input_stream: str) -> Project:
    """The model of a monitor: one source over its input stream, and the fleet, which ticks each second."""
    project = ProjectBuilder(name, heartbeat="1 second", description="A fleet that is watched")
    query = project.query(QUERY)
    records = query.source(SOURCE, INPUT_SCHEMA, insert_only=True, stream=input_stream).options(index="pi_EMPTY")
    records.custom(WINDOW, SCHEMA, Fleet, tick="1 second").options(index="pi_EMPTY")
    return project.build()


class Fleet(PagedWindow):
    """Decides everything about a fleet, block by block, as a window of an engine's model."""

    version = "1"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._core = core.Fleet()

    def on_event(self, change: Change) -> Iterable[Made]:
        """One record."""
        out = Output()
        self._core.take(change["key"] or b"", change["value"] or b"", self.block, out)  # type: ignore[arg-type]
        return _made(out)

    def on_batch(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch | None, list[tuple[int, Notice]]]:
        """Many records."""
        out, take = Output(), self._core.take
        keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
        for key, value, block in zip(keys, values, batch.column("_block").to_pylist(), strict=True):
            take(key or b"", value or b"", block, out)
        notices = [(each.block, _notice(each)) for each in out.notices]
        return _batch(out.rows) if out.rows else None, notices

    def on_tick(self, time_us: int, lagging: bool) -> Iterable[Made]:
        """A second went by."""
        out = Output()
        self._core.tick(time_us, lagging, self.block, out)
        return _made(out)

    def take_marked(self) -> set[str]:
        """The pages that changed since the last call."""
        return super().take_marked() | self._core.marked_pages()

    def dump_page(self, page: str) -> State:
        """What a page holds now; None: it is gone."""
        return self._core.dump_page(page)

    def load_page(self, page: str, state: State) -> None:
        """Take a page over."""
        self._core.load_page(page, state)


def _made(out: Output) -> list[Made]:
    rows: list[Made] = [
        Delete((row.id, row.kind, row.client, row.name, None))
        if row.body is None
        else (row.id, row.kind, row.client, row.name, row.body)
        for row in out.rows
    ]
    return [*rows, *map(_notice, out.notices)]


def _notice(made: CoreNotice) -> Notice:
    return Notice(made.kind, made.key, made.body, made.headers, made.id)


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        "_block": np.array([row.block for row in rows], np.int64),
        "_opcode": np.array([_DELETE if row.body is None else _UPSERT for row in rows], np.uint8),
    }
    for name in ("id", "kind", "client", "name", "body"):
        columns[name] = pa.array([getattr(row, name) for row in rows], pa.string())
    return pa.record_batch(columns)
