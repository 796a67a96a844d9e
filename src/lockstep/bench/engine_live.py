"""Live: trades published at an even pace, and how long it takes until a reader has what came out of them."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.bench.engine_jobs import CLUSTER, ENTRY_EVENTS, Say, Watch, publications, streams_of
from lockstep.bench.processes import CONTEXT, Crew, Link
from lockstep.bench.scratch import scratch_folder
from lockstep.drill import measure
from lockstep.engine.data.models import CASES
from lockstep.engine.events.columns import concat
from lockstep.engine.events.frames import decode_frame
from lockstep.engine.runtime.engine import Engine, EngineOptions
from lockstep.engine.runtime.output.event_streams import EventPublisher
from lockstep.engine.runtime.output.outlet import is_barrier
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.streams.client import Lockstep

BURST_S = 0.01
WARM_S = 5.0
PILOTS = 5
"""Bursts that are sent one by one, each when the last one is out, before the pace begins: the engine is warm then."""
_PILOT_S_MAX = 120.0
_END_S_MAX = 180.0

Times = list[tuple[int, int, float]]
"""First block, last block, and the monotonic time of something that happened to them."""


def live(case: str, wanted: str, say: Say, *, rate: int = 10_000, seconds: float = 30.0) -> dict[str, Any]:
    """Latency from the call of publish to the decoded out block, on a bus that acknowledges what is on disk."""
    burst = max(1, round(rate * BURST_S))
    warm = PILOTS * burst + round(rate * WARM_S)
    total = warm + round(rate * seconds)
    seen = CONTEXT.RawValue("Q", 0)
    with scratch_folder() as folder, Crew() as crew:
        url = f"lmdb:{folder / 'bus'}"
        with Lockstep(open_bus(url, ThreadRuntime()), ThreadRuntime()) as connection:
            streams_of(case).create(connection.bus, CASES[case].graph(), frozenset({wanted}))
        say("starting Spark, a publisher and a reader")
        crew.start(_evaluate, url, str(folder / "engine"), case, wanted, total)
        crew.start(_publish, url, case, total, burst, rate, seen)
        crew.start(_read, url, case, wanted, total, seen)
        crew.go()
        say(f"publishing {rate:,} events/s for {WARM_S + seconds:g} s")
        engine, sent, read = crew.answers(_PILOT_S_MAX * PILOTS + WARM_S + seconds + _END_S_MAX)
    return {"rate": rate, "seconds": seconds, **_figures(sent, read, warm), **engine}


def _figures(sent: Times, read: Times, warm: int) -> dict[str, Any]:
    """Latencies in milliseconds of all events after the warm-up."""
    latencies = latencies_ms(sent, read)[warm:]
    paced = [(first, at) for first, _, at in sent if first > warm]
    achieved = (paced[-1][0] - paced[0][0]) / max(paced[-1][1] - paced[0][1], 1e-9)
    names = (("p50", 50.0), ("p90", 90.0), ("p99", 99.0))
    return {
        "events": len(latencies),
        "achieved_per_s": round(achieved),
        "latency_ms": {
            **{name: round(measure.percentile(latencies, at), 1) for name, at in names},
            "max": round(max(latencies), 1),
        },
    }


def latencies_ms(sent: Times, read: Times) -> list[float]:
    """For each block, from the first one on, when it was read minus when it was published."""
    found: list[float] = ((_by_block(read) - _by_block(sent)) * 1e3).tolist()
    return found


def _by_block(times: Times) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The time of every block; blocks follow each other without gaps."""
    sizes = [last - first + 1 for first, last, _ in times]
    return np.repeat([at for _, _, at in times], sizes)


def _publish(link: Link, url: str, case: str, total: int, burst: int, rate: int, seen: Any) -> Times:
    graph, streams = CASES[case].graph(), streams_of(case)
    node = graph.find(CASES[case].source)
    assert node is not None
    batch, sent = concat(list(CASES[case].events(total))), []
    with Lockstep(open_bus(url, ThreadRuntime()), ThreadRuntime()) as connection:
        publisher = EventPublisher(connection, streams.input(node), node.schema)
        link.ready()
        started = time.monotonic()
        for start in range(0, total, burst):
            stop = min(start + burst, total)
            if start <= PILOTS * burst:
                _await(seen, start)
                started = time.monotonic() - start / rate
            time.sleep(max(0.0, started + start / rate - time.monotonic()))
            at = time.monotonic()
            publisher.publish_batch(batch.slice(start, stop))
            sent.append((start + 1, stop, at))
        publisher.close()
    return sent


def _await(seen: Any, block: int) -> None:
    """Wait until the reader has a block."""
    end = time.monotonic() + _PILOT_S_MAX
    while seen.value < block:
        if time.monotonic() > end:
            message = f"block {block} did not come out within {_PILOT_S_MAX:.0f} s"
            raise TimeoutError(message)
        time.sleep(0.01)


def _read(link: Link, url: str, case: str, wanted: str, total: int, seen: Any) -> Times:
    node = CASES[case].graph().find(wanted)
    assert node is not None
    times: Times = []
    with Lockstep(open_bus(url, ThreadRuntime()), ThreadRuntime()) as connection:
        subscriber = connection.subscriber(streams_of(case).output(node), initial="earliest", create=False)
        link.ready()
        last = 0
        while last < total:
            for value in subscriber.poll(1.0).values():
                if is_barrier(value):
                    continue
                frame = decode_frame(value, node.schema)
                if frame.head.last > last:
                    times.append((last + 1, frame.head.last, time.monotonic()))
                    last = seen.value = frame.head.last
        subscriber.close()
    return times


def _evaluate(link: Link, url: str, folder: str, case: str, wanted: str, total: int) -> dict[str, Any]:
    graph, runtime, watch = CASES[case].graph(), ThreadRuntime(), Watch(lambda _: None)
    options = EngineOptions(cluster=CLUSTER, entry_events=ENTRY_EVENTS, ticks=False, warm_batches=40)
    with Lockstep(open_bus(url, runtime), runtime) as connection:
        engine = Engine(graph, frozenset({wanted}), connection.bus, Path(folder), runtime, options)
        with engine:
            link.ready()
            watch.see(engine.run_until(lambda status: status.published_events >= total, progress=watch))
            found = watch.figures()
        node = graph.find(wanted)
        assert node is not None
        out = publications(connection.bus.open(engine.streams.output(node)))
    gaps = [(then - now) / 1e6 for (now, _), (then, _) in pairwise(out)]
    paced = watch.batches[PILOTS:]
    batches = [float(batch["triggerExecution"]) for batch in paced if "triggerExecution" in batch]
    return {
        "batch_ms": {name: round(measure.percentile(batches, at), 1) for name, at in (("p50", 50), ("p99", 99))},
        "between_publications_ms": round(measure.percentile(gaps, 50), 1),
        "batches": len(batches),
        "batch_parts_ms": _medians(paced),
        "memory_mb": found["memory_mb"],
        "rows": found["rows"],
    }


def _medians(batches: list[dict[str, int]]) -> dict[str, float]:
    """What a typical batch spends its time with, as Spark counts it."""
    names = sorted({name for batch in batches for name in batch})
    return {name: round(measure.percentile([float(batch.get(name, 0)) for batch in batches], 50), 1) for name in names}
