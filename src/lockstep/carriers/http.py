"""Items as HTTP requests: a POST of the body, with the item's id as Idempotency-Key.

2xx is done. 4xx refuses the item, but for 408, 425 and 429, which are tried again like 5xx, 3xx, time-outs and lost
connections. Redirects are not followed, and no proxy of the environment is used. Addresses that must not be called are
refused, also when a name resolves to one; `lockstep.net.addresses` has the rules.
"""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Callable, Mapping

from lockstep.errors import BadArgument, DeliveryRefused, ServerUnreachable
from lockstep.net.addresses import AddressRules
from lockstep.net.http import AddressRefused, Endpoint
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
        self._endpoint = Endpoint.of(url, self._rules)
        self._headers = {**_DEFAULTS, **_checked_headers(headers or {})}
        self._key = None if secret is None else signing_key(secret)
        if not timeout_s > 0:
            raise BadArgument(name="timeout_s", value=timeout_s, reason="it must be above 0")

    def __call__(self, item: Item) -> None:
        """Post one item."""
        place = self._endpoint.place
        try:
            status, text = self._post(item)
        except AddressRefused as error:
            raise DeliveryRefused(reason=str(error)) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise ServerUnreachable(server=place, reason=reason) from None
        if 200 <= status < 300:
            return
        if 400 <= status < 500 and status not in RETRIED:
            raise DeliveryRefused(reason=f"HTTP {status}: {text}" if text else f"HTTP {status}")
        raise ServerUnreachable(server=place, reason=f"it answered HTTP {status}")

    def _post(self, item: Item) -> tuple[int, str]:
        connection = self._endpoint.connection(self._rules, self._timeout_s)
        try:
            connection.request("POST", self._endpoint.path, body=item.body, headers=self._headers_for(item))
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
