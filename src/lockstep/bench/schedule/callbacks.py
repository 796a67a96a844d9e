"""Callbacks over HTTP: one node, and a receiver on loopback that answers 200 and counts."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from lockstep.bench.compare_servers import Served, Shares
from lockstep.bench.processes import CONTEXT, Crew, Link
from lockstep.bench.schedule.nodes import Site, client, nodes, now_ms, sleep_until, upsert, wait_applied

Say = Callable[[str], None]
TENANT = "callbacks"
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_HEADERS_END, _LENGTH, _KEY = b"\r\n\r\n", b"\r\ncontent-length:", b"\r\nidempotency-key:"
_CHUNK, _WAIT_S, _COPIES_S, _LOOK_S = 5000, 300.0, 1.0, 0.02


class Received:
    """What a receiver has counted; others see it while it works."""

    def __init__(self) -> None:
        self.port = CONTEXT.RawValue("i", 0)
        self.count = CONTEXT.RawValue("q", 0)


class _Connection(asyncio.Protocol):
    """As little of HTTP as a node's requests need."""

    def __init__(self, seen: Counter[bytes], received: Received, due_ms: int) -> None:
        self._seen, self._received, self._due_ms = seen, received, due_ms
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, to answer on."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each request that is complete."""
        self._data += data
        while (end := self._data.find(_HEADERS_END)) >= 0:
            head = self._data[: end + 2].lower()
            total = end + len(_HEADERS_END) + int(_header(head, _LENGTH) or 0)
            if len(self._data) < total:
                return
            self._data = self._data[total:]
            self._seen[_header(head, _KEY)] += 1
            if time.time_ns() < self._due_ms * 10**6:
                self._seen[b"early"] += 1
            self._received.count.value += 1
            assert self._transport is not None
            self._transport.write(_ANSWER)


def _header(head: bytes, name: bytes) -> bytes:
    at = head.find(name)
    return b"" if at < 0 else head[at + len(name) : head.index(b"\r\n", at + 2)].strip()


def receive(link: Link, received: Received, due_ms: int) -> dict[str, int]:
    """Take requests until told to end; return how many came, and how many of them twice or too early."""
    seen: Counter[bytes] = Counter()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(seen, received, due_ms), "127.0.0.1", 0, backlog=1024)
        received.port.value = server.sockets[0].getsockname()[1]
        await loop.run_in_executor(None, link.ready)
        await loop.run_in_executor(None, _wait_over, link)
        server.close()

    asyncio.run(run())
    early = seen.pop(b"early", 0)
    return {"distinct": len(seen), "duplicated": sum(seen.values()) - len(seen), "early": early}


def _wait_over(link: Link) -> None:
    while not link.is_over():
        time.sleep(_LOOK_S)


def callbacks(site: Site, server: Served, events: int, say: Say) -> dict[str, Any]:
    """Callbacks a second, from the moment at which all are due to the last one received."""
    measured = Shares(server)
    received = Received()
    with client(site) as scheduler, nodes(site, scheduler) as [node], Crew() as crew:
        at = now_ms() + 1500 + events * 1000 // 3000
        crew.start(receive, received, at)
        crew.go()
        scheduler.register(TENANT, "HTTP", {"url": f"http://127.0.0.1:{received.port.value}/"})
        say(f"scheduling {events:,} events")
        for start in range(0, events, _CHUNK):
            numbers = range(start, min(start + _CHUNK, events))
            scheduler.client.send([upsert(scheduler, number, at, TENANT) for number in numbers])
        wait_applied(scheduler)
        sleep_until(at)
        cpu_s, began = node.cpu_s(), time.monotonic()
        end = began + _WAIT_S
        while received.count.value < events and time.monotonic() < end:
            time.sleep(_LOOK_S)
            node.check()
        spent, cpu_s = time.monotonic() - began, node.cpu_s() - cpu_s
        time.sleep(_COPIES_S)
        crew.finish()
        found = crew.answer(0, _WAIT_S)
    return {
        "events": events, "store": site.kind, "per_s": round(events / spent), "seconds": round(spent, 2),
        "cpu_us_per_event": round(cpu_s / events * 1e6, 1), "lost": events - found["distinct"],
        "duplicated": found["duplicated"], "early": found["early"], **measured.cores(),
    }  # fmt: skip
