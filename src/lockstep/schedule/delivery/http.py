"""Callbacks over HTTP: a POST to the tenant's URL with the event as its body.

2xx is TAKEN. 4xx is REFUSED with the response body as the error, but for 408, 425 and 429, which are FAILED like 5xx,
3xx, time-outs and connection errors. Redirects are not followed, cookies are not kept, and no proxy of the environment
is used. A URL whose address must not be called is REFUSED; `addresses` has the rules. Certificates are checked against
those of the system, or of the file that the variable SSL_CERT_FILE names.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lockstep.errors import BadArgument, ExtraMissing
from lockstep.net.addresses import AddressRules
from lockstep.net.signatures import signature_headers, signing_key
from lockstep.runtime import Runtime, ThreadRuntime
from lockstep.schedule import bodies
from lockstep.schedule.delivery.port import CourierOptions, Delivery, Done, Outcome, printable, redact, secret_texts
from lockstep.schedule.delivery.queue import Answer, DeliveryQueue, QueueLimits
from lockstep.schedule.tenants import Tenant, masked_url

try:
    import aiohttp
    from aiohttp.abc import AbstractResolver, ResolveResult
    from aiohttp.resolver import ThreadedResolver
    from multidict import CIMultiDict
    from yarl import URL
except ModuleNotFoundError as missing:
    raise ExtraMissing(extra="schedule", package="aiohttp") from missing

RETRIED = frozenset({408, 425, 429})
"""Statuses of 4xx after which a delivery is tried again."""
ERROR_BYTES = 4096
"""How much of a response body is read."""
OWN_HEADERS = frozenset({
    "host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "expect",
    "proxy-authorization", "proxy-connection",
})  # fmt: skip
"""Headers that a tenant can't set: they say where a request goes and where it ends."""
KEEP_ALIVE_S = 4.0
"""Idle connections are closed before most servers close them: a request must not meet a connection that is closing."""
RESOLVER_THREADS = 64
"""Names that are resolved at once."""
_DRAIN_S = 1.0
_PLANS = 10_000
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_NS_PER_S = 1_000_000_000

AddressInfo = tuple[Any, ...]
"""Family, type, protocol, name and address of a socket, as getaddrinfo returns them."""


class AddressRefused(Exception):
    """An address that must not be called."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is the same for all requests to a tenant."""

    props: Any
    url: URL
    headers: CIMultiDict[str]
    key: bytes | None
    secrets: tuple[str, ...]

    @property
    def place(self) -> str:
        return f"{self.url.host}:{self.url.port}"


class HttpCourier:
    """Delivers events to tenants of type HTTP. `done` is called from the courier's own thread and must not block."""

    def __init__(self, options: CourierOptions | None = None, runtime: Runtime | None = None) -> None:
        self._options = options or CourierOptions()
        self._runtime = runtime or ThreadRuntime()
        self._rules = self._options.addresses
        self._plans: dict[str, _Plan] = {}
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        """By whether connections are kept after an answer."""
        self._open_sockets = 0
        limits = QueueLimits(
            total=self._options.connections, per_tenant=self._options.connections_per_tenant,
            waiting_s=self._options.queue_timeout_s, pending=self._options.pending,
        )  # fmt: skip
        self._queue = DeliveryQueue("lockstep-http-courier", self._send, self._end, limits)

    def check(self, tenant: Tenant) -> None:
        """Raise BadArgument for a URL that is not valid or must not be called, and for headers that can't be sent."""
        self._planned(tenant)

    def deliver(self, delivery: Delivery, done: Done) -> None:
        """Begin a delivery."""
        self._queue.submit(delivery, done)

    def forget(self, tenant: str) -> None:
        """Give up what was prepared for a tenant; what is under way ends as it began."""
        self._plans.pop(tenant, None)

    def close(self) -> None:
        """End what is under way, with FAILED, and close all connections."""
        self._queue.close()

    def _planned(self, tenant: Tenant) -> _Plan:
        props = tenant.props
        if _CONTROL.search(tenant.tenant):
            reason = "it is sent as a header, and so must not have control characters"
            raise BadArgument(name="tenant", value=tenant.tenant, reason=reason)
        headers = _own_headers(props.get("headers") or {})
        headers["Accept"] = "*/*"
        headers["Content-Type"] = "application/json; charset=utf-8"
        headers.setdefault("User-Agent", "lockstep")
        secret = props.get("secret")
        key = None if secret is None else signing_key(secret)
        return _Plan(props, self._checked_url(props.get("url")), headers, key, secret_texts(props))

    def _checked_url(self, given: object) -> URL:
        try:
            url = URL(str(given))
            host, port = url.raw_host, url.port
        except ValueError as error:
            raise _bad_url(given, masked_url(str(error))) from None
        if url.scheme not in ("http", "https") or not host or not port:
            raise _bad_url(given, "it must be http://HOST/PATH or https://HOST/PATH")
        if url.raw_user is not None or url.raw_password is not None:
            raise _bad_url(given, "it must not have a user or a password; give them in a header, Authorization")
        refusal = self._rules.target(host, port)
        if refusal is not None:
            raise _bad_url(given, refusal)
        return url

    def _plan(self, tenant: Tenant) -> _Plan:
        plan = self._plans.get(tenant.tenant)
        if plan is None or plan.props is not tenant.props:
            plan = self._planned(tenant)
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            self._plans[tenant.tenant] = plan
        return plan

    async def _send(self, delivery: Delivery) -> Answer:
        try:
            plan = self._plan(delivery.tenant)
        except BadArgument as error:
            return Outcome.REFUSED, f"Not sent: {error.params['name']} is not valid: {error.params['reason']}."
        outcome, text = await self._post(delivery, plan)
        return outcome, None if text is None else redact(text, plan.secrets)

    async def _post(self, delivery: Delivery, plan: _Plan) -> Answer:
        event = delivery.event
        body = bodies.body(event)
        headers = plan.headers.copy()
        headers.update(bodies.headers(event, dry_run=delivery.dry_run))
        if plan.key is not None:
            seconds = self._runtime.wall_ns() // _NS_PER_S
            headers.update(signature_headers(plan.key, event.event_id, seconds, body))
        try:
            async with self._session().post(plan.url, data=body, headers=headers, allow_redirects=False) as response:
                return await _answer(response)
        except AddressRefused as error:
            return Outcome.REFUSED, f"Not sent: {error}."
        except aiohttp.InvalidURL as error:
            return Outcome.REFUSED, _invalid(error)
        except (aiohttp.ClientError, OSError) as error:
            return Outcome.FAILED, self._reason(error, plan)
        except ValueError as error:  # what `check` did not foresee; the certificate errors above are ValueErrors too
            return Outcome.REFUSED, _invalid(error)

    def _reason(self, error: Exception, plan: _Plan) -> str:
        """A sentence for a failure, without what a URL or header may hold."""
        place = plan.place
        match error:
            case aiohttp.ClientConnectorDNSError():
                return f"The name {plan.url.host} could not be resolved: {error.os_error.strerror}."
            case aiohttp.ClientConnectorCertificateError():
                reason = getattr(error.certificate_error, "verify_message", "") or "it could not be verified"
                return f"The certificate of {place} is not valid: {reason}."
            case aiohttp.ClientSSLError():
                return f"TLS with {place} failed: {getattr(error.os_error, 'reason', None) or 'no handshake'}."
            case aiohttp.ClientConnectorError():
                number = error.os_error.errno
                return f"Could not connect to {place}: {os.strerror(number) if number else error.os_error}."
            case aiohttp.ConnectionTimeoutError():
                return f"No connection to {place} within {self._options.connect_timeout_s:g} s."
            case TimeoutError():
                return f"No answer from {place} within {self._options.timeout_s:g} s."
            case aiohttp.ClientConnectionError() | aiohttp.ClientPayloadError() | OSError():
                return f"The connection to {place} was lost before it answered."
            case _:
                return f"The answer of {place} is not HTTP: {type(error).__name__}."

    def _session(self) -> aiohttp.ClientSession:
        """The session for the next request; its connection is not kept if too many are open already."""
        keep = self._open_sockets <= self._options.connections
        return self._sessions.get(keep) or self._open(keep)

    def _open(self, keep: bool) -> aiohttp.ClientSession:
        options = self._options
        if not self._sessions:  # a name that does not resolve holds a thread for long, and must not hold up the others
            names = ThreadPoolExecutor(RESOLVER_THREADS, "lockstep-http-names")
            asyncio.get_running_loop().set_default_executor(names)
        connector = aiohttp.TCPConnector(
            resolver=_CheckedResolver(self._rules), socket_factory=self._socket, limit=0,  # the queue has the limits
            force_close=not keep, keepalive_timeout=KEEP_ALIVE_S if keep else None,
        )  # fmt: skip
        connect_s = options.connect_timeout_s
        timeout = aiohttp.ClientTimeout(total=options.timeout_s, connect=connect_s, sock_connect=connect_s)
        self._sessions[keep] = made = aiohttp.ClientSession(
            connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False,
            auto_decompress=False, skip_auto_headers=("Accept-Encoding",),
        )  # fmt: skip
        return made

    async def _end(self) -> None:
        for session in self._sessions.values():
            await session.close()

    def _socket(self, info: AddressInfo) -> socket.socket:
        """Make the socket of a connection: the last place where its address can be refused, however it was found."""
        family, kind, protocol, _, address = info
        refusal = self._rules.address(str(address[0]))
        if refusal is not None:
            raise AddressRefused(refusal)
        made = _CountedSocket(family, kind, protocol)
        made.on_close = self._closed_one
        self._open_sockets += 1
        return made

    def _closed_one(self) -> None:
        self._open_sockets -= 1


class _CountedSocket(socket.socket):
    on_close: Callable[[], None] | None = None

    def close(self) -> None:
        super().close()
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close()


class _CheckedResolver(AbstractResolver):
    """Resolves names, and refuses those of which any address must not be called."""

    def __init__(self, rules: AddressRules) -> None:
        self._rules = rules
        self._inner = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        for item in found:
            refusal = self._rules.address(item["host"])
            if refusal is not None:
                reason = f"{host} resolves to {refusal}"
                raise AddressRefused(reason)
        return found

    async def close(self) -> None:
        await self._inner.close()


async def _answer(response: aiohttp.ClientResponse) -> Answer:
    status = response.status
    if 200 <= status < 300:
        if not response.content.at_eof():  # a connection can be used again when its answer was read
            with suppress(TimeoutError, aiohttp.ClientError):
                async with asyncio.timeout(_DRAIN_S):
                    await _read(response)
        return Outcome.TAKEN, None
    if 300 <= status < 400:
        return Outcome.FAILED, f"HTTP {status}: redirects are not followed."
    text = printable((await _read(response)).decode("utf-8", "replace")).strip()
    if 400 <= status < 500 and status not in RETRIED:
        return Outcome.REFUSED, text or f"HTTP {status}"
    return Outcome.FAILED, f"HTTP {status}: {text}" if text else f"HTTP {status}"


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Return the beginning of a response body; what was read if the rest does not come."""
    found = b""
    with suppress(TimeoutError, aiohttp.ClientError):
        while len(found) < ERROR_BYTES:
            part = await response.content.read(ERROR_BYTES - len(found))
            if not part:
                break
            found += part
    return found


def _own_headers(given: dict[str, str]) -> CIMultiDict[str]:
    headers: CIMultiDict[str] = CIMultiDict()
    for name, text in given.items():
        if not _HEADER_NAME.fullmatch(name):
            raise BadArgument(name="headers", value=name, reason="this is not the name of a header")
        if name.lower() in OWN_HEADERS:
            raise BadArgument(name="headers", value=name, reason="this header is set by the connection")
        if _CONTROL.search(text):
            raise BadArgument(name="headers", value=name, reason="its text has control characters")
        headers[name] = text
    return headers


def _invalid(error: Exception) -> str:
    return f"Not sent: the request is not valid: {masked_url(str(error))}"


def _bad_url(given: object, reason: str) -> BadArgument:
    return BadArgument(name="url", value=masked_url(str(given)), reason=reason)
