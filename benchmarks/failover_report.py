"""The figures of failover as a page of the documentation."""

from __future__ import annotations

from typing import Any

from report import where_and_how

from lockstep.bench.rows import Row

_INTRO = """# Failover: measured

Two engines, a publisher and a subscriber, all on one machine and one embedded bus, with Spark in each engine. The model
is that of `examples/trades`, in blocks of one; Aggregate24HR is published, and the subscriber writes it to a file. In
every row with engines the file was compared, byte by byte, with that of an undisturbed run.

Silence is from the fault to the first block after it that arrives at the subscriber: detection (a lease of 0.5 s), the
claim, the mark, the barriers, and what comes from the standby's buffer. For a hand-over it is the longest wait between
two blocks near it; without any fault that is about as long as a micro-batch.

"in step" is from the start of a process that was killed before to the moment at which it has computed what is decided.
Most of it is Spark: a JVM and nine Python processes.

The drain is that of a standby's publisher alone, from its mark to its last beat, without Spark beside it.

"others' cores" is how many cores everything else on the machine kept busy meanwhile; engines, publisher and subscriber
are processes of their own, and so they are in it.
"""


_ON_SERVERS = """# Failover on servers: measured

The same as [on the embedded bus](failover.md), on a real server of each kind: the active engine is killed with -9 at
5,000 events a second, started again, and killed again. Engines, publisher, subscriber and the server, alone and without
copies, share two cores. In every row the subscriber's file was compared, byte by byte, with that of an undisturbed run.

A lease is one second on a server. Takeovers without a fault cost a moment each, and no block.
"""


def markdown(facts: dict[str, Any], rows: list[Row]) -> str:
    series: list[dict[str, Any]] = max((row.details.get("faults", []) for row in rows), key=len, default=[])
    return _page(_INTRO, "failover.png", facts, rows, _faults("Each takeover", series))


def on_servers(facts: dict[str, Any], rows: list[Row]) -> str:
    series = {row.name.partition(" on ")[2].partition(",")[0]: row.details["faults"] for row in rows if row.details}
    faults = [line for bus, found in series.items() for line in _faults(f"Each takeover on {bus}", found)]
    return _page(_ON_SERVERS, "failover-buses.png", facts, rows, faults)


def _page(intro: str, picture: str, facts: dict[str, Any], rows: list[Row], faults: list[str]) -> str:
    lines = [intro, "| | target | measured | | others' cores |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {row.name} | {row.target} | {row.measured} | {row.verdict} | {row.others_cores} |" for row in rows]
    lines += ["", f"![The figures as bars]({picture})", "", *faults, *where_and_how(facts)]
    return "\n".join(lines) + "\n"


def _faults(title: str, found: list[dict[str, Any]]) -> list[str]:
    if not found:
        return []
    lines = [
        f"## {title}",
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
