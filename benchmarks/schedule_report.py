"""The scheduler's figures as a page of the documentation."""

from __future__ import annotations

from typing import Any

from report import where_and_how

from lockstep.bench.rows import Row
from lockstep.bench.schedule.table import NO_PEERS

_INTRO = """# The scheduler: measured

Nodes are processes of their own; events go to a stream of an embedded bus with `durability=fsync`. Another process
reads that stream, and an event counts when it could be read there: rates are from the moment at which the events may
fire to the last one read, lateness is from an event's time to its reading, on one clock. Each event's id has its number
and its time, so that every run counts what is lost, duplicated, early or unknown.

On PostgreSQL the rows are there, and the stream is on the embedded bus. The server is started for the run with its
defaults but for the size of its buffers (64 MB): a commit is on disk when it is acknowledged. Redis runs with
`appendfsync always`.

Others do less: their jobs count in memory, and nothing is published. db-scheduler, "tuned", polls every 100 ms with
lock-and-fetch and has 50 threads; with its defaults it polls every 10 s. APScheduler keeps its jobs in the same
PostgreSQL and has 20 threads, procrastinate runs 20 jobs at once, Celery has a process for each core. Slow ones get
fewer events, as each row says; rates are of what ran.

Seven of ten crons tick daily, two weekly, one monthly, at minutes spread over the day. "a node starts with them" is
from the start of its process until it owns all shards, with the crons of each in memory.

A silence is from the kill until events that came due after it have arrived from all 32 shards. db-scheduler's defaults
do not stand still when a node is killed, but what that node had picked waits until its heartbeat has expired, after
half an hour; the row counts it.

"others' cores" is how many cores everything else on the machine kept busy meanwhile, without the run's own processes
and servers: a row with more than a little there says as much about the neighbours.
"""


_POSTGRESQL = """On PostgreSQL a node reads due rows, fills its change, and waits while the server writes it: the
processor time of both, in the table above, is spent one after the other, so one node keeps about one core busy. Each
event is written twice, its row and its record for a stream, which others do not publish. More nodes use more cores.
"""


def markdown(facts: dict[str, Any], rows: list[Row]) -> str:
    lines = [_INTRO, "| | target | measured | | others' cores |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {row.name} | {row.target} | {row.measured} | {row.verdict} | {row.others_cores} |" for row in rows]
    lines += ["", "![The figures as bars](schedule.png)", "", *_costs(rows)]
    lines += _misses(rows)
    if not facts.get("peers"):
        lines += [NO_PEERS, ""]
    return "\n".join([*lines, *where_and_how(facts)]) + "\n"


def _misses(rows: list[Row]) -> list[str]:
    """The figures that are missed, and why where it is known."""
    missed = [row for row in rows if row.verdict == "miss"]
    if not missed:
        return []
    lines = ["## Missed", "", *(f"- {row.name}: {row.measured}, {row.target} wanted" for row in missed), ""]
    if any("PostgreSQL" in row.name for row in missed):
        lines += [*_POSTGRESQL.splitlines(), ""]
    return lines


def _costs(rows: list[Row]) -> list[str]:
    """Processor time of an event, of each run that has it."""
    found = [row for row in rows if "cpu_us_per_event" in row.details]
    if not found:
        return []
    lines = ["## Processor time for each event", "", "| | node or program, µs | server, µs |", "| --- | --- | --- |"]
    lines += [
        f"| {row.name} | {row.details['cpu_us_per_event']} | {row.details.get('server_us_per_event', '-')} |"
        for row in found
    ]
    return [*lines, ""]
