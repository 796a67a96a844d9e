"""The figures of failover as a page of the documentation."""

from __future__ import annotations

from typing import Any

from report import where_and_how

from lockstep.bench.rows import Row

_INTRO = """# Failover: measured

Two engines, a publisher and a subscriber, all on one machine and one embedded bus, with Spark in each engine; where a
server is named, that is the bus, alone and on the same two cores. The model
is that of `examples/trades`, in blocks of one; Aggregate24HR is published, and the subscriber writes it to a file. In
every row with engines the file was compared, byte by byte, with that of an undisturbed run.

Silence is from the fault to the first block behind it that arrives at the subscriber: detection (a lease of 0.5 s), the
claim, the mark, the barriers, and what comes from the standby's buffer. For a hand-over it is the longest wait between
two blocks near it; without any fault that is about as long as a micro-batch.

"in step" is from the start of a process that was killed before to the moment at which it has computed what is decided.
Most of it is Spark: a JVM and nine Python processes.

The drain is that of a standby's publisher alone, from its mark to its last beat, without Spark beside it.

"others' cores" is how many cores everything else on the machine kept busy meanwhile; engines, publisher and subscriber
are processes of their own, and so they are in it.
"""


def markdown(facts: dict[str, Any], rows: list[Row]) -> str:
    lines = [_INTRO, "| | target | measured | | others' cores |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {row.name} | {row.target} | {row.measured} | {row.verdict} | {row.others_cores} |" for row in rows]
    lines += ["", "![The figures as bars](failover.png)", "", *_faults(rows), *where_and_how(facts)]
    return "\n".join(lines) + "\n"


def _faults(rows: list[Row]) -> list[str]:
    """Each takeover of the longest series."""
    found: list[dict[str, Any]] = max((row.details.get("faults", []) for row in rows), key=len, default=[])
    if not found:
        return []
    lines = [
        "## Each takeover",
        "",
        "| at | fault | engine | taken over by | last id | current id | silence, s | in step, s |",
    ]
    lines.append("| --- | --- | --- | --- | --- | --- | --- | --- |")
    lines += [
        f"| {one['at']:.0f} s | {one['kind']} | {one['engine']} | {one['by']} | {one['last']} | {one['current']} "
        f"| {one['silence_s']} | {one['in_step_s']} |"
        for one in found
    ]
    return [*lines, ""]
