"""HTTP connections to addresses that may be called: the URL is checked, and every address that its name resolves to."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from lockstep.errors import BadArgument
from lockstep.net.addresses import AddressRules

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class AddressRefused(Exception):
    """A name resolves to an address that must not be called."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a URL names. Its path may hold secrets, so it is not shown."""

    is_tls: bool
    host: str
    port: int
    path: str = field(repr=False)

    @classmethod
    def of(cls, url: str, rules: AddressRules, schemes: tuple[str, str] = ("http", "https")) -> Endpoint:
        """The endpoint of a URL, the second of the `schemes` being over TLS; BadArgument if it can't be called."""
        plain, secure = schemes
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise BadArgument(name="url", value="***", reason=str(error)) from None
        if parts.scheme not in schemes or not host or _CONTROL.search(url) or " " in url:
            reason = f"it must be {plain}://HOST/PATH or {secure}://HOST/PATH"
            raise BadArgument(name="url", value="***", reason=reason)
        if parts.username is not None or parts.password is not None:
            reason = "it must not have a user or a password; give them in a header, Authorization"
            raise BadArgument(name="url", value="***", reason=reason)
        is_tls = parts.scheme == secure
        port = port or (443 if is_tls else 80)
        refusal = rules.target(host, port)
        if refusal is not None:
            raise BadArgument(name="url", value=f"{parts.scheme}://{host}:{port}/...", reason=refusal)
        return cls(is_tls, host, port, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))

    @property
    def place(self) -> str:
        """Host and port, for messages."""
        return f"{self.host}:{self.port}"

    def connection(self, rules: AddressRules, timeout_s: float) -> HttpConnection:
        """A connection that is made with the first request, to an address that may be called."""
        tls = ssl.create_default_context() if self.is_tls else None
        return HttpConnection(self.host, self.port, lambda: self.connected(rules, timeout_s), timeout_s, tls)

    def connected(self, rules: AddressRules, timeout_s: float) -> socket.socket:
        """A socket that is connected to an address that may be called; AddressRefused if one must not be."""
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        for *_, address in found:
            refusal = rules.address(str(address[0]))
            if refusal is not None:
                msg = f"{self.host} resolves to {refusal}"
                raise AddressRefused(msg)
        last: OSError = OSError("the name has no address")
        for family, kind, protocol, _, address in found:
            made = socket.socket(family, kind, protocol)
            made.settimeout(timeout_s)
            try:
                made.connect(address)
            except OSError as error:
                made.close()
                last = error
                continue
            return made
        raise last


class HttpConnection(http.client.HTTPConnection):
    """A connection over a given socket; it is cut when its time is up, however slowly data arrives."""

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
        """Connect, with TLS if set; the connection is cut when the time limit for the whole exchange has passed."""
        made = self._connected()
        self._handle = made.dup()  # TLS takes the other one over
        self._timer = threading.Timer(self._timeout_s, _cut, [self._handle])
        self._timer.daemon = True
        self._timer.start()
        self.sock = made if self._tls is None else self._tls.wrap_socket(made, server_hostname=self.host)

    def close(self) -> None:
        """Close the connection and stop its timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        if self._handle is not None:
            self._handle.close()
        super().close()


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):  # it has ended
        connection.shutdown(socket.SHUT_RDWR)
