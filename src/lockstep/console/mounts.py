"""Other apps below a path of the console, as Sensu's API: who may do what there, and what is noted of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lockstep.console.audit import AuditLog
from lockstep.errors import LockstepError
from lockstep.server.access import Principal, Role
from lockstep.server.routes import Route, Router

NOTED_BYTES = 64 << 10
"""A body is noted in the audit log if it is no larger; of others their size is."""
_LOOKS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Mount:
    """An app whose paths begin with a name; its requests are checked and noted by the console."""

    prefix: str
    area: str
    """What scopes of credentials name."""
    app: ASGIApp
    title: str
    routes: Sequence[Route] = ()
    """Of each named app, for the document and for the role that each needs."""
    _router: Router = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_router", Router(self.routes))

    @property
    def name(self) -> str:
        """What the first part of a path below the prefix names, as `monitor`."""
        return self.prefix.rpartition("/")[2]

    def route(self, method: str, path: bytes) -> Route | None:
        """The route of a path below the prefix, after the name; None if there is none."""
        _, _, rest = path.lstrip(b"/").partition(b"/")
        try:
            return self._router.find("GET" if method == "HEAD" else method, b"/" + rest.lstrip(b"/"))[0]
        except LockstepError:
            return None

    def role(self, method: str, path: bytes) -> Role:
        """What a caller needs for a request; of one that has no route, the app says that there is none."""
        found = self.route(method, path)
        return (Role.VIEWER if method in _LOOKS else Role.OPERATOR) if found is None else found.needs


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A request that changes something, and who sent it."""

    principal: Principal
    address: str
    method: str
    path: str
    body: bytes


class NotedApi:
    """Passes requests on to the app of a mount; of changes there is a record before them and one after them."""

    def __init__(self, mount: Mount, audit: AuditLog) -> None:
        self._mount, self._audit = mount, audit

    async def change(self, change: Change, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry out a change between two records of the audit log."""
        what = f"{change.method} {self._mount.title}"
        before = await self._now(scope)
        number = await asyncio.to_thread(
            self._audit.event, change.principal, change.address, what, change.path, "begun",
            more={"body": _told(change.body), "before": before},
        )  # fmt: skip
        answer = _Answer(send)
        outcome, more = "failed", {}
        try:
            await self._mount.app(scope, receive, answer)
            outcome = "done" if answer.status < 400 else "refused" if answer.status < 500 else "failed"
            more = {"status": answer.status, "answer": _told(bytes(answer.body)), "after": await self._now(scope)}
        except LockstepError as error:
            outcome, more = "refused", {"error": error.code}
            raise
        finally:
            await asyncio.to_thread(
                self._audit.event, change.principal, change.address, what, change.path, outcome, number=number,
                more=more,
            )  # fmt: skip

    async def _now(self, scope: Scope) -> Any:
        """What a path shows now, if it can be looked at as well as changed."""
        if self._mount.route("GET", scope["raw_path"]) is None:
            return None
        answer = _Answer(None)
        waiting: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Message:
            return waiting.pop() if waiting else {"type": "http.disconnect"}

        try:
            await self._mount.app({**scope, "method": "GET", "query_string": b""}, receive, answer)
        except LockstepError:
            return None
        return _told(bytes(answer.body)) if answer.status == 200 else None


class _Answer:
    """Keeps the status and the beginning of an answer while it is sent."""

    def __init__(self, send: Send | None) -> None:
        self._send, self.status, self.body = send, 500, bytearray()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif len(self.body) <= NOTED_BYTES:
            self.body += message.get("body", b"")
        if self._send is not None:
            await self._send(message)


def _told(body: bytes) -> Any:
    """A body as plain data; its size if it is large or is no JSON."""
    if not body:
        return None
    try:
        return json.loads(body) if len(body) <= NOTED_BYTES else f"{len(body)} bytes"
    except (ValueError, RecursionError):
        return f"{len(body)} bytes"
