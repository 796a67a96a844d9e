"""Runs of the engine on Spark, each in processes of its own: one puts the input on a bus, one evaluates it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from lockstep.bench import engine_memory
from lockstep.bench.processes import Crew, Link, Role
from lockstep.bench.scratch import scratch_folder
from lockstep.engine.data.models import CASES
from lockstep.engine.events.frames import read_head
from lockstep.engine.runtime.engine import Engine, EngineOptions, EngineStatus
from lockstep.engine.runtime.output.event_streams import EventPublisher
from lockstep.engine.runtime.output.outlet import is_barrier
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.log.batch import BatchView
from lockstep.log.port import Log
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.streams.client import Lockstep

CLUSTER = "bench"
ENTRY_EVENTS = 50_000
_TELL_S, _MEMORY_S = 1.0, 1.0
_READ_BYTES = 8 << 20

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A run over input that is there before it begins."""

    case: str
    wanted: tuple[str, ...]
    events: int
    batch_events: int = 600_000
    snapshot_every_s: float = 10.0
    durability: str = "relaxed"
    warm_batches: int = 40
    """Empty micro-batches before the events come: a new JVM is slow at first, and that is not what is measured."""
    spark: Mapping[str, str] = field(default_factory=dict)
    shards: int = 1
    master: str | None = None


def run_job(job: Job, say: Say, *, parent: str | None = None) -> dict[str, Any]:
    """Put the events on a bus of their own, run the engine until all are out, and return the figures of both."""
    with scratch_folder(parent) as folder:
        url = f"lmdb:{folder / 'bus'}?durability={job.durability}"
        say(f"putting {job.events:,} events on a bus")
        fed = alone(ingest, url, job.case, job.events, job.wanted, say=say)
        say("starting Spark")
        return {"input": fed, **alone(evaluate, url, str(folder / "engine"), job, say=say)}


def alone(role: Role, *arguments: object, say: Say, timeout: float = 3600.0) -> Any:
    """What a role answers that plays in a process of its own; what it tells on the way is passed on."""
    with Crew() as crew:
        crew.start(role, *arguments)
        crew.go()
        end = time.monotonic() + timeout
        while True:
            kind, what = crew.hear(0, max(end - time.monotonic(), 0.1))
            if kind == "done":
                return what
            say(str(what))


def streams_of(case: str) -> ProjectStreams:
    """The streams of a case's project."""
    return ProjectStreams(cluster=CLUSTER, project=CASES[case].project().name)


def ingest(link: Link, url: str, case: str, events: int, wanted: tuple[str, ...]) -> dict[str, Any]:
    """Publish events in blocks of one."""
    link.ready()
    graph, runtime, streams = CASES[case].graph(), ThreadRuntime(), streams_of(case)
    node = graph.find(CASES[case].source)
    with Lockstep(open_bus(url, runtime), runtime) as connection:
        streams.create(connection.bus, graph, frozenset(wanted))
        assert node is not None
        if CASES[case].table is not None:
            publish_table(connection, case)
        publisher = EventPublisher(connection, streams.input(node), node.schema)
        spent = 0.0
        for batch in CASES[case].events(events):
            began = time.monotonic()
            publisher.publish_batch(batch)
            spent += time.monotonic() - began
        began = time.monotonic()
        publisher.close()
        spent += time.monotonic() - began
    return {"events": events, "seconds": round(spent, 3), "events_per_s": round(events / spent)}


def publish_table(connection: Lockstep, case: str) -> None:
    """Put the rows of a case's table on their stream."""
    table = CASES[case].table
    assert table is not None
    path, rows = table
    node = CASES[case].graph().find(path)
    assert node is not None
    publisher = EventPublisher(connection, streams_of(case).input(node), node.schema)
    publisher.publish_batch(rows())
    publisher.close()


def evaluate(link: Link, url: str, folder: str, job: Job) -> dict[str, Any]:
    """Run the engine until everything that is on the inputs is out."""
    link.ready()
    graph, runtime, watch = CASES[job.case].graph(), ThreadRuntime(), Watch(link.tell)
    options = EngineOptions(
        cluster=CLUSTER,
        batch_events=job.batch_events,
        entry_events=ENTRY_EVENTS,
        snapshot_every_s=job.snapshot_every_s,
        ticks=False,
        warm_batches=job.warm_batches,
        spark=job.spark,
        shards=job.shards,
        master=job.master,
    )
    with Lockstep(open_bus(url, runtime), runtime) as connection:
        began = time.monotonic()
        engine = Engine(graph, frozenset(job.wanted), connection.bus, Path(folder), runtime, options)
        with engine:
            ready = time.monotonic()
            engine.drain(progress=watch)
            ended = time.monotonic()
            spent = engine_memory.shard_seconds(os.environ.get(engine_memory.RUN_VARIABLE, ""))
            watch.see(engine.status())
            found = watch.figures()
        node = graph.find(job.wanted[0])
        assert node is not None
        batches = publications(connection.bus.open(engine.streams.output(node)))
    return {
        "job": asdict(job),
        "events": job.events,
        **steadiness(batches, job.batch_events),
        "shard_s": spent,
        "spark_ready_s": round(ready - began, 3),
        "total_s": round(ended - began, 3),
        "total_events_per_s": round(job.events / (ended - began)),
        "checkpoint_bytes": _bytes_below(Path(folder, "checkpoint")),
        **found,
    }


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class Watch:
    """Looks at an engine while it runs: says how far it is, and keeps what its batches and its memory were."""

    def __init__(self, say: Say) -> None:
        self._say, self._told_at, self._looked_at = say, 0.0, 0.0
        self._told = -1
        self.batches: list[dict[str, int]] = []
        self._seen = 0
        self._memory: list[float] = []
        self._status: EngineStatus | None = None

    def __call__(self, status: EngineStatus) -> None:
        """Called often."""
        now = time.monotonic()
        self._take_batches(status)
        if now - self._looked_at >= _MEMORY_S:
            self._looked_at = now
            self._memory.append(engine_memory.tree_mb())
        if now - self._told_at >= _TELL_S and status.published_events != self._told:
            self._told_at, self._told = now, status.published_events
            self._say(f"{status.published_events:,} of {status.sequenced.events:,} events")

    def see(self, status: EngineStatus) -> None:
        """The end."""
        self._take_batches(status)
        self._status = status

    def _take_batches(self, status: EngineStatus) -> None:
        for figures in status.spark.values():
            if figures.batches > self._seen:
                self._seen = figures.batches
                self.batches.append(dict(figures.last_ms))

    def figures(self) -> dict[str, Any]:
        """Everything that was seen; the memory is that of now."""
        assert self._status is not None
        memory = engine_memory.tree_mb()
        spark = next(iter(self._status.spark.values()), None)
        return {
            "rows": {path: counts.rows for path, counts in self._status.counts.items()},
            "events_out": {path: counts.events_out for path, counts in self._status.counts.items()},
            "bad": dict(self._status.bad),
            "busy_s": round(self._status.busy_s, 3),
            "spark_batches": self._seen,
            "spark_ms": dict(spark.total_ms) if spark else {},
            "state_bytes": spark.state_bytes if spark else 0,
            "batch_ms": self.batches[-1000:],
            "memory_mb": memory,
            "memory_peak_mb": max([memory, *self._memory]),
            "memory_parts_mb": engine_memory.parts_mb(),
        }


def publications(out: Log) -> list[tuple[int, int]]:
    """When each batch was published, in nanoseconds, and its last block: as it stands on the out stream."""
    found: list[tuple[int, int]] = []
    bounds = out.bounds()
    at = bounds.first
    while at < bounds.next:
        for stored in out.read(at, max_bytes=_READ_BYTES):
            view = BatchView(stored.base, stored.data, out.name)
            at = view.end
            frames = [value for value in view.values() if not is_barrier(value)]
            if not frames:
                continue
            last = read_head(frames[-1]).last
            if found and found[-1][0] == view.created_ns:
                found[-1] = (view.created_ns, last)
            else:
                found.append((view.created_ns, last))
    return found


def steadiness(batches: list[tuple[int, int]], first_batch: int = 0) -> dict[str, Any]:
    """Events a second until the last publication: neither the start nor the first batch is in it.

    The output of a batch comes in parts, and some may be computed when the first one is published. So it begins with
    the publication that reaches as many events as the first batch has at most, if others follow it.
    """
    begins = [at for at, (_, last) in enumerate(batches[:-1]) if last >= first_batch]
    batches = batches[begins[0] if begins else 0 :]
    (began, first), (ended, last) = batches[0], batches[-1]
    seconds = (ended - began) / 1e9
    rates = [
        round((there - here) / ((then - now) / 1e9)) for (now, here), (then, there) in islice(pairwise(batches), 100)
    ]
    return {
        "steady_events": last - first,
        "steady_s": round(seconds, 3),
        "steady_events_per_s": round((last - first) / seconds) if seconds else None,
        "publications": len(batches),
        "batch_events_per_s": rates,
    }
