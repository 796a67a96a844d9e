"""An engine's figures for Prometheus: how far it is, what its windows hold, how long Spark's batches take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from lockstep.engine.runtime.control.options import EngineStatus

_WINDOW = (
    ("rows", "engine_window_rows", "Rows that a window holds"),
    ("events_in", "engine_window_events_in", "Events that came to a window"),
    ("events_out", "engine_window_events_out", "Events that a window made"),
)


class EngineMetrics:
    """A collector: `registry.register(EngineMetrics("trades", engine.status))`."""

    def __init__(self, project: str, status: Callable[[], EngineStatus]) -> None:
        self._project, self._status = project, status

    def collect(self) -> Iterator[Any]:
        """Everything, read now."""
        status = self._status()
        yield self._one("engine_sequenced_block", "The last block that is decided", status.sequenced.block)
        yield self._one("engine_published_block", "The last block that is out", status.published)
        yield self._one("engine_lag_blocks", "Blocks decided and not yet out", status.lag)
        yield self._one("engine_busy_seconds", "Seconds that workers spent on windows", status.busy_s)
        for field, name, text in _WINDOW:
            family = GaugeMetricFamily(f"lockstep_{name}", text, labels=["project", "window"])
            for path, counts in status.counts.items():
                family.add_metric([self._project, path], getattr(counts, field))
            yield family
        yield self._bad(status)
        yield self._refused(status)
        yield from self._batches(status)

    def _one(self, name: str, text: str, value: float) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"lockstep_{name}", text, labels=["project"])
        family.add_metric([self._project], value)
        return family

    def _bad(self, status: EngineStatus) -> CounterMetricFamily:
        family = CounterMetricFamily(
            "lockstep_engine_bad_events", "Events refused", labels=["project", "window", "reason"]
        )
        for path, counts in status.counts.items():
            for reason, number in counts.bad.items():
                family.add_metric([self._project, path, reason], number)
        return family

    def _refused(self, status: EngineStatus) -> CounterMetricFamily:
        text = "Records put on the bad-record stream"
        family = CounterMetricFamily("lockstep_engine_bad_records", text, labels=["project", "reason"])
        for reason, number in status.bad.items():
            family.add_metric([self._project, reason], number)
        return family

    def _batches(self, status: EngineStatus) -> Iterator[Any]:
        labels = ["project", "query"]
        batches = CounterMetricFamily("lockstep_engine_batches", "Micro-batches of Spark", labels=labels)
        state = GaugeMetricFamily("lockstep_engine_state_bytes", "Memory of Spark's state store", labels=labels)
        spent = CounterMetricFamily(
            "lockstep_engine_batch_seconds", "Time of micro-batches by their parts", labels=[*labels, "part"]
        )
        for query, figures in status.spark.items():
            batches.add_metric([self._project, query], figures.batches)
            state.add_metric([self._project, query], figures.state_bytes)
            for part, milliseconds in figures.total_ms.items():
                spent.add_metric([self._project, query, part], milliseconds / 1000)
        yield from (batches, state, spent)
