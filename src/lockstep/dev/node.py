"""One process of a server: started, killed, paused, stopped, and started again on the same port and data."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from lockstep.dev import guard
from lockstep.dev.errors import ServerDidNotStart
from lockstep.dev.processes import Pid, family, is_alive, is_stopped, send, spawn
from lockstep.dev.recipe import HOST, Process
from lockstep.errors import TimedOut
from lockstep.runtime import Runtime

READY_S, STOP_S, GONE_S = 100.0, 15.0, 30.0
_LOOK_S = 0.02
_TAIL_LINES, _TAIL_BYTES = 15, 16_384


class Node:
    """A process that may or may not run; `owner` is the pid that it must not outlive, if there is one."""

    def __init__(
        self, process: Process, folder: Path, runtime: Runtime, environ: Mapping[str, str], owner: int | None = None
    ) -> None:
        self.process, self.folder = process, folder
        self.running: Pid | None = None
        self._runtime, self._environ, self._owner = runtime, environ, owner
        self._guard: Pid | None = None

    @property
    def name(self) -> str:
        """What the process is called."""
        return self.process.name

    @property
    def port(self) -> int:
        """Where its clients connect."""
        return self.process.port

    @property
    def address(self) -> str:
        """Where its clients connect, as HOST:PORT."""
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """The file that holds what it prints."""
        return self.folder / f"{self.name}.log"

    @property
    def is_alive(self) -> bool:
        """Whether the process runs, or is paused."""
        return self.running is not None and is_alive(self.running)

    @property
    def pid(self) -> int:
        """The number of the process, which must have been started."""
        if self.running is None:
            raise ServerDidNotStart(name=self.name, reason="nobody has started it", log=self.log, tail=tail(self.log))
        return self.running.pid

    def start(self) -> None:
        """Start the process, unless it runs; it does not answer yet."""
        if self.is_alive:
            return
        environ = {**self._environ, **self.process.environment}
        self.running = spawn(self.process.command, environ, self.folder, self.log)
        if self._owner is not None:
            words = (sys.executable, "-I", "-S", guard.__file__, str(self._owner), str(self.running.pid))
            self._guard = spawn(words, {}, self.folder, Path(os.devnull))

    def wait_ready(self, within_s: float = READY_S, members: int = 1) -> None:
        """Return when it answers and sees `members` members; raises ServerDidNotStart if that takes too long."""
        if not self._wait(lambda: not self.is_alive or self.process.probe(self.port) >= members, within_s):
            reason = f"it did not answer on {self.address} within {within_s:g} s"
            raise ServerDidNotStart(name=self.name, reason=reason, log=self.log, tail=tail(self.log))
        if not self.is_alive:
            raise ServerDidNotStart(name=self.name, reason="it ended", log=self.log, tail=tail(self.log))

    def kill(self) -> None:
        """End it at once (-9), as a crash would, and return when it is gone."""
        self.signal(signal.SIGKILL)
        self.wait_gone()

    def pause(self) -> None:
        """Stop it (SIGSTOP), and return when none of its threads runs: connections stay open, and nothing answers."""
        if not self._wait(self._stops, GONE_S):
            raise TimedOut(what=f"Stopping {self.name}, process {self.pid}", seconds=GONE_S)

    def resume(self) -> None:
        """Let it go on after a pause."""
        self.signal(signal.SIGCONT)

    def stop(self, within_s: float = STOP_S) -> None:
        """Ask it to end, and end it if it does not in time."""
        self.ask_to_stop()
        self.wait_stopped(within_s)

    def ask_to_stop(self) -> None:
        """Ask it to end, and do not wait."""
        self.signal(self.process.stop_signal)
        self.signal(signal.SIGCONT)  # a paused process does not hear the other one

    def wait_stopped(self, within_s: float = STOP_S) -> None:
        """Return when it has ended; end it (-9) if it has not in time."""
        if not self._wait(lambda: not self.is_alive, within_s):
            self.signal(signal.SIGKILL)
        self.wait_gone()

    def restart(self, within_s: float = READY_S) -> None:
        """Start it again on the same port and data, after stopping it if it runs; return when it answers."""
        self.stop()
        self.start()
        self.wait_ready(within_s)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.running is not None:
            send(self.running, number)

    def wait_gone(self) -> None:
        """Return when the process, and its guard, are no more."""
        if not self._wait(lambda: not self.is_alive and not self._is_guarded, GONE_S):
            raise TimedOut(what=f"Ending {self.name}, process {self.pid}", seconds=GONE_S)

    def _stops(self) -> bool:
        """Stop it, and children that it started meanwhile; whether all of them stand still."""
        self.signal(signal.SIGSTOP)
        return self.running is None or is_stopped(family(self.running))

    @property
    def _is_guarded(self) -> bool:
        return self._guard is not None and is_alive(self._guard)

    def _wait(self, condition: Callable[[], bool], within_s: float) -> bool:
        """Wait for a condition; whether it came true in time."""
        waiter, deadline = self._runtime.waiter(), self._runtime.monotonic() + within_s
        while not condition():
            if self._runtime.monotonic() >= deadline:
                return False
            waiter.wait(_LOOK_S)
        return True


def tail(log: Path) -> str:
    """The last lines of a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return "(it printed nothing)"
    return "\n".join(lines[-_TAIL_LINES:]) or "(it printed nothing)"
