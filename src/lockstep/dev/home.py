"""Servers that outlive the command that started them, each in a folder below one home."""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lockstep.dev import processes
from lockstep.dev.processes import Server
from lockstep.dev.servers import RECIPES, attach, own_environment, start
from lockstep.dev.supply import Supply, Tell, cache_folder
from lockstep.errors import Conflict
from lockstep.runtime import Runtime

ALL = ("kafka", "rabbitmq", "redis", "hazelcast", "zookeeper")
"""What `all` starts: one of each kind that carries streams or elects."""


class Home:
    """The folder that holds the servers of a user."""

    def __init__(self, folder: Path | None, runtime: Runtime, environ: Mapping[str, str], tell: Tell) -> None:
        self.folder = (folder or cache_folder(environ) / "dev").resolve()
        self._runtime, self._environ, self._tell = runtime, own_environment(environ), tell

    def announce(self, names: Iterable[str]) -> None:
        """Say which packages starting these servers would install on the machine, before anything is changed."""
        idle = [name for name in names if not ((found := self.find(name)) and found.is_running)]
        packages = Supply(self._environ, self._tell).packages(RECIPES[name]() for name in idle)
        if packages:
            self._tell(f"This installs Debian packages on this machine, as root: {', '.join(packages)} (with apt-get).")

    def up(self, name: str) -> Server:
        """Start a server, unless it runs; return when it answers."""
        with self._alone(name):
            found = self.find(name)
            if found is not None and found.is_running:
                self._tell(f"{name} runs already")
                return found
            supply = Supply(self._environ, self._tell)
            self._tell(f"Starting {name} in {self.folder / name}")
            recipe = RECIPES[name]()
            return start(recipe, self.folder / name, supply=supply, runtime=self._runtime, environ=self._environ).facts

    def fetch(self, name: str) -> None:
        """Install and fetch what a server needs, without starting it."""
        Supply(self._environ, self._tell).provide(RECIPES[name]())

    def down(self, name: str) -> bool:
        """End a server; False if it did not run. Its data stays."""
        if self.find(name) is None:
            return False
        with self._alone(name):
            found = self.find(name)
            if found is None or not found.alive:
                return False
            self._tell(f"Stopping {name}")
            attach(RECIPES[name](), found, self._runtime, self._environ).stop()
            return True

    def find(self, name: str) -> Server | None:
        """A server that was started here, whether it runs or not."""
        return processes.read(self.folder / name)

    def servers(self) -> list[Server]:
        """All servers that were started here."""
        return [found for name in RECIPES if (found := self.find(name)) is not None]

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Keep other commands from starting or ending the same server meanwhile."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.folder / f"{name}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                reason = f"Another command is starting or ending {name} in {self.folder}. Wait until it is done."
                raise Conflict(reason=reason) from None
            yield
