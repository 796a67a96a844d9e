"""Processes that are started together, wait for each other, and answer when they are done."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Any

CONTEXT = multiprocessing.get_context("spawn")
START_S_MAX = 120.0


class Link:
    """What a process of a crew has of the others."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection

    def ready(self) -> None:
        """Say that the preparations are done, and wait until all are."""
        self._connection.send(("ready", None))
        self._connection.recv()

    def tell(self, what: object) -> None:
        """Report something on the way."""
        self._connection.send(("told", what))

    def is_over(self) -> bool:
        """Return whether the processes were asked to finish."""
        return self._connection.poll()


Role = Callable[..., Any]
"""Gets a Link and its arguments; what it returns is its answer."""


class Crew:
    """Leaving the with block ends what is still running.

    with Crew() as crew:
        crew.start(publish, folder, 100)
        crew.go()
        answers = crew.answers()
    """

    def __init__(self) -> None:
        self.processes: list[SpawnProcess] = []
        self._links: list[Connection[Any, Any]] = []

    def start(self, role: Role, *arguments: object) -> int:
        """Start a process; returns its number in this crew."""
        here, there = CONTEXT.Pipe()
        process = CONTEXT.Process(target=_play, args=(there, role, arguments), daemon=True)
        process.start()
        there.close()
        self.processes.append(process)
        self._links.append(here)
        return len(self.processes) - 1

    def go(self) -> float:
        """Wait until all are ready, then let them run; returns the monotonic time of that."""
        for number in range(len(self._links)):
            kind, what = self.hear(number, START_S_MAX)
            assert kind == "ready", f"process {number} said {what!r} before it was ready"
        started = time.monotonic()
        for link in self._links:
            link.send("go")
        return started

    def finish(self) -> None:
        """Ask all running processes to finish."""
        for number in range(len(self._links)):
            self.finish_one(number)

    def finish_one(self, number: int) -> None:
        """Ask one process to finish, if it still runs."""
        if self._links[number].closed:
            return
        with contextlib.suppress(OSError):  # killed on purpose
            self._links[number].send("finish")

    def answer(self, number: int, timeout: float) -> Any:
        """What the role returned."""
        kind, what = self.hear(number, timeout)
        while kind == "told":
            kind, what = self.hear(number, timeout)
        return what

    def answers(self, timeout: float) -> list[Any]:
        """The answers of all, in the order of their start."""
        end = time.monotonic() + timeout
        return [self.answer(number, max(end - time.monotonic(), 0.1)) for number in range(len(self._links))]

    def hear(self, number: int, timeout: float) -> tuple[str, Any]:
        """Return the next message of a process (ready, told or done); raises the failure it reports."""
        link = self._links[number]
        if not link.poll(timeout):
            message = f"process {number} said nothing for {timeout:.0f} s"
            raise TimeoutError(message)
        try:
            kind, what = link.recv()
        except (EOFError, ConnectionError) as error:
            message = f"process {number} ended without an answer (code {self.processes[number].exitcode})"
            raise RuntimeError(message) from error
        if kind == "failed":
            message = f"process {number} failed:\n{what}"
            raise RuntimeError(message)
        return kind, what

    def hear_any(self, timeout: float) -> list[tuple[int, str, Any]]:
        """What any of those still there say within the time; the killed are left out."""
        heard = []
        for link in wait([link for link in self._links if not link.closed], timeout):
            number = self._links.index(link)  # type: ignore[arg-type]
            try:
                heard.append((number, *self.hear(number, 0.0)))
            except RuntimeError:
                if self.processes[number].exitcode in (None, 0, -signal.SIGKILL):
                    self._links[number].close()
                    continue
                raise
        return heard

    def signal(self, number: int, what: signal.Signals) -> None:
        """Send a signal to one process."""
        pid = self.processes[number].pid
        assert pid is not None
        os.kill(pid, what)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self.processes:
            if kind is None:
                process.join(5.0)
            process.kill()
        for process, link in zip(self.processes, self._links, strict=True):
            process.join()
            process.close()
            link.close()


def _play(connection: Connection[Any, Any], role: Role, arguments: tuple[object, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's, which ends its children
    try:
        connection.send(("done", role(Link(connection), *arguments)))
    except Exception:  # noqa: BLE001 - told to the parent
        connection.send(("failed", traceback.format_exc()))
