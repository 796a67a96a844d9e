"""Where the time goes: every stage of an engine's work, one after the other in one process, without Spark."""

from __future__ import annotations

import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lockstep.bench.engine_jobs import CLUSTER, ENTRY_EVENTS, Say, alone, ingest, streams_of
from lockstep.bench.processes import Link
from lockstep.bench.scratch import scratch_folder
from lockstep.engine.columns.evaluator import Evaluator
from lockstep.engine.data.models import CASES
from lockstep.engine.events.frames import cut_frames
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.runtime.output.publisher import Publisher
from lockstep.engine.runtime.output.spool import Spool, SpoolPart
from lockstep.engine.runtime.sequence.entries import SequencePosition
from lockstep.engine.runtime.sequence.model_statement import inputs_of
from lockstep.engine.runtime.sequence.reader import Range, RangeReader
from lockstep.engine.runtime.sequence.sequencer import Sequencer, SequencerOptions
from lockstep.engine.runtime.setup import EngineSetup
from lockstep.engine.runtime.snapshots.format import seal
from lockstep.engine.runtime.worker.history import LogHistory
from lockstep.log.port import Bus
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime

_FRAME_BYTES = 1 << 20
READING, HISTORY, BUILDING = "read log and decode", "read again what leaves windows", "put output together"
ENCODING, SPOOLING, PUBLISHING = "encode output", "write spool", "read spool and publish"

Spent = defaultdict[str, float]
"""Seconds by stage."""


class Bench:
    """A worker and a publisher, taken apart so that each step can be timed."""

    def __init__(self, bus: Bus, case: str, wanted: Sequence[str], folder: Path) -> None:
        self.graph, self.wanted, streams = CASES[case].graph(), frozenset(wanted), streams_of(case)
        self.spent: Spent = defaultdict(float)
        self.worked: Spent = defaultdict(float)
        reader = RangeReader(bus, self.graph, streams)
        self.history = LogHistory(reader, {node.path: node.schema for node in self.graph.nodes}, ())
        self.evaluator = Evaluator(self.graph, wanted=self.wanted, history=self.history)
        self.reader = self.history.reader = reader.only(self.evaluator.needed)
        self.position: SequencePosition = reader.start()
        self.last_out: dict[str, int] = {}
        runtime = ThreadRuntime()
        setup = EngineSetup(
            url=bus.url,
            cluster=CLUSTER,
            model=to_yaml(self.graph.project),
            wanted=tuple(sorted(wanted)),
            folder=str(folder),
            host=socket.gethostname(),
            incarnation="profile",
        )
        self.spool = Spool(setup.spool(0))
        nodes = [node for node in self.graph.nodes if node.path in self.wanted]
        self.publisher = Publisher(bus, streams, nodes, [self.spool], runtime, setup.incarnation)
        self.publisher.lead(1)
        self._wrap()

    def _wrap(self) -> None:
        """Have every window and the history timed."""
        for station in self.evaluator._stations.values():
            setattr(station, "run", self._watched(station.run, f"window {station.node.path}"))  # noqa: B010
        setattr(self.history, "read", self._watched(self.history.read, HISTORY))  # noqa: B010

    def _watched(self, work: Callable[..., Any], stage: str) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            with self.stage(stage):
                return work(*arguments, **options)

        return watched

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time inside for a stage, and what of it the processor worked for this process."""
        began, worked = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.spent[name] += time.perf_counter() - began
            self.worked[name] += time.process_time() - worked

    def batch(self, max_events: int, upto: int) -> int:
        """One micro-batch: read, evaluate, encode, spool, publish. The events in it."""
        before = self.position.events
        with self.stage(READING):
            taken = self.reader.read(self.position, upto, max_events)
        with self.stage(BUILDING):
            self.history.add(self.position, taken.end, taken.span)
            results = self.evaluator.evaluate(taken.span)
            self.position = taken.end
            self.history.forget_before(self.evaluator.earliest_block())
        with self.stage(ENCODING):
            frames = {path: self._frames(path, batch) for path, batch in results.outputs.items() if len(batch)}
        with self.stage(SPOOLING):
            self._spool(taken, frames)
        with self.stage(PUBLISHING):
            while self.publisher.step() or not self.publisher.is_open:
                pass
        return self.position.events - before

    def _frames(self, path: str, batch: Any) -> list[bytes]:
        frames = cut_frames(batch, max_bytes=_FRAME_BYTES, previous=self.last_out.get(path, 0))
        self.last_out[path] = int(batch.block[-1])
        return frames

    def _spool(self, taken: Range, frames: dict[str, list[bytes]]) -> None:
        counts = {path: counts.dump() for path, counts in self.evaluator.counts().items()}
        self.spool.write(
            SpoolPart(
                first=taken.span.first,
                last=taken.span.last,
                position=taken.end.tree(),
                frames=frames,
                counts=counts,
            )
        )

    def snapshot(self) -> dict[str, Any]:
        """Take the pages that changed since the last time, as a worker does between batches."""
        began = time.perf_counter()
        pages = [seal(page) for _, page in self.evaluator.changed_pages() if page is not None]
        return {
            "pause_s": round(time.perf_counter() - began, 4),
            "pages": len(pages),
            "bytes": sum(map(len, pages)),
        }

    def forget(self) -> None:
        """Begin to count again."""
        self.spent.clear()
        self.worked.clear()

    def stages(self, counted: Spent) -> dict[str, float]:
        """Seconds by stage; those of a stage inside another one are taken out of it."""
        spent = defaultdict(float, counted)
        windows = [name for name in spent if name.startswith("window ")]
        spent[BUILDING] -= sum(spent[name] for name in windows)
        copies = {node.path for node in self.graph.nodes if node.window.kind == "copy"}
        total = sum(spent[f"window {path}"] for path in copies)
        for path in copies:
            name = f"window {path}"
            spent[name] -= spent[HISTORY] * (spent[name] / total if total else 0.0)
        return {name: round(seconds, 4) for name, seconds in spent.items()}


def profile(case: str, wanted: Sequence[str], events: int, batch_events: int, say: Say) -> dict[str, Any]:
    """Seconds of each stage for a million events; the first batch is left out."""
    with scratch_folder() as folder:
        url = f"lmdb:{folder / 'bus'}?durability=relaxed"
        fed = alone(ingest, url, case, events, tuple(wanted), say=say)
        found = alone(_profile, url, case, tuple(wanted), batch_events, str(folder), say=say)
    return {"input": fed, **found}


def _profile(
    link: Link, url: str, case: str, wanted: tuple[str, ...], batch_events: int, folder: str
) -> dict[str, Any]:
    link.ready()
    bus = open_bus(url, ThreadRuntime())
    try:
        last = sequence(bus, case)
        bench = Bench(bus, case, wanted, Path(folder))
        bench.batch(batch_events, last)
        first = bench.stages(bench.spent), bench.stages(bench.worked)
        bench.forget()
        events = 0
        while bench.position.number < last:
            events += bench.batch(batch_events, last)
    finally:
        bus.close()
    stages, worked = (bench.stages(bench.spent), bench.stages(bench.worked)) if events else first
    events = events or bench.position.events
    whole, processor = sum(stages.values()), sum(worked.values())
    return {
        "events": events,
        "wanted": list(wanted),
        "stages_s": dict(sorted(stages.items(), key=lambda item: -item[1])),
        "stages_cpu_ns_per_event": {name: round(spent / events * 1e9) for name, spent in worked.items()},
        "together_s": round(whole, 3),
        "together_cpu_s": round(processor, 3),
        "events_per_s": round(events / whole),
        "events_per_cpu_s": round(events / processor),
        "first_batch_s": round(sum(first[0].values()), 3),
    }


def sequence(bus: Bus, case: str) -> int:
    """Decide the order of everything that is on a case's inputs; the number of the last entry."""
    streams, runtime = streams_of(case), ThreadRuntime()
    inputs = inputs_of(bus, streams, CASES[case].graph())
    start = SequencePosition(ends=dict.fromkeys(inputs.logs, 0))
    options = SequencerOptions(entry_events=ENTRY_EVENTS)
    sequencer = Sequencer(bus.open(streams.sequence), inputs, runtime, options, start)
    sequencer.lead()
    while not sequencer.is_caught_up():
        sequencer.step()
    return sequencer.position.number
