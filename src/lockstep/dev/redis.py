"""The recipe for Redis, with every write on disk before it is answered."""

from __future__ import annotations

from lockstep.dev import probes
from lockstep.dev.recipe import HOST, Plan, Process, Program, Recipe, Site

_SETTINGS = """\
bind {host}
port {port}
dir {folder}
appendonly yes
appendfsync always
save ""
daemonize no
"""


def redis() -> Recipe:
    """One Redis."""
    program = Program(name="redis-server", package="redis-server")
    return Recipe(name="redis", port_count=1, plan=_plan, programs=(program,))


def _plan(site: Site) -> Plan:
    (port,) = site.ports
    command = ("redis-server", str(site.folder / "redis.conf"))
    return Plan(
        url=f"redis://{HOST}:{port}",
        files={"redis.conf": _SETTINGS.format(host=HOST, port=port, folder=site.folder)},
        processes=(Process(name="redis", command=command, port=port, probe=probes.redis),),
    )
