"""A hundred thousand groups in three windows: what a snapshot of them weighs, and how long it stops the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lockstep.bench.engine_jobs import Job, Say, alone, ingest, run_job
from lockstep.bench.engine_profile import Bench, sequence
from lockstep.bench.processes import Link
from lockstep.bench.scratch import scratch_folder
from lockstep.engine.data.models import GROUPS
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime

CASE, WANTED = "groups", ("items/Aggregate5min",)
_SNAPSHOT_EVERY_S = 2.0


def many_groups(events: int, say: Say) -> dict[str, Any]:
    """Take snapshots in one process, as a worker does; then run the same on Spark, with snapshots every two seconds."""
    with scratch_folder() as folder:
        url = f"lmdb:{folder / 'bus'}?durability=relaxed"
        say(f"putting {events:,} events of {GROUPS:,} groups on a bus")
        alone(ingest, url, CASE, events, WANTED, say=say)
        snapshots = alone(_snapshots, url, str(folder), say=say)
    found = run_job(
        Job(case=CASE, wanted=WANTED, events=events, batch_events=100_000, snapshot_every_s=_SNAPSHOT_EVERY_S), say
    )
    kept = ("steady_events_per_s", "rows", "checkpoint_bytes", "state_bytes", "memory_mb", "spark_batches")
    slowest = max((batch.get("triggerExecution", 0) for batch in found["batch_ms"][1:]), default=0)
    return {"groups": GROUPS, "events": events, **snapshots,
            "spark": {**{name: found[name] for name in kept}, "slowest_batch_ms": slowest}}  # fmt: skip


def _snapshots(link: Link, url: str, folder: str) -> dict[str, Any]:
    link.ready()
    bus = open_bus(url, ThreadRuntime())
    try:
        last = sequence(bus, CASE)
        bench = Bench(bus, CASE, WANTED, Path(folder))
        while bench.position.number < last - 2:
            bench.batch(100_000, last - 2)
        whole = bench.snapshot()
        changed = {}
        for entry in (last - 1, last):
            count = bench.batch(1 << 40, entry)
            changed[f"after {count} events"] = bench.snapshot()
    finally:
        bus.close()
    busy = sum(bench.stages(bench.spent).values())
    return {
        "one_process_events_per_s": round(bench.position.events / busy),
        "snapshot_of_everything": whole,
        "snapshots_of_changes": changed,
    }
