"""Several logs and cells in one step, and views in which everything fits together."""

from __future__ import annotations

import threading

import pytest

from lockstep.errors import (
    BadArgument,
    Closed,
    IllegalState,
    OffsetConflict,
    StoreFull,
    StreamNotFound,
    Trimmed,
)
from lockstep.log.batch import HEADER, BatchView
from lockstep.log.config import StreamConfig
from lockstep.log.port import Bounds, Bus, Log, Transaction
from lockstep.testing.contract_case import KEEP_ALL, LogCase, Producer, unsupported, values


class _Change(Exception):
    """What the work of a test raises."""


class AtomicContract(LogCase):
    """Transactions change all or nothing, and snapshots show one state; for buses that promise atomic changes."""

    @pytest.fixture
    def atomic_bus(self, bus: Bus) -> Bus:
        """The bus; skips the test if it has no transactions, and says so."""
        if bus.promises.atomic:
            return bus
        with unsupported():
            bus.atomic(lambda _: None)
        with unsupported(), bus.snapshot():
            pass
        pytest.skip("the bus has no transactions, and says so")

    @pytest.fixture
    def other(self, bus: Bus) -> Log:
        """A second log on the bus."""
        return bus.create("other", KEEP_ALL)

    def test_two_logs_and_a_cell_change_together(
        self, atomic_bus: Bus, log: Log, other: Log, producer: Producer
    ) -> None:
        def work(changes: Transaction) -> str:
            assert changes.append("orders", [producer.batch(b"a")]) == [0]
            assert changes.append("other", [producer.batch(b"b", b"c")]) == [0]
            changes.put(b"position", b"7")
            return "done"

        assert atomic_bus.atomic(work) == "done"
        with atomic_bus.snapshot() as view:
            assert view.get(b"position") == b"7"
        assert (values(log), values(other)) == ([b"a"], [b"b", b"c"])

    def test_if_the_work_raises_nothing_happened(
        self, atomic_bus: Bus, log: Log, other: Log, producer: Producer
    ) -> None:
        log.append([producer.batch(b"before")])
        atomic_bus.atomic(lambda changes: changes.put(b"cell", b"before"))
        sent = producer.batch(b"a")

        def work(changes: Transaction) -> None:
            changes.append("orders", [sent])
            changes.append("other", [Producer("x").batch(b"b")])
            changes.put(b"cell", b"after")
            changes.put(b"new", b"x")
            raise _Change

        with pytest.raises(_Change):
            atomic_bus.atomic(work)
        assert (values(log), other.bounds()) == ([b"before"], Bounds(0, 0))
        with atomic_bus.snapshot() as view:
            assert (view.get(b"cell"), view.get(b"new")) == (b"before", None)
        # And the batch counts as never sent
        log.append([sent])
        assert values(log) == [b"before", b"a"]

    def test_an_unknown_log_undoes_the_rest(self, atomic_bus: Bus, log: Log, other: Log, producer: Producer) -> None:
        def work(changes: Transaction) -> None:
            changes.append("orders", [producer.batch(b"a")])
            changes.append("missing", [producer.batch(b"b")])

        with pytest.raises(StreamNotFound):
            atomic_bus.atomic(work)
        assert values(log) == values(other) == []

    def test_a_transaction_reads_what_it_wrote(self, atomic_bus: Bus, log: Log, producer: Producer) -> None:
        log.append([producer.batch(b"a")])
        before = log.bounds().next

        def work(changes: Transaction) -> list[tuple[bytes, ...]]:
            changes.append("orders", [producer.batch(b"b")])
            assert changes.bounds("orders").next > before
            changes.put(b"cell", b"1")
            assert changes.get(b"cell") == b"1"
            changes.put(b"cell", None)
            assert changes.get(b"cell") is None
            return [BatchView(entry.base, entry.data, "orders").values() for entry in changes.read("orders", 0)]

        assert atomic_bus.atomic(work) == [(b"a",), (b"b",)]

    def test_a_conflict_that_the_work_handles_changes_nothing(
        self, atomic_bus: Bus, log: Log, other: Log, producer: Producer
    ) -> None:
        if not atomic_bus.promises.conditional:
            pytest.skip("the bus has no conditional append")
        log.append([Producer("other").batch(b"first")])

        def work(changes: Transaction) -> None:
            with pytest.raises(OffsetConflict):
                changes.append("orders", [producer.batch(b"a")], expected_next=0)
            changes.append("other", [Producer("x").batch(b"instead")])

        atomic_bus.atomic(work)
        assert (values(log), values(other)) == ([b"first"], [b"instead"])

    def test_half_an_append_is_not_committed_even_if_the_work_goes_on(self, atomic_bus: Bus, other: Log) -> None:
        config = StreamConfig(capacity=1, protect=True, protect_bytes=HEADER.size + 100)
        log = self.create_retaining(atomic_bus, "protect", config)
        log.hold("group", 0)
        sent = Producer().batch(b"x" * 1000)

        def work(changes: Transaction) -> None:
            with pytest.raises(StoreFull):
                changes.append("bounded", [sent])
            changes.append("other", [Producer("x").batch(b"instead")])

        with pytest.raises(StoreFull):
            atomic_bus.atomic(work)
        assert (log.bounds(), values(other)) == (Bounds(0, 0), [])

    def test_a_hold_within_a_transaction(self, atomic_bus: Bus, producer: Producer) -> None:
        log = self.create_retaining(atomic_bus, "protect", StreamConfig(capacity=1, protect=True))
        atomic_bus.atomic(lambda changes: changes.hold("bounded", "group", 0))
        for value in (b"a", b"b", b"c"):
            log.append([producer.batch(value)])
        assert values(log) == [b"a", b"b", b"c"]

    def test_a_wait_is_ended_by_a_transaction(self, atomic_bus: Bus, log: Log, producer: Producer) -> None:
        waiter = atomic_bus.waiter()
        waiter.watch(log)

        def publish() -> None:
            atomic_bus.atomic(lambda changes: changes.append("orders", [producer.batch(b"a")]))

        self.is_woken(atomic_bus, waiter, publish, log)
        waiter.close()

    @pytest.mark.parametrize("key", [b"", b"x" * 512])
    def test_a_cell_has_a_key_of_1_to_511_bytes(self, atomic_bus: Bus, key: bytes) -> None:
        with pytest.raises(BadArgument):
            atomic_bus.atomic(lambda changes: changes.put(key, b"x"))
        atomic_bus.atomic(lambda changes: changes.put(b"x" * 511, b""))
        with atomic_bus.snapshot() as view:
            assert view.get(b"x" * 511) == b""

    def test_writing_around_the_transaction_is_refused(self, atomic_bus: Bus, log: Log, producer: Producer) -> None:
        def work(changes: Transaction) -> None:
            changes.put(b"cell", b"x")
            log.append([producer.batch(b"a")])

        with pytest.raises(IllegalState):
            atomic_bus.atomic(work)
        assert values(log) == []
        with atomic_bus.snapshot() as view:
            assert view.get(b"cell") is None

    def test_a_snapshot_reads_and_refuses_to_write(self, atomic_bus: Bus, log: Log, producer: Producer) -> None:
        log.append([producer.batch(b"a", b"b"), producer.batch(b"c")])
        log.trim(1)
        with atomic_bus.snapshot() as view:
            assert view.bounds("orders") == Bounds(1, log.bounds().next)
            assert [BatchView(entry.base, entry.data, "").values() for entry in view.read("orders", 2)] == [(b"c",)]
            assert list(view.read("orders", 1000)) == []
            with pytest.raises(Trimmed):
                view.read("orders", 0)
            for call in (
                lambda: view.put(b"cell", b"x"),
                lambda: view.append("orders", [producer.batch(b"d")]),
                lambda: view.hold("orders", "group", 0),
            ):
                with pytest.raises(IllegalState):
                    call()

    def test_a_snapshot_shows_all_of_a_transaction_or_none(self, atomic_bus: Bus, log: Log, other: Log) -> None:
        if not self.uses_threads:
            pytest.skip("virtual time has one thread")
        writer = threading.Thread(target=_append_to_both, args=(atomic_bus,), daemon=True)
        writer.start()
        seen = set()
        while writer.is_alive():
            with atomic_bus.snapshot() as view:
                one, two, cell = view.bounds("orders").next, view.bounds("other").next, view.get(b"n")
            seen.add((one, two, int(cell or b"0")))
        assert all(one == two == cell for one, two, cell in seen)
        assert log.bounds().next == other.bounds().next == 100

    def test_threads_count_up_one_cell(self, atomic_bus: Bus) -> None:
        if not self.uses_threads:
            pytest.skip("virtual time has one thread")
        threads = [threading.Thread(target=_count_up, args=(atomic_bus,), daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            self.ends_soon(thread.join)
        with atomic_bus.snapshot() as view:
            assert view.get(b"n") == b"100"

    def test_a_closed_bus_has_no_transactions(self, atomic_bus: Bus) -> None:
        atomic_bus.close()
        with pytest.raises(Closed):
            atomic_bus.atomic(lambda _: None)
        with pytest.raises(Closed), atomic_bus.snapshot():
            pass


def _append_to_both(bus: Bus) -> None:
    for number in range(100):
        one, two = Producer(f"one {number}").batch(b"a"), Producer(f"two {number}").batch(b"b")

        def work(changes: Transaction, one=one, two=two, number=number) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
            changes.append("orders", [one])
            changes.put(b"n", b"%d" % (number + 1))
            changes.append("other", [two])

        bus.atomic(work)


def _count_up(bus: Bus) -> None:
    for _ in range(25):
        bus.atomic(lambda changes: changes.put(b"n", b"%d" % (int(changes.get(b"n") or b"0") + 1)))
