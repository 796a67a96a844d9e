"""How work divides over shards: what each shard of an engine spends on reading, windows and encoding, without Spark."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from lockstep.bench.crew import Link
from lockstep.bench.engine_jobs import Say, alone, ingest, streams_of
from lockstep.bench.engine_models import CASES
from lockstep.bench.engine_profile import sequence
from lockstep.bench.scratch import scratch_folder
from lockstep.engine.events.frames import cut_frames
from lockstep.engine.kernels.evaluator import Evaluator
from lockstep.engine.kernels.span import Results
from lockstep.engine.run.history import LogHistory
from lockstep.engine.run.reading import RangeReader
from lockstep.engine.run.streams import FRAME_BYTES
from lockstep.log.port import Bus
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime

NUMBERS = (1, 2, 4)


def divided(case: str, wanted: Sequence[str], events: int, batch_events: int, say: Say) -> dict[str, Any]:
    """Processor seconds of each shard for several numbers of shards, on the same input; the better of two runs."""
    with scratch_folder() as folder:
        url = f"lmdb:{folder / 'bus'}?durability=relaxed"
        alone(ingest, url, case, events, tuple(wanted), say=say)
        return {"events": events, **alone(_measure, url, case, tuple(wanted), batch_events, say=say)}


def _measure(link: Link, url: str, case: str, wanted: tuple[str, ...], batch_events: int) -> dict[str, Any]:
    link.ready()
    bus = open_bus(url, ThreadRuntime())
    try:
        return measure(bus, case, wanted, batch_events, link.tell)
    finally:
        bus.close()


def measure(bus: Bus, case: str, wanted: tuple[str, ...], batch_events: int, say: Say) -> dict[str, Any]:
    """What each shard does with the events that are on a bus, in this process."""
    last, found = sequence(bus, case), {}
    _work(bus, case, wanted, batch_events, last, (0, 1))  # the first to come pays for loading the compiled loops
    for number in NUMBERS:
        say(f"{number} shards")
        shards = [(shard, number) for shard in range(number)]
        busy = [min(_work(bus, case, wanted, batch_events, last, each) for _ in range(2)) for each in shards]
        found[str(number)] = {"busy_s": busy, "longest_s": max(busy), "together_s": round(sum(busy), 3)}
    return {"wanted": list(wanted), "shards": found}


def _work(bus: Bus, case: str, wanted: Sequence[str], batch_events: int, last: int, shard: tuple[int, int]) -> float:
    """Processor seconds of one shard out of several."""
    graph, streams = CASES[case].graph(), streams_of(case)
    history = LogHistory(RangeReader(bus, graph, streams), {node.path: node.schema for node in graph.nodes}, ())
    evaluator = Evaluator(graph, wanted=frozenset(wanted), history=history, shard=shard[0], shards=shard[1])
    reader = history.reader = history.reader.only(evaluator.needed)
    position, began = reader.start(), time.process_time()
    while position.number < last:
        taken = reader.read(position, last, batch_events)
        history.add(position, taken.end, taken.span)
        _encode(evaluator.evaluate(taken.span))
        position = taken.end
        history.forget_before(evaluator.earliest_block())
    return round(time.process_time() - began, 3)


def _encode(results: Results) -> None:
    for path, batch in results.outputs.items():
        if len(batch):
            cut_frames(batch, max_bytes=FRAME_BYTES, previous=0, places=results.places.get(path))
