"""The real command in a folder of its own."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from lockstep.cli.main import main

PROGRAM = str(Path(sys.executable).with_name("lockstep"))
TIMEOUT_S = 60.0


class Command:
    """Runs `lockstep` in a folder."""

    program: Sequence[str] = (PROGRAM,)
    """What runs in the background."""

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
            [*self.program, *arguments],
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environ,
            bufsize=0,
            process_group=0,
            preexec_fn=heed_interrupts,
        )
        self._running.append(process)
        return process

    def close(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.communicate()


def heed_interrupts() -> None:
    """In a new process: Ctrl-C ends it, although a shell that runs the tests in its background ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class InProcess(Command):
    """Runs `lockstep` in this process, many times faster; for tests whose subject is no signal, pipe or terminal.

    Commands that run in the background are processes of their own all the same.
    """

    def __call__(
        self, *arguments: str, given: str | bytes = b"", code: int = 0, timeout: float = TIMEOUT_S, **environ: str
    ) -> Result:
        """Run to the end; the exit code must be the one expected."""
        del timeout  # the test's own holds
        data = given.encode() if isinstance(given, str) else given
        found, done = run_here(self.folder, {**self.environ, **environ}, arguments, data)
        assert found == code, (arguments, found, done.raw, done.err)
        assert "Traceback" not in done.err
        return done


def run_here(
    folder: Path, environ: Mapping[str, str], arguments: Sequence[str], given: bytes = b""
) -> tuple[int, Result]:
    """Run the command in this process; its exit code, and what it printed."""
    with tempfile.TemporaryFile() as read, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        read.write(given)
        read.seek(0)
        with standing_in(folder, environ, read, out, err):
            found = exit_code_of(arguments)
        out.seek(0)
        err.seek(0)
        return found, Result(out.read(), err.read().decode())


def exit_code_of(arguments: Sequence[str]) -> int:
    """Run the command as its script does."""
    try:
        return main(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)


@contextmanager
def standing_in(
    folder: Path, environ: Mapping[str, str], read: IO[bytes], out: IO[bytes], err: IO[bytes]
) -> Iterator[None]:
    """Have folder, environment, standard input and output for a while as a process of its own would."""
    before = sys.stdin, sys.stdout, sys.stderr, Path.cwd(), dict(os.environ)
    streams = [io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True) for file in (read, out, err)]
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before[:3]
        for stream in streams:
            stream.flush()
            stream.detach()  # the file stays open for its reader
        os.chdir(before[3])
        os.environ.clear()
        os.environ.update(before[4])


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
