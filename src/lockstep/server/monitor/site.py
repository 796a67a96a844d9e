"""What the routes of a monitor share: the view that they read, and the way to the fleet for what they change."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from lockstep.errors import TimedOut
from lockstep.monitor.view import FleetView, Listing
from lockstep.runtime import Runtime
from lockstep.server.bodies import JSON, Reply
from lockstep.server.routes import Call

ANSWER_S = 2.0
"""How long a change may take until the view shows it."""
COMPACT = (",", ":")
PAGE = {"limit": "at most so many", "offset": "without the first so many"}
PAGE_MAX = 999_999_999


class Orders(Protocol):
    """The way of changes to the fleet."""

    def send(self, kind: str, fields: Mapping[str, Any]) -> str:
        """Append an order durably; return its id."""

    def wait(self, order: str, seconds: float) -> bool:
        """Wait until the view has the answer to an order; returns False if it does not arrive in time."""


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """Of a queue of the transport, or of the input stream in its place."""

    messages: int = 0
    consumers: int = 0


@dataclass(frozen=True, slots=True)
class TransportFigures:
    """How the transport does."""

    name: str = "lockstep"
    connected: bool = True
    keepalives: QueueFigures = field(default_factory=QueueFigures)
    results: QueueFigures = field(default_factory=QueueFigures)


@dataclass(frozen=True, slots=True)
class MonitorSite:
    """A monitor as the routes see it."""

    view: FleetView
    orders: Orders
    runtime: Runtime
    transport: Callable[[], TransportFigures]
    servers: Callable[[], list[dict[str, Any]]] = list
    is_following: Callable[[], bool] = lambda: True
    """Whether the view is in step with its changelog."""
    deliveries: Callable[[bool, int], dict[str, Any]] = lambda unfinished, limit: {"items": [], "doubts": []}  # noqa: ARG005
    """What became of notices, only of those that are not finished with if that is asked; and what is in doubt."""
    answer_s: float = ANSWER_S

    @property
    def now(self) -> int:
        """Seconds since 1970."""
        return self.runtime.wall_ns() // 10**9

    def ask(self, kind: str, **fields: Any) -> Reply:
        """Have an order carried out; return what the fleet answered once the view shows it."""
        order = self.orders.send(kind, fields)
        if not self.orders.wait(order, self.answer_s):
            raise TimedOut(what=f"The order {kind}", seconds=self.answer_s)
        answer = self.view.row("answer", "", order) or {"status": 500, "body": None}
        body = answer.get("body")
        return Reply(b"" if body is None else compact(body), answer["status"])

    def page(self, call: Call, kind: str, client: str | None = None) -> Reply:
        """A list of rows, from `offset` on and `limit` long if the query says so, filtered by `filter.a.b=value`."""
        limit, offset = call.query.get("limit"), call.whole("offset", 0, 0, PAGE_MAX)
        most = None if limit is None else call.whole("limit", 0, 0, PAGE_MAX)
        wanted = filters_of(call)
        if wanted:
            found = [row for row in self.view.rows(kind, client) if fits(row, wanted)]
            shown = found[offset:] if most is None else found[offset : offset + most]
            listing = Listing([compact(row) for row in shown], len(found))
        else:
            listing = self.view.listing(kind, client, offset=offset, limit=most)
        headers = {} if most is None else {"X-Pagination": _pagination(most, offset, listing.total)}
        return Reply(b"[" + b",".join(listing.bodies) + b"]", headers=headers)


def _pagination(limit: int, offset: int, total: int) -> str:
    return json.dumps({"limit": limit, "offset": offset, "total": total}, separators=COMPACT)


def compact(tree: Any) -> bytes:
    """Plain data as JSON without blanks, as Sensu answers."""
    return json.dumps(tree, separators=COMPACT, ensure_ascii=False).encode("utf-8", "replace")


def answer(tree: Any, status: int = 200) -> Reply:
    """An answer of plain data."""
    return Reply(compact(tree), status, JSON)


def empty(status: int) -> Reply:
    """An answer without a body."""
    return Reply(b"", status)


def filters_of(call: Call) -> dict[str, str]:
    """The attributes that rows must have: filter.check.status=2."""
    return {name[7:]: text for name, text in call.query.items() if name.startswith("filter.") and name[7:]}


def fits(row: Any, wanted: Mapping[str, str]) -> bool:
    """Whether a row has these values at these paths; values are compared as texts."""
    return all(_text(_at(row, path)) == text for path, text in wanted.items())


def _at(tree: Any, path: str) -> Any:
    for name in path.split("."):
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)
