"""Meters as Prometheus metric families."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from lockstep.streams.lag import Lag
from lockstep.streams.metrics import CarrierMeter, Meter, PublisherMeter, SubscriberMeter

_PUBLISHED = (
    ("records", "published_records", "Records stored"),
    ("bytes", "published_bytes", "Bytes of records stored"),
    ("batches", "published_batches", "Batches stored"),
    ("failed", "publish_failures", "Records that could not be stored"),
    ("retries", "publish_retries", "Appends sent again"),
    ("raw_bytes", "batch_raw_bytes", "Bytes of batches before compression"),
    ("stored_bytes", "batch_stored_bytes", "Bytes of batches after compression"),
)
_SUBSCRIBED = (
    ("records", "delivered_records", "Records handed out"),
    ("redeliveries", "redelivered_records", "Records handed out again"),
    ("gaps", "gaps", "Gaps met"),
    ("gap_records", "gap_records", "Offsets lost in gaps"),
    ("takeovers", "takeovers", "Streams taken over"),
    ("revocations", "revocations", "Streams handed over"),
    ("confirms", "confirms", "Confirmations asked for"),
    ("dead_letters", "dead_letters", "Records sent to a dead-letter stream"),
    ("handler_failures", "handler_failures", "Handler calls that raised"),
)
_CARRIED = (
    ("done", "deliveries_done", "Items carried out"),
    ("failed", "delivery_failures", "Attempts that failed"),
    ("refused", "deliveries_refused", "Items that can't be carried out"),
    ("dead", "deliveries_given_up", "Items sent to the dead letters"),
    ("doubts", "deliveries_in_doubt", "Items found begun by a carrier that did not say how it ended"),
    ("passed", "deliveries_passed_over", "Items of kinds that the group has no handler for"),
    ("lost", "deliveries_lost", "Items that retention dropped before they were carried out"),
)


def families(meters: Sequence[Meter]) -> Iterable[Any]:
    """Everything the meters know, read now."""
    publishers = [meter for meter in meters if isinstance(meter, PublisherMeter)]
    subscribers = [meter for meter in meters if isinstance(meter, SubscriberMeter)]
    for field, name, text in _PUBLISHED:
        yield _counter(name, text, "stream", {m.stream: 0 for m in publishers}, publishers, field)
    for field, name, text in _SUBSCRIBED:
        yield _counter(name, text, "group", {m.group: 0 for m in subscribers}, subscribers, field)
    carriers = [meter for meter in meters if isinstance(meter, CarrierMeter)]
    for field, name, text in _CARRIED:
        yield _counter(name, text, "group", {m.group: 0 for m in carriers}, carriers, field)
    yield from _publisher_gauges(publishers)
    yield from _subscriber_gauges(subscribers)


def _counter(
    name: str, text: str, label: str, totals: dict[str, int], meters: Sequence[Meter], field: str
) -> CounterMetricFamily:
    for meter in meters:
        totals[getattr(meter, label)] += getattr(meter, field)
    family = CounterMetricFamily(f"lockstep_{name}", text, labels=[label])
    for value, total in totals.items():
        family.add_metric([value], total)
    return family


def _publisher_gauges(publishers: Sequence[PublisherMeter]) -> Iterable[Any]:
    queued = GaugeMetricFamily("lockstep_queued_records", "Records waiting to be stored", labels=["stream"])
    latency = HistogramMetricFamily("lockstep_append_seconds", "Time of one append", labels=["stream"])
    waiting: dict[str, int] = {}
    for meter in publishers:
        waiting[meter.stream] = waiting.get(meter.stream, 0) + meter.queued()[0]
    for stream, records in waiting.items():
        queued.add_metric([stream], records)
    for stream in waiting:
        of_stream = [meter.latency for meter in publishers if meter.stream == stream]
        columns = zip(*(histogram.buckets() for histogram in of_stream), strict=True)
        buckets = [(cells[0][0], sum(count for _, count in cells)) for cells in columns]
        latency.add_metric([stream], buckets, sum(histogram.total for histogram in of_stream))
    yield queued
    yield latency


def _subscriber_gauges(subscribers: Sequence[SubscriberMeter]) -> Iterable[Any]:
    labels = ["group", "stream"]
    records = GaugeMetricFamily("lockstep_lag_records", "Records behind the end of the stream", labels=labels)
    seconds = GaugeMetricFamily("lockstep_lag_seconds", "Age of the oldest record not handed out", labels=labels)
    age = GaugeMetricFamily("lockstep_lag_age_seconds", "Time since the lag was measured", labels=labels)
    for labelled, lag in _lags(subscribers).items():
        records.add_metric(labelled, lag.records)
        seconds.add_metric(labelled, lag.seconds)
        age.add_metric(labelled, lag.age_s)
    yield from (records, seconds, age, _leases(subscribers))


def _lags(subscribers: Sequence[SubscriberMeter]) -> dict[tuple[str, str], Lag]:
    """By group and stream; of several subscribers with the same labels, the one furthest behind."""
    lags: dict[tuple[str, str], Lag] = {}
    for meter in subscribers:
        for stream, lag in meter.lags().items():
            labelled = (meter.group, stream)
            lags[labelled] = max(lags.get(labelled, lag), lag, key=lambda one: (one.records, one.seconds))
    return lags


def _leases(subscribers: Sequence[SubscriberMeter]) -> GaugeMetricFamily:
    lease = GaugeMetricFamily("lockstep_lease_age_seconds", "Time since the lease was extended", labels=["group"])
    ages: dict[str, float] = {}
    for meter in subscribers:
        age = meter.lease_age()
        if age is not None:
            ages[meter.group] = max(ages.get(meter.group, 0.0), age)
    for group, age in ages.items():
        lease.add_metric([group], age)
    return lease
