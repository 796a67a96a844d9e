"""The port of deliveries: a claimed event, its outcome, options, and secrets kept out of error texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from lockstep.core.agenda import Event
from lockstep.errors import BadConfig
from lockstep.net.addresses import AddressRules
from lockstep.schedule.tenants import MASKED, Tenant, is_secret, mask


class Outcome(Enum):
    """What became of a delivery."""

    TAKEN = "taken"
    REFUSED = "refused"
    """The receiver will never take it: a 4xx but 408, 425 and 429."""
    FAILED = "failed"
    """It may be tried again."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event on its way to a tenant. `dry_run` says so to the receiver."""

    event: Event
    tenant: Tenant
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a delivery, with the reason if it was not taken."""

    delivery: Delivery
    outcome: Outcome
    error: str | None = None


Done = Callable[[Result], None]
"""Gets the result of a delivery, from any thread, exactly once."""


class Courier(Protocol):
    """Carries events to tenants of some types.

    Contract: `deliver` never blocks; `done` is called exactly once for each delivery, with FAILED after the time-out at
    the latest; a tenant that can't be delivered to is refused by `check` before it is registered.
    """

    def check(self, tenant: Tenant) -> None:
        """Raise BadArgument if a tenant's props can't work here."""

    def deliver(self, delivery: Delivery, done: Done) -> None:
        """Begin a delivery."""

    def forget(self, tenant: str) -> None:
        """A tenant was registered anew or removed: give up what is kept for it."""

    def close(self) -> None:
        """End what is under way, with FAILED, and give everything back."""


_POSITIVE = (
    "timeout_s", "connect_timeout_s", "queue_timeout_s", "connections", "connections_per_tenant", "pending",
    "processor_threads", "kafka_producers", "kafka_idle_s",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class CourierOptions:
    """How events are delivered. The result of a delivery comes after `queue_timeout_s` + `timeout_s` at the latest.

    Private addresses may be called by default, because fleets call internal services; link-local addresses, where
    clouds keep the credentials of machines, never.
    """

    timeout_s: float = 10.0
    """For one delivery, from when it is begun."""
    connect_timeout_s: float = 3.0
    """For resolving a name and connecting, within `timeout_s`."""
    queue_timeout_s: float = 10.0
    """How long a delivery may wait for others of the same tenant, or for all others."""
    connections: int = 512
    """HTTP deliveries at once; idle connections are kept up to this number."""
    connections_per_tenant: int = 64
    pending: int = 100_000
    """Deliveries under way and waiting, for each way of delivery; more are FAILED at once."""
    allow_loopback: bool = False
    allow_private: bool = True
    allowed_hosts: tuple[str, ...] = ()
    """Hosts that may be called, as `api.example.com` or `*.example.com`; empty allows all."""
    allowed_ports: tuple[int, ...] = ()
    """Ports of URLs that may be called; empty allows all."""
    processors: Mapping[str, type] = field(default_factory=dict)
    """Classes for tenants of type CUSTOM_CLASS by name, beside those of installed packages."""
    processor_threads: int = 32
    """Deliveries to processors at once; one tenant gets at most half of them."""
    kafka_producers: int = 32
    """Kafka clusters, or logins to them, that are connected at once."""
    kafka_idle_s: float = 300.0
    """A Kafka producer that sent nothing for so long is closed."""

    @property
    def addresses(self) -> AddressRules:
        """Which addresses may be called."""
        return AddressRules(self.allow_loopback, self.allow_private, self.allowed_hosts, self.allowed_ports)

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise BadConfig(field=name, value=getattr(self, name), reason="it must be above 0")


_KEYS = ("headers", "ssl.key.pem", "ssl.keystore.key")
"""Properties whose texts are secret whatever their names say."""
_TEXT_MIN, _PART_MIN = 4, 8
_TOKEN = re.compile(r"\S{16,}")
"""What may be a key, in a place whose name does not say so."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def secret_texts(props: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the texts of props that must not be shown, the longest first."""
    found = set()
    for name, value in props.items():
        shown = None if name in _KEYS else mask(value, name)
        for text in _hidden(value, shown):
            parts = {part for part in re.split(r"[\s,;=:]+", text) if len(part) >= _PART_MIN}
            found |= parts | ({text} if len(text) >= _TEXT_MIN else set())
    return tuple(sorted(found, key=len, reverse=True))


def _hidden(value: Any, shown: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _hidden(item, shown.get(key) if isinstance(shown, dict) else None)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _hidden(item, shown[index] if isinstance(shown, list) else None)
    elif shown is not None and shown not in (value, MASKED):  # a URL, of which a part is shown
        yield from _hidden_in_url(str(value))
    elif shown != value or (shown == MASKED):
        yield str(value)


def _hidden_in_url(url: str) -> Iterator[str]:
    try:
        found = urlsplit(url)
        yield from filter(None, (found.username, found.password))
        for name, text in parse_qsl(found.query):  # words of an error may stand there too
            if is_secret(name) or _TOKEN.fullmatch(text):
                yield text
    except ValueError:  # not a URL after all
        yield url


def printable(text: str) -> str:
    """Return a text of others without control characters, which would act on the terminal that shows it."""
    return _CONTROL.sub("", text)


def redact(text: str, secrets: tuple[str, ...]) -> str:
    """Return a text without secrets."""
    for secret in secrets:
        text = text.replace(secret, MASKED)
    return text
