"""A loop over crons with croniter, as many programs have one: python croniter_loop.py CRONS.

Each keeps its next time; every second those that are due are moved on. Prints what loading them takes, and what a
second costs: the look at all of them, and the ticks of daily crons.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

_SECONDS = 30


def run(count: int) -> dict[str, Any]:
    """Load crons, then measure seconds of the loop, without waiting between them."""
    from croniter import croniter

    now = time.time()
    cpu = time.process_time()
    crons = [croniter(f"{number % 60} {number // 60 % 24} * * *", now) for number in range(count)]
    due = [cron.get_next(float) for cron in crons]
    loaded = time.process_time() - cpu
    cpu = time.process_time()
    ticks = 0
    for second in range(_SECONDS):
        moment = now + second
        for number, at in enumerate(due):
            if at <= moment:
                due[number] = crons[number].get_next(float)
                ticks += 1
    spent = time.process_time() - cpu
    return {"events": count, "load_s": round(loaded, 2), "cpu_ms_per_s": round(spent / _SECONDS * 1000, 2),
            "ticks": ticks}  # fmt: skip


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(int(sys.argv[1]))) + "\n")
