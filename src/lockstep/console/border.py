"""What stands around the server: headers of every answer, who a caller is, how much may be sent, and early refusals."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lockstep.console.errors import SignInNeeded, TooFast
from lockstep.errors import LockstepError
from lockstep.server.answers import status_of
from lockstep.server.bodies import Reply, reply
from lockstep.server.errors import MethodNotAllowed

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_ALWAYS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Sent with every answer whose route does not say something else."""
_ONLY_TLS = (b"strict-transport-security", b"max-age=31536000")
_FORM_BYTES, _OWN_BYTES = 16 << 10, 5 << 20
_HEADERS_OF: Mapping[int, Mapping[str, str]] = {
    401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "1"},
}  # fmt: skip


class SafeHeaders:
    """Adds the headers that keep a browser from doing more with an answer than showing it."""

    def __init__(self, app: ASGIApp, *, is_tls: bool) -> None:
        self._app, self._headers = app, (*_ALWAYS, _ONLY_TLS) if is_tls else _ALWAYS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI app."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message["headers"]}
                more = [pair for pair in self._headers if pair[0] not in known]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        await self._app(scope, receive, sent)


class ProxyAddress:
    """Behind a proxy: the address of a caller is the last one that X-Forwarded-For names, which the proxy wrote."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI app."""
        told = [value for name, value in scope.get("headers", []) if name.lower() == b"x-forwarded-for"]
        last = told[-1].decode("latin-1").rpartition(",")[2].strip() if told else ""
        await self._app({**scope, "client": (last, 0)} if _is_address(last) else scope, receive, send)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def body_limit(path: str, most: int) -> int:
    """The largest body of a route: little for forms that anybody may send, much for APIs that take many events."""
    if path.startswith("/sign-"):
        return min(_FORM_BYTES, most)
    return most if path.startswith("/apis/") else min(_OWN_BYTES, most)


def error_status(error: LockstepError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, SignInNeeded):
        return 401
    if isinstance(error, TooFast):
        return 429
    return 405 if isinstance(error, MethodNotAllowed) else status_of(error)


def error_reply(error: LockstepError) -> Reply:
    """An error as JSON: code, message and advice."""
    status = error_status(error)
    told = {"code": error.code, "message": error_message(error), "advice": error_advice(error)}
    headers = dict(_HEADERS_OF.get(status, {}))
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = str(error.params["allowed"])
    return reply({"error": told}, status, headers)


def error_message(error: LockstepError) -> str:
    """What went wrong."""
    return type(error).template.format(**error.params)


def error_advice(error: LockstepError) -> str:
    """What to do next."""
    return " ".join([type(error).advice.format(**error.params), *getattr(error, "__notes__", [])]).strip()


def refusal(_request: Request, error: LockstepError) -> Response:
    """Return an error of the guard as an answer, before the app is called."""
    return error_reply(error).response()
