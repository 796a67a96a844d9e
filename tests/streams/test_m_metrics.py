"""Part M: logs that cost nothing when nobody reads them, and metrics."""

from __future__ import annotations

import logging
import re
import threading

import pytest
from prometheus_client import CollectorRegistry
from worlds import BOUND_S, CALM, HASTY, in_parallel, memory_world, publish, take, wire_world

from lockstep import StreamConfig
from lockstep.errors import ServerUnreachable
from lockstep.streams.metrics import Metrics, PublisherMeter


def metrics(bus):
    lines = bus.metrics.render().decode().splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}


def test_m1_a_disabled_level_formats_nothing(virtual):
    # Given that nobody wants warnings
    logger, made = logging.getLogger("lockstep"), []
    factory = logging.getLogRecordFactory()
    logger.setLevel(logging.CRITICAL)
    logging.setLogRecordFactory(lambda *args, **kwargs: made.append(args) or factory(*args, **kwargs))
    try:
        # When things happen that are worth a warning
        bus, shaky = virtual.shaky()
        reader = bus.subscriber("orders", initial="earliest", config=StreamConfig(capacity=1))
        shaky.plan.drop(log="orders")
        publish(bus, "orders", b"0", b"1")
        take(reader, 1)
    finally:
        logging.setLogRecordFactory(factory)
        logger.setLevel(logging.NOTSET)
    # Then not a record was made
    assert made == []


def test_m1_log_lines_are_constant_text_with_a_key_and_ids(virtual, caplog):
    bus, shaky = virtual.shaky()
    reader = bus.subscriber("orders", initial="earliest", config=StreamConfig(capacity=1))
    shaky.plan.drop(log="orders")
    publish(bus, "orders", b"0", b"1", batch_records=1)
    take(reader, 1)
    assert {record.action for record in caplog.records} == {"append_retry", "gap"}
    for record in caplog.records:
        assert record.stream == "orders"
        assert "orders" not in record.msg
        assert record.pathname.endswith(("lane.py", "cursors.py")), "the place that logged, not a wrapper"


def test_m2_what_publishers_did(virtual):
    bus, shaky = virtual.shaky()
    publisher = bus.publisher("orders", batch_records=2)
    shaky.plan.drop(log="orders")
    for _ in range(4):
        publisher.publish(b"12345")
    assert metrics(bus)['lockstep_queued_records{stream="orders"}'] == 4
    publisher.flush()
    found = metrics(bus)
    assert found['lockstep_published_records_total{stream="orders"}'] == 4
    assert found['lockstep_published_bytes_total{stream="orders"}'] == 20
    assert found['lockstep_published_batches_total{stream="orders"}'] == 2
    assert found['lockstep_publish_retries_total{stream="orders"}'] == 1
    assert found['lockstep_publish_failures_total{stream="orders"}'] == 0
    assert found['lockstep_queued_records{stream="orders"}'] == 0
    assert found['lockstep_append_seconds_count{stream="orders"}'] == 1
    assert found['lockstep_append_seconds_bucket{le="+Inf",stream="orders"}'] == 1


def test_m2_how_far_behind_a_subscriber_is(virtual):
    bus = virtual.node()
    reader = bus.subscriber("orders", initial="earliest")
    publish(bus, "orders", b"0")
    virtual.runtime.advance(5.0)
    publish(bus, "orders", b"1")
    virtual.runtime.advance(5.0)
    found = metrics(bus)
    assert found['lockstep_lag_records{group="",stream="orders"}'] == 2
    assert found['lockstep_lag_seconds{group="",stream="orders"}'] == pytest.approx(10.0)
    take(reader, 1)
    assert metrics(bus)['lockstep_lag_seconds{group="",stream="orders"}'] == pytest.approx(5.0)
    take(reader, 1)
    assert metrics(bus)['lockstep_lag_records{group="",stream="orders"}'] == 0


def test_m2_a_closed_subscriber_is_behind_nothing(world, bus):
    with bus.subscriber("orders", initial="earliest") as reader:
        publish(bus, "orders", b"0", b"1")
        take(reader, 1)
    publish(bus, "orders", b"2")
    found = metrics(bus)
    assert not [name for name in found if name.startswith("lockstep_lag")]
    assert found['lockstep_delivered_records_total{group=""}'] == 1, "what it did stays counted"


def test_m2_what_happens_in_a_group(virtual):
    # Given a member that loses its stream to another and gets it back
    node, begin, end = virtual.outage()
    other = virtual.node()
    publish(node, "orders", b"0", b"1")
    member = node.subscriber("orders", group="g", group_options=HASTY)
    take(member, 2)
    assert metrics(node)['lockstep_lease_age_seconds{group="g"}'] <= 0.4
    begin("g")
    with other.subscriber("orders", group="g", group_options=HASTY) as heir:
        take(heir, 2)
        end()
    take(member, 2)
    member.confirm(sync=True)
    # Then takeovers, repeated deliveries and confirmations are counted
    found = metrics(node)
    assert found['lockstep_takeovers_total{group="g"}'] == 2
    assert found['lockstep_redelivered_records_total{group="g"}'] == 2
    assert found['lockstep_delivered_records_total{group="g"}'] == 4
    assert found['lockstep_confirms_total{group="g"}'] == 1
    assert metrics(other)['lockstep_revocations_total{group="g"}'] in (0.0, 1.0)


def test_m2_all_names_and_kinds_are_prometheus_like(bus):
    bus.publisher("orders")
    bus.subscriber("orders", group="g", group_options=CALM)
    registry = CollectorRegistry()
    registry.register(bus.metrics)
    families = list(registry.collect())
    assert len(families) >= 18
    for family in families:
        assert re.fullmatch(r"lockstep_[a-z_]+", family.name)
        assert family.documentation
        assert family.type in ("counter", "gauge", "histogram")


def test_m3_a_trace_context_travels_in_headers(bus):
    context = [("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]
    with bus.publisher("orders") as publisher:
        publisher.publish(b"x", headers=context)
    [record] = take(bus.subscriber("orders", initial="earliest"), 1)
    assert record.header("traceparent") == context[0][1]


def test_m3_metrics_can_be_scraped_while_the_bus_is_away(virtual):
    # Given a reader that is behind, on a bus that does not answer
    bus, shaky = virtual.shaky()
    publish(bus, "orders", b"x")
    bus.subscriber("orders", initial="earliest")
    assert metrics(bus)['lockstep_lag_records{group="",stream="orders"}'] == 1
    shaky.plan.fail(ServerUnreachable(server="s", reason="away"), times=10, log="orders", on="bounds")
    virtual.runtime.advance(30.0)
    # When it is scraped, then the counters are there, and the lag that was last measured, with its age
    found = metrics(bus)
    assert found['lockstep_published_records_total{stream="orders"}'] == 1
    assert found['lockstep_lag_records{group="",stream="orders"}'] == 1
    assert found['lockstep_lag_age_seconds{group="",stream="orders"}'] == pytest.approx(30.0)


def test_m3_no_lag_is_made_up_for_a_stream_that_is_gone(virtual):
    bus = virtual.node()
    bus.subscriber("orders", initial="earliest")
    assert metrics(bus)['lockstep_lag_records{group="",stream="orders"}'] == 0
    bus.delete("orders")
    publish(bus, "orders", b"of another stream with its name")
    assert 'lockstep_lag_records{group="",stream="orders"}' not in metrics(bus)


def test_m3_a_scrape_returns_while_the_bus_does_not_answer():
    # Given a reader whose lag is known, and a bus that stops answering
    world, answers = memory_world(), threading.Event()
    answers.set()
    bus, shaky = world.shaky()
    publish(bus, "orders", b"x")
    reader = bus.subscriber("orders", initial="earliest")
    first = metrics(bus)
    shaky.plan.take = lambda operation, log: answers.wait(BOUND_S) and None
    answers.clear()
    # When it is scraped by several, then each has the last known lag although the bus has not answered
    found = []
    in_parallel(*[lambda: found.append(metrics(bus))] * 3)
    assert not answers.is_set()
    name = 'lockstep_lag_records{group="",stream="orders"}'
    assert [first[name], *(one[name] for one in found)] == [1] * 4
    # And one measurement is under way, not one for each scrape
    assert [thread.name for thread in threading.enumerate()].count("lockstep-lag") == 1
    answers.set()
    reader.close()
    world.close()


def test_m3_a_scrape_does_not_use_the_handle_that_a_poll_holds():
    # Given a poll that is stuck in its handle
    world, fetching, goes_on = wire_world(), threading.Event(), threading.Event()
    bus = world.node()
    publish(bus, "orders", b"0")
    reader = bus.subscriber("orders", initial="earliest")
    topic = reader._logs["orders"].topic
    fetch = topic.fetch
    topic.fetch = lambda *args: (fetching.set(), goes_on.wait(BOUND_S), fetch(*args))[2]
    found = {}

    def scrape():
        assert fetching.wait(BOUND_S)
        publish(bus, "orders", b"1", b"2")
        found.update(metrics(bus))
        goes_on.set()

    # When it is scraped meanwhile, then it tells what is true now
    in_parallel(lambda: take(reader, 1), scrape)
    assert found['lockstep_lag_records{group="",stream="orders"}'] == 3
    world.close()


def test_m3_meters_added_and_closed_on_many_threads_are_all_counted():
    # Given many threads that open and close publishers
    gathered = Metrics()

    def work():
        for _ in range(300):
            meter = PublisherMeter("orders")
            gathered._add(meter)
            meter.records += 1
            meter.retire()

    in_parallel(*[work] * 4)
    gathered._add(PublisherMeter("orders"))
    # Then nothing is lost or counted twice, and what is closed is summed up
    assert sum(meter.records for meter in gathered._past.values()) == 1200
    assert len(gathered._meters) == 1
