"""Jobs that are due now, run by procrastinate from PostgreSQL: python procrastinate_jobs.py URL EVENTS."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any

_AT_ONCE, _CONCURRENCY = 1000, 20

RAN: Counter[int] = Counter()


async def run(url: str, events: int) -> dict[str, Any]:
    """Store jobs, then run them all with one worker."""
    import procrastinate

    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=2, max_size=20))

    async def count(number: int) -> None:
        RAN[number] += 1

    task = app.task(name="count", queue="bench")(count)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for start in range(0, events, _AT_ONCE):
            numbers = range(start, min(start + _AT_ONCE, events))
            await task.batch_defer_async(*({"number": number} for number in numbers))
        began, cpu = time.monotonic(), time.process_time()
        await app.run_worker_async(
            queues=["bench"], concurrency=_CONCURRENCY, wait=False, install_signal_handlers=False,
            delete_jobs="successful",
        )  # fmt: skip
        spent, cpu = time.monotonic() - began, time.process_time() - cpu
    return {
        "events": events, "seconds": round(spent, 3), "per_s": round(len(RAN) / spent, 1),
        "cpu_us_per_event": round(cpu / events * 1e6, 1), "lost": events - len(RAN),
        "duplicated": sum(RAN.values()) - len(RAN),
    }  # fmt: skip


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(run(sys.argv[1], int(sys.argv[2])))) + "\n")
