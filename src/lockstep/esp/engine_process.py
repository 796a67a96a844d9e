"""The engine processes of a server without a model, and the server's own life."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from lockstep.cli.engine_run import Stopping
from lockstep.cli.engine_services import TOKEN_NAME, kept_token
from lockstep.cli.output import Output
from lockstep.errors import TimedOut, UsageError
from lockstep.esp.project_server import Projects, Running, make_server_app
from lockstep.server.serving import bind, serve_app

LIFELINE = "LOCKSTEP_SERVER_LIFELINE"
"""The descriptor of a pipe that ends when the server does: an engine must not outlive it."""
LOCAL = "127.0.0.1"
_STOP_S, _LOOK_S = 60.0, 0.2


class EngineProcess:
    """An engine that was started as `dfesp_xml_server -model`."""

    def __init__(self, words: Sequence[str], port: int, state: Path) -> None:
        self.port, self._state = port, state
        end, lifeline = os.pipe()
        self._lifeline = os.fdopen(lifeline, "wb", buffering=0)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this program
                [sys.executable, "-m", "lockstep.esp.xml_server", *words],
                stdin=subprocess.DEVNULL,
                pass_fds=(end,),
                env={**os.environ, LIFELINE: str(end)},
            )
        except OSError:
            self._lifeline.close()
            raise
        finally:
            os.close(end)

    def token(self) -> str:
        """What its REST wants to see before it changes something."""
        return (self._state / TOKEN_NAME).read_text().strip()

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """End it in order; after a minute, end it anyway. May be called again."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._lifeline.close()


def run_server(wish: argparse.Namespace, given: Sequence[str]) -> int:
    """Serve REST until asked to stop; projects are added and removed by PUT and DELETE."""
    if wish.http is None:
        raise UsageError(reason="-model is missing; with -http PORT and without -model, models are loaded over REST.")
    folder = Path(wish.state or Path(".lockstep-engine") / f"server-{wish.http}").absolute()
    output = Output(json=False, quiet=False)
    with bind(LOCAL, wish.http) as bound, Stopping() as stopping:
        token, port = secrets.token_urlsafe(32), bound.getsockname()[1]
        projects = projects_in(folder, given)
        server = serve_app(make_server_app(projects, token), bound, LOCAL)
        stopping.listen()
        try:
            with kept_token(token, folder, port):
                output.line(f"Serving REST on {server.url}, without a project. PUT projects/NAME loads one.")
                output.flush()
                while not stopping.code:
                    time.sleep(_LOOK_S)
        finally:
            with suppress(TimedOut):  # a request may wait for an engine that starts: it ends with that
                server.stop()
            projects.close()
    return stopping.code


def projects_in(folder: Path, given: Sequence[str]) -> Projects:
    """Projects with their state in a folder; files that clients name are below the folder where the server runs."""
    return Projects(folder, Path.cwd(), lambda name, file: _started(given, name, file, folder))


def _started(given: Sequence[str], name: str, file: Path, folder: Path) -> Running:
    with bind(LOCAL, 0) as free:
        port = free.getsockname()[1]
    state = folder / name
    return EngineProcess(
        [*_without_own(given), "-model", str(file), "-http", str(port), "-state", str(state)], port, state
    )


def _without_own(given: Sequence[str]) -> list[str]:
    """The server's flags without those that each engine has of its own."""
    words, skip = [], False
    for word in given:
        if skip or word in ("-http", "-state"):
            skip = not skip
            continue
        words.append(word)
    return words


def follow_lifeline() -> None:
    """End with the server that has started this process, if there is one: as a kill would."""
    descriptor = os.environ.get(LIFELINE)
    if descriptor is not None:
        threading.Thread(target=_wait_for_end, args=(int(descriptor),), name="lifeline", daemon=True).start()


def _wait_for_end(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)
