"""Two `lockstep serve` beside one bus, and a small TCP forwarder before them that stands for a balancer."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode, urlsplit

HEALTH_S = 1.0
PIECE = 65_536


class ServeProcess:
    """One server; started again it has the same port."""

    def __init__(self, bus: str, folder: Path, name: str) -> None:
        self._bus, self._folder, self._name = bus, folder, name
        self.port = 0
        self.begin()

    def start(self) -> None:
        """Start it again, and wait until it answers."""
        self.begin()
        self.wait()

    def begin(self) -> None:
        command = [
            sys.executable, "-m", "lockstep.cli.main", "serve", "--json", "--http", str(self.port), "--bus", self._bus,
            "--state", str(self._folder / self._name),
        ]  # fmt: skip
        with (self._folder / f"{self._name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, cwd=self._folder
            )

    def wait(self) -> None:
        """Return when it answers."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (self._folder / f"{self._name}.log").read_text()
        self.url = json.loads(line)["url"]
        self.port = urlsplit(self.url).port or 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()
        self._ended(10)

    def close(self) -> None:
        with suppress(ProcessLookupError):
            self.signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._ended(20)
        except subprocess.TimeoutExpired:
            self.kill()

    def _ended(self, seconds: float) -> None:
        self._process.wait(seconds)
        if self._process.stdout is not None:
            self._process.stdout.close()


class Forwarder:
    """Gives each new connection to the first server whose health answers; connections that exist stay as they are."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = list(ports)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="forwarder", daemon=True)
        self._thread.start()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.chosen = 0

    def close(self) -> None:
        async def stop() -> None:
            self._server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._take, "127.0.0.1", 0)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            port = await self._healthy()
            if port is None:
                writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                await writer.drain()
                return
            self.chosen = port
            there, back = await asyncio.open_connection("127.0.0.1", port)
            await _both(reader, writer, there, back)
        except OSError:
            pass
        finally:
            writer.transport.abort()

    async def _healthy(self) -> int | None:
        for port in self._ports:
            with suppress(OSError, EOFError, TimeoutError):
                async with asyncio.timeout(HEALTH_S):
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    try:
                        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                        if b" 200 " in await reader.readuntil(b"\r\n"):
                            return port
                    finally:
                        writer.transport.abort()
        return None


async def _both(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, there: asyncio.StreamReader, back: asyncio.StreamWriter
) -> None:
    """Copy both ways until either side ends."""
    ways = [asyncio.ensure_future(_copy(reader, back)), asyncio.ensure_future(_copy(there, writer))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        back.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(PIECE):
            writer.write(data)
            await writer.drain()


@dataclass
class Answered:
    status: int
    location: str
    cookie: str
    text: str


def asked(
    url: str, method: str, path: str, fields: dict[str, str] | None = None, cookie: str = "", timeout: float = 30.0
) -> Answered:
    """One request over a connection of its own, as a browser sends it."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=timeout)
    headers = {"Cookie": cookie, "Accept": "text/html", "Content-Type": "application/x-www-form-urlencoded"}
    try:
        connection.request(method, path, urlencode(fields) if fields else None, headers)
        answer = connection.getresponse()
        given = (answer.getheader("Set-Cookie") or "").partition(";")[0]
        return Answered(answer.status, answer.getheader("Location") or "", given, answer.read().decode())
    finally:
        connection.close()


class LiveStream:
    """The events of a live page, as they come."""

    def __init__(self, url: str, path: str, timeout: float = 30.0, token: str = "") -> None:
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=timeout)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connection.request("GET", f"/live?{urlencode({'path': path})}", headers=headers)
        self._answer = self._connection.getresponse()
        self.status = self._answer.status

    def wait_content(self, text: str, seconds: float = 30.0) -> None:
        """Read until a content has a text."""
        end, kind = time.monotonic() + seconds, ""
        while time.monotonic() < end:
            line = self._answer.readline().decode()
            assert line, "the stream has ended"
            kind = line.removeprefix("event: ").strip() if line.startswith("event: ") else kind
            if line.startswith("data: ") and kind == "content" and text in line:
                return
        message = f"{text!r} was not shown within {seconds:.0f} s"
        raise AssertionError(message)

    def lines(self, count: int) -> list[bytes]:
        """The next lines."""
        return [self._answer.readline() for _ in range(count)]

    def wait_end(self) -> bytes:
        """Read until it ends; what came."""
        found = b""
        with suppress(OSError, http.client.HTTPException):
            while line := self._answer.readline():
                found += line
        return found

    def close(self) -> None:
        self._connection.close()
