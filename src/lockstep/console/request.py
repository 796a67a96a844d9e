"""One request as it came, and what is read from its headers and its query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl

from starlette.types import Scope

from lockstep.errors import BadArgument

API, LIVE = "/api/v1", "/live"
COOKIE = "lockstep_session"
ONCE_MAX = 128
"""Characters of a mark that count."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, with its whole body."""

    method: str
    path: str
    raw_path: bytes
    query: bytes
    headers: Mapping[bytes, bytes]
    address: str
    body: bytes

    @classmethod
    def of(cls, scope: Scope, message: Mapping[str, Any]) -> Request:
        """What a server of ASGI hands over."""
        return cls(
            scope["method"], scope["path"], scope["raw_path"], scope["query_string"],
            {name.lower(): value for name, value in scope["headers"]},
            (scope.get("client") or ("",))[0], message.get("body", b""),
        )  # fmt: skip

    @property
    def is_api(self) -> bool:
        """Whether data is asked for, and no page."""
        return self.path == API or self.path.startswith((f"{API}/", LIVE))

    @property
    def wants_page(self) -> bool:
        """Whether an error is answered as a page."""
        is_page = not self.is_api and not self.path.startswith("/apis/")
        return is_page and b"text/html" in self.headers.get(b"accept", b"")

    def cookie(self) -> str:
        """The secret of the session, or nothing."""
        try:
            cookies = SimpleCookie(self.headers.get(b"cookie", b"").decode("latin-1"))
        except CookieError:
            return ""
        found = cookies.get(COOKIE)
        return "" if found is None else found.value

    def once(self) -> str:
        """The mark of a request that must not be carried out twice, or nothing."""
        return self.headers.get(b"idempotency-key", b"").decode("latin-1")[:ONCE_MAX]

    def bearer(self) -> str | None:
        """The token of the Authorization header; None without one."""
        given = self.headers.get(b"authorization")
        if given is None:
            return None
        scheme, _, token = given.decode("latin-1").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""


def query_of(raw: bytes) -> dict[str, str]:
    """The first value of each name; BadArgument for what is none."""
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=64)
    except ValueError as error:
        raise BadArgument(name="query", value=raw[:80], reason=f"it can't be read: {error}") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found
