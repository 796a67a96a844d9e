"""The engine's figures as a page of the documentation."""

from __future__ import annotations

from typing import Any

from report import where_and_how

from lockstep.bench.rows import Row

_INTRO = """# The engine: measured

The trades model of `examples/trades`: a source, three copies (five minutes, an hour, a day) and an aggregate below
each, fed with trades in blocks of one. The input is on a bus before the engine starts, put there by another process.

"steady" is counted from the moment at which as many events as the first batch has at most are on the out stream to the
moment at which the last one is, and the events between: neither Spark's start nor the first batch, which loads compiled
loops, is in it. Both moments are those written into the out stream itself. Before the events come, the engine runs
forty empty micro-batches, because a new JVM is slow at first; an engine does not do so unless told to (`warm_batches`),
so a freshly started one begins slower than this. The runs beside others have no such warm-up, on either side. "with
Spark's start" is everything, from the engine's start on, the empty batches included.

Live: one process publishes bursts every ten milliseconds, another reads the out stream; the latency of an event is from
the call of publish to its decoded out block, on a bus that acknowledges what is on disk (fsync). Bursts sent one by one
and five seconds of warm-up are left out.

Memory is the anonymous memory of the driver, the JVM and all Python workers, pages that a fork left shared counted
once; pages of files, such as the bus, are not in it.

"others' cores" is how many cores everything else on the machine kept busy meanwhile: a row with more than a little
there says as much about the neighbours.
"""


def markdown(facts: dict[str, Any], rows: list[Row]) -> str:
    lines = [_INTRO, "| | target | measured | | others' cores |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {row.name} | {row.target} | {row.measured} | {row.verdict} | {row.others_cores} |" for row in rows]
    lines += ["", "![The figures as bars](engine.png)", ""]
    for part in (_peers, _join, _profile, _live, _shards, _groups, _memory):
        lines += part(rows)
    return "\n".join([*lines, *where_and_how(facts)]) + "\n"


def _details(rows: list[Row], name: str) -> dict[str, Any] | None:
    """What the row knows that has a figure of that name."""
    return next((row.details for row in rows if name in row.details), None)


def _peers(rows: list[Row]) -> list[str]:
    found = _details(rows, "ratio_to_spark")
    if found is None:
        return []
    lines = [
        "## Beside others",
        "",
        "The volume-weighted price of every symbol over five minutes, on the same trades.",
        "",
    ]
    lines += ["| | events/s | Lockstep is | what it does |", "| --- | --- | --- | --- |"]
    names = (("lockstep", "Lockstep on Spark", None), ("bytewax", "Bytewax, one worker", "ratio_to_bytewax"),
             ("spark", "applyInPandasWithState by hand", "ratio_to_spark"),
             ("flink", "PyFlink", "ratio_to_flink"))  # fmt: skip
    for key, name, ratio in names:
        rate = f"{found[key]['events_per_s']:,}" if "events_per_s" in found[key] else "not installed"
        times = f"{found[ratio]} x" if ratio and found[ratio] else "-"
        lines.append(f"| {name} | {rate} | {times} | {found[key]['what']} |")
    return [*lines, ""]


def _join(rows: list[Row]) -> list[str]:
    both = (row.details for row in rows if "ratio_to_bytewax" in row.details)
    found = next((details for details in both if "spark" not in details), None)
    if found is None:
        return []
    lines = ["## A stream joined with a table, beside others", ""]
    lines += ["| | events/s | Lockstep is | what it does |", "| --- | --- | --- | --- |"]
    names = (("lockstep", "Lockstep on Spark"), ("bytewax", "Bytewax, one worker"), ("pathway", "Pathway"),
             ("flink", "PyFlink"))  # fmt: skip
    for key, name in names:
        rate = f"{found[key]['events_per_s']:,}" if "events_per_s" in found[key] else "not installed"
        times = found.get(f"ratio_to_{key}")
        lines.append(f"| {name} | {rate} | {f'{times} x' if times else '-'} | {found[key]['what']} |")
    return [*lines, ""]


def _profile(rows: list[Row]) -> list[str]:
    found = _details(rows, "stages_s")
    if found is None:
        return []
    lines = ["## Where the time goes", ""]
    lines.append(f"Every stage of {found['events']:,} events, one after the other in one process without Spark:")
    lines += ["", "| stage | seconds | part | processor, ns an event |", "| --- | --- | --- | --- |"]
    for name, spent in found["stages_s"].items():
        part = round(100 * spent / found["together_s"])
        lines.append(f"| {name} | {spent:.3f} | {part} % | {found['stages_cpu_ns_per_event'][name]:,} |")
    spark = found["spark"]
    lines += ["", f"On Spark, an average batch after the first ({spark['batches']} of them), as Spark counts it:", ""]
    lines += ["| part of a batch | ms |", "| --- | --- |"]
    lines += [f"| {name} | {spent:,} |" for name, spent in spark["parts_ms"].items()]
    busy, whole = spark["busy_s_of_the_run"], spark["batch_s"]
    lines += ["", f"These batches took {whole} s; in the whole run workers were busy with windows for {busy} s."]
    return [*lines, ""]


def _live(rows: list[Row]) -> list[str]:
    found = _details(rows, "batch_parts_ms")
    if found is None:
        return []
    lines = ["## A live micro-batch", "", f"Of {found['batches']} batches at {found['rate']:,} events/s, medians:", ""]
    lines += ["| part | ms |", "| --- | --- |"]
    lines += [f"| {name} | {spent:g} |" for name, spent in found["batch_parts_ms"].items()]
    return [*lines, ""]


def _shards(rows: list[Row]) -> list[str]:
    found = _details(rows, "shards")
    if found is None:
        return []
    lines = [
        "## Work of each shard",
        "",
        "Processor seconds on the same input, without Spark, all three aggregates:",
        "",
    ]
    lines += ["| shards | each | busiest | together |", "| --- | --- | --- | --- |"]
    for number, each in found["shards"].items():
        busy = ", ".join(f"{spent:.2f}" for spent in each["busy_s"])
        lines.append(f"| {number} | {busy} | {each['longest_s']:.2f} | {each['together_s']:.2f} |")
    return [*lines, ""]


def _groups(rows: list[Row]) -> list[str]:
    found = _details(rows, "snapshot_of_everything")
    if found is None:
        return []
    lines = [f"## {found['groups']:,} groups in three windows", "", "| snapshot | pages | MB | pause, ms |"]
    lines.append("| --- | --- | --- | --- |")
    for name, each in {"of everything": found["snapshot_of_everything"], **found["snapshots_of_changes"]}.items():
        lines.append(f"| {name} | {each['pages']} | {each['bytes'] / 1e6:.1f} | {each['pause_s'] * 1e3:.0f} |")
    return [*lines, ""]


def _memory(rows: list[Row]) -> list[str]:
    found = _details(rows, "parts_mb")
    if found is None:
        return []
    lines = ["## Memory by process", "", "Seven windows, at the end of the run:", "", "| | MB |", "| --- | --- |"]
    lines += [f"| {name} | {size:,.0f} |" for name, size in found["parts_mb"].items()]
    return [*lines, ""]
