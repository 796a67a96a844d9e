"""The engine's figures with their targets, as rows of one table: `lockstep bench engine`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from lockstep.bench import (
    engine_groups,
    engine_kernel,
    engine_live,
    engine_peers,
    engine_profile,
    engine_records,
    engine_shards,
    engine_start,
)
from lockstep.bench.engine_jobs import Job, Say, run_job
from lockstep.bench.rows import Row, as_data
from lockstep.drill import measure
from lockstep.engine.data.models import DAY, NAMED, VWAP, expected_rows
from lockstep.errors import LockstepError

ALL_THREE = engine_kernel.ALL_THREE
WARM_BATCHES = 40
STEADY = 3
"""How many times as many events the rows of steady rates take: what lies between two batches has to be in them."""
LARGE = 10
"""How many times as many events the large rows take."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineBench:
    """What to measure. The targets are those for a million events on two cores."""

    events: int = 1_000_000
    only: tuple[str, ...] = ()
    peers: bool = True
    large: bool = False
    seconds: float = 30.0
    rate: int = 10_000
    batch_events: int = 600_000
    bytewax_python: str | None = None

    def __post_init__(self) -> None:
        unknown = sorted(set(self.only) - set(PARTS))
        if unknown:
            message = f"there is no row {', '.join(unknown)}; there are {', '.join(PARTS)}"
            raise ValueError(message)
        if self.events <= self.batch_events:
            message = f"events={self.events} must be more than one batch of {self.batch_events}"
            raise ValueError(message)

    @property
    def parts(self) -> list[str]:
        """The parts to be measured, in order."""
        chosen = [name for name in PARTS if not self.only or name in self.only]
        left_out = {name for name, wanted in (("peers", self.peers), ("large", self.large)) if not wanted}
        return [name for name in chosen if name not in left_out or name in self.only]


class Runs:
    """Runs that several rows look at; each is done once, when it is first asked for."""

    def __init__(self, options: EngineBench, say: Say) -> None:
        self.options, self.say = options, say

    @cached_property
    def one(self) -> dict[str, Any]:
        """All seven windows, one published."""
        return self.run("seven", (DAY,), STEADY)

    @cached_property
    def three(self) -> dict[str, Any]:
        """All seven windows, the three aggregates published."""
        return self.run("seven", ALL_THREE, STEADY)

    @cached_property
    def five(self) -> dict[str, Any]:
        """The five-minute window alone, without warm-up: those it is compared with have none."""
        return self.run("five", (VWAP,), STEADY, warm_batches=0)

    @cached_property
    def kept(self) -> engine_kernel.Kept:
        """The trades in memory."""
        return engine_kernel.keep("seven", self.options.events)

    def run(
        self, case: str, wanted: tuple[str, ...], times: int = 1, warm_batches: int = WARM_BATCHES
    ) -> dict[str, Any]:
        """A run over input that is there."""
        job = Job(
            case=case,
            wanted=wanted,
            events=self.options.events * times,
            batch_events=self.options.batch_events,
            warm_batches=warm_batches,
        )
        return run_job(job, self.say)


def all_rows(options: EngineBench, say: Say) -> Iterator[Row]:
    """Measure everything that is wanted, one after the other. What fails becomes a row that says so."""
    runs = Runs(options, say)
    for name in options.parts:
        runs.say = _with_name(say, name)
        others = measure.Others()
        try:
            for row in PARTS[name](runs):
                yield replace(row, others_cores=others.cores())
        except (LockstepError, OSError, RuntimeError, subprocess.SubprocessError) as error:
            runs.say(f"failed: {error}")
            yield Row(name=f"{name}: failed", value=1.0, unit="records", limit=0.0, at_least=False,
                      details={"error": str(error)})  # fmt: skip


def _with_name(say: Say, name: str) -> Say:
    return lambda text: say(f"{name}: {text}")


def run(options: EngineBench, progress: Say | None = None) -> dict[str, Any]:
    """Measure; the rows as plain data, with what the figures depend on."""
    facts = {**measure.machine(), **asdict(options), "only": list(options.only)}
    rows = list(all_rows(options, progress or (lambda _: None)))
    return {"machine": facts, "rows": [as_data(row) for row in rows]}


def _one(runs: Runs) -> Iterator[Row]:
    yield from _throughput(runs.one, "seven windows, Aggregate24HR published", 350e3)


def _three(runs: Runs) -> Iterator[Row]:
    yield from _throughput(runs.three, "seven windows, all three aggregates published", 200e3)


def _throughput(found: dict[str, Any], name: str, limit: float) -> Iterator[Row]:
    name = f"{found['events']:,} trades in blocks of 1, {name}"
    yield Row(name=f"{name}: steady", value=found["steady_events_per_s"], unit="/s", limit=limit, details=found)
    yield Row(name=f"{name}: with Spark's start", value=found["total_events_per_s"], unit="/s", details={})
    wrong = wrong_counts(found)
    yield Row(name=f"{name}: counts that are not the document's", value=len(wrong), unit="records", limit=0.0,
              at_least=False, details=wrong)  # fmt: skip


def wrong_counts(found: dict[str, Any]) -> dict[str, Any]:
    """The windows of the trades model whose rows are not what they must be, and the lines out of Aggregate24HR."""
    expected = expected_rows(found["events"])
    wrong = {
        path: {"expected": rows, "found": found["rows"].get(path)}
        for path, rows in expected.items()
        if found["rows"].get(path) != rows
    }
    lines, out = 2 * found["events"] - expected.get(DAY, 0), found["events_out"].get(DAY)
    if DAY in expected and expected["trades/Copy24HRRet"] == found["events"] and out != lines:
        wrong[f"{DAY} lines"] = {"expected": lines, "found": out}
    return wrong


def _live(runs: Runs) -> Iterator[Row]:
    options = runs.options
    found = engine_live.live("seven", DAY, runs.say, rate=options.rate, seconds=options.seconds)
    name = f"live at {options.rate:,} events/s, publish to durable out stream"
    limits = {"p50": 250.0, "p90": None, "p99": 600.0, "max": None}
    for at, limit in limits.items():
        yield Row(name=f"{name}: {at}", value=found["latency_ms"][at], unit="ms", limit=limit, at_least=False,
                  details=found if at == "p50" else {})  # fmt: skip
    yield Row(name=f"{name}: a micro-batch, median", value=found["batch_ms"]["p50"], unit="ms", details={})


def _memory(runs: Runs) -> Iterator[Row]:
    for found, name in ((runs.one, "seven windows"), (runs.five, "the five-minute window")):
        limit = 2048.0 if name == "seven windows" else None
        what = f"memory of all processes without file pages, {name}, {found['events']:,} events"
        parts = {"parts_mb": found["memory_parts_mb"], "peak_mb": found["memory_peak_mb"]}
        yield Row(name=what, value=found["memory_mb"], unit="MB", limit=limit, at_least=False, details=parts)
        yield Row(name=f"{what}: the most", value=found["memory_peak_mb"], unit="MB", details={})


def _large(runs: Runs) -> Iterator[Row]:
    runs.say(f"the five-minute window, {LARGE} times as many events")
    many = runs.run("five", (VWAP,), LARGE, warm_batches=0)
    name = f"the five-minute window, {many['events']:,} events"
    yield Row(name=f"memory, {name}", value=many["memory_mb"], unit="MB", details=many)
    growth = many["memory_mb"] / runs.five["memory_mb"]
    yield Row(name=f"memory, {name}, by that of {runs.five['events']:,}", value=round(growth, 3), unit="x", limit=1.1,
              at_least=False, details={})  # fmt: skip
    runs.say(f"seven windows, {LARGE} times as many events")
    many = runs.run("seven", (DAY,), LARGE)
    yield from _by_time(runs.one, many)
    wrong = wrong_counts(many)
    yield Row(name=f"{many['events']:,} trades: counts that are not as they must be", value=len(wrong), unit="records",
              limit=0.0, at_least=False, details=wrong)  # fmt: skip


def _by_time(few: dict[str, Any], many: dict[str, Any]) -> Iterator[Row]:
    """Steady times, so that Spark's start does not make the small run look slow."""
    name = f"{many['events']:,} trades, seven windows, Aggregate24HR published"
    yield Row(name=f"{name}: steady", value=many["steady_events_per_s"], unit="/s", details=many)
    times = (many["events"] / many["steady_events_per_s"]) / (few["events"] / few["steady_events_per_s"])
    limit = 1.1 * many["events"] / few["events"]
    yield Row(name=f"{name}: time by that of {few['events']:,}", value=round(times, 2), unit="x", limit=limit,
              at_least=False, details={})  # fmt: skip
    yield Row(name=f"{name}: memory", value=many["memory_mb"], unit="MB", details={})


def _groups(runs: Runs) -> Iterator[Row]:
    found = engine_groups.many_groups(runs.options.events, runs.say)
    name = f"{found['groups']:,} groups in three windows"
    whole = found["snapshot_of_everything"]
    changed = list(found["snapshots_of_changes"].items())
    yield Row(name=f"{name}, on Spark: steady", value=found["spark"]["steady_events_per_s"], unit="/s", details=found)
    yield Row(name=f"{name}: snapshot of everything", value=whole["bytes"] / 1e6, unit="MB", details={})
    yield Row(name=f"{name}: pause for it", value=whole["pause_s"] * 1e3, unit="ms", details={})
    for after, snapshot in changed[-1:]:
        yield Row(name=f"{name}: snapshot {after} more", value=snapshot["bytes"] / 1e6, unit="MB", details={})
        yield Row(name=f"{name}: pause for that", value=snapshot["pause_s"] * 1e3, unit="ms", details={})


def _start(runs: Runs) -> Iterator[Row]:
    found = engine_start.first_result(runs.say)
    name = "from the command to the result, a small file"
    yield Row(name=f"{name}, without archive", value=found["cold"]["seconds"], unit="s", details=found)
    if "with_archive" in found:
        value = found["with_archive"]["seconds"]
        yield Row(name=f"{name}, with an archive of classes", value=value, unit="s", details={})


def _kernel(runs: Runs) -> Iterator[Row]:
    for wanted, what in (((DAY,), "one aggregate"), (ALL_THREE, "three aggregates")):
        runs.say(f"seven windows without Spark, {what}")
        found = engine_kernel.kernel("seven", runs.kept, wanted)
        name = f"windows alone on one core, seven windows, {what} given out"
        yield Row(name=name, value=found["events_per_s"], unit="/s", details=found)
    runs.say("replay")
    found = engine_kernel.kernel("seven", runs.kept, (DAY,), silent=True)
    yield Row(name="windows alone on one core, silent (replay)", value=found["events_per_s"], unit="/s", details=found)
    runs.say("frames and CSV")
    found = engine_kernel.forms("seven", runs.kept, (DAY,))
    for figure, what in (("decode_needed_columns_per_s", "decode frames"), ("encode_per_s", "encode frames"),
                         ("csv_read_per_s", "read CSV"), ("csv_write_per_s", "write CSV")):  # fmt: skip
        yield Row(name=f"{what}, one core", value=found[figure], unit="/s", details=found if "decode" in what else {})
    runs.say("the interpreter")
    found = engine_kernel.interpreter("seven", runs.kept)
    yield Row(name="the plain interpreter, seven windows", value=found["events_per_s"], unit="/s", details=found)


def _profile(runs: Runs) -> Iterator[Row]:
    """Each stage in one process, and what Spark adds to that."""
    options = runs.options
    found = engine_profile.profile("seven", (DAY,), options.events, options.batch_events, runs.say)
    found = {**found, "spark": spark_share(runs.one)}
    name = "all stages one after the other in one process, without Spark"
    yield Row(name=name, value=found["events_per_s"], unit="/s", details=found)


def spark_share(found: dict[str, Any]) -> dict[str, Any]:
    """For the batches after the first: how long Spark reports for them, and how much of it workers spent on windows."""
    batches = found["batch_ms"][1:] or found["batch_ms"]
    parts = sorted({name for batch in batches for name in batch})
    return {
        "batches": len(batches),
        "parts_ms": {name: round(sum(batch.get(name, 0) for batch in batches) / len(batches)) for name in parts},
        "batch_s": round(sum(batch.get("triggerExecution", 0) for batch in batches) / 1e3, 3),
        "busy_s_of_the_run": found["busy_s"],
    }


def _shards(runs: Runs) -> Iterator[Row]:
    runs.say("work of each shard, without Spark")
    options = runs.options
    found = engine_shards.divided("seven", ALL_THREE, options.events, options.batch_events, runs.say)
    one = found["shards"]["1"]["longest_s"]
    yield Row(name="work of 1 shard", value=one, unit="processor s", details=found)
    for number, limit in (("2", 0.55), ("4", 0.30)):
        each = found["shards"][number]
        yield Row(name=f"work of the busiest of {number} shards, by that of 1", value=round(each["longest_s"] / one, 3),
                  unit="x", limit=limit, at_least=False, details={})  # fmt: skip
        yield Row(name=f"work of {number} shards together, by that of 1", value=round(each["together_s"] / one, 3),
                  unit="x", limit=1.15, at_least=False, details={})  # fmt: skip


def _records(runs: Runs) -> Iterator[Row]:
    """A stream that is not the project's own, one record a block."""
    for form, found in engine_records.sequenced(runs.options.events, runs.say).items():
        if form == "as they are":
            yield Row(name="records of any stream, sequenced", value=found["sequenced_per_s"], unit="/s",
                      limit=200e3, details=found)  # fmt: skip
        yield Row(name=f"records of any stream, {form}: read, decoded and checked", value=found["read_per_s"],
                  unit="/s", details=found)  # fmt: skip


def _join(runs: Runs) -> Iterator[Row]:
    """A stream joined with a table: the windows alone, on Spark, and the same with Bytewax."""
    options, name = runs.options, f"{runs.options.events:,} trades joined with a table"
    for case, what in (("join", ""), ("join_kept", ", trades kept")):
        runs.say(f"without Spark{what}")
        kept = engine_kernel.keep(case, options.events)
        found = engine_kernel.kernel(case, kept, (NAMED,))
        yield Row(name=f"{name}{what}: windows alone on one core", value=found["events_per_s"], unit="/s",
                  details=found)  # fmt: skip
        found = engine_kernel.changed_table(case, kept, (NAMED,))
        yield Row(name=f"{name}{what}: the same with a change of the table after each 1,000, by processor time",
                  value=found["events_per_cpu_s"], unit="/s", details=found)  # fmt: skip
    found = runs.run("join", (NAMED,), STEADY)
    long = f"{options.events * STEADY:,} trades joined with a table"
    yield Row(name=f"{long}, on Spark: steady", value=found["steady_events_per_s"], unit="/s", limit=150e3,
              details=found)  # fmt: skip
    if options.peers:
        yield from _join_peers(runs, found)


def _join_peers(runs: Runs, found: dict[str, Any]) -> Iterator[Row]:
    options = runs.options
    both = engine_peers.join_side_by_side(options.events, options.bytewax_python, runs.say, found)
    name, details = f"{options.events:,} trades joined with a table", both
    for key, peer in (("bytewax", "Bytewax"), *((key, other.name) for key, other in engine_peers.OTHERS.items())):
        if "missing" in both[key]:
            runs.say(both[key]["missing"])
            continue
        yield Row(name=f"{name}, {peer}", value=both[key]["events_per_s"], unit="/s", details=details)
        yield Row(name=f"{name}: Lockstep on Spark by {peer}", value=both[f"ratio_to_{key}"], unit="x", details={})
        details = {}


def _peers(runs: Runs) -> Iterator[Row]:
    options = runs.options
    found = engine_peers.side_by_side(options.events, options.batch_events, options.bytewax_python, runs.say, runs.five)
    name = "volume-weighted price over five minutes"
    yield Row(name=f"{name}, Lockstep on Spark", value=found["lockstep"]["events_per_s"], unit="/s", details=found)
    if "missing" in found["bytewax"]:
        runs.say(found["bytewax"]["missing"])
    else:
        value = found["bytewax"]["events_per_s"]
        yield Row(name=f"{name}, Bytewax in memory", value=value, unit="/s", details=found["bytewax"])
        yield Row(name=f"{name}: Lockstep by Bytewax", value=found["ratio_to_bytewax"], unit="x", details={})
    value = found["spark"]["events_per_s"]
    yield Row(name=f"{name}, applyInPandasWithState by hand", value=value, unit="/s", details=found["spark"])
    yield Row(name=f"{name}: Lockstep by that", value=found["ratio_to_spark"], unit="x", details={})
    if "missing" in found["flink"]:
        runs.say(found["flink"]["missing"])
    else:
        yield Row(name=f"{name}, PyFlink", value=found["flink"]["events_per_s"], unit="/s", details=found["flink"])
        yield Row(name=f"{name}: Lockstep by PyFlink", value=found["ratio_to_flink"], unit="x", details={})


PARTS: dict[str, Callable[[Runs], Iterator[Row]]] = {
    "one": _one,
    "three": _three,
    "live": _live,
    "memory": _memory,
    "groups": _groups,
    "start": _start,
    "kernel": _kernel,
    "profile": _profile,
    "shards": _shards,
    "records": _records,
    "join": _join,
    "peers": _peers,
    "large": _large,
}
"""What `only` may name, in the order of the table."""
