"""The real command in a folder of its own."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAM = str(Path(sys.executable).with_name("lockstep"))
TIMEOUT_S = 60.0


class Command:
    """Runs `lockstep` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}
        self._running: list[subprocess.Popen[bytes]] = []

    def __call__(
        self, *arguments: str, given: str | bytes = b"", code: int = 0, timeout: float = TIMEOUT_S, **environ: str
    ) -> Result:
        """Run to the end; the exit code must be the one expected."""
        done = subprocess.run(
            [PROGRAM, *arguments],
            cwd=self.folder,
            input=given.encode() if isinstance(given, str) else given,
            capture_output=True,
            timeout=timeout,
            env={**self.environ, **environ},
            check=False,
        )
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        assert b"Traceback" not in done.stderr
        return Result(done.stdout, done.stderr.decode())

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Run in the background."""
        process = subprocess.Popen(
            [PROGRAM, *arguments],
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environ,
            bufsize=0,
        )
        self._running.append(process)
        return process

    def close(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.communicate()


class Result:
    """What a run printed."""

    def __init__(self, raw: bytes, err: str) -> None:
        self.raw, self.err = raw, err

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def objects(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]

    @property
    def object(self) -> Any:
        (only,) = self.objects
        return only

    @property
    def error(self) -> dict[str, str]:
        loaded: dict[str, str] = json.loads(self.err)["error"]
        return loaded


def read_line(process: subprocess.Popen[bytes], timeout: float = TIMEOUT_S) -> bytes:
    """The next line of a running command, as soon as it is there."""
    assert process.stdout is not None
    line = b""
    end = time.monotonic() + timeout
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], max(end - time.monotonic(), 0))
        assert ready, f"no line came, only {line!r}"
        piece = process.stdout.read(1)
        assert piece, f"it ended after {line!r}"
        line += piece
    return line


def until(condition: Callable[[], bool]) -> None:
    """Look again and again; the looking takes its time."""
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end, "it did not come about"
