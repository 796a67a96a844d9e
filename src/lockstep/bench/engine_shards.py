"""How work divides over shards: what each shard of an engine spends on reading, windows and encoding, without Spark."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lockstep.bench.engine_jobs import Say, alone, ingest, streams_of
from lockstep.bench.engine_profile import sequence
from lockstep.bench.processes import Link
from lockstep.bench.scratch import scratch_folder
from lockstep.engine.columns.evaluator import Evaluator
from lockstep.engine.columns.runner import Results
from lockstep.engine.data.models import CASES
from lockstep.engine.events.frames import cut_frames
from lockstep.engine.runtime.sequence.reader import Range, RangeReader
from lockstep.engine.runtime.sequence.streams import FRAME_BYTES
from lockstep.engine.runtime.worker.divided_input import PartFolder
from lockstep.engine.runtime.worker.history import LogHistory
from lockstep.engine.runtime.worker.replacement import ShardContext
from lockstep.log.port import Bus
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime

NUMBERS = (1, 2, 4)
RUNS = 3


def divided(case: str, wanted: Sequence[str], events: int, batch_events: int, say: Say) -> dict[str, Any]:
    """Processor seconds of each shard for several numbers of shards, on the same input; the best of three runs."""
    with scratch_folder() as folder:
        url = f"lmdb:{folder / 'bus'}?durability=relaxed"
        alone(ingest, url, case, events, tuple(wanted), say=say)
        return {"events": events, **alone(_measure, url, case, tuple(wanted), batch_events, str(folder), say=say)}


def _measure(
    link: Link, url: str, case: str, wanted: tuple[str, ...], batch_events: int, folder: str
) -> dict[str, Any]:
    link.ready()
    bus = open_bus(url, ThreadRuntime())
    try:
        return measure(bus, case, wanted, batch_events, Path(folder), link.tell)
    finally:
        bus.close()


def measure(bus: Bus, case: str, wanted: tuple[str, ...], batch_events: int, folder: Path, say: Say) -> dict[str, Any]:
    """What each shard does with the events that are on a bus, in this process."""
    last, found = sequence(bus, case), {}
    side_by_side(bus, case, wanted, batch_events, last, 1, folder)  # the first to come pays for loading compiled loops
    rounds = [
        {number: side_by_side(bus, case, wanted, batch_events, last, number, folder / f"{run}-{number}")
         for number in NUMBERS}
        for run in range(RUNS)
    ]  # fmt: skip
    for number in NUMBERS:
        best = found[str(number)] = min((each[number] for each in rounds), key=lambda one: one["together_s"])
        each = ", ".join(f"{busy:.3f}" for busy in best["busy_s"])
        say(f"{number} shards: {each} s; busiest {best['longest_s']:.3f} s, together {best['together_s']:.3f} s")
    return {"wanted": list(wanted), "shards": found}


def side_by_side(
    bus: Bus, case: str, wanted: Sequence[str], batch_events: int, last: int, shards: int, folder: Path
) -> dict[str, Any]:
    """All shards of an engine, batch by batch: processor seconds, and events decoded.

    They read at the same time, as they take turns at that; then each evaluates alone, so that none slows another down.
    """
    crew = [_Shard(bus, case, wanted, shard, shards, folder) for shard in range(shards)]
    with ThreadPoolExecutor(shards) as pool:
        while crew[0].position.number < last:
            for taken, shard in zip(pool.map(lambda shard: shard.read(last, batch_events), crew), crew, strict=True):
                shard.evaluate(taken)
    busy = [round(shard.busy_s, 3) for shard in crew]
    return {"busy_s": busy, "longest_s": max(busy), "together_s": round(sum(busy), 3),
            "decoded": [shard.decoded for shard in crew]}  # fmt: skip


class _Shard:
    """One shard: a worker without snapshots and spool."""

    def __init__(self, bus: Bus, case: str, wanted: Sequence[str], shard: int, shards: int, folder: Path) -> None:
        graph, streams = CASES[case].graph(), streams_of(case)
        self._parts = PartFolder(folder, shard, shards, ThreadRuntime()) if shards > 1 else None
        seat = ShardContext(bus=bus, streams=streams, shard=shard, shards=shards, parts=self._parts)
        plain = RangeReader(bus, graph, streams)
        self._history = LogHistory(plain, {node.path: node.schema for node in graph.nodes}, ())
        self._evaluator = Evaluator(graph, wanted=frozenset(wanted), history=self._history, shard=shard, shards=shards)
        self._reader = self._history.reader = seat.reader(plain, self._evaluator)
        self.position, self.busy_s = plain.start(), 0.0

    @property
    def decoded(self) -> int:
        """How many events it has read from the logs itself."""
        return self.position.events if self._parts is None else self._parts.counts.made + self._parts.counts.alone

    def read(self, last: int, batch_events: int) -> Range:
        """The next batch."""
        began = time.thread_time()
        taken = self._reader.read(self.position, last, batch_events)
        self.busy_s += time.thread_time() - began
        return taken

    def evaluate(self, taken: Range) -> None:
        """Its windows, and the frames of what they give."""
        began = time.process_time()
        self._history.add(self.position, taken.end, taken.span)
        _encode(self._evaluator.evaluate(taken.span))
        self.position = taken.end
        self._history.forget_before(self._evaluator.earliest_block())
        self.busy_s += time.process_time() - began


def _encode(results: Results) -> None:
    for path, batch in results.outputs.items():
        if len(batch):
            cut_frames(batch, max_bytes=FRAME_BYTES, previous=0, places=results.places.get(path))
