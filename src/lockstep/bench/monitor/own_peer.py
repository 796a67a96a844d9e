"""Our own servers doing the work of the other monitors: two of them, and a command that is run for each change."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import lockstep
from lockstep.bench.compare_servers import family
from lockstep.bench.monitor.peers import Peer, Result
from lockstep.bench.monitor.servers import ServerProcess, Site, leader
from lockstep.monitor.transport.streams import MonitorStreams

OWN = "Lockstep, two servers"
_HANDLER = "tell"


class Lockstep(Peer):
    """Results are published to the input of the fleet, as agents do; the server that leads is killed."""

    def __init__(self, folder: Path, services: Sequence[tuple[str, str]], runner: str) -> None:
        super().__init__(folder, folder, services)
        self._site = Site(folder, f"lmdb:{folder / 'bus'}", runner)
        tell = {"type": "pipe", "command": f"cat >> {folder}/told", "mutator": "only_check_output"}
        self._site.write_settings({"handlers": {_HANDLER: tell}})
        self._bus = lockstep.connect(self._site.url, create=True)
        self._servers: dict[str, ServerProcess] = {}
        self._number = 0
        self._publisher = self._bus.publisher(MonitorStreams("monitor").input)

    def start(self) -> None:
        """Start those of the two that do not run, and return when one leads."""
        for name in ("server-1", "server-2"):
            if name not in self._servers:
                self._servers[name] = ServerProcess(self._site, name)
        for server in self._servers.values():
            server.wait_up()
        leader([*self._servers.values()])

    def hand_in(self, results: Sequence[Result]) -> None:
        """Publish results; it returns when they are stored."""
        keys, values, now = [], [], int(time.time())
        for each in results:
            self._number += 1
            check = {
                "name": each.service, "status": each.status, "output": f"{each.output}\n", "issued": now,
                "executed": now, "standalone": True, "handlers": [_HANDLER],
            }  # fmt: skip
            message = {"client": each.host, "_agent": "bench", "_n": self._number, "check": check}
            keys.append(f"r:{each.host}".encode())
            values.append(json.dumps(message, separators=(",", ":")).encode())
        self._publisher.publish_many(values, keys=keys).wait()

    def kill(self) -> None:
        """Kill the server that leads, with all that it started."""
        victim = leader([*self._servers.values()])
        victim.kill()
        del self._servers[victim.name]

    def pids(self) -> set[int]:
        """All processes of both."""
        return set(family(tuple(server.pid for server in self._servers.values())))

    def cpu_s(self) -> float:
        """Processor time of both."""
        return sum(server.cpu_s() for server in self._servers.values())

    def close(self) -> None:
        """End both."""
        self._publisher.close()
        for server in self._servers.values():
            server.close()
        self._bus.close()
