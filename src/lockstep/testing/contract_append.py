"""Appending: all or nothing, growing offsets, conditions, copies; and reading back what was appended."""

from __future__ import annotations

import itertools
import threading

import pytest

from lockstep.errors import OffsetConflict
from lockstep.log.batch import Batch
from lockstep.log.port import Bus, Log
from lockstep.testing.contract_case import LogCase, Producer, records, unsupported, values, views


class AppendContract(LogCase):
    """Appends are stored as a whole or not at all, in one order that all readers see."""

    def test_the_first_record_has_offset_0(self, log: Log, producer: Producer) -> None:
        assert log.append([producer.batch(b"a")]) == [0]

    def test_offsets_grow_by_at_least_the_records_before(self, log: Log, producer: Producer) -> None:
        bases = [log.append([producer.batch(b"a", b"b", b"c")])[0] for _ in range(5)]
        assert all(later >= earlier + 3 for earlier, later in itertools.pairwise(bases))

    def test_record_i_of_a_batch_has_offset_base_plus_i(self, log: Log, producer: Producer) -> None:
        [base] = log.append([producer.batch(b"a", b"b", b"c")])
        assert records(log) == [(base, b"a"), (base + 1, b"b"), (base + 2, b"c")]

    def test_many_batches_in_one_append_get_a_base_each(self, log: Log, producer: Producer) -> None:
        batches = [producer.batch(b"a", b"b"), producer.batch(b"c"), Producer("other").batch(b"d")]
        bases = log.append(batches)
        assert [(view.base, view.values()) for view in views(log)] == [
            (bases[0], (b"a", b"b")),
            (bases[1], (b"c",)),
            (bases[2], (b"d",)),
        ]

    def test_an_append_of_nothing_changes_nothing(self, log: Log) -> None:
        assert log.append([]) == []
        assert log.bounds().count == 0

    def test_an_append_that_was_acknowledged_is_there(self, log: Log, same_bus: Bus, producer: Producer) -> None:
        for number in range(20):
            log.append([producer.batch(b"%d" % number)])
            assert values(same_bus.open(log.name))[-1] == b"%d" % number

    def test_several_batches_are_appended_together_or_not_at_all(self, log: Log, producer: Producer) -> None:
        # Given batches of which the last can't be stored
        log.append([producer.batch(b"before")])
        held = records(log), log.bounds()
        with pytest.raises(AttributeError):
            log.append([Producer("x").batch(b"a"), Producer("y").batch(b"b"), _Unstorable()])  # type: ignore[list-item]
        # Then none of them was, and the log goes on
        assert (records(log), log.bounds()) == held
        log.append([Producer("x").batch(b"a")])
        assert values(log) == [b"before", b"a"]

    def test_threads_append_into_one_order_that_all_readers_see(self, bus: Bus, log: Log) -> None:
        if not self.uses_threads:
            pytest.skip("virtual time has one thread")
        seen: list[list[tuple[int, bytes]]] = [[], []]
        writers = [threading.Thread(target=_append_numbered, args=(log, name), daemon=True) for name in "abcd"]
        readers = [threading.Thread(target=_read_100, args=(bus.open(log.name), rows), daemon=True) for rows in seen]
        for thread in writers + readers:
            thread.start()
        for thread in writers + readers:
            self.ends_soon(thread.join)
        assert seen[0] == seen[1] == records(log)
        for name in "abcd":
            assert [value for _, value in seen[0] if value.startswith(name.encode())] == _numbered(name)


class ConditionContract(LogCase):
    """With `expected_next`, an append to a log that ends elsewhere raises OffsetConflict and writes nothing."""

    def _conditional(self, bus: Bus, log: Log) -> None:
        if bus.promises.conditional:
            return
        with unsupported():
            log.append([Producer().batch(b"a")], expected_next=0)
        assert log.bounds().count == 0
        pytest.skip("the bus has no conditional append, and says so")

    def test_the_expected_end_lets_the_append_through(self, bus: Bus, log: Log, producer: Producer) -> None:
        self._conditional(bus, log)
        log.append([producer.batch(b"a")], expected_next=0)
        log.append([producer.batch(b"b")], expected_next=log.bounds().next)
        assert values(log) == [b"a", b"b"]

    @pytest.mark.parametrize("expected", [0, 1, 3, 99])
    def test_another_end_is_a_conflict_and_nothing_is_written(
        self, bus: Bus, log: Log, producer: Producer, expected: int
    ) -> None:
        self._conditional(bus, log)
        log.append([producer.batch(b"a", b"b")])
        with pytest.raises(OffsetConflict) as caught:
            log.append([producer.batch(b"c")], expected_next=expected)
        assert caught.value.params == {"stream": "orders", "expected": expected - 1, "actual": log.bounds().next - 1}
        assert values(log) == [b"a", b"b"]

    def test_of_two_that_expect_the_same_end_one_wins(self, bus: Bus, log: Log, same_bus: Bus) -> None:
        self._conditional(bus, log)
        log.append([Producer("a").batch(b"winner")], expected_next=0)
        with pytest.raises(OffsetConflict):
            same_bus.open(log.name).append([Producer("b").batch(b"loser")], expected_next=0)
        assert values(log) == [b"winner"]


class CopyContract(LogCase):
    """A batch that its producer sent before is not stored again; its first offset is returned."""

    def _dedupes(self, bus: Bus, log: Log) -> None:
        if bus.promises.dedupe:
            return
        # Where the bus does not drop copies, readers must be able to.
        batch = Producer().batch(b"a", b"b")
        log.append([batch])
        log.append([batch])
        assert [(view.producer, view.sequence, view.count) for view in views(log)] == [(batch.producer, 0, 2)] * 2
        pytest.skip("the bus stores copies, and says so")

    def test_a_copy_is_not_added_and_its_first_offset_is_returned(self, bus: Bus, log: Log, producer: Producer) -> None:
        self._dedupes(bus, log)
        batches = [producer.batch(b"a", b"b"), producer.batch(b"c")]
        bases = log.append(batches)
        assert log.append(batches) == bases
        assert log.append(batches[1:]) == bases[1:]
        assert values(log) == [b"a", b"b", b"c"]

    def test_the_first_offset_is_found_behind_the_records_of_others(
        self, bus: Bus, log: Log, producer: Producer
    ) -> None:
        self._dedupes(bus, log)
        first, second = producer.batch(b"a"), producer.batch(b"b", b"c")
        bases = log.append([first])
        log.append([Producer("other").batch(b"x")])
        bases += log.append([second])
        assert [log.append([first])[0], log.append([second])[0]] == bases

    def test_copies_and_new_batches_may_come_together(self, bus: Bus, log: Log, producer: Producer) -> None:
        self._dedupes(bus, log)
        old, new = producer.batch(b"a"), producer.batch(b"b")
        [base] = log.append([old])
        assert log.append([old, new])[0] == base
        assert values(log) == [b"a", b"b"]

    def test_the_same_bytes_of_two_producers_are_two_records(self, log: Log) -> None:
        log.append([Producer("a").batch(b"same")])
        log.append([Producer("b").batch(b"same")])
        assert values(log) == [b"same", b"same"]

    def test_a_copy_is_known_to_every_handle(self, bus: Bus, log: Log, same_bus: Bus, producer: Producer) -> None:
        self._dedupes(bus, log)
        batch = producer.batch(b"a")
        assert log.append([batch]) == same_bus.open(log.name).append([batch])
        assert values(log) == [b"a"]


class _Unstorable:
    """Not a batch: it has none of what a batch has."""


def _numbered(name: str) -> list[bytes]:
    return [f"{name}{number}".encode() for number in range(25)]


def _append_numbered(log: Log, name: str) -> None:
    producer = Producer(name)
    for value in _numbered(name):
        batch: Batch = producer.batch(value)
        log.append([batch])


def _read_100(log: Log, rows: list[tuple[int, bytes]]) -> None:
    at = 0
    while len(rows) < 100:
        rows += records(log, at)
        at = rows[-1][0] + 1 if rows else 0
