"""Tasks that are due now, run by Celery from Redis: python celery_jobs.py URL EVENTS.

The worker is Celery's default, a process for each core; what ran is counted in memory that all of them share.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
import time
from datetime import UTC, datetime
from typing import Any

_WAIT_S = 600.0


def run(url: str, events: int) -> dict[str, Any]:
    """Send tasks, then start a worker and wait until all have run."""
    from celery import Celery

    ran = multiprocessing.RawArray("B", events)
    app = Celery("bench", broker=url)
    app.conf.update(task_ignore_result=True, worker_hijack_root_logger=False, worker_prefetch_multiplier=64)

    def count(number: int) -> None:
        ran[number] += 1

    task = app.task(name="count")(count)
    now = datetime.now(UTC)
    for number in range(events):
        task.apply_async(args=[number], eta=now)
    worker = app.Worker(pool="prefork", concurrency=os.cpu_count(), loglevel="ERROR", without_gossip=True,
                        without_mingle=True, without_heartbeat=True)  # fmt: skip
    found: dict[str, Any] = {}

    def watch() -> None:
        while not any(ran) and not found:
            time.sleep(0.005)
        began = time.monotonic()
        end = began + _WAIT_S
        while sum(1 for times in ran if times) < events and time.monotonic() < end:
            time.sleep(0.05)
        spent, done = time.monotonic() - began, sum(1 for times in ran if times)
        found.update(events=events, seconds=round(spent, 3), per_s=round(done / spent, 1), lost=events - done,
                     duplicated=sum(ran) - done)  # fmt: skip
        worker.stop()

    threading.Thread(target=watch, daemon=True).start()
    worker.start()
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(sys.argv[1], int(sys.argv[2]))) + "\n")
    sys.stdout.flush()
    os._exit(0)  # its worker has stopped; what is left of its threads is not waited for
