"""What is written down about a server in its folder, so that another process can find it and end it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.dev.processes import Pid, is_alive
from lockstep.errors import DataError

FILE = "server.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """The facts about a server: `pids` by the name of the process, in the order in which they were started."""

    name: str
    url: str
    folder: Path
    ports: tuple[int, ...]
    pids: dict[str, Pid] = field(default_factory=dict)

    @property
    def alive(self) -> dict[str, Pid]:
        """The processes that still run."""
        return {name: process for name, process in self.pids.items() if is_alive(process)}

    @property
    def is_running(self) -> bool:
        """Whether every process runs."""
        return bool(self.pids) and self.alive == self.pids

    def tree(self) -> dict[str, Any]:
        """As JSON."""
        pids = {name: {"pid": process.pid, "started": process.started} for name, process in self.pids.items()}
        return {"name": self.name, "url": self.url, "folder": str(self.folder), "ports": [*self.ports], "pids": pids}


def write(server: Server) -> None:
    """Put the facts into the server's folder, whole or not at all."""
    fresh = server.folder / f".{FILE}"
    fresh.write_text(json.dumps(server.tree(), indent=2) + "\n")
    fresh.rename(server.folder / FILE)


def read(folder: Path) -> Server | None:
    """The facts in a folder; None if no server was ever started in it."""
    try:
        text = (folder / FILE).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        tree = json.loads(text)
        pids = {name: Pid(pid=item["pid"], started=item["started"]) for name, item in tree["pids"].items()}
        return Server(name=tree["name"], url=tree["url"], folder=folder, ports=tuple(tree["ports"]), pids=pids)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{folder / FILE} does not say which server is there. End it by hand, then remove the folder."
        raise DataError(reason=reason) from error
