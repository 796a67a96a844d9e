"""What an agent takes from its machine: clocks, timers, commands. Tests pass in another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

Done = Callable[["Finished"], None]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended: its output, both channels in one, and its exit code."""

    output: str
    status: int


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Have it not come."""


class Machine(Protocol):
    """Clocks, timers and commands. All calls come on one thread."""

    def now(self) -> float:
        """Seconds since 1970."""

    def local(self, time: float) -> datetime:
        """A time on the clock of this machine's zone."""

    def call_later(self, seconds: float, function: Callable[[], None]) -> Timer:
        """Call a function after a number of seconds."""

    def start(self, command: str, data: bytes | None, timeout: float | None, done: Done) -> None:
        """Run a shell command, with data on its standard input, and say how it ended."""

    def in_background(self, work: Callable[[], Finished], done: Done) -> None:
        """Run a function that may take long, beside everything else, and hand on what it returns."""
