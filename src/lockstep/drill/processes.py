"""Processes of the drill: each in a session of its own, so that nothing it started is ever out of reach.

An engine's JVM is in another session than the engine; it is found as its child, and remembered when that is dead.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lockstep.dev.processes import is_stopped
from lockstep.drill.errors import DrillBroken
from lockstep.errors import TimedOut

_PROC = Path("/proc")
_LINES_MAX = 10_000
_TAIL_LINES, _TAIL_BYTES = 15, 8_000
_GONE_S_MAX = 20.0
_LOOK_S = 0.02
SETTLE_S = 10.0


@dataclass(frozen=True, slots=True)
class Member:
    """A process, as the operating system reports it."""

    pid: int
    parent: int
    command: str
    is_dead: bool = False
    session: int = 0


def members(*sessions: int) -> list[Member]:
    """All processes of sessions, also those whose parents are gone, and what they started in sessions of its own.

    Without those that are dead and only not asked for.
    """
    every = [member for entry in _PROC.iterdir() if entry.name.isdigit() and (member := _member(int(entry.name)))]
    pids, reached = set[int](), set(sessions)
    while more := [each for each in every if each.pid not in pids and (each.session in reached or each.parent in pids)]:
        pids |= {member.pid for member in more}
        reached |= {member.session for member in more}
    return [member for member in every if member.pid in pids and not member.is_dead]


def _member(pid: int) -> Member | None:
    try:
        state, parent, _, session = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[:4]
        words = (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (OSError, ValueError):  # it ended meanwhile
        return None
    return Member(pid, int(parent), words.strip(), state in "ZX", int(session))


def jvms(tree: Sequence[Member]) -> list[int]:
    """The Java processes of an engine."""
    return [member.pid for member in tree if member.command.partition(" ")[0].rpartition("/")[2] == "java"]


def workers(tree: Sequence[Member]) -> list[int]:
    """The Python workers of an engine: forks of Spark's daemon, not the daemon itself."""
    daemons = {member.pid for member in tree if "pyspark" in member.command and "daemon" in member.command}
    return [member.pid for member in tree if member.pid in daemons and member.parent in daemons]


class Child:
    """A process that was started here. What it prints is kept by line, its messages go to a file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.log, self._clock = name, log, clock
        self.started_at = clock()
        with log.open("ab") as messages:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=messages,
                start_new_session=True,
                env=dict(environ) if environ is not None else None,
            )
        self._sessions = {self._process.pid}
        self._lines: deque[tuple[float, str]] = deque(maxlen=_LINES_MAX)
        self._listener = threading.Thread(target=self._listen, name=f"{name}-lines", daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """Its number, which is also that of its session."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def lines(self) -> list[tuple[float, str]]:
        """Return the lines printed since the last call, each with its time."""
        found = []
        while self._lines:
            found.append(self._lines.popleft())
        return found

    def tell(self, line: str) -> None:
        """A line on its standard input; lost if it is dead."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    def tree(self) -> list[Member]:
        """It and everything that it started, however deep; sessions that were seen once are known for good."""
        found = members(*self._sessions)
        self._sessions |= {member.session for member in found}
        return found

    def signal_all(self, number: signal.Signals) -> None:
        """A signal to the whole tree: the driver first, so that it can't act on the death of its children."""
        for pid in [self.pid, *(member.pid for member in self.tree() if member.pid != self.pid)]:
            send_signal(pid, number)

    def pause(self) -> None:
        """Stop the whole tree (SIGSTOP), and return when nothing of it runs."""
        end = time.monotonic() + _GONE_S_MAX
        self.signal_all(signal.SIGSTOP)
        while not is_stopped(member.pid for member in self.tree()):
            if time.monotonic() > end:
                raise TimedOut(what=f"Stopping {self.name}", seconds=_GONE_S_MAX)
            time.sleep(_LOOK_S)
            self.signal_all(signal.SIGSTOP)

    def kill(self) -> None:
        """End the whole tree at once, also what is started meanwhile."""
        end = time.monotonic() + _GONE_S_MAX
        while self.tree():
            self.signal_all(signal.SIGKILL)
            if time.monotonic() > end:
                raise TimedOut(what=f"Killing {self.name}", seconds=_GONE_S_MAX)
            self._process.poll()
            time.sleep(_LOOK_S)
        self._close()

    def stop(self, timeout: float = SETTLE_S) -> None:
        """Ask it to end; kill what is left after a while."""
        if self.code is None:
            send_signal(self.pid, signal.SIGCONT)
            send_signal(self.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout)
        self.kill()

    def failure(self, what: str) -> DrillBroken:
        """An error that shows its last words."""
        state = "is running" if self.code is None else f"ended with code {self.code}"
        return DrillBroken(what=what, name=self.name, pid=self.pid, state=state, words=self.tail())

    def tail(self) -> str:
        """The end of its messages."""
        return tail(self.log)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append((self._clock(), line.decode(errors="replace").rstrip("\n")))

    def _close(self) -> None:
        self._process.wait(_GONE_S_MAX)
        self._listener.join(_GONE_S_MAX)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def tail(log: Path) -> str:
    """The last lines of a file; a sentence if there are none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
    except OSError:
        lines = []
    return "\n".join(f"  {line}" for line in lines) if lines else "  (it said nothing)"


def send_signal(pid: int, number: signal.Signals) -> None:
    """To one process, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
