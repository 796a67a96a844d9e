"""How this server runs, who asks it, and a bundle of facts for a report of a problem."""

from __future__ import annotations

import platform
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from lockstep import __version__
from lockstep.console.audit import redacted
from lockstep.console.bundle import MEDIA_TYPE, PARTS, BundleLimits, bundle_of
from lockstep.console.credentials import SESSION_S, CredentialStore
from lockstep.console.errors import BundleBusy
from lockstep.console.limits import CHANGES, READS, SIGN_INS
from lockstep.console.live import VIEWERS_MAX
from lockstep.console.port import Act, Asked, Download, Site, Tree, View
from lockstep.server.access import Role
from lockstep.server.guard import Limits

BUNDLE = "lockstep-debug.tar.gz"
LIMITS = Limits(requests=256, bodies=32, body_bytes=16 << 20, body_s=30.0)
EXTRAS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "engine": ("projects: engines, windows and their rows", ("pyspark", "pyarrow", "numba", "msgpack")),
    "schedule": ("schedules that are stored and delivered elsewhere than on the bus", ("aiohttp", "numpy")),
    "monitor": ("the fleet", ("pika", "pyspark", "numba")),
    "kafka": ("buses kafka:", ("confluent_kafka",)),
    "rabbitmq": ("buses rabbitmq:", ("rstream", "pika")),
    "redis": ("buses redis:", ("redis",)),
    "hazelcast": ("buses hazelcast:", ("hazelcast",)),
    "postgresql": ("schedules in PostgreSQL", ("psycopg",)),
    "cassandra": ("schedules in Cassandra", ("cassandra",)),
    "zookeeper": ("monitors that elect by ZooKeeper", ("kazoo",)),
}
"""What each extra adds to a server, and the packages that it needs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerFacts:
    """How a server was started; nothing of it is secret but the environment, of which values are shown by name."""

    host: str = "127.0.0.1"
    port: int = 0
    encryption: str = "none: it listens on loopback only"
    anonymous: bool = True
    state: str = ""
    """The folder for views of fleets; empty without one."""
    server: str = ""
    """The machine."""
    started_ms: int = 0
    left_out: Sequence[str] = ()
    limits: Limits = LIMITS
    environ: Mapping[str, str] = field(default_factory=dict)
    bundle: BundleLimits = field(default_factory=BundleLimits)


class SettingsViews:
    """Shows the settings of this server, and makes debug bundles, one at a time."""

    def __init__(self, site: Site, credentials: CredentialStore, facts: ServerFacts) -> None:
        self._site, self._credentials, self._facts = site, credentials, facts
        self._at_work = threading.Lock()

    def views(self) -> list[View]:
        """Both."""
        return [
            View(path="/settings", title="Settings", summary="How this server runs, and who you are",
                 load=self.settings, template="settings.html", cli="lockstep settings",
                 is_personal=True),
            View(path="/debug", title="Debug bundle", summary="What a file for a report of a problem holds",
                 load=self.debug, template="debug.html", cli="lockstep debug bundle", is_live=False),
        ]  # fmt: skip

    def acts(self) -> list[Act]:
        """The download."""
        return [
            Act(path="/debug/bundle", title="Make a bundle", summary="Make a debug bundle and download it",
                run=self.bundle, preview=self._would_bundle, role=Role.ADMIN, cli="lockstep debug bundle",
                answers=MEDIA_TYPE, done="/debug"),
        ]  # fmt: skip

    def settings(self, asked: Asked) -> Tree:
        """Plain facts; no secrets."""
        facts, limits = self._facts, self._facts.limits
        return {
            "server": {
                "bus": redacted(self._site.client.url), "cluster": self._site.cluster, "machine": facts.server,
                "listens on": f"{facts.host}:{facts.port}", "encryption": facts.encryption,
                "callers without a token": "may look" if facts.anonymous else "are asked to sign in",
                "state folder": facts.state or None, "lockstep": __version__, "python": platform.python_version(),
            },
            "started_ms": facts.started_ms,
            "limits": {
                "requests at work": limits.requests, "requests that come in": limits.bodies,
                "bytes of a request": limits.body_bytes, "seconds for a request to come in": limits.body_s,
                "pages that follow changes": VIEWERS_MAX, "hours of a session": SESSION_S / 3600,
            },
            "rates": [{"of": name, "per_s": rate.per_s, "at_once": rate.burst}
                      for name, rate in (("looks", READS), ("changes", CHANGES), ("sign-ins", SIGN_INS))],
            "left_out": list(facts.left_out), "extras": extras(), "me": self._me(asked),
        }  # fmt: skip

    def _me(self, asked: Asked) -> dict[str, Any]:
        """The caller."""
        principal = asked.principal
        token_ms, session_ms = self._credentials.expiry(principal)
        by = "a session" if principal.session else "a token" if principal.credential else "neither token nor session"
        return {"name": principal.name, "role": principal.role.label, "scope": list(principal.scope), "by": by,
                "token": principal.credential or None, "token_expires_ms": token_ms,
                "session_expires_ms": session_ms}  # fmt: skip

    def debug(self, _asked: Asked) -> Tree:
        """What a bundle holds, and its limits."""
        limits = self._facts.bundle
        return {
            "file": BUNDLE, "parts": [{"part": name, "holds": holds} for name, holds in PARTS.items()],
            "limits": {"seconds": limits.seconds, "streams, groups and projects, of each": limits.items,
                       "bytes of a part": limits.part_bytes},
        }  # fmt: skip

    def bundle(self, _asked: Asked) -> Download:
        """Return the bundle's file; raises BundleBusy while another one is being created."""
        if not self._at_work.acquire(blocking=False):
            raise BundleBusy()
        try:
            made = bundle_of(self._site.client, self._facts.environ, self._facts.bundle)
            data = made.packed()
        finally:
            self._at_work.release()
        about = {"file": BUNDLE, "bytes": len(data), "left_out": dict(made.left_out)}
        return Download(name=BUNDLE, media_type=MEDIA_TYPE, data=data, about=about)

    def _would_bundle(self, _asked: Asked) -> Tree:
        seconds = self._facts.bundle.seconds
        effect = (f"A file {BUNDLE} is made from this server and its bus, within about {seconds:g} s, and nothing is"
                  " changed. It holds names of streams, groups, members and hosts: look at it before you send it to"
                  " others.")  # fmt: skip
        return {"effect": effect, "rows": [{"part": name, "holds": holds} for name, holds in PARTS.items()]}


def extras() -> list[dict[str, Any]]:
    """What each extra gives, and which of its packages are missing."""
    rows = []
    for name, (gives, packages) in EXTRAS.items():
        missing = [package for package in packages if find_spec(package) is None]
        rows.append({"extra": name, "gives": gives, "missing": missing,
                     "command": f"pip install 'lockstep-events[{name}]'" if missing else None})  # fmt: skip
    return rows
