"""Processes that stand in line at a gate and say when they may lead, to be killed and paused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from lockstep.engine.gates.urls import open_gate
from lockstep.runtime import ThreadRuntime

WITHIN_S = 30.0
LOOK_S = 0.01


def until(is_so: Callable[[], bool], what: str, within_s: float = WITHIN_S) -> float:
    """Wait until something is so; the seconds that it took."""
    began, pause = time.monotonic(), threading.Event()
    while not is_so():
        assert time.monotonic() - began < within_s, what
        pause.wait(LOOK_S)
    return time.monotonic() - began


class GateProcess:
    """A process with a gate. `state` is the last thing that it said."""

    def __init__(self, url: str, group: str = "c.p") -> None:
        path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, __file__, url, group],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(line.strip())

    @property
    def state(self) -> str:
        return self.said[-1] if self.said else ""

    @property
    def is_active(self) -> bool:
        return self.state.startswith("True ")

    def until(self, word: str) -> float:
        return until(lambda: word in self.state, f"{word!r} was not said, but {self.said[-5:]}")

    def tell(self, word: str) -> None:
        """enter or leave."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self.end()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)  # its threads go on for a while on a busy machine

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Ask it to end, if it runs; make it, if it does not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self.resume()
        try:
            self._process.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(WITHIN_S)
        self._process.stdout.close()


def main() -> None:
    gate = open_gate(sys.argv[1], ThreadRuntime(), os.environ, group=sys.argv[2])
    assert gate is not None
    gate.enter()
    over = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            getattr(gate, line.strip())()
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    said = None
    while not over.wait(LOOK_S):
        gate.check()
        told = (gate.may_lead(), gate.state())
        if told != said:
            said = told
            print(*told, flush=True)
    gate.close()


if __name__ == "__main__":
    main()
