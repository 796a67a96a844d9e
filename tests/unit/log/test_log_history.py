"""A stream whose older records live in a history: nothing shown that was not published, nothing lost."""

from __future__ import annotations

import pytest

from lockstep.errors import Trimmed
from lockstep.log.config import StreamConfig
from lockstep.log.memory import MemoryBroker
from lockstep.log.port import Bounds
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import Producer, values


class Refused(Exception):
    """What stops an append after its history has it."""


@pytest.fixture(params=["memory", "lmdb"])
def bus(request, tmp_path):
    if request.param == "memory":
        bus = MemoryBroker().bus(ThreadRuntime())
    else:
        bus = open_bus(f"lmdb:{tmp_path / 'bus'}?durability=relaxed", ThreadRuntime())
    yield bus
    bus.close()


@pytest.fixture
def config(tmp_path):
    return StreamConfig(capacity=2, history=f"lmdb:{tmp_path / 'archive'}")


def test_what_the_capacity_no_longer_holds_is_read_from_the_history(bus, config):
    log, producer = bus.create("orders", config), Producer()
    for number in range(10):
        log.append([producer.batch(b"%d" % number)])
    assert log.bounds() == Bounds(0, 10)
    assert values(log) == [b"%d" % number for number in range(10)]


def test_a_log_made_anew_goes_on_after_its_history(bus, config):
    log = bus.create("orders", config)
    log.append([Producer().batch(b"a", b"b", b"c")])
    bus.delete("orders")
    anew = bus.create("orders", config)
    assert anew.append([Producer("other").batch(b"d")]) == [3]
    assert values(anew) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("published_before", [0, 3])
def test_an_append_that_did_not_happen_does_not_show(bus, config, published_before):
    # Given an append that reached the history and not the stream
    log, producer = bus.create("orders", config), Producer()
    before = [b"%d" % number for number in range(published_before)]
    for value in before:
        log.append([producer.batch(value)])
    batch = producer.batch(b"again")

    def work(changes):
        changes.append("orders", [batch])
        raise Refused

    with pytest.raises(Refused):
        bus.atomic(work)
    assert values(log) == before
    # When it is sent again
    assert log.append([batch]) == [published_before]
    # Then it is there once, and the history agrees
    for number in range(5):
        log.append([producer.batch(b"later %d" % number)])
    assert values(log) == [*before, b"again", *(b"later %d" % number for number in range(5))]


def test_a_failing_history_fails_the_append_and_nothing_happened(bus, config, monkeypatch):
    log, producer = bus.create("orders", config), Producer()
    log.append([producer.batch(b"a")])
    batch = producer.batch(b"b")
    history = bus.history_of(log.info)
    monkeypatch.setattr(history, "store", lambda *_: (_ for _ in ()).throw(OSError("archive is gone")))
    with pytest.raises(OSError, match="archive is gone"):
        log.append([batch])
    monkeypatch.undo()
    assert values(log) == [b"a"]
    log.append([batch])
    assert values(log) == [b"a", b"b"]


def test_a_null_history_keeps_nothing(tmp_path):
    bus = open_bus(f"lmdb:{tmp_path / 'bus'}", ThreadRuntime())
    log = bus.create("orders", StreamConfig(capacity=1, history="null:"))
    log.append([Producer().batch(b"a", b"b")])
    assert values(log) == [b"b"]
    with pytest.raises(Trimmed):
        log.read(0)
    bus.close()


def test_a_refused_configuration_makes_no_history(tmp_path):
    bus = open_bus(f"lmdb:{tmp_path / 'bus'}", ThreadRuntime())
    bus.create("orders", StreamConfig())
    with pytest.raises(Exception, match="CONFIG_MISMATCH"):
        bus.create("orders", StreamConfig(history=f"lmdb:{tmp_path / 'archive'}"))
    assert not (tmp_path / "archive").exists()
    bus.close()
