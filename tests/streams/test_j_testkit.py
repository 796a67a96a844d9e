"""Part J: the same application on every bus, several nodes in one process, virtual time, faults on order, fixtures."""

from __future__ import annotations

import pytest
from worlds import CALM, everything, publish, take, values

import lockstep
from lockstep import Lockstep
from lockstep.errors import AppendUncertain, BackendUnknown, BadUrl, Closed
from lockstep.runtime import ThreadRuntime
from lockstep.testing import FaultPlan, FaultyBus, VirtualRuntime

pytest_plugins = ["pytester"]


def application(bus):
    """Copies a stream, knowing nothing of the bus below."""
    with bus.subscriber("orders", group="copy", group_options=CALM) as source, bus.publisher("copies") as target:
        for record in take(source, 3):
            target.publish(record.value, key=record.key).result(20)
        source.confirm(sync=True)
    return values(everything(bus, "copies"))


def test_j1_an_application_runs_on_any_bus(bus):
    publish(bus, "orders", b"0", b"1", b"2")
    assert application(bus) == [b"0", b"1", b"2"]


def test_j1_a_url_says_which(tmp_path):
    for url in ("memory:", "memory:shared", f"lmdb:{tmp_path / 'bus'}"):
        with lockstep.connect(url) as bus:
            publish(bus, "orders", b"0", b"1", b"2")
            assert application(bus) == [b"0", b"1", b"2"]
            assert bus.url == url
    with pytest.raises(BackendUnknown, match="pulsar"):
        lockstep.connect("pulsar:somewhere")
    with pytest.raises(BadUrl):
        lockstep.connect("nowhere")


def test_j1_a_backend_of_ones_own(lockstep_bus, lockstep_clock):
    backends = {"mine": lambda target, options, runtime, create: lockstep_bus}
    with lockstep.connect("mine:", runtime=lockstep_clock, backends=backends) as bus:
        publish(bus, "orders", b"0", b"1", b"2")
        assert application(bus) == [b"0", b"1", b"2"]


def test_j2_two_nodes_in_one_process_see_one_bus(world):
    one, two = world.node(), world.node()
    publish(one, "orders", b"0")
    publish(two, "orders", b"1")
    assert values(everything(one, "orders")) == values(everything(two, "orders")) == [b"0", b"1"]
    assert one.streams() == two.streams() == ["orders"]


def test_j2_closing_a_node_closes_everything_it_opened(world):
    one, two = world.node(), world.node()
    subscriber = one.subscriber("orders", group="g", group_options=CALM)
    publisher = one.publisher("orders")
    receiver = one.receive(one.subscriber("orders"), print)
    world.until(lambda: subscriber.is_assigned)
    one.close()
    with pytest.raises(Closed):
        subscriber.poll()
    with pytest.raises(Closed):
        publisher.publish(b"x")
    assert not receiver.is_running
    # and the other node goes on
    publish(two, "orders", b"0")
    assert values(take(two.subscriber("orders", group="g", group_options=CALM), 1)) == [b"0"]


def test_j4_virtual_time_is_the_same_every_time():
    def story(seed):
        clock = VirtualRuntime(seed)
        grid = lockstep.log.memory.MemoryBroker()
        nodes = [Lockstep(grid.bus(clock), clock) for _ in range(3)]
        members = [node.subscriber("a", "b", "c", group="g") for node in nodes]
        told = []
        for _ in range(40):
            clock.advance(0.05)
            for member in members:
                member.poll()
            told.append([member.assigned for member in members])
        for node in nodes:
            node.close()
        return told, clock.monotonic()

    assert story(1) == story(1)


@pytest.mark.parametrize("fault", ["drop", "lose_ack", "late"])
def test_j4_faults_happen_on_order(lockstep_bus, lockstep_clock, fault):
    plan = FaultPlan()
    bus = Lockstep(FaultyBus(lockstep_bus, plan), lockstep_clock)
    publisher = bus.publisher("orders", delivery_timeout_s=0.0)
    getattr(plan, fault)(log="orders")
    with pytest.raises(AppendUncertain, match=f"{fault} was planned"):
        publisher.publish(b"x").result(1.0)
    assert plan.counts == {fault: 1}
    assert plan.pending == 0
    assert bus.bounds("orders").next == (1 if fault == "lose_ack" else 0)


def test_j5_users_get_fixtures(pytester):
    """A test in a project of their own, with nothing but the installed package."""
    pytester.makepyfile(
        """
        import lockstep
        from lockstep import Lockstep

        def test_in_virtual_time(lockstep_bus, lockstep_clock):
            bus = Lockstep(lockstep_bus, lockstep_clock)
            receipt = bus.publisher("orders", linger_s=60.0).publish(b"x")
            lockstep_clock.advance(61)
            assert receipt.result(0) == 0

        def test_on_disk(lockstep_folder):
            with lockstep.connect(lockstep_folder) as bus, bus.publisher("orders") as publisher:
                assert publisher.publish(b"x").result(10) == 0

        def test_two_nodes(lockstep_grid, lockstep_clock):
            one, two = (Lockstep(lockstep_grid.bus(lockstep_clock), lockstep_clock) for _ in range(2))
            one.publisher("orders").publish(b"x").result(1)
            assert two.bounds("orders").next == 1
        """
    )
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=3)


def test_the_real_runtime_is_the_default():
    with lockstep.connect("memory:") as bus:
        assert isinstance(bus.runtime, ThreadRuntime)
