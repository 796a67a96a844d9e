"""What a server is like: its version and settings, what that promises, and what would break the promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lockstep.errors import ServerRefused, ServerUnfit
from lockstep.log.network.checks import Finding
from lockstep.log.port import DROPPED_BY_BUS, Limits, Promises
from lockstep.log.redis.client import Server

VERSION_LEAST = (7, 0)
_SETTINGS = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy", "proto-max-bulk-len")
_BULK_BYTES_DEFAULT = 512 << 20
_BULK_OVERHEAD = 1024
_MAY_LOSE = {
    "fsync": "nothing while the disk of the server is whole (it has appendfsync always)",
    "relaxed": "the last seconds before the server or its machine fails, or its disk is full",
    "memory": "everything since the server's last snapshot when it ends",
}
_FAILOVER = "; what a replica lacks when it is made the primary"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a server says about itself; None where it does not tell."""

    server: str
    version: tuple[int, int] | None = None
    replicas: int | None = None
    is_replica: bool = False
    settings: Mapping[str, str] | None = field(default=None)

    @property
    def durability(self) -> str:
        """When a write is answered; where the server does not tell, nothing is taken for granted."""
        if self.settings is None or self.settings.get("appendonly") != "yes":
            return "memory"
        always = self.settings.get("appendfsync") == "always" and not self.pauses_syncing
        return "fsync" if always else "relaxed"

    @property
    def pauses_syncing(self) -> bool:
        """Whether it acknowledges without the disk while it rewrites its file."""
        return (self.settings or {}).get("no-appendfsync-on-rewrite") == "yes"


def ask_facts(server: Server, *, patient: bool = True) -> Facts:
    """What the server says about itself; what this user may not ask stays unknown."""
    info = _ask_info(server, patient=patient)
    settings = _ask_settings(server)
    version = str(info.get("redis_version", "")).split(".")
    replicas = info.get("connected_slaves")
    return Facts(
        server=server.name,
        version=(int(version[0]), int(version[1])) if len(version) > 1 else None,
        replicas=None if replicas is None else int(replicas),
        is_replica=info.get("role") == "slave",
        settings=settings,
    )


def promises(facts: Facts, wait_replicas: int) -> Promises:
    """What the bus keeps, on such a server."""
    followers = facts.replicas or 0
    return Promises(
        durability=facts.durability,
        may_lose=_MAY_LOSE[facts.durability] + (_FAILOVER if followers else ""),
        opened_by="network",
        retention=("capacity", "bytes", "age", "protect"),
        sync_replicas=wait_replicas,
        async_replicas=max(followers - wait_replicas, 0),
        atomic=True,
        conditional=True,
        dedupe=True,
        notifies=True,
        copies=DROPPED_BY_BUS,
        ordered_times=True,
        takes_back=True,
    )


def limits(facts: Facts) -> Limits:
    """How much the server takes at once."""
    most = int((facts.settings or {}).get("proto-max-bulk-len", _BULK_BYTES_DEFAULT))
    return Limits(append_bytes=most - _BULK_OVERHEAD, append_setting="proto-max-bulk-len")


def findings(facts: Facts, wait_replicas: int) -> list[Finding]:
    """What is not as the promises need it; the first ones are the worst."""
    found = _about_server(facts) + (
        _about_settings(facts) if facts.settings is not None else [_unknown_settings(facts)]
    )
    if facts.replicas is not None and facts.replicas < wait_replicas:
        problem = f"{facts.replicas} replicas follow it, and every append waits for {wait_replicas}"
        found.append(Finding(facts.server, problem, "wait_replicas in the URL, or its replicas"))
    return found


def lone(facts: Facts) -> list[Finding]:
    """That nothing follows it: true of every server that is started to try something, so it is told on demand."""
    if facts.replicas != 0 or facts.is_replica:
        return []
    problem = "no replica follows it: if its disk is lost, the streams are"
    return [Finding(facts.server, problem, "it to have a replica (replicaof), and wait_replicas in the URL")]


def _about_server(facts: Facts) -> list[Finding]:
    found = []
    if facts.version is not None and facts.version < VERSION_LEAST:
        problem = f"it is Redis {facts.version[0]}.{facts.version[1]}, and streams need 7.0 or later"
        found.append(Finding(facts.server, problem, "its version", fatal=True))
    if facts.is_replica:
        problem = "it is a replica, and takes no writes"
        found.append(Finding(facts.server, problem, "the address to that of the primary", fatal=True))
    return found


def _about_settings(facts: Facts) -> list[Finding]:
    settings, found = facts.settings or {}, []
    if settings.get("appendonly") != "yes":
        problem = "its append-only file is off: what was acknowledged is lost when it ends"
        found.append(Finding(facts.server, problem, "appendonly to yes"))
    elif settings.get("appendfsync") != "always":
        problem = "it acknowledges before the disk has it: the last seconds are lost if it fails"
        found.append(Finding(facts.server, problem, "appendfsync to always"))
    elif facts.pauses_syncing:
        problem = "it acknowledges before the disk has it while it rewrites its file: seconds are lost if it fails then"
        found.append(Finding(facts.server, problem, "no-appendfsync-on-rewrite to no"))
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy.startswith("allkeys"):
        problem = f"it drops streams when its memory is full (maxmemory-policy is {policy})"
        found.append(Finding(facts.server, problem, "maxmemory-policy to noeviction"))
    return found


def _unknown_settings(facts: Facts) -> Finding:
    problem = "it does not tell its settings, so nothing is known about its disk"
    return Finding(facts.server, problem, "the rights of the user (CONFIG GET)")


def _ask_info(server: Server, *, patient: bool) -> dict[str, str]:
    try:
        replies = server.ask(("INFO", "server"), ("INFO", "replication"), patient=patient)
    except (ServerRefused, ServerUnfit) as error:
        if "NOPERM" not in str(error) and "no permissions" not in str(error):
            raise
        return {}
    lines = b"\n".join(replies).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _ask_settings(server: Server) -> dict[str, str] | None:
    try:
        [reply] = server.ask(("CONFIG", "GET", *_SETTINGS))
    except (ServerRefused, ServerUnfit):  # managed servers forbid it or do not know it; older ones take one name only
        return None
    return _pairs(reply)


def _pairs(reply: list[Any]) -> dict[str, str]:
    texts = [part.decode() for part in reply]
    return dict(zip(texts[::2], texts[1::2], strict=True))
