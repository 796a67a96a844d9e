"""The report of a run of many seeds, as text and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lockstep.simulation import checks, faults
from lockstep.simulation.variants import Variant

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable

    from lockstep.simulation.run import SeedResult, Summary

FAILURES_SHOWN = 10


def replay_command(seed: int, variant: str) -> str:
    """The command that runs one seed alone and shows everything that happens in it."""
    flag = "" if variant == Variant.name else f" --variant {variant}"
    return f"python -m lockstep.simulation --seed {seed}{flag} --trace"


def as_text(summary: Summary) -> str:
    """Tables, and how to replay what failed."""
    rate = summary.seeds / summary.elapsed_seconds
    kinds = ", ".join(f"{name} {count:,}" for name, count in summary.kinds.items())
    head = [
        f"variant            {summary.variant}",
        f"seeds              {summary.seeds:,} ({kinds})",
        f"events             {summary.events:,}",
        f"simulated seconds  {summary.simulated_seconds:,.0f}",
        f"slowest healing    {summary.healing_ticks_max} ticks",
        f"seeds/s            {rate:.1f}",
    ]
    tables = [
        *_table("engines", "times", sorted(summary.seen), summary.seen),
        *_table("fault", "times", faults.KINDS, summary.faults),
        *_table("anomaly", "seeds", checks.NAMES, summary.anomalies),
    ]
    return "\n".join([*head, *tables, *_failures(summary), ""])


def _table(title: str, unit: str, names: Iterable[str], count: Counter[str]) -> list[str]:
    rows = [f"{name:<32}{count[name]:>10,}" for name in names]
    return ["", f"{title:<32}{unit:>10}", *rows]


def _failures(summary: Summary) -> list[str]:
    if not summary.failed:
        return ["", "No anomaly."]
    lines = ["", f"{len(summary.failed)} of {summary.seeds} seeds failed."]
    for result in summary.failed[:FAILURES_SHOWN]:
        lines += ["", *(f"  {a.name}: {a.detail}" for a in result.anomalies[:3])]
        lines.append(f"  {replay_command(result.seed, summary.variant)}")
    return lines


def as_json(summary: Summary) -> str:
    """Everything, with zeroes."""
    return json.dumps(
        {
            "variant": summary.variant,
            "seeds": summary.seeds,
            "kinds": dict(summary.kinds),
            "events": summary.events,
            "simulated_seconds": round(summary.simulated_seconds, 1),
            "healing_ticks_max": summary.healing_ticks_max,
            "seeds_per_second": round(summary.seeds / summary.elapsed_seconds, 1),
            "seen": dict(sorted(summary.seen.items())),
            "faults": {name: summary.faults[name] for name in faults.KINDS},
            "anomalies": {name: summary.anomalies[name] for name in checks.NAMES},
            "failed": [_failure(result, summary.variant) for result in summary.failed],
        },
        indent=2,
    )


def _failure(result: SeedResult, variant: str) -> dict[str, object]:
    found = [{"name": anomaly.name, "detail": anomaly.detail} for anomaly in result.anomalies]
    return {"seed": result.seed, "anomalies": found, "replay": replay_command(result.seed, variant)}
