"""The processes of a measurement: a server beside a bus, or the whole demo. Leaving the with block ends them."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from lockstep.bench.compare_servers import Served, family

_START_S, _END_S = 120.0, 60.0
_LOOK_S = 0.2
_TAIL = 2_000


class Command:
    """A command of Lockstep that prints a line of JSON with its URL, and runs until it is told to end."""

    def __init__(self, words: Sequence[str], folder: Path, name: str) -> None:
        self._log = folder / f"{name}.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-m", "lockstep.cli.main", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=log, cwd=folder, start_new_session=True, env={**os.environ},
            )  # fmt: skip
        try:
            self.url = self._told()
        except BaseException:
            self.close()
            raise

    def _told(self) -> str:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _START_S)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            message = f"{self._process.args!r} did not start: {self._log.read_text(errors='replace')[-_TAIL:]}"
            raise RuntimeError(message)
        return str(json.loads(line)["url"])

    @property
    def pid(self) -> int:
        """Its first process."""
        return self._process.pid

    def cpu_s(self) -> float:
        """Processor time of it and of all that it started."""
        return Served("", (self.pid,)).cpu_s()

    def close(self) -> None:
        """End it in order; what is left after a while is killed."""
        pids = family((self.pid,))
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
        if self._process.poll() is None:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Command:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def serve(bus: str, folder: Path, name: str = "serve") -> Command:
    """`lockstep serve` beside a bus."""
    return Command(["serve", "--json", "--http", "0", "--bus", bus, "--state", str(folder / name)], folder, name)


def demo(folder: Path) -> Command:
    """`lockstep demo`, with its own server, once the pages answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = Command(["demo", str(folder / "demo"), "--http", str(port), "--json"], folder, "demo")
    try:
        _wait_answers(started.url)
    except BaseException:
        started.close()
        raise
    return started


def _wait_answers(url: str) -> None:
    """Return when a page of a project can be seen: then everything of the demo has been started."""
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        with suppress(OSError), urllib.request.urlopen(f"{url}/projects/trades", timeout=10):  # noqa: S310 - our own
            return
        time.sleep(_LOOK_S)
    message = f"nothing answered at {url} within {_START_S:.0f} s"
    raise TimeoutError(message)


def server_of(started: Command) -> int:
    """The process of the demo that serves its pages."""
    for pid in family((started.pid,)):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"serve" in words and b"schedule" not in words:
            return pid
    message = "the demo has no process that serves pages"
    raise RuntimeError(message)


def cpu_of(pid: int) -> float:
    """Processor time of a process and of those that it started."""
    return Served("", (pid,)).cpu_s()


def memory_mb(pid: int) -> float:
    """Memory of a process that is its own: without pages of files that it has mapped."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:")) / 1024


def threads_of(pid: int) -> int:
    """How many threads a process has."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))
