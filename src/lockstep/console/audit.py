"""The audit log: one record before a change and one after it, on a stream that nobody alters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockstep.console.ledger import Ledger
from lockstep.console.port import Act, Asked
from lockstep.log.config import StreamConfig
from lockstep.runtime import Runtime
from lockstep.server.access import Principal
from lockstep.streams.client import Lockstep

STREAM = "console.audit"
KEPT_S = 400 * 86_400.0
KEPT_ROWS = 10_000
"""Records that a server holds for its page; the stream has all."""
_SECRET = ("secret", "token", "password", "digest", "shown_once")


class AuditLog:
    """Appends records of changes, and shows the last ones."""

    def __init__(self, client: Lockstep, runtime: Runtime, server: str) -> None:
        self._runtime, self._server = runtime, server
        self._rows: list[dict[str, Any]] = []
        self._ledger = Ledger(client, STREAM, StreamConfig(retain_age_s=KEPT_S), self._take)

    def begun(self, act: Act, asked: Asked, before: Mapping[str, Any]) -> str:
        """Note what is about to be done; returns the number that the outcome goes with."""
        number = self._runtime.new_id().hex()
        fields = {name: _shown(name, value) for name, value in asked.values.items()}
        self._append(number, asked.principal, asked.address, act.title, asked.path, "begun",
                     {"fields": fields, "preview": dict(before)})  # fmt: skip
        return number

    def ended(self, number: str, act: Act, asked: Asked, outcome: str, after: Mapping[str, Any]) -> None:
        """Note what became of it."""
        shown = {name: _shown(name, value) for name, value in after.items()}
        self._append(number, asked.principal, asked.address, act.title, asked.path, outcome, shown)

    def event(self, principal: Principal, address: str, what: str, path: str, outcome: str) -> None:
        """Note something that is no act, as signing in."""
        self._append(self._runtime.new_id().hex(), principal, address, what, path, outcome, {})

    def rows(self) -> list[dict[str, Any]]:
        """The last records, newest first."""
        self._ledger.follow()
        return self._rows[::-1]

    def close(self) -> None:
        """Close its stream."""
        self._ledger.close()

    def _append(
        self,
        number: str,
        principal: Principal,
        address: str,
        what: str,
        path: str,
        outcome: str,
        more: Mapping[str, Any],
    ) -> None:
        self._ledger.append(
            {"id": number, "at_ms": self._runtime.wall_ns() // 10**6, "who": principal.name,
             "role": principal.role.label, "credential": principal.credential, "from": address, "what": what,
             "path": path, "outcome": outcome, "server": self._server, "more": dict(more)}
        )  # fmt: skip

    def _take(self, record: dict[str, Any]) -> None:
        self._rows.append(record)
        del self._rows[:-KEPT_ROWS]


def _shown(name: str, value: Any) -> Any:
    return "***" if any(word in name.lower() for word in _SECRET) and value else value
