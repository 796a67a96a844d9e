"""Items as HTTP requests: a POST of the body, with the item's id as Idempotency-Key.

2xx is done. 4xx refuses the item, but for 408, 425 and 429, which are tried again like 5xx, 3xx, time-outs and lost
connections. Redirects are not followed, and no proxy of the environment is used. Addresses that must not be called are
refused, also when a name resolves to one; `lockstep.net.addresses` has the rules.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from lockstep.errors import BadArgument, DeliveryRefused, ServerUnreachable
from lockstep.net.addresses import AddressRules
from lockstep.net.signatures import signature_headers, signing_key
from lockstep.streams.outbox import Item

RETRIED = frozenset({408, 425, 429})
"""Statuses of 4xx after which an item is tried again."""
OWN_HEADERS = frozenset({
    "host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "expect",
    "idempotency-key", "proxy-authorization", "proxy-connection",
})  # fmt: skip
"""Headers that can't be given: they say where a request goes, where it ends, and what it is."""
TIMEOUT_S = 10.0
_READ_BYTES = 4096
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DEFAULTS = {"Content-Type": "application/octet-stream", "User-Agent": "lockstep", "Accept": "*/*"}


class HttpPost:
    """A handler that posts items to a URL. Each attempt has a connection of its own and ends after `timeout_s`.

    With a `secret`, requests are signed by the Standard Webhooks scheme. Loopback is refused unless `addresses` allow
    it: a URL may come from others than who runs the carrier.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        secret: str | None = None,
        timeout_s: float = TIMEOUT_S,
        addresses: AddressRules | None = None,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._rules, self._timeout_s, self._wall_s = addresses or AddressRules(), timeout_s, wall_s
        self._is_tls, self._host, self._port, self._path = self._target(url)
        self._headers = {**_DEFAULTS, **_checked_headers(headers or {})}
        self._key = None if secret is None else signing_key(secret)
        if not timeout_s > 0:
            raise BadArgument(name="timeout_s", value=timeout_s, reason="it must be above 0")

    def __call__(self, item: Item) -> None:
        """Post one item."""
        place = f"{self._host}:{self._port}"
        try:
            status, text = self._post(item)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise ServerUnreachable(server=place, reason=reason) from None
        if 200 <= status < 300:
            return
        if 400 <= status < 500 and status not in RETRIED:
            raise DeliveryRefused(reason=f"HTTP {status}: {text}" if text else f"HTTP {status}")
        raise ServerUnreachable(server=place, reason=f"it answered HTTP {status}")

    def _post(self, item: Item) -> tuple[int, str]:
        tls = ssl.create_default_context() if self._is_tls else None
        connection = _Connection(self._host, self._port, self._connect, self._timeout_s, tls)
        try:
            connection.request("POST", self._path, body=item.body, headers=self._headers_for(item))
            answer = connection.getresponse()
            text = answer.read(_READ_BYTES).decode("utf-8", "replace")
            return answer.status, _CONTROL.sub(" ", text).strip()
        finally:
            connection.close()

    def _headers_for(self, item: Item) -> dict[str, str]:
        name = item.id if item.id.isascii() else item.id.encode().hex()  # headers are ASCII
        headers = {**self._headers, "Idempotency-Key": name, "Lockstep-Attempt": str(item.attempt)}
        if item.in_doubt:
            headers["Lockstep-In-Doubt"] = "true"
        if (kind := item.header("content-type")) is not None and not _CONTROL.search(text := kind.decode("latin-1")):
            headers["Content-Type"] = text
        if self._key is not None:
            headers |= signature_headers(self._key, name, int(self._wall_s()), item.body)
        return headers

    def _connect(self) -> socket.socket:
        """A connection to an address that may be called."""
        found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        for *_, address in found:
            refusal = self._rules.address(str(address[0]))
            if refusal is not None:
                raise DeliveryRefused(reason=f"{self._host} resolves to {refusal}")
        last: OSError = OSError("the name has no address")
        for family, kind, protocol, _, address in found:
            made = socket.socket(family, kind, protocol)
            made.settimeout(self._timeout_s)
            try:
                made.connect(address)
            except OSError as error:
                made.close()
                last = error
                continue
            return made
        raise last

    def _target(self, url: str) -> tuple[bool, str, int, str]:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise BadArgument(name="url", value="***", reason=str(error)) from None
        if parts.scheme not in ("http", "https") or not host or _CONTROL.search(url) or " " in url:
            raise BadArgument(name="url", value="***", reason="it must be http://HOST/PATH or https://HOST/PATH")
        if parts.username is not None or parts.password is not None:
            reason = "it must not have a user or a password; give them in a header, Authorization"
            raise BadArgument(name="url", value="***", reason=reason)
        is_tls = parts.scheme == "https"
        port = port or (443 if is_tls else 80)
        refusal = self._rules.target(host, port)
        if refusal is not None:
            raise BadArgument(name="url", value=f"{parts.scheme}://{host}:{port}/...", reason=refusal)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return is_tls, host, port, path


class _Connection(http.client.HTTPConnection):
    """A connection over a socket that was made elsewhere. It is cut when its time is up, however it drips."""

    def __init__(
        self,
        host: str,
        port: int,
        connected: Callable[[], socket.socket],
        timeout_s: float,
        tls: ssl.SSLContext | None,
    ) -> None:
        super().__init__(host, port)
        self._connected, self._timeout_s, self._tls = connected, timeout_s, tls
        self._handle: socket.socket | None = None
        self._timer: threading.Timer | None = None

    def connect(self) -> None:
        """See HTTPConnection."""
        made = self._connected()
        self._handle = made.dup()  # TLS takes the other one over
        self._timer = threading.Timer(self._timeout_s, _cut, [self._handle])
        self._timer.daemon = True
        self._timer.start()
        self.sock = made if self._tls is None else self._tls.wrap_socket(made, server_hostname=self.host)

    def close(self) -> None:
        """See HTTPConnection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        if self._handle is not None:
            self._handle.close()
        super().close()


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):  # it has ended
        connection.shutdown(socket.SHUT_RDWR)


def _checked_headers(given: Mapping[str, str]) -> dict[str, str]:
    for name, text in given.items():
        if not _HEADER_NAME.fullmatch(name):
            raise BadArgument(name="headers", value=name, reason="this is not the name of a header")
        if name.lower() in OWN_HEADERS:
            raise BadArgument(name="headers", value=name, reason="this header is set by the carrier")
        if _CONTROL.search(text) or not text.isascii():
            raise BadArgument(name="headers", value=name, reason="its text must be ASCII without control characters")
    known = {name.lower(): name for name in _DEFAULTS}
    return {known.get(name.lower(), name): text for name, text in given.items()}
