"""The audit log: one record before a change and one after it, on an append-only stream."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from typing import Any

from lockstep.console.errors import ActRepeated
from lockstep.console.ledger import Ledger
from lockstep.console.port import Act, Asked
from lockstep.errors import TimedOut
from lockstep.log.config import StreamConfig
from lockstep.runtime import Runtime
from lockstep.server.access import Principal
from lockstep.streams.client import Lockstep

STREAM = "console.audit"
KEPT_S = 400 * 86_400.0
KEPT_ROWS = 10_000
"""Records that a server holds for its page; the stream has all."""
_READ_S, _LOOK_S = 10.0, 0.02
_PAIR = re.compile(r"(?i)([?&;][^=&\s]*(?:token|secret|passw|pwd|key)[^=&\s]*=)[^&;\s]+")
_USER = re.compile(r"(\w+://)[^/\s]+@")
_SECRET = ("secret", "token", "password", "passwd", "pwd", "digest", "shown_once", "authorization", "api_key",
           "private_key", "access_key", "cookie", "sasl.", "ssl.key")  # fmt: skip
TEXT_MAX, ITEMS_MAX = 1_000, 50
"""The largest values in records: longer texts and lists are cut."""


class AuditLog:
    """Appends records of changes, and shows the last ones."""

    def __init__(self, client: Lockstep, runtime: Runtime, server: str) -> None:
        self._runtime, self._server = runtime, server
        self._rows: deque[dict[str, Any]] = deque()
        self._firsts: dict[str, str] = {}
        """By the mark of a confirmation: the number of the first record with it."""
        self._ledger = Ledger(client, STREAM, StreamConfig(retain_age_s=KEPT_S), self._take, KEPT_ROWS)

    def begun(self, act: Act, asked: Asked, before: Mapping[str, Any], once: str = "") -> str:
        """Note what is about to be done; returns the number that the outcome goes with.

        Of several records with the mark `once` of a caller the first one counts, whichever servers wrote them: all
        servers read them in one order. ActRepeated for the others.
        """
        number, mark = self._runtime.new_id().hex(), _mark(asked, once)
        self._append(number, asked.principal, asked.address, act.title, asked.path, "begun",
                     {"fields": redacted(asked.values), "preview": redacted(before)}, mark)  # fmt: skip
        if mark and self._first_of(mark) != number:
            outcome = self.outcome(self._first_of(mark))
            self.ended(number, act, asked, "repeated", {"first": self._first_of(mark)})
            raise ActRepeated(what=act.title, outcome=outcome or "not known yet")
        return number

    def check_new(self, act: Act, asked: Asked, once: str) -> None:
        """ActRepeated if an act with this mark of its caller has been begun, as far as this server has read."""
        if not once:
            return
        self._ledger.follow()
        first = self._firsts.get(_mark(asked, once))
        if first is not None:
            raise ActRepeated(what=act.title, outcome=self.outcome(first) or "not known yet")

    def _first_of(self, mark: str) -> str:
        """The number of the first record with a mark, once this server has read it."""
        waiter, end = self._runtime.waiter(), self._runtime.monotonic() + _READ_S
        while True:
            self._ledger.follow()
            if mark in self._firsts:
                return self._firsts[mark]
            if self._runtime.monotonic() >= end:
                raise TimedOut(what="Reading the audit log", seconds=_READ_S)
            waiter.wait(_LOOK_S)

    def outcome(self, number: str) -> str | None:
        """What became of what was begun under a number, as far as this server has read; None if it is not known."""
        self._ledger.follow()
        found = (row["outcome"] for row in reversed(self._rows) if row["id"] == number and row["outcome"] != "begun")
        return next(found, None)

    def ended(self, number: str, act: Act, asked: Asked, outcome: str, after: Mapping[str, Any]) -> None:
        """Note what became of it."""
        self._append(number, asked.principal, asked.address, act.title, asked.path, outcome, redacted(after))

    def event(
        self, principal: Principal, address: str, what: str, path: str, outcome: str, *, number: str = "",
        more: Mapping[str, Any] | None = None,
    ) -> str:  # fmt: skip
        """Note something that is no act, as signing in; returns the number that its outcome can go with."""
        number = number or self._runtime.new_id().hex()
        self._append(number, principal, address, what, path, outcome, redacted(more or {}))
        return number

    def rows(self) -> list[dict[str, Any]]:
        """The last records, newest first."""
        self._ledger.follow()
        return list(self._rows)[::-1]

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
        mark: str = "",
    ) -> None:
        self._ledger.append(
            {"id": number, "at_ms": self._runtime.wall_ns() // 10**6, "who": principal.name,
             "role": principal.role.label, "credential": principal.credential, "from": address, "what": what,
             "path": path[:TEXT_MAX], "outcome": outcome, "server": self._server, "more": dict(more),
             **({"once": mark} if mark else {})}
        )  # fmt: skip

    def _take(self, record: dict[str, Any]) -> None:
        self._rows.append(record)
        if "once" in record:
            self._firsts.setdefault(str(record["once"]), str(record["id"]))
        while len(self._rows) > KEPT_ROWS:
            self._firsts.pop(str(self._rows.popleft().get("once")), None)


def _mark(asked: Asked, once: str) -> str:
    """Callers choose marks, so each has its own."""
    return f"{asked.principal.credential}/{once}" if once else ""


def redacted(tree: Any) -> Any:
    """Plain data without what is secret in it: values whose names say so, passwords in URLs; long ones are cut."""
    if isinstance(tree, Mapping):
        items = list(tree.items())[:ITEMS_MAX]
        return {str(name): "***" if _is_secret(str(name)) and value else redacted(value) for name, value in items}
    if isinstance(tree, list | tuple):
        return [redacted(value) for value in tree[:ITEMS_MAX]]
    if isinstance(tree, str):
        return _PAIR.sub(r"\1***", _USER.sub(r"\1***@", tree[:TEXT_MAX]))
    return tree


def _is_secret(name: str) -> bool:
    return any(word in name.lower().replace("-", "_") for word in _SECRET)
