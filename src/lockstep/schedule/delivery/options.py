"""Options of deliveries: time-outs, limits, and which addresses may be called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lockstep.errors import BadConfig
from lockstep.net.addresses import AddressRules

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
