"""Measure every figure that is promised; print one table, and write it to docs/benchmarks with a plot.

python benchmarks/run_all.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from lockstep.bench.measure import machine
from lockstep.bench.rows import Row, all_rows

OUT = Path(__file__).parent.parent / "docs" / "benchmarks"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure every figure that is promised.")
    parser.add_argument("--quick", action="store_true", help="short runs: for trying out, not for quoting")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--no-files", action="store_true", help=f"leave {OUT.name}/ alone")
    given = parser.parse_args(arguments)
    facts = {**machine(), "quick": given.quick}
    rows = list(all_rows(quick=given.quick, say=lambda text: print(text, file=sys.stderr, flush=True)))
    result = {"machine": facts, "rows": [as_data(row) for row in rows]}
    print(json.dumps(result, indent=2) if given.json else table(rows))
    if not given.no_files:
        write(facts, rows, result)
    return 0 if all(row.ok for row in rows if row.unit == "records") else 1  # slow is a finding, lost is a fault


def as_data(row: Row) -> dict[str, Any]:
    return {
        "name": row.name, "value": row.value, "unit": row.unit, "target": row.target, "verdict": row.verdict,
        "others_cores": row.others_cores, "details": row.details,
    }  # fmt: skip


def table(rows: list[Row]) -> str:
    width = max(len(row.name) for row in rows)
    lines = [f"{'':{width}}  {'target':>16}  {'measured':>18}  {'':4}  others' cores"]
    lines += [
        f"{row.name:{width}}  {row.target:>16}  {row.measured:>18}  {row.verdict:4}  {row.others_cores:>13}"
        for row in rows
    ]
    return "\n".join(lines)


def write(facts: dict[str, Any], rows: list[Row], result: dict[str, Any]) -> None:
    # Children of the measurements import this file again; what only the report needs must not slow them down.
    from plot import draw
    from report import markdown

    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "streams.json").write_text(json.dumps(result, indent=2) + "\n")
    (OUT / "streams.md").write_text(markdown(facts, rows))
    draw(rows, OUT / "streams.png")


if __name__ == "__main__":
    sys.exit(main())
