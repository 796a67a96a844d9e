"""Requests with answers: from Python and over HTTP, in batches and one by one; and a file of them with Spark."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lockstep.bench.compare_servers import Served, Shares
from lockstep.bench.schedule.arrivals import lateness
from lockstep.bench.schedule.nodes import NAME, PAYLOAD, TENANT, Site, client, nodes, now_ms, upsert
from lockstep.bench.scratch import scratch_folder
from lockstep.schedule.scheduler import Scheduler
from lockstep.schedule.times import java_text

Say = Callable[[str], None]
BATCH = 1000
LOAD_LEFT_OUT = "left out: this version has no `lockstep schedule load`"
_LATER_MS = 3_600_000
_STOP_S, _LOAD_S, _ANSWER_S = 30.0, 1800.0, 60.0
_OK = 200
_LOCKSTEP = (sys.executable, "-m", "lockstep.cli.main")


def ask(site: Site, server: Served, events: int, singles: int, say: Say) -> dict[str, Any]:
    """Events a second in batches of 1,000, and milliseconds of a single one; each has its answer when it counts."""
    measured = Shares(server)
    with client(site) as scheduler, nodes(site, scheduler) as [node]:
        say(f"{events:,} events in batches of {BATCH:,}")
        at, wrong = now_ms() + _LATER_MS, 0
        cpu_s, began = node.cpu_s(), time.monotonic()
        for start in range(0, events, BATCH):
            numbers = range(start, min(start + BATCH, events))
            answers = scheduler.client.ask([upsert(scheduler, number, at) for number in numbers])
            wrong += sum(answer["verdict"] != "ACCEPTED" for answer in answers)
        spent, cpu_s = time.monotonic() - began, node.cpu_s() - cpu_s
        say(f"{singles:,} single events")
        times = []
        for number in range(events, events + singles):
            asked = time.monotonic()
            [answer] = scheduler.client.ask([upsert(scheduler, number, at)])
            times.append((time.monotonic() - asked) * 1000)
            wrong += answer["verdict"] != "ACCEPTED"
    return {
        "events": events, "store": site.kind, "per_s": round(events / spent), "batch": BATCH, "singles": singles,
        "single_ms": lateness(times), "cpu_us_per_event": round(cpu_s / events * 1e6, 1), "lost": wrong,
        **measured.cores(),
    }  # fmt: skip


@contextmanager
def served_api(site: Site) -> Iterator[tuple[str, Served]]:
    """A node with its API, as `lockstep schedule serve` starts it; its address, and its process."""
    store = () if site.store is None else ("--store", site.store)
    command = (*_LOCKSTEP, "schedule", "serve", "--bus", site.url, "--http", "0", "--name", NAME, "--json", *store)
    process = subprocess.Popen(  # noqa: S603 - our own command
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            message = f"the API did not start: code {process.wait()}"
            raise RuntimeError(message)
        yield str(json.loads(line)["url"]), Served("", (process.pid,))
    finally:
        process.terminate()
        try:
            process.communicate(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def post(site: Site, server: Served, events: int, singles: int, say: Say) -> dict[str, Any]:
    """The same over HTTP, on one connection: POST /events/schedule."""
    measured = Shares(server)
    with client(site), served_api(site) as (url, api):
        say(f"{events:,} events in batches of {BATCH:,}")
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_ANSWER_S)
        at, wrong = now_ms() + _LATER_MS, _posted(connection, range(-10, 0), now_ms() + _LATER_MS)
        cpu_s, began = api.cpu_s(), time.monotonic()
        for start in range(0, events, BATCH):
            wrong += _posted(connection, range(start, min(start + BATCH, events)), at)
        spent, cpu_s = time.monotonic() - began, api.cpu_s() - cpu_s
        say(f"{singles:,} single events")
        times = []
        for number in range(events, events + singles):
            asked = time.monotonic()
            wrong += _posted(connection, range(number, number + 1), at)
            times.append((time.monotonic() - asked) * 1000)
        connection.close()
    return {
        "events": events, "store": site.kind, "per_s": round(events / spent), "batch": BATCH, "singles": singles,
        "single_ms": lateness(times), "cpu_us_per_event": round(cpu_s / events * 1e6, 1), "lost": wrong,
        **measured.cores(),
    }  # fmt: skip


def _posted(connection: http.client.HTTPConnection, numbers: range, at: int) -> int:
    """Post events; return how many were not accepted."""
    body = json.dumps([_fields(number, at) for number in numbers])
    connection.request("POST", "/events/schedule", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    told = json.loads(answer.read())
    if answer.status != _OK:
        message = f"POST /events/schedule answered {answer.status}: {str(told)[:200]}"
        raise RuntimeError(message)
    return sum(item["eventStatus"] != "ACCEPTED" for item in told)


def _fields(number: int, at: int) -> dict[str, Any]:
    return {"id": f"p{number}", "eventTime": java_text(at), "tenant": TENANT, "payload": PAYLOAD.decode()}


def can_load() -> bool:
    """Whether this version has the command that loads files with Spark."""
    return find_spec("lockstep.cli.schedule_spark") is not None


def load_file(site: Site, server: Served, events: int, say: Say) -> dict[str, Any]:
    """`lockstep schedule load` of a file, from the start of the command to the last request carried out."""
    measured = Shares(server)
    with scratch_folder() as folder, client(site) as scheduler, nodes(site, scheduler) as [node]:
        say(f"writing {events:,} lines")
        _write_lines(folder / "requests.jsonl", events)
        say("loading them with Spark")
        cpu_s, began = node.cpu_s(), time.monotonic()
        told = _load(site, folder)
        spent, cpu_s = time.monotonic() - began, node.cpu_s() - cpu_s
        stored = _stored(scheduler, events)
    return {
        "events": events, "store": site.kind, "seconds": round(spent, 1), "per_s": round(events / spent),
        "cpu_us_per_event": round(cpu_s / events * 1e6, 1), "lost": events - stored, "told": told, **measured.cores(),
    }  # fmt: skip


def _write_lines(path: Path, events: int) -> None:
    at = now_ms() + 24 * _LATER_MS
    with path.open("w") as file:
        for number in range(events):
            file.write(json.dumps(_fields(number, at + number)) + "\n")


def _load(site: Site, folder: Path) -> Any:
    store = () if site.store is None else ("--store", site.store)
    words = ("schedule", "load", "requests.jsonl", "--bus", site.url, "--name", NAME, "--json", *store)
    done = subprocess.run(  # noqa: S603 - our own command
        (*_LOCKSTEP, *words), cwd=folder, capture_output=True, text=True, timeout=_LOAD_S, check=False
    )
    if done.returncode:
        message = f"lockstep schedule load ended with {done.returncode}: {done.stderr.strip()[-500:]}"
        raise RuntimeError(message)
    return json.loads(done.stdout.strip().splitlines()[-1])


def _stored(scheduler: Scheduler, events: int) -> int:
    return sum(scheduler.find(f"p{number}", tenant=TENANT) is not None for number in range(events))
