"""The machine as it is: an event loop's timers, and commands as processes of their own groups."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from lockstep.monitor.agent.machine import Done, Finished, Machine, Timer

OUTPUT_BYTES = 1 << 20
TIMED_OUT = "Execution timed out"
_TIMEOUT_STATUS, _ERROR_STATUS, _SIGNALLED = 2, 3, 128
_READ_BYTES = 1 << 16
_DRAIN_S = 0.5
_KILL_S = 3.0
_LOOK_S = 0.05


class LoopMachine:
    """Clocks, timers and commands of an asyncio event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._running: set[_Process] = set()

    def now(self) -> float:
        return time.time()

    def local(self, time: float) -> datetime:
        return datetime.fromtimestamp(time).astimezone()

    def call_later(self, seconds: float, function: Callable[[], None]) -> Timer:
        return self._loop.call_later(seconds, function)

    def start(self, command: str, data: bytes | None, timeout: float | None, done: Done) -> None:
        """As in Machine: `sh -c` in a process group of its own, which a time-out ends."""
        process = _Process(self._loop, done, self._running.discard)
        self._running.add(process)
        process.begin(command, data, timeout)

    def in_background(self, work: Callable[[], Finished], done: Done) -> None:
        def ended(future: asyncio.Future[Finished]) -> None:
            error = future.exception()
            if error is None:
                done(future.result())
            else:
                done(Finished(f"{type(error).__name__}: {error}", _TIMEOUT_STATUS))

        self._loop.run_in_executor(None, work).add_done_callback(ended)

    def end(self) -> None:
        """Kill what still runs."""
        for process in list(self._running):
            process.kill(signal.SIGKILL)


class _Process:
    """One command from its start to its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, done: Done, forget: Callable[[_Process], None]) -> None:
        self._loop, self._done, self._forget = loop, done, forget
        self._process: subprocess.Popen[bytes] | None = None
        self._output = bytearray()
        self._cut = False
        self._data = memoryview(b"")
        self._timers: list[Timer] = []
        self._told = False
        self._verdict: tuple[str, int] | None = None
        """The output reported in place of its own: it took too long."""
        self._exited = False
        self._pidfd = -1

    def begin(self, command: str, data: bytes | None, timeout: float | None) -> None:
        """Start it; a failure is its result."""
        try:
            self._process = subprocess.Popen(  # noqa: S603 - commands are what checks are
                ("/bin/sh", "-c", command),
                stdin=subprocess.DEVNULL if data is None else subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, bufsize=0,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            self._forget(self)
            self._loop.call_soon(self._tell, f"Unexpected error: {error}", _ERROR_STATUS)
            return
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._loop.add_reader(self._process.stdout.fileno(), self._read)
        if data is not None and self._process.stdin is not None:
            self._data = memoryview(data)
            os.set_blocking(self._process.stdin.fileno(), False)
            self._loop.add_writer(self._process.stdin.fileno(), self._feed)
        if timeout is not None:
            self._timers.append(self._loop.call_later(timeout, self._time_out))
        self._watch()

    def kill(self, number: int) -> None:
        """Send a signal to its group."""
        if self._process is not None and not self._exited:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _watch(self) -> None:
        """Have its end noticed: by a descriptor, or, on a system without those, by looking now and then."""
        assert self._process is not None
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except (OSError, AttributeError):
            self._look()
            return
        self._loop.add_reader(self._pidfd, self._ended)

    def _look(self) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._loop.call_later(_LOOK_S, self._look)
        else:
            self._ended()

    def _read(self) -> None:
        """Take output; beyond the limit it is read and forgotten, so that the command does not stand still."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            data = os.read(self._process.stdout.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end_output()
            return
        room = OUTPUT_BYTES - len(self._output)
        self._cut = self._cut or len(data) > room
        self._output += data[:room]

    def _end_output(self) -> None:
        assert self._process is not None
        stdout = self._process.stdout
        if stdout is not None and not stdout.closed:
            self._loop.remove_reader(stdout.fileno())
            stdout.close()
        if self._exited:
            self._finish()

    def _feed(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._data = self._data[os.write(self._process.stdin.fileno(), self._data[:_READ_BYTES]) :]
        except BlockingIOError:
            return
        except OSError:
            self._data = memoryview(b"")  # it did not want to read it all, as a check may
        if not self._data:
            self._end_input()

    def _end_input(self) -> None:
        assert self._process is not None
        stdin = self._process.stdin
        if stdin is not None and not stdin.closed:
            self._loop.remove_writer(stdin.fileno())
            with suppress(OSError):
                stdin.close()

    def _ended(self) -> None:
        """It has exited. What a child of it still writes is waited for shortly."""
        assert self._process is not None
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        self._process.wait()
        self._exited = True
        if self._process.stdout is None or self._process.stdout.closed:
            self._finish()
        else:
            self._timers.append(self._loop.call_later(_DRAIN_S, self._end_output))

    def _finish(self) -> None:
        assert self._process is not None
        for timer in self._timers:
            timer.cancel()
        self._end_input()
        code = self._process.returncode
        output = self._output.decode("utf-8", "replace")
        if self._cut:
            output += f"\n(cut after {OUTPUT_BYTES} bytes)"
        self._forget(self)
        self._tell(output, _SIGNALLED - code if code < 0 else code)

    def _time_out(self) -> None:
        """Tell that it took too long when it is gone: it keeps its place until then."""
        self._verdict = (TIMED_OUT, _TIMEOUT_STATUS)
        self.kill(signal.SIGTERM)
        self._timers.append(self._loop.call_later(_KILL_S, lambda: self.kill(signal.SIGKILL)))

    def _tell(self, output: str, status: int) -> None:
        if not self._told:
            self._told = True
            self._done(Finished(*(self._verdict or (output, status))))


WAITING_MAX = 10_000


class Commands:
    """Runs commands, at most `limit` at once."""

    def __init__(self, machine: Machine, limit: int) -> None:
        self._machine, self._limit = machine, limit
        self._waiting: deque[Callable[[], None]] = deque()
        self.running = 0

    def run(self, command: str, data: bytes | None, timeout: float | None, done: Done) -> bool:
        """Run a command now or when it is its turn; False if too many wait already."""
        return self._in_turn(lambda: self._machine.start(command, data, timeout, self._ended(done)))

    def run_function(self, work: Callable[[], Finished], done: Done) -> bool:
        """The same for a function."""
        return self._in_turn(lambda: self._machine.in_background(work, self._ended(done)))

    def _in_turn(self, begin: Callable[[], None]) -> bool:
        if len(self._waiting) >= WAITING_MAX:
            return False
        self._waiting.append(begin)
        self._begin_next()
        return True

    def _ended(self, done: Done) -> Done:
        def ended(finished: Finished) -> None:
            self.running -= 1
            try:
                done(finished)
            finally:
                self._begin_next()

        return ended

    def _begin_next(self) -> None:
        while self._waiting and self.running < self._limit:
            self.running += 1
            self._waiting.popleft()()
