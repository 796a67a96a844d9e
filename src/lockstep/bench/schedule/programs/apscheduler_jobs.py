"""Jobs that are due now, run by APScheduler from a database: python apscheduler_jobs.py URL EVENTS.

With `crons` instead of a URL: what a second of so many cron jobs in memory costs.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

_WAIT_S, _THREADS, _TICK_S = 600.0, 20, 61.0

RAN: Counter[int] = Counter()


def count(number: int) -> None:
    """The job."""
    RAN[number] += 1


def due_now(url: str, events: int) -> dict[str, Any]:
    """Add jobs for one instant, then let the scheduler run them."""
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
    from apscheduler.schedulers.background import BackgroundScheduler

    scheduler = BackgroundScheduler(
        jobstores={"default": SQLAlchemyJobStore(url=url)},
        executors={"default": ThreadPoolExecutor(_THREADS)},
        job_defaults={"misfire_grace_time": None},
        timezone=UTC,
    )
    scheduler.start(paused=True)
    at = datetime.now(UTC) + timedelta(milliseconds=100)
    for number in range(events):
        scheduler.add_job(count, "date", run_date=at, args=[number], id=str(number))
    time.sleep(0.2)
    began, cpu = time.monotonic(), time.process_time()
    scheduler.resume()
    while len(RAN) < events and time.monotonic() < began + _WAIT_S:
        time.sleep(0.01)
    spent, cpu = time.monotonic() - began, time.process_time() - cpu
    scheduler.shutdown()
    return _told(events, spent, cpu)


def crons(events: int) -> dict[str, Any]:
    """Cron jobs in memory: how long they take to add, and processor time of each second."""
    from apscheduler.schedulers.background import BackgroundScheduler

    scheduler = BackgroundScheduler(timezone=UTC)
    began = time.monotonic()
    for number in range(events):
        scheduler.add_job(
            count, "cron", minute=number % 60, hour=number // 60 % 24, args=[number], id=str(number)
        )  # fmt: skip
    scheduler.start()
    loaded, cpu, began = time.monotonic() - began, time.process_time(), time.monotonic()
    time.sleep(_TICK_S)
    spent = time.monotonic() - began
    found = {"events": events, "load_s": round(loaded, 2),
             "cpu_ms_per_s": round((time.process_time() - cpu) / spent * 1000, 3)}  # fmt: skip
    scheduler.shutdown()
    return found


def _told(events: int, spent: float, cpu: float) -> dict[str, Any]:
    return {
        "events": events, "seconds": round(spent, 3), "per_s": round(len(RAN) / spent, 1),
        "cpu_us_per_event": round(cpu / events * 1e6, 1), "lost": events - len(RAN),
        "duplicated": sum(RAN.values()) - len(RAN),
    }  # fmt: skip


if __name__ == "__main__":
    program = import_module("apscheduler_jobs")  # jobs in a database are found again by their module
    where, wanted = sys.argv[1], int(sys.argv[2])
    result = program.crons(wanted) if where == "crons" else program.due_now(where, wanted)
    sys.stdout.write(json.dumps(result) + "\n")
