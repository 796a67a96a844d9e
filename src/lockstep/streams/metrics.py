"""Plain counters that cost an addition, gathered for Prometheus only when they are asked for."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from lockstep.streams.lag import Lag, LagProbe, LagReader

LATENCY_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(slots=True)
class Histogram:
    """How many observations fell below each bound, and their sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))
    total: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count one observation."""
        self.counts[bisect.bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        self.total += seconds

    def add(self, other: Histogram) -> None:
        """Count what another counted."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulated counts by upper bound, as Prometheus wants them."""
        names = [*map(str, LATENCY_BOUNDS_S), "+Inf"]
        running, found = 0, []
        for name, count in zip(names, self.counts, strict=True):
            running += count
            found.append((name, float(running)))
        return found


@dataclass(slots=True)
class PublisherMeter:
    """What a publisher did."""

    stream: str
    records: int = 0
    bytes: int = 0
    batches: int = 0
    failed: int = 0
    retries: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    latency: Histogram = field(default_factory=Histogram)
    queued: Callable[[], tuple[int, int]] = lambda: (0, 0)
    is_closed: bool = False

    @property
    def label(self) -> str:
        """What its figures are summed by."""
        return self.stream

    def appended(self, records: int, size: int, batches: int) -> None:
        """Count one successful append."""
        self.records += records
        self.bytes += size
        self.batches += batches

    def retire(self) -> None:
        """The publisher is closed: what it did stays counted."""
        self.queued, self.is_closed = lambda: (0, 0), True

    def compressed(self, raw: int, stored: int) -> None:
        """Count what compression did to a batch."""
        self.raw_bytes += raw
        self.stored_bytes += stored


@dataclass(slots=True)
class SubscriberMeter:
    """What a subscriber did, and how far behind it is."""

    group: str
    records: int = 0
    gaps: int = 0
    gap_records: int = 0
    redeliveries: int = 0
    takeovers: int = 0
    revocations: int = 0
    confirms: int = 0
    dead_letters: int = 0
    handler_failures: int = 0
    probe: LagProbe | None = None
    lease_age: Callable[[], float | None] = lambda: None
    is_closed: bool = False

    @property
    def label(self) -> str:
        """What its figures are summed by."""
        return self.group

    def lags(self) -> dict[str, Lag]:
        """How far it is behind in each stream that it reads, as last measured."""
        probe = self.probe
        return probe.known() if probe is not None else {}

    def retire(self) -> None:
        """The subscriber is closed: what it did stays counted, but it is no longer behind anything."""
        self.probe, self.lease_age, self.is_closed = None, lambda: None, True


@dataclass(slots=True)
class CarrierMeter:
    """What a carrier did."""

    group: str
    done: int = 0
    failed: int = 0
    refused: int = 0
    dead: int = 0
    doubts: int = 0
    passed: int = 0
    lost: int = 0
    is_closed: bool = False

    @property
    def label(self) -> str:
        """What its figures are summed by."""
        return self.group

    def count(self, outcome: str) -> None:
        """Count an attempt by how it ended."""
        setattr(self, outcome, getattr(self, outcome) + 1)

    def retire(self) -> None:
        """The carrier is closed: what it did stays counted."""
        self.is_closed = True


Meter = PublisherMeter | SubscriberMeter | CarrierMeter


class Metrics:
    """All meters of a connection. `render()` is what a /metrics endpoint returns."""

    def __init__(self, lags: LagReader | None = None) -> None:
        self._lags = lags
        self._lock = threading.Lock()
        self._meters: list[Meter] = []
        self._past: dict[tuple[type[Meter], str], Meter] = {}

    def _add(self, meter: Meter) -> None:
        """Have a meter collected from now on."""
        with self._lock:
            self._sum_up_closed()
            self._meters.append(meter)

    def collect(self) -> Iterator[Any]:
        """Metric families for a prometheus_client registry: registry.register(bus.metrics).

        Returns in a moment even if the bus is away: lags are then those that were last measured.
        """
        from lockstep.streams.exposition import families

        with self._lock:
            meters = [*self._past.values(), *self._meters]
        probes = [meter.probe for meter in meters if isinstance(meter, SubscriberMeter) and meter.probe is not None]
        if self._lags is not None:
            self._lags.refresh(probes)
        yield from families(meters)

    def _sum_up_closed(self) -> None:
        """A program that opens and closes all day keeps one meter for each name, not one for each that was."""
        closed = [meter for meter in self._meters if meter.is_closed]
        self._meters = [meter for meter in self._meters if not meter.is_closed]
        for meter in closed:
            past = self._past.setdefault((type(meter), meter.label), type(meter)(meter.label))
            _add_counts(past, meter)

    def render(self) -> bytes:
        """The Prometheus text format."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)


def _add_counts(total: Meter, meter: Meter) -> None:
    for item in fields(meter):
        value = getattr(meter, item.name)
        if isinstance(value, Histogram):
            getattr(total, item.name).add(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            setattr(total, item.name, getattr(total, item.name) + value)
