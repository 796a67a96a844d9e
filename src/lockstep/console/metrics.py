"""Metrics of the server: what each part says of itself, collected now and then, and counts of requests."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from lockstep.console.port import Pillar, Site
from lockstep.errors import LockstepError
from lockstep.runtime import logger
from lockstep.server.bodies import TEXT, Reply

PREFIX = "lockstep_serve_"
KEPT_S = 5.0
"""The shortest interval, in seconds, between two collections, however often metrics are requested."""
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    """A value that goes up and down."""
    return GaugeMetricFamily(f"{PREFIX}{name}", text, labels=labels)


def counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    """A total that only grows until the process restarts."""
    return CounterMetricFamily(f"{PREFIX}{name}", text, labels=labels)


@dataclass(slots=True)
class Histogram:
    """How many values were at most so large."""

    bounds: Sequence[float] = BUCKETS_S
    total: float = 0.0
    counts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        self.total += value
        self.counts[next((at for at, bound in enumerate(self.bounds) if value <= bound), len(self.bounds))] += 1

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus has them: each with all that are smaller."""
        found, count = [], 0
        for bound, more in zip([*map(str, self.bounds), "+Inf"], self.counts, strict=True):
            count += more
            found.append((bound, float(count)))
        return found


def histogram(name: str, text: str, label: str, values: Mapping[str, Histogram]) -> HistogramMetricFamily:
    """Histograms, one for each value of a label."""
    family = HistogramMetricFamily(f"{PREFIX}{name}", text, labels=[label])
    for value, known in sorted(values.items()):
        family.add_metric([value], buckets=known.buckets(), sum_value=known.total)
    return family


class RequestCounts:
    """Counts answers by route and status, and how long they took. Used on the event loop alone."""

    def __init__(self) -> None:
        self._answers: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[str, Histogram] = {}

    def add(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """Count an answer; `seconds` is None for one that goes on."""
        self._answers[method, route, status] += 1
        if seconds is not None:
            kind = route.split("/")[1] if route.startswith(("/api/", "/apis/", "/static")) else "pages"
            self._seconds.setdefault(kind, Histogram()).add(seconds)

    def families(self) -> Iterator[Metric]:
        """Both."""
        answers = counter("answers", "Answers by method, route and status", "method", "route", "status")
        for (method, route, status), count in sorted(self._answers.items()):
            answers.add_metric([method, route, str(status)], count)
        yield answers
        yield histogram("answer_seconds", "How long answers took, by kind of route", "kind", dict(self._seconds))


class ServerMetrics:
    """The text of /metrics. Parts are asked at most once in a few seconds, by one thread at a time."""

    def __init__(self, site: Site, pillars: Sequence[Pillar], viewers: Callable[[], int]) -> None:
        self._runtime, self._pillars, self._viewers = site.runtime, pillars, viewers
        self.requests = RequestCounts()
        self._lock = threading.Lock()
        self._parts: tuple[float, bytes] | None = None

    def reply(self) -> Reply:
        """All of it."""
        own = CollectorRegistry()
        own.register(_Families(self._own))
        ProcessCollector(registry=own)
        return Reply(generate_latest(own) + self._of_parts(), media_type=TEXT)

    def _own(self) -> Iterator[Metric]:
        yield from self.requests.families()
        viewers = gauge("live_viewers", "Pages that follow changes and are open now")
        viewers.add_metric([], self._viewers())
        yield viewers

    def _of_parts(self) -> bytes:
        with self._lock:
            now = self._runtime.monotonic()
            if self._parts is None or now - self._parts[0] >= KEPT_S:
                registry = CollectorRegistry()
                registry.register(_Families(self._collected))
                self._parts = (now, generate_latest(registry))
            return self._parts[1]

    def _collected(self) -> Iterator[Metric]:
        """Families that several parts give are put together: each may be in the text once."""
        merged: dict[str, Metric] = {}
        for family in self._of_pillars():
            known = merged.setdefault(family.name, family)
            if known is not family:
                known.samples += family.samples
        return iter(merged.values())

    def _of_pillars(self) -> Iterator[Metric]:
        up = gauge("part_up", "Whether a part could say how it is", "part")
        took = gauge("part_seconds", "How long a part took to say it", "part")
        for pillar in self._pillars:
            began = self._runtime.monotonic()
            try:
                found, is_up = list(pillar.metrics()), 1
            except LockstepError as error:
                logger.warning("Metrics of %s are not known: %s", pillar.name, error,
                               extra={"action": "metrics_failed", "part": pillar.name})  # fmt: skip
                found, is_up = [], 0
            yield from found
            up.add_metric([pillar.name], is_up)
            took.add_metric([pillar.name], self._runtime.monotonic() - began)
        yield up
        yield took


class _Families:
    """What a registry collects from."""

    def __init__(self, families: Callable[[], Iterator[Any]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Any]:
        """As a registry asks."""
        return self._families()

    def describe(self) -> list[Any]:
        """Nothing: a registry would collect everything to see what there is."""
        return []
