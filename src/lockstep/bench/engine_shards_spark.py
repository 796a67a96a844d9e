"""How work divides over shards on Spark: what the machine counts for the Python processes of each shard."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from lockstep.bench.engine_jobs import Job, Say, run_job
from lockstep.bench.engine_memory import RUN_VARIABLE

FEW_EVENTS = 300_000
"""A run with so many is taken off: what each process does once, such as loading compiled loops, is in both."""


def on_spark(job: Job, numbers: Sequence[int], say: Say) -> dict[str, Any]:
    """The same events with several numbers of shards: CPU seconds of each, for the events after the first few."""
    found = {}
    for number in numbers:
        few, many = (_run(replace(job, shards=number, events=events), say) for events in (FEW_EVENTS, job.events))
        busy = [round(most - least, 3) for most, least in zip(many["shard_s"], few["shard_s"], strict=True)]
        found[str(number)] = {"busy_s": busy, "longest_s": max(busy), "together_s": round(sum(busy), 3),
                              "whole_s": many["shard_s"], "rows": many["rows"]}  # fmt: skip
        say(f"{number} shards: {busy} s, with all that is done once {many['shard_s']} s")
    return {"events": job.events - FEW_EVENTS, "shards": found}


def _run(job: Job, say: Say) -> dict[str, Any]:
    """One run; the processor seconds of each shard are those of its processes."""
    run = uuid4().hex
    os.environ[RUN_VARIABLE] = run  # for workers on this machine; those of a cluster have it from the setting
    try:
        done = run_job(replace(job, spark={**job.spark, f"spark.executorEnv.{RUN_VARIABLE}": run}), say)
    finally:
        del os.environ[RUN_VARIABLE]
    return {**done, "shard_s": [round(done["shard_s"].get(str(shard), 0.0), 3) for shard in range(job.shards)]}
