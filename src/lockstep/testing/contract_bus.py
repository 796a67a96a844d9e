"""Buses: names, configurations, waiting and closing."""

from __future__ import annotations

import select
from collections.abc import Callable
from dataclasses import replace

import pytest

from lockstep.errors import Closed, ConfigMismatch, StreamNotFound
from lockstep.log.config import StreamConfig
from lockstep.log.port import Bounds, Bus, Log
from lockstep.testing.contract_case import KEEP_ALL, LogCase, Producer, values

_DURABILITIES = ("memory", "relaxed", "fsync")
_OPENED_BY = ("process", "host", "network")
_RETENTION = {"capacity", "bytes", "age", "protect"}
_OTHER_SETTINGS = {"max_record_bytes": 1000, "compression": "lz4", "protect_bytes": 1000}


class NamesContract(LogCase):
    """Logs are created, opened, deleted and listed by name; a conflicting configuration is refused."""

    def test_the_promises_are_filled_in(self, bus: Bus) -> None:
        promises = bus.promises
        assert promises.durability in _DURABILITIES
        assert promises.opened_by in _OPENED_BY
        assert set(promises.retention) <= _RETENTION
        assert promises.may_lose
        assert promises.sync_replicas >= 0
        assert promises.async_replicas >= 0
        assert ":" in bus.url

    def test_names_are_in_order(self, bus: Bus) -> None:
        assert bus.names() == []
        for name in ("orders", "a", "zebra", "a.b-c_d"):
            bus.create(name, KEEP_ALL)
        assert bus.names() == ["a", "a.b-c_d", "orders", "zebra"]

    def test_creating_again_opens(self, bus: Bus, same_bus: Bus, producer: Producer) -> None:
        log = bus.create("orders", KEEP_ALL)
        log.append([producer.batch(b"a")])
        again = same_bus.create("orders", KEEP_ALL)
        assert (again.name, again.identity, again.config) == ("orders", log.identity, KEEP_ALL)
        assert values(again) == [b"a"]

    @pytest.mark.parametrize("field", _OTHER_SETTINGS)
    def test_creating_with_another_configuration_names_what_differs(self, bus: Bus, field: str) -> None:
        bus.create("orders", KEEP_ALL)
        other = replace(KEEP_ALL, **{field: _OTHER_SETTINGS[field]})  # type: ignore[arg-type]
        with pytest.raises(ConfigMismatch) as caught:
            bus.create("orders", other)
        assert caught.value.params["field"] == field
        assert caught.value.params["stored"] == getattr(KEEP_ALL, field)
        assert caught.value.params["given"] == getattr(other, field)
        assert bus.open("orders").config == KEEP_ALL

    def test_a_log_is_opened_as_it_was_made(self, bus: Bus, same_bus: Bus) -> None:
        config = StreamConfig(capacity=None, max_record_bytes=123, compression="zstd")
        made = bus.create("orders", config)
        found = same_bus.open("orders")
        assert (found.identity, found.config) == (made.identity, config)

    @pytest.mark.parametrize("name", ["missing", "", "x" * 1000])
    def test_opening_what_is_not_there(self, bus: Bus, name: str) -> None:
        with pytest.raises(StreamNotFound):
            bus.open(name)
        assert bus.names() == []

    def test_deleting_what_is_not_there(self, bus: Bus) -> None:
        with pytest.raises(StreamNotFound):
            bus.delete("missing")

    def test_a_deleted_log_is_gone_for_every_handle(self, bus: Bus, log: Log, producer: Producer) -> None:
        log.append([producer.batch(b"a")])
        bus.delete("orders")
        assert bus.names() == []
        calls: list[Callable[[], object]] = [
            lambda: log.append([producer.batch(b"b")]),
            lambda: log.read(0),
            log.bounds,
            lambda: bus.open("orders"),
        ]
        for call in calls:
            with pytest.raises(StreamNotFound):
                call()

    def test_a_log_made_anew_is_another_one(self, bus: Bus, log: Log, producer: Producer) -> None:
        batch = producer.batch(b"a")
        log.append([batch, Producer("other").batch(b"b")])
        bus.delete("orders")
        anew = bus.create("orders", replace(KEEP_ALL, max_record_bytes=5))
        assert anew.identity != log.identity
        assert anew.bounds() == Bounds(0, 0)
        assert anew.append([batch]) == [0], "a producer of the old log is new here"
        assert values(anew) == [b"a"]

    def test_deleting_one_log_leaves_the_others(self, bus: Bus, log: Log, producer: Producer) -> None:
        others = [bus.create(name, KEEP_ALL) for name in ("order", "orders2")]
        for one in (log, *others):
            one.append([producer.batch(one.name.encode())])
        bus.delete("orders")
        assert [values(other) for other in others] == [[b"order"], [b"orders2"]]


class CloseContract(LogCase):
    """Closing a log leaves its records; after a bus is closed, it and its logs raise Closed."""

    def test_closing_a_log_leaves_its_records(self, bus: Bus, log: Log, producer: Producer) -> None:
        log.append([producer.batch(b"a")])
        log.close()
        log.close()
        assert values(bus.open("orders")) == [b"a"]

    def test_a_closed_bus_says_so(self, bus: Bus, log: Log, producer: Producer) -> None:
        bus.close()
        bus.close()
        calls: list[Callable[[], object]] = [
            bus.names,
            bus.waiter,
            lambda: bus.create("other", KEEP_ALL),
            lambda: bus.open("orders"),
            lambda: bus.delete("orders"),
            lambda: log.append([producer.batch(b"a")]),
            lambda: log.read(0),
            log.bounds,
            lambda: log.trim(0),
        ]
        for call in calls:
            with pytest.raises(Closed):
                call()


class WaitContract(LogCase):
    """A waiter ends its wait soon after an append to a watched log, or when it is woken."""

    def test_an_append_ends_the_wait(self, bus: Bus, log: Log, same_bus: Bus, producer: Producer) -> None:
        waiter = bus.waiter()
        waiter.watch(log)
        assert log.read(0) == []
        other = same_bus.open("orders")
        self.is_woken(bus, waiter, lambda: other.append([producer.batch(b"a")]), log)
        assert values(log)[0] == b"a"
        waiter.close()

    def test_an_append_to_any_watched_log_ends_the_wait(self, bus: Bus, log: Log, producer: Producer) -> None:
        other = bus.create("other", KEEP_ALL)
        waiter = bus.waiter()
        waiter.watch(log)
        waiter.watch(other)
        waiter.watch(other)
        for one in (other, log):
            self.is_woken(bus, waiter, lambda to=one: to.append([producer.batch(b"a")]), log, other)  # type: ignore[misc]
        waiter.close()

    def test_a_wait_ends_by_itself(self, bus: Bus, log: Log) -> None:
        waiter = bus.waiter()
        waiter.watch(log)
        for seconds in (0.01, 0.0):
            self.ends_by_itself(lambda timeout=seconds: waiter.wait(timeout))  # type: ignore[misc]
        waiter.close()

    def test_wake_ends_the_next_wait(self, bus: Bus) -> None:
        waiter = bus.waiter()
        waiter.wake()
        self.is_woken(bus, waiter, waiter.wake)
        waiter.close()

    def test_unwatching_is_safe_at_any_time(self, bus: Bus, log: Log, producer: Producer) -> None:
        waiter = bus.waiter()
        waiter.unwatch(log)
        waiter.watch(log)
        waiter.unwatch(log)
        waiter.unwatch(log)
        log.append([producer.batch(b"a")])
        waiter.watch(log)
        self.is_woken(bus, waiter, lambda: log.append([producer.batch(b"b")]), log)
        waiter.close()

    def test_waiters_do_not_take_from_each_other(self, bus: Bus, log: Log, producer: Producer) -> None:
        waiters = [bus.waiter(), bus.waiter()]
        for waiter in waiters:
            waiter.watch(log)

        def append_and_let_the_first_take_it() -> None:
            log.append([producer.batch(b"a")])
            self.ends_soon(lambda: waiters[0].wait(3600))

        self.is_woken(bus, waiters[1], append_and_let_the_first_take_it, log)
        self.is_woken(bus, waiters[0], lambda: log.append([producer.batch(b"b")]), log)
        for waiter in waiters:
            waiter.close()

    def test_its_descriptor_becomes_readable(self, bus: Bus, log: Log, producer: Producer) -> None:
        waiter = bus.waiter()
        waiter.watch(log)
        descriptor = waiter.fileno()
        if descriptor is not None:
            log.append([producer.batch(b"a")])
            readable, _, _ = select.select([descriptor], [], [], 20)
            assert readable == [descriptor]
        waiter.close()

    def test_closing_it_twice_and_waking_it_then_is_harmless(self, bus: Bus, log: Log, producer: Producer) -> None:
        waiter = bus.waiter()
        waiter.watch(log)
        waiter.close()
        waiter.close()
        waiter.wake()
        log.append([producer.batch(b"a")])
