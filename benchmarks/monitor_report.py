"""The monitor's figures as a page of the documentation."""

from __future__ import annotations

from typing import Any

from report import where_and_how

from lockstep.bench.monitor.table import NO_PEERS
from lockstep.bench.rows import Row

_INTRO = """# The monitor: measured

Servers are processes of their own beside an embedded bus (LMDB); agents are simulated in one process, which publishes
what so many agents would. 3 % of the results fail, as a check of a client does for some minutes; handlers are told of
the third failure in a row and then twice an hour. Rates and processor times are those after the first two intervals,
when each check was sent twice.

*Lag* is from the publication of a result until the HTTP API shows it: a client of its own sends one ten times a second.
Results are told once a second, so half a second of it is the wait for the tick. *Not counted* are results that were
sent and that the fleet had not counted a minute after the last one.

*Result to handler start* is from the publication of a change to the arrival of the handler's datagram, beside a fleet
that sends results all the time. After each kill -9 of the leader the next request that is due is looked at, and all
requests are compared with those that the intervals of the checks say.

With RabbitMQ, agents of the old shape publish to its exchange, and a server acknowledges each result when the append to
the input stream is durable. The rate is until the last one is.

Others do the same work where they can: results are handed in the quickest way that each has (Nagios 4 the spool of
check results, Icinga 2 its command pipe, Alertmanager its API, to both of a pair), each change of state runs a
notification, and processes are killed with -9 while changes are under way, and started again. What they do with a
result differs: Nagios and Icinga keep no history, Alertmanager knows only what fires.

"others' cores" is how many cores everything else on the machine kept busy meanwhile, without the run's own processes
and servers: a row with more than a little there says as much about the neighbours.
"""


def markdown(facts: dict[str, Any], rows: list[Row]) -> str:
    lines = [_INTRO, "| | target | measured | | others' cores |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {row.name} | {row.target} | {row.measured} | {row.verdict} | {row.others_cores} |" for row in rows]
    lines += ["", "![The figures as bars](monitor.png)", "", *_misses(rows)]
    if not facts.get("peers"):
        lines += [NO_PEERS, ""]
    return "\n".join([*lines, *where_and_how(facts)]) + "\n"


def _misses(rows: list[Row]) -> list[str]:
    """The figures that are missed."""
    missed = [row for row in rows if row.verdict == "miss"]
    if not missed:
        return []
    return ["## Missed", "", *(f"- {row.name}: {row.measured}, {row.target} wanted" for row in missed), ""]
