"""The windows alone, without Spark and without a bus: what one core does."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lockstep.engine.columns.evaluator import Evaluator
from lockstep.engine.columns.runner import Span
from lockstep.engine.data.models import CASES, DAY, HOUR, MINUTES
from lockstep.engine.events.columns import EventBatch, concat
from lockstep.engine.events.csv_format import CsvOptions, read_csv, write_csv
from lockstep.engine.events.event import InputBlock, Opcode
from lockstep.engine.events.frames import decode_frame, decode_frames, encode_frame
from lockstep.engine.model.graph import Graph
from lockstep.engine.reference.interpreter import Interpreter

SPAN_EVENTS = 300_000
FRAME_EVENTS = 4_096
ALL_THREE = (DAY, HOUR, MINUTES)


class Kept:
    """Input that stays in memory, in the place of the log: windows read it again when rows leave."""

    def __init__(self, source: str, batch: EventBatch) -> None:
        self.source, self.batch = source, batch

    def read(self, source: str, first_block: int, last_block: int) -> EventBatch:
        """Return the events of the blocks from `first_block` to `last_block`, both included."""
        assert source == self.source
        low, high = np.searchsorted(self.batch.block, [first_block, last_block + 1])
        return self.batch.slice(int(low), int(high))

    def only(self, names: frozenset[str]) -> Kept:
        """With some columns only, as a worker reads them."""
        batch = self.batch
        columns = tuple(
            column if field.name in names else None for column, field in zip(batch.columns, batch.schema, strict=True)
        )
        return Kept(self.source, EventBatch(batch.schema, batch.block, batch.opcode, batch.flags, columns))

    def spans(self, size: int = SPAN_EVENTS) -> Iterator[Span]:
        """Yield all events in pieces of a given size, in blocks of one."""
        for start in range(0, len(self.batch), size):
            part = self.batch.slice(start, min(start + size, len(self.batch)))
            yield Span(int(part.block[0]), int(part.block[-1]), {self.source: part})


def keep(case: str, events: int) -> Kept:
    """The events of a case in memory."""
    return Kept(CASES[case].source, concat(list(CASES[case].events(events))))


def kernel(case: str, kept: Kept, wanted: Sequence[str], *, silent: bool = False) -> dict[str, Any]:
    """Events a second of all windows on one core, the first span left out: it pays for loading the compiled loops."""
    evaluator, input_ = _evaluator(CASES[case].graph(), kept, wanted)
    table = CASES[case].table
    if table is not None:
        evaluator.evaluate(Span(0, 0, {table[0]: replace(table[1](), block=np.zeros(len(table[1]()), np.int64))}))
    times, began = [], time.process_time()
    for span in input_.spans():
        times.append(_seconds(evaluator, span, silent=silent))
        began = time.process_time() if len(times) == 1 < len(kept.batch) / SPAN_EVENTS else began
    cpu, events = time.process_time() - began, len(kept.batch)
    steady = events - SPAN_EVENTS if len(times) > 1 else events
    spent = sum(times[1:]) if len(times) > 1 else times[0]
    return {
        "events": events,
        "wanted": list(wanted),
        "silent": silent,
        "events_per_s": round(steady / spent),
        "events_per_cpu_s": round(steady / cpu),
        "first_span_s": round(times[0], 3),
        "rows": {path: counts.rows for path, counts in evaluator.counts().items()},
    }


def _evaluator(graph: Graph, kept: Kept, wanted: Sequence[str]) -> tuple[Evaluator, Kept]:
    """An evaluator and the columns it needs."""
    needed = Evaluator(graph, wanted=frozenset(wanted)).needed
    pruned = kept.only(needed.get(kept.source, frozenset()))
    return Evaluator(graph, wanted=frozenset(wanted), history=pruned), pruned


def _seconds(evaluator: Evaluator, span: Span, *, silent: bool = False) -> float:
    began = time.perf_counter()
    evaluator.evaluate(span, silent=silent)
    return time.perf_counter() - began


def forms(case: str, kept: Kept, wanted: Sequence[str]) -> dict[str, Any]:
    """Frames and CSV, in and out: events a second of each."""
    needed = Evaluator(CASES[case].graph(), wanted=frozenset(wanted)).needed[kept.source]
    batch, schema = kept.batch, kept.batch.schema
    pieces = [batch.slice(at, min(at + FRAME_EVENTS, len(batch))) for at in range(0, len(batch), FRAME_EVENTS)]
    frames, encoding = _timed(lambda: [encode_frame(piece) for piece in pieces])
    ones = [encode_frame(batch.slice(at, at + 1)) for at in range(min(len(batch), 20_000))]
    _, one_by_one = _timed(lambda: decode_frames(ones, schema, columns=needed))
    _, pruned = _timed(lambda: [decode_frame(frame, schema, columns=needed) for frame in frames])
    _, whole = _timed(lambda: [decode_frame(frame, schema) for frame in frames])
    text = io.BytesIO()
    _, writing = _timed(lambda: write_csv(batch, text))
    text.seek(0)
    _, reading = _timed(lambda: list(read_csv(text, schema, CsvOptions(), lambda _: None)))
    events = len(batch)
    return {
        "events": events,
        "frame_bytes_per_event": round(sum(map(len, frames)) / events, 1),
        "encode_per_s": round(events / encoding),
        "decode_needed_columns_per_s": round(events / pruned),
        "decode_all_columns_per_s": round(events / whole),
        "decode_frames_of_one_per_s": round(len(ones) / one_by_one),
        "csv_write_per_s": round(events / writing),
        "csv_read_per_s": round(events / reading),
        "csv_bytes_per_event": round(text.tell() / events, 1),
    }


def interpreter(case: str, kept: Kept, events: int = 50_000) -> dict[str, Any]:
    """Events a second of the plain interpreter, one block and one event at a time."""
    graph = CASES[case].graph()
    plain = Interpreter(graph, on_bad=lambda _: None, on_notice=lambda _: None)
    blocks = [
        InputBlock(number, kept.source, tuple(found))
        for number, found in kept.batch.slice(0, min(events, len(kept.batch))).blocks()
    ]
    _, spent = _timed(lambda: [plain.evaluate(block) for block in blocks])
    return {"events": len(blocks), "events_per_s": round(len(blocks) / spent)}


def changed_table(case: str, kept: Kept, wanted: Sequence[str], every: int = 1_000) -> dict[str, Any]:
    """Events a second with a change of a row of the table after each `every` events, which makes rows anew."""
    evaluator, input_ = _evaluator(CASES[case].graph(), kept, wanted)
    table = CASES[case].table
    assert table is not None
    path, rows = table[0], table[1]()
    evaluator.evaluate(Span(0, 0, {path: replace(rows, block=np.zeros(len(rows), np.int64))}))
    spent, out, at = 0.0, 0, 0
    for span in input_.spans():
        blocks = np.arange(span.first + every, span.last + 1, every, dtype=np.int64)
        picked = (at + np.arange(len(blocks), dtype=np.int64) * 37) % len(rows)
        at += len(blocks)
        changes = replace(rows.take(picked), block=blocks, opcode=np.full(len(blocks), Opcode.UPSERT, np.uint8))
        began = time.process_time()
        results = evaluator.evaluate(replace(span, inputs={**span.inputs, path: changes}))
        spent += time.process_time() - began
        out += sum(map(len, results.outputs.values()))
    return {"events": len(kept.batch), "changes": at, "out": out, "events_per_cpu_s": round(len(kept.batch) / spent),
            "out_per_cpu_s": round(out / spent)}  # fmt: skip


def _timed(work: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    made = work()
    return made, time.perf_counter() - began
