"""Routes for those who run a scheduler: nodes, shards, health, metrics, and the OpenAPI document."""

from __future__ import annotations

import threading
from typing import Any

from lockstep.errors import LockstepError
from lockstep.runtime import logger
from lockstep.schedule.roster import Backlog, NodeCounts
from lockstep.schedule.times import java_text
from lockstep.server.bodies import TEXT, Reply, reply
from lockstep.server.routes import Call, Route, Text, Work
from lockstep.server.schedule import examples
from lockstep.server.schedule.documents import UNAVAILABLE
from lockstep.server.schedule.site import ScheduleSite

HEALTHZ, READYZ, PING = "/healthz", "/readyz", "/ping"
READY_KEPT_S = 1.0
METRICS = "lockstep_schedule"
NOBODY = "no node is running, or none owns a shard yet"
LOOKING = "not known yet"
AWAY = "the bus is away; the log says why"


class OperationRoutes:
    """The routes for operators; `requests` counts the server's answers by status."""

    def __init__(self, site: ScheduleSite) -> None:
        self._site = site
        self.requests: dict[int, int] = {}
        """Answers by status."""
        self._ready: tuple[float, Reply] | None = None
        self._looking = threading.Lock()

    def routes(self) -> list[Route]:
        """All of them."""
        ok = {"status": "ok"}
        return [
            Route(method="GET", path=HEALTHZ, handle=self.health, work=Work.INLINE, tag="operation",
                  summary="Whether the server answers", answers={200: ok}),
            Route(method="GET", path=READYZ, handle=self.ready, tag="operation",
                  summary="Whether requests are carried out", answers={200: ok, 503: {"status": NOBODY}}),
            Route(method="GET", path="/metrics", handle=self.metrics, tag="operation",
                  summary="Counters of this node for Prometheus",
                  answers={200: Text("lockstep_schedule_fired_total 7.0\n", TEXT)}),
            Route(method="GET", path="/v2/nodes", handle=self.nodes, tag="operation",
                  summary="The nodes that were heard lately", answers={200: examples.NODES}),
            Route(method="GET", path="/v2/shards", handle=self.shards, tag="operation",
                  summary="Which node owns which shard", answers={200: examples.SHARDS}),
        ]  # fmt: skip

    def health(self, _call: Call) -> Reply:
        """Says nothing but that the server answers."""
        return reply({"status": "ok"})

    def ready(self, _call: Call) -> Reply:
        """Check at most once a second and in one thread at a time, as no token is needed to ask."""
        now, last = self._site.runtime.monotonic(), self._ready
        if last is not None and now - last[0] < READY_KEPT_S:
            return last[1]
        if not self._looking.acquire(blocking=False):
            return reply({"status": LOOKING}, UNAVAILABLE) if last is None else last[1]
        try:
            found = self._readiness()
            self._ready = (self._site.runtime.monotonic(), found)
        finally:
            self._looking.release()
        return found

    def _readiness(self) -> Reply:
        node = self._site.scheduler.node
        if node is not None and node.error is not None:
            return reply({"status": f"node {node.name} has ended; restart it"}, UNAVAILABLE)
        try:
            nodes = self._site.nodes()
        except LockstepError as error:
            logger.warning("The bus can't be read: %s", error, extra={"action": "not_ready", "reason": str(error)})
            return reply({"status": AWAY}, UNAVAILABLE)  # everybody may ask, so the address of the bus is not told
        if not any(card["shards"] for card in nodes):
            return reply({"status": NOBODY}, UNAVAILABLE)
        return reply({"status": "ok"})

    def nodes(self, _call: Call) -> Reply:
        """In the order of their addresses."""
        shown = ("node", "host", "port", "master", "shards", "underWay")
        cards = self._site.nodes()
        rows = [{**{name: card[name] for name in shown}, "wall": java_text(card["wall"])} for card in cards]
        return reply({"nodes": rows})

    def shards(self, _call: Call) -> Reply:
        """Return the owner of each shard; null for a shard without owner, whose events wait."""
        owners = {shard: card["node"] for card in self._site.nodes() for shard in card["shards"]}
        count = len(self._site.scheduler.bus.logs(self._site.scheduler.streams.requests))
        return reply({"shards": [{"shard": shard, "node": owners.get(shard)} for shard in range(count)]})

    def metrics(self, _call: Call) -> Reply:
        """In the text format of Prometheus."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)
        return Reply(generate_latest(registry), media_type=TEXT)

    def collect(self) -> list[Any]:
        """Metric families; all but the requests of the server are zero where no node runs."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        node = self._site.scheduler.node
        counts = NodeCounts() if node is None else node.counts
        backlog = Backlog() if node is None else node.backlog()
        late = HistogramMetricFamily(f"{METRICS}_late_seconds", "How late events fired")
        late.add_metric([], buckets=counts.late.buckets(), sum_value=counts.late.total)
        answers = CounterMetricFamily(f"{METRICS}_http_answers", "Answers of the server", labels=["status"])
        for status, number in sorted(self.requests.items()):
            answers.add_metric([str(status)], number)
        quantiles = GaugeMetricFamily(
            f"{METRICS}_late_quantile_seconds", "How late events fired, from the histogram", labels=["quantile"]
        )
        for share in (0.5, 0.99):
            quantiles.add_metric([str(share)], counts.late_quantile(share))
        return [
            CounterMetricFamily(f"{METRICS}_requests", "Requests carried out", counts.requests),
            CounterMetricFamily(f"{METRICS}_fired", "Events and ticks that fired", counts.fired),
            CounterMetricFamily(f"{METRICS}_retries", "Deliveries that failed and are tried again", counts.retries),
            CounterMetricFamily(f"{METRICS}_failed", "Events that were given up", counts.failed),
            late,
            quantiles,
            GaugeMetricFamily(f"{METRICS}_backlog_events", "Unfired events that are due", backlog.events),
            GaugeMetricFamily(f"{METRICS}_backlog_seconds", "For how long the first has been", backlog.oldest_s),
            GaugeMetricFamily(
                f"{METRICS}_under_way", "Deliveries without a result", 0 if node is None else node.under_way
            ),
            answers,
        ]
