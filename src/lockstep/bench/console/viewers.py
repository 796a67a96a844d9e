"""Viewers with live pages, and probes of health and metrics, as processes of their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from lockstep.bench.console.http import Connected, Refused
from lockstep.bench.processes import Link
from lockstep.drill import measure

PAGES = (
    "/", "/streams", "/groups", "/letters", "/projects", "/schedules", "/crons", "/tenants", "/nodes", "/fleet",
    "/fleet/hosts", "/fleet/checks", "/fleet/silences", "/projects/trades", "/projects/trades/graph",
    "/projects/trades/windows", "/schedules?status=unfired&from=begin", "/streams?q=a", "/groups?q=a",
    "/crons?q=morning",
)  # fmt: skip
"""What viewers of the demo look at."""
PROBED = ("/healthz", "/metrics")
PROBES = 20
"""Connections over which probes are sent, as from so many monitors and balancers."""
STARTED_S = 0.02
"""Viewers come one after the other."""
_ANSWER_S = 30.0


@dataclass(slots=True)
class Found:
    """What all viewers saw."""

    times: list[float] = field(default_factory=list)
    by_page: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    events: int = 0
    stale: int = 0
    bytes: int = 0

    def figures(self) -> dict[str, Any]:
        """As plain data; seconds."""
        slow = {path: measure.percentile(times, 95) for path, times in self.by_page.items()}
        worst = max(slow, key=lambda path: slow[path], default="")
        return {
            "requests": len(self.times), "errors": len(self.errors), "first_errors": self.errors[:3],
            "p50_s": round(measure.percentile(self.times, 50), 4),
            "p95_s": round(measure.percentile(self.times, 95), 4),
            "p99_s": round(measure.percentile(self.times, 99), 4), "slowest_page": worst,
            "slowest_page_p95_s": round(slow.get(worst, 0.0), 4), "events": self.events, "stale": self.stale,
            "live_mb": round(self.bytes / 1e6, 1),
        }  # fmt: skip


def view(link: Link, url: str, viewers: int, every_s: float, seconds: float, pages: Sequence[str]) -> dict[str, Any]:
    """Be so many viewers: each follows a page, and loads one every few seconds."""
    link.ready()
    return asyncio.run(_view(url, viewers, every_s, seconds, pages))


async def _view(url: str, viewers: int, every_s: float, seconds: float, pages: Sequence[str]) -> dict[str, Any]:
    warm, found = Found(), Found()
    begins = time.monotonic() + viewers * STARTED_S + every_s
    cpu_s = measure.cpu_s()
    with suppress(TimeoutError):
        async with asyncio.timeout(begins - time.monotonic() + seconds), asyncio.TaskGroup() as group:
            for number in range(viewers):
                group.create_task(_follow(url, pages[number % len(pages)], found))
                group.create_task(_load(url, number, every_s, pages, begins, warm, found))
                await asyncio.sleep(STARTED_S)
    return {"viewers": viewers, "cpu_s": round(measure.cpu_s() - cpu_s, 2), **found.figures()}


async def _follow(url: str, path: str, found: Found) -> None:
    """Follow a page as a browser does."""
    while True:
        try:
            connected = await Connected.open(url)
            try:
                await connected.ask(f"/live?path={quote(path, safe='')}")
                await _read_events(connected, found)
            finally:
                connected.close()
        except (OSError, EOFError, Refused, ValueError) as error:
            found.errors.append(f"live {path}: {error!r}")
            await asyncio.sleep(1.0)


async def _read_events(connected: Connected, found: Found) -> None:
    reader = connected.reader
    while size := int(await reader.readuntil(b"\r\n"), 16):
        data = (await reader.readexactly(size + 2))[:-2]
        found.bytes += size
        found.events += data.count(b"event: content")
        found.stale += data.count(b"event: stale")


async def _load(
    url: str, number: int, every_s: float, pages: Sequence[str], begins: float, warm: Found, found: Found
) -> None:
    """Load a page every few seconds, each time over a new connection, as by a person who goes from page to page."""
    turn = 0
    await asyncio.sleep(every_s * (number % 50) / 50)
    while True:
        path = pages[(number + turn) % len(pages)]
        turn += 1
        into, began = (warm if time.monotonic() < begins else found), time.monotonic()
        try:
            async with asyncio.timeout(_ANSWER_S):
                connected = await Connected.open(url)
                try:
                    await connected.get(path)
                finally:
                    connected.close()
            into.times.append(time.monotonic() - began)
            into.by_page.setdefault(path, []).append(into.times[-1])
        except (OSError, EOFError, Refused, TimeoutError) as error:
            into.errors.append(f"{path}: {error!r}")
        await asyncio.sleep(max(0.0, every_s - (time.monotonic() - began)))


def probe(link: Link, url: str, per_s: float, seconds: float) -> dict[str, Any]:
    """Ask for health and metrics so often a second, in turn. A late answer does not delay the next requests."""
    link.ready()
    return asyncio.run(_probe(url, per_s, seconds))


async def _probe(url: str, per_s: float, seconds: float) -> dict[str, Any]:
    times: list[float] = []
    errors: list[str] = []
    began, cpu_s = time.monotonic() + 0.2, measure.cpu_s()
    count = int(per_s * seconds)
    async with asyncio.TaskGroup() as group:
        for number in range(PROBES):
            moments = [(began + at / per_s, PROBED[at // PROBES % 2]) for at in range(number, count, PROBES)]
            group.create_task(_ask_at(url, moments, times, errors))
    took = time.monotonic() - began
    return {
        "requests": len(times) + len(errors), "errors": len(errors), "first_errors": errors[:3],
        "per_s": round(len(times) / took, 1), "p50_ms": round(measure.percentile(times, 50) * 1000, 2),
        "p99_ms": round(measure.percentile(times, 99) * 1000, 2), "cpu_s": round(measure.cpu_s() - cpu_s, 2),
    }  # fmt: skip


async def _ask_at(url: str, moments: Sequence[tuple[float, str]], times: list[float], errors: list[str]) -> None:
    """Ask over one connection; times are from when a request was to be sent, so that waiting for the last counts."""
    connected: Connected | None = None
    for at, path in moments:
        await asyncio.sleep(max(0.0, at - time.monotonic()))
        try:
            async with asyncio.timeout(_ANSWER_S):
                connected = connected or await Connected.open(url)
                await connected.get(path)
            times.append(time.monotonic() - at)
        except (OSError, EOFError, Refused, TimeoutError) as error:
            errors.append(f"{path}: {error!r}")
            connected = None
    if connected is not None:
        connected.close()
