"""Measure every figure that is promised; print one table, and write it to docs/benchmarks with a plot.

python benchmarks/run_all.py [--quick] [--only TABLE] [--large] [--json]

TABLE is streams, engine, failover, failover-buses, buses, schedule, monitor or console.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from lockstep.bench.rows import Row, all_rows, as_data
from lockstep.drill.measure import machine

TABLES = ("streams", "engine", "failover", "failover-buses", "buses", "schedule", "monitor", "console")
OUT = Path(__file__).parent.parent / "docs" / "benchmarks"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure every figure that is promised.")
    parser.add_argument("--quick", action="store_true", help="short runs: for trying out, not for quoting")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--no-files", action="store_true", help=f"leave {OUT.name}/ alone")
    parser.add_argument("--only", choices=TABLES, help="one of the tables (all)")
    parser.add_argument("--large", action="store_true", help="the engine also with ten times as many events")
    parser.add_argument(
        "--bytewax-python", metavar="PYTHON", help="a Python that has Bytewax (LOCKSTEP_BYTEWAX_PYTHON)"
    )
    parser.add_argument("--takeovers", type=int, default=20, help="engines killed for the table of failover (20)")
    parser.add_argument("--bus-takeovers", type=int, default=5, help="on each kind of server (5)")
    parser.add_argument(
        "--no-peers", action="store_true", help="measure no other schedulers and monitors, which are installed else"
    )
    parser.add_argument("--handovers", type=int, default=10, help="planned ones (10)")
    given = parser.parse_args(arguments)
    measured = {name: measure(name, given) for name in TABLES if given.only in (None, name)}
    if given.json:
        print(json.dumps({name: result for name, (_, _, result) in measured.items()}, indent=2))
    else:
        print("\n\n".join(table(rows) for _, rows, _ in measured.values()))
    if not given.no_files:
        for name, (facts, rows, result) in measured.items():
            write(name, facts, rows, result)
    rows = [row for _, found, _ in measured.values() for row in found]
    return 0 if all(row.ok for row in rows if row.unit == "records") else 1  # slow is a finding, lost is a fault


def measure(name: str, given: argparse.Namespace) -> tuple[dict[str, Any], list[Row], dict[str, Any]]:
    facts = {**machine(), "quick": given.quick}
    if name == "buses":
        return measure_buses(facts, given)
    if name == "schedule":
        facts["peers"] = not given.no_peers
        rows = list(schedule_rows(given))
    elif name == "monitor":
        facts["peers"] = not given.no_peers
        rows = list(monitor_rows(given))
    elif name == "console":
        facts["nice"] = os.nice(0)
        rows = list(console_rows(given))
    elif name == "streams":
        rows = list(all_rows(quick=given.quick, say=say))
    else:
        rows = list(engine_rows(given) if name == "engine" else failover_rows(name, given))
    return facts, rows, {"machine": facts, "rows": [as_data(row) for row in rows]}


def measure_buses(facts: dict[str, Any], given: argparse.Namespace) -> tuple[dict[str, Any], list[Row], dict[str, Any]]:
    from lockstep.bench import compare, compare_shards
    from lockstep.bench.compare_servers import Wanted, served
    from lockstep.bench.streams import hush

    hush()  # that a server is alone and has no copies is known here
    options = compare.CompareOptions()
    if given.quick:
        options = replace(options, work=replace(options.work, records=200_000, seconds=2.0), wakes=50)
    sides = list(compare.all_sides(options, say))
    with served(Wanted("kafka"), say) as server:
        say("kafka, by shards")
        shards = compare_shards.by_shards(server, records=200_000 if given.quick else 1_000_000)
    rows = [*compare.rows(sides), *compare_shards.rows(shards)]
    return facts, rows, {**compare.tree(facts, options, sides), "shards": shards}


def engine_rows(given: argparse.Namespace) -> Iterator[Row]:
    # Imported here: the children of the streams' measurements import this file again, and must stay light.
    from lockstep.bench import engine

    options = engine.EngineBench(large=given.large, bytewax_python=given.bytewax_python)
    if given.quick:
        options = replace(options, events=300_000, batch_events=50_000, seconds=5.0)
    return engine.all_rows(options, say)


def failover_rows(name: str, given: argparse.Namespace) -> Iterator[Row]:
    from lockstep.bench import failover

    only = ("buses",) if name == "failover-buses" else tuple(part for part in failover.PARTS if part != "buses")
    options = failover.FailoverBench(
        only=only, takeovers=given.takeovers, handovers=given.handovers, bus_takeovers=given.bus_takeovers
    )
    if given.quick:
        options = replace(options, takeovers=2, bus_takeovers=1, handovers=2, events=200_000, soak_events=200_000)
    return failover.all_rows(options, say)


def schedule_rows(given: argparse.Namespace) -> Iterator[Row]:
    from lockstep.bench.schedule import table as schedule

    options = schedule.ScheduleBench(peers=not given.no_peers)
    if given.quick:
        options = replace(options, events=10_000, kills=2, seconds=10.0)
    return schedule.all_rows(options, say)


def monitor_rows(given: argparse.Namespace) -> Iterator[Row]:
    from lockstep.bench.monitor import table as monitor

    options = monitor.MonitorBench(kills=given.takeovers, peers=not given.no_peers)
    if given.quick:
        options = replace(options, clients=400, seconds=10.0, kills=2)
    return monitor.all_rows(options, say)


def console_rows(given: argparse.Namespace) -> Iterator[Row]:
    from lockstep.bench.console import table as console

    options = console.ConsoleBench()
    if given.quick:
        options = replace(options, viewers=50, seconds=10.0, size=0.1)
    return console.all_rows(options, say)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(rows: list[Row]) -> str:
    width = max(len(row.name) for row in rows)
    lines = [f"{'':{width}}  {'target':>16}  {'measured':>18}  {'':4}  others' cores"]
    lines += [
        f"{row.name:{width}}  {row.target:>16}  {row.measured:>18}  {row.verdict:4}  {row.others_cores:>13}"
        for row in rows
    ]
    return "\n".join(lines)


def write(name: str, facts: dict[str, Any], rows: list[Row], result: dict[str, Any]) -> None:
    # Children of the measurements import this file again; what only the report needs must not slow them down.
    import console_report
    import engine_report
    import failover_report
    import monitor_report
    import report
    import schedule_report
    from plot import draw

    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
    if name == "buses":
        from lockstep.bench import compare

        page = compare.markdown(result) + "\n".join(["", *report.where_and_how(facts), ""])
        (OUT / f"{name}.md").write_text(page)
        compare.draw(result, OUT / f"{name}.png")
        return
    pages = {"streams": report.markdown, "engine": engine_report.markdown, "failover": failover_report.markdown,
             "failover-buses": failover_report.on_servers, "schedule": schedule_report.markdown,
             "monitor": monitor_report.markdown, "console": console_report.markdown}  # fmt: skip
    (OUT / f"{name}.md").write_text(pages[name](facts, rows))
    draw(rows, OUT / f"{name}.png")


if __name__ == "__main__":
    sys.exit(main())
