from __future__ import annotations

import pytest

from lockstep.errors import AppendUncertain, StoreFull
from lockstep.log.config import StreamConfig
from lockstep.log.memory import MemoryBroker
from lockstep.testing import FaultPlan, FaultyBus, VirtualRuntime
from lockstep.testing.contract import Producer, values

CONFIG = StreamConfig()


@pytest.fixture(params=[True, False], ids=["dedupe", "copies stay"])
def grid(request):
    return MemoryBroker(dedupe=request.param)


@pytest.fixture
def bus(grid):
    return FaultyBus(grid.bus(VirtualRuntime()))


@pytest.fixture
def log(bus):
    return bus.create("orders", CONFIG)


@pytest.fixture
def producer():
    return Producer()


def copies(bus, *expected):
    """What a log holds after copies came: all of them, unless the bus drops them."""
    return list(dict.fromkeys(expected)) if bus.promises.dedupe else list(expected)


def test_a_dropped_append_is_lost(bus, log, producer):
    bus.plan.drop()
    batch = producer.batch(b"a")
    with pytest.raises(AppendUncertain, match="orders"):
        log.append([batch])
    assert values(log) == []
    log.append([batch])
    assert values(log) == [b"a"]
    assert bus.plan.counts == {"drop": 1}


def test_an_append_without_acknowledgement_is_there(bus, log, producer):
    bus.plan.lose_ack()
    batch = producer.batch(b"a")
    with pytest.raises(AppendUncertain):
        log.append([batch])
    assert values(log) == [b"a"]
    log.append([batch])
    assert values(log) == copies(bus, b"a", b"a")


def test_a_doubled_append(bus, log, producer):
    bus.plan.duplicate()
    assert log.append([producer.batch(b"a")]) == [0]
    assert values(log) == copies(bus, b"a", b"a")


def test_a_late_append_lands_after_the_next(bus, log, producer):
    bus.plan.late()
    with pytest.raises(AppendUncertain):
        log.append([producer.batch(b"late")])
    assert values(log) == []
    log.append([Producer("other").batch(b"next")])
    assert values(log) == [b"next", b"late"]


def test_a_late_append_that_was_sent_again(bus, log, producer):
    bus.plan.late()
    batch = producer.batch(b"a")
    with pytest.raises(AppendUncertain):
        log.append([batch])
    log.append([batch])
    assert values(log) == copies(bus, b"a", b"a")


def test_a_late_append_lands_when_released(bus, log, producer):
    bus.plan.late(2)
    other = bus.create("other", CONFIG)
    for one in (log, other):
        with pytest.raises(AppendUncertain):
            one.append([producer.batch(one.name.encode())])
    assert bus.release_late("other") == 1
    assert (values(log), values(other)) == ([], [b"other"])
    assert bus.release_late() == 1
    assert values(log) == [b"orders"]
    assert bus.release_late() == 0


def test_a_late_append_keeps_its_condition(bus, log, producer):
    bus.plan.late()
    with pytest.raises(AppendUncertain):
        log.append([producer.batch(b"late")], expected_next=0)
    log.append([Producer("other").batch(b"next")])
    assert values(log) == [b"next"]


def test_failing_a_number_of_times_with_any_error(bus, log, producer):
    bus.plan.fail(StoreFull(stream="orders", reason="test"), times=2)
    batch = producer.batch(b"a")
    for _ in range(2):
        with pytest.raises(StoreFull, match="test"):
            log.append([batch])
    assert log.append([batch]) == [0]
    assert bus.plan.counts == {"fail": 2}
    assert bus.plan.pending == 0


@pytest.mark.parametrize("operation", ["read", "bounds", "trim", "hold", "create", "open", "delete", "atomic"])
def test_failing_any_operation(bus, log, operation):
    bus.plan.fail(OSError("test"), on=operation)
    calls = {
        "read": lambda: log.read(0),
        "bounds": log.bounds,
        "trim": lambda: log.trim(0),
        "hold": lambda: log.hold("group", 0),
        "create": lambda: bus.create("orders", CONFIG),
        "open": lambda: bus.open("orders"),
        "delete": lambda: bus.delete("orders"),
        "atomic": lambda: bus.atomic(lambda _: None),
    }
    with pytest.raises(OSError, match="test"):
        calls[operation]()
    calls[operation]()


def test_transactions_are_dropped_or_lose_their_acknowledgement(bus, log, producer):
    bus.plan.drop(on="atomic").lose_ack(on="atomic")
    for expected in ([], [b"a"]):
        with pytest.raises(AppendUncertain):
            bus.atomic(lambda changes: changes.append("orders", [producer.batch(b"a")]))
        assert values(log) == expected


def test_faults_for_one_log_leave_the_others(bus, log, producer):
    bus.plan.drop(log="orders")
    bus.create("other", CONFIG).append([producer.batch(b"a")])
    with pytest.raises(AppendUncertain):
        log.append([producer.batch(b"a")])


def test_a_stalled_log_seems_to_end(bus, log, producer):
    log.append([producer.batch(b"a")])
    bus.stall("orders")
    log.append([producer.batch(b"b")])
    assert values(log) == [b"a"]
    assert log.bounds().next == 1
    assert log.read(1) == []
    bus.unstall("orders")
    assert values(log) == [b"a", b"b"]


def test_a_stall_is_seen_by_one_bus_only(grid, bus, log, producer):
    other = FaultyBus(grid.bus(VirtualRuntime()), FaultPlan())
    bus.stall("orders")
    log.append([producer.batch(b"a")])
    assert values(other.open("orders")) == [b"a"]
    assert values(log) == []
    bus.unstall()
    assert values(log) == [b"a"]


def test_the_promise_says_whether_copies_are_dropped(grid, bus):
    assert bus.promises == grid.promises
