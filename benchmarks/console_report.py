"""The console's figures as a page of the documentation."""

from __future__ import annotations

from typing import Any

from report import where_and_how

from lockstep.bench.rows import Row

_INTRO = """# The console: measured

`lockstep bench console` makes a large world on an embedded bus (LMDB), starts `lockstep serve` beside it and loads
every page over a new connection: lists, searches, later pages, other orders, and details. The first requests
come right after the start, when nothing is known yet. `python benchmarks/console_paint.py` loads the same pages in a
real Chromium, and tells when each shows something first.

Then it starts `lockstep demo` (two engines with trades, a scheduler, a fleet, and the server), as processes that it
ends again. Viewers are played by one process: each keeps a live page open, spread over twenty pages, and loads another
page every ten seconds over a new connection. Times are from the connection to the last byte. After them, health and
metrics are asked for in turn over twenty connections that stay open; a time is from when a request was to be sent, so
waiting for the one before counts.

"others' cores" is how many cores everything else on the machine kept busy meanwhile, without the processes of the run:
a row with more than a little there says as much about the neighbours.
"""


def markdown(facts: dict[str, Any], rows: list[Row]) -> str:
    lines = [_INTRO, "| | target | measured | | others' cores |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {row.name} | {row.target} | {row.measured} | {row.verdict} | {row.others_cores} |" for row in rows]
    lines += ["", "![The figures as bars](console.png)", "", *_misses(rows), *_WHAT]
    return "\n".join([*lines, *where_and_how(facts), *_priority(facts)]) + "\n"


def _priority(facts: dict[str, Any]) -> list[str]:
    """What a run that was preferred to other work says of it."""
    if facts.get("nice", 0) >= 0:
        return []
    return ["", f"The processes of this run had priority over the other work of the machine (nice {facts['nice']})."]


def _misses(rows: list[Row]) -> list[str]:
    """The figures that are missed."""
    missed = [row for row in rows if row.verdict == "miss"]
    if not missed:
        return []
    return ["## Missed", "", *(f"- {row.name}: {row.measured}, {row.target} wanted" for row in missed), ""]


_WHAT = """## What it costs, and why

- A live page is rendered once a second for all viewers of the same role and scope, and sent only if it differs.
- The names of all streams and groups are read once a second for all pages. Rates, lags, who reads which stream, and
  which groups and dead letters the home page tells, are folded in the background: a round every five seconds looks at
  as many as it can within a quarter of a second, and at some of those with a problem again. Of 10,000 groups each is
  looked at every few minutes; a stream's page says how many were not looked at yet.
- Open events and hosts are folded from the changes of a fleet's view.
- What a page reads does not grow with streams, groups, schedules or hosts: `tests/console/test_console_scale.py`.
- Another HTTP parser or event loop (httptools, uvloop) was not taken in: a thousand requests of health and metrics a
  second, with what the demo's server does besides, take about a quarter of a core.

""".splitlines()
