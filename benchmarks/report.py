"""The figures as a page of the documentation."""

from __future__ import annotations

from typing import Any

from lockstep.bench.rows import Row

_INTRO = """# Streams: measured

Publishers and subscribers are processes of their own on one embedded bus. Deliveries are the records received, summed
over all subscribers; the clock runs from the moment all processes are ready until the last subscriber has the last
record. "bytes" makes a `bytes` of every record (`batch.values()`); "objects" makes a `Record` and looks at offset, key
and headers of each.

What is checked: every payload carries the number of its publisher and its own; every subscriber compares both numbers
of every record with what must come next. The rest of the payload is covered by the checksum of each stored batch.

"relaxed" survives the death of processes, "fsync" also the loss of power. Latencies under full load are those of a
full pipe: publishers are held back only when they are far ahead of the slowest subscriber.

"others' cores" is how many cores everything else on the machine kept busy meanwhile: a row with more than a little
there says as much about the neighbours.

The rows for comparison do less: one LMDB value for each record has no checksum, no retention, no waking and no check of
what arrives; queues keep nothing at all.
"""


_FULL = "| | publishes/s | deliveries/s | p50 ms | p99 ms | p99.9 ms | processor s | processes |"


def markdown(facts: dict[str, Any], rows: list[Row]) -> str:
    lines = [_INTRO, "| | target | measured | | others' cores |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {row.name} | {row.target} | {row.measured} | {row.verdict} | {row.others_cores} |" for row in rows]
    lines += ["", "![The figures as bars](streams.png)", "", *_latencies(rows), *_lengths(rows), *where_and_how(facts)]
    return "\n".join(lines) + "\n"


def _latencies(rows: list[Row]) -> list[str]:
    """Of the fan-out: publishes, latency and what it took."""
    found = [row.details for row in rows if "materialised" in row.details]
    lines = ["## Fan-out in full", "", _FULL]
    lines.append("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in found:
        latency = row["latency_ms"]
        lines.append(
            f"| {row['durability']}, {row['materialised']} | {row['publishes_per_s']:,} | {row['deliveries_per_s']:,} "
            f"| {latency['p50']:.0f} | {latency['p99']:.0f} | {latency['p999']:.0f} "
            f"| {row['cpu_s']:.1f} in {row['seconds']:.1f} | {row['processes']} |"
        )
    return [*lines, ""]


def _lengths(rows: list[Row]) -> list[str]:
    found = next(row.details["lengths"] for row in rows if "lengths" in row.details)
    lines = ["## By the length of the stream", "", "| records | get by offset, µs | append, µs | memory, MB |"]
    lines.append("| --- | --- | --- | --- |")
    lines += [f"| {row['records']:,} | {row['get_us']} | {row['append_us']} | {row['memory_mb']} |" for row in found]
    return [*lines, ""]


def where_and_how(facts: dict[str, Any]) -> list[str]:
    return [
        "## Where and how",
        "",
        f"{facts['cores']} cores ({facts['processor']}), {facts['memory_gb']} GB, Linux {facts['kernel']}, "
        f"Python {facts['python']}, {facts['date']}; load before the run {facts['load_before']}"
        + ("; a quick run, not for quoting." if facts["quick"] else "."),
        "",
        "Repeat it with `make bench`, or `python benchmarks/run_all.py --quick` for a first impression. A machine that",
        "does something else at the same time shows in every figure.",
    ]
