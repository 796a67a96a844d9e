"""All ways of delivery as one: the type of the tenant picks, and a package that is missing is named."""

from __future__ import annotations

import subprocess
import sys

import pytest
from delivery_parts import Results, custom_tenant, delivered, event, http_tenant
from schedule_worlds import World

from lockstep.core.agenda import Status
from lockstep.errors import BadArgument, BadConfig, ExtraMissing
from lockstep.schedule.delivery.couriers import CourierOptions, Couriers
from lockstep.schedule.delivery.port import Delivery, Outcome, Result
from lockstep.schedule.tenants import Tenant, TenantType


@pytest.fixture
def couriers():
    made = Couriers(CourierOptions())
    yield made
    made.close()


def messaging(**props) -> Tenant:
    return Tenant(tenant="M", type=TenantType.MESSAGING, props={"topic": "t", **props})


def test_a_tenant_is_checked_by_the_courier_of_its_type(couriers):
    couriers.check(custom_tenant("NoOp"))
    with pytest.raises(BadArgument, match="no processor has this name"):
        couriers.check(custom_tenant("nobody"))
    with pytest.raises(BadArgument, match="loopback"):
        couriers.check(http_tenant("http://127.0.0.1/"))
    with pytest.raises(BadArgument, match="not allowed"):
        couriers.check(messaging(**{"bootstrap.servers": "kafka:9092", "plugin.library.paths": "/tmp/x"}))


def test_an_event_is_delivered_by_the_courier_of_its_tenant_s_type(couriers):
    assert delivered(couriers, custom_tenant("NoOp")) == (Outcome.TAKEN, None)
    outcome, error = delivered(couriers, http_tenant("http://169.254.169.254/"))
    assert (outcome, "link-local" in error) == (Outcome.REFUSED, True)
    couriers.forget("Orders/EU")


def test_a_tenant_whose_events_go_to_a_stream_is_not_a_courier_s(couriers):
    couriers.check(messaging())
    outcome, error = delivered(couriers, messaging())
    assert (outcome, error) == (Outcome.FAILED, "Not sent: this tenant's events go to a stream of the bus.")


def test_nothing_is_delivered_after_the_end(couriers):
    assert delivered(couriers, custom_tenant("NoOp"))[0] is Outcome.TAKEN
    couriers.close()
    results = Results()
    couriers.deliver(Delivery(event(), custom_tenant("NoOp")), results)
    couriers.deliver(Delivery(event(2), http_tenant("http://example.com/")), results)
    assert [result.outcome for result in results.now] == [Outcome.FAILED] * 2
    couriers.close()


@pytest.mark.parametrize("name", ["timeout_s", "connections", "connections_per_tenant", "pending", "processor_threads"])
def test_a_limit_must_be_above_0(name):
    with pytest.raises(BadConfig, match=name):
        CourierOptions(**{name: 0})


def test_a_package_that_is_missing_is_named(couriers, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "aiohttp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "lockstep.schedule.delivery.http", raising=False)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(ExtraMissing, match=r"lockstep-events\[schedule\]"):
        couriers.check(http_tenant("http://example.com/"))
    outcome, error = delivered(couriers, http_tenant("http://example.com/"))
    assert (outcome, "lockstep-events[schedule]" in error) == (Outcome.FAILED, True)
    assert delivered(couriers, custom_tenant("NoOp")) == (Outcome.TAKEN, None)


@pytest.mark.slow
def test_neither_client_is_imported_before_a_tenant_needs_it():
    code = "import sys, lockstep.schedule.delivery.couriers; print({'aiohttp', 'confluent_kafka'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "set()"


@pytest.mark.parametrize("first", [True, False], ids=["before the result", "after the result"])
def test_a_courier_that_raises_ends_no_node_and_the_event_is_tried_again(first):
    # Given a courier that raises at its first delivery
    world, failures = World(shards=1), iter([RuntimeError("no courier")])
    world.start()
    world.clock.advance(2)
    deliver = world.courier.deliver

    def raising(delivery, done):
        for error in failures:
            if not first:
                done(Result(delivery, Outcome.FAILED, "it failed"))
            raise error
        deliver(delivery, done)

    world.courier.deliver = raising
    # When an event of that courier and one of a stream are due
    world.schedule("h1", 100, tenant="h")
    world.schedule("s1", 100)
    world.clock.advance(0.5)
    # Then the node goes on, and the event is tried again a second later
    assert world.nodes["n1"].error is None
    assert world.fired() == ["s1"]
    assert world.client.find("h", "h1").status is Status.RETRY
    world.clock.advance(2)
    assert world.client.find("h", "h1").status is Status.DONE
    assert world.client.find("h", "h1").attempt == 2
