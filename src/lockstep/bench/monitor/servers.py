"""Servers of a monitor as processes of their own: started, asked, killed, and what they cost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.bench.compare_servers import Served, family
from lockstep.bench.scratch import scratch_folder
from lockstep.errors import LockstepError
from lockstep.monitor.client import MonitorClient

_START_S, _END_S = 120.0, 20.0
_LOOK_S = 0.05
_TAIL = 2_000
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Site:
    """Where servers run: a folder, the URL of their bus, and who computes."""

    folder: Path
    url: str
    runner: str

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        """Settings of all servers."""
        place = self.folder / "conf.d"
        place.mkdir(exist_ok=True)
        (place / "settings.json").write_text(json.dumps(settings))


@contextmanager
def site(runner: str, settings: Mapping[str, Any]) -> Iterator[Site]:
    """A new bus on LMDB, and a folder with settings."""
    with scratch_folder() as folder:
        made = Site(folder, f"lmdb:{folder / 'bus'}", runner)
        made.write_settings(settings)
        yield made


class ServerProcess:
    """One server. Leaving the with block ends it and all that it started."""

    def __init__(self, site: Site, name: str, more: Sequence[str] = ()) -> None:
        self.name, self.url = name, ""
        self._said, self._log = site.folder / f"{name}.out", site.folder / f"{name}.log"
        command = [
            sys.executable, "-m", "lockstep.cli.main", "monitor", "server", "--json", "--http", "0",
            "--config", str(site.folder / "conf.d"), "--server-name", name, "--state", str(site.folder / name),
            "--runner", site.runner, "--bus", site.url, *more,
        ]  # fmt: skip
        with self._said.open("wb") as said, self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=log, start_new_session=True,
                env={**os.environ},
            )  # fmt: skip

    def wait_up(self) -> None:
        """Return when it answers."""
        end = time.monotonic() + _START_S
        while not self.url:
            for line in self._said.read_text().splitlines():
                with suppress(ValueError):
                    told = json.loads(line)
                    self.url = told["url"] if told.get("event") == "started" else self.url
            if self._process.poll() is not None or time.monotonic() > end:
                message = f"server {self.name} did not start: {self._log.read_text(errors='replace')[-_TAIL:]}"
                raise RuntimeError(message)
            time.sleep(_LOOK_S)

    @property
    def client(self) -> MonitorClient:
        """Asks it."""
        return MonitorClient(self.url)

    @property
    def role(self) -> str:
        """Whether its engine leads; `unknown` if it does not answer."""
        try:
            return str(MonitorClient(self.url, timeout_s=2.0).info()["servers"][0]["role"])
        except LockstepError:
            return "unknown"

    @property
    def pid(self) -> int:
        """Its first process."""
        return self._process.pid

    def cpu_s(self) -> float:
        """Processor time of it and of all that it started."""
        return Served("", (self._process.pid,)).cpu_s()

    def counters(self) -> Json:
        """What the fleet counted, as far as this server's view follows."""
        found: Json = self.client.get("counters")
        return found

    def kill(self) -> None:
        """End it and all that it started at once (-9), itself first."""
        pids = family((self._process.pid,))
        for pid in sorted(pids, key=lambda each: each != self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """End it in order; what is left after a while is killed."""
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
        if self._process.poll() is None:
            self.kill()


@contextmanager
def servers(
    site: Site, names: Sequence[str] = ("server-1",), more: Sequence[str] = ()
) -> Iterator[list[ServerProcess]]:
    """Servers that answer."""
    started = [ServerProcess(site, name, more) for name in names]
    try:
        for each in started:
            each.wait_up()
        yield started
    finally:
        for each in started:
            each.close()


def leader(started: Sequence[ServerProcess], seconds: float = _START_S) -> ServerProcess:
    """The server that leads, once one does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for each in started:
            if each.role == "active":
                return each
        time.sleep(_LOOK_S)
    message = f"no server led within {seconds:.0f} s"
    raise TimeoutError(message)
