"""Reading: the same for everybody, from anywhere, changing nothing; and bytes come back as they were."""

from __future__ import annotations

import random

import pytest

from lockstep.log.batch import Headers
from lockstep.log.port import Bounds, Bus, Log
from lockstep.testing.contract_case import LogCase, Producer, records, values, views

_PAYLOADS = {
    "empty": b"",
    "one byte": b"\x00",
    "every byte": bytes(range(256)),
    "one mebibyte": random.Random(1).randbytes(1 << 20),
}
_KEYS: dict[str, list[bytes | None]] = {
    "none": [None, None],
    "empty": [b"", b""],
    "mixed": [None, b"k" * 300],
    "binary": [bytes(range(256)), b""],
}
_HEADERS: dict[str, list[Headers]] = {
    "none": [(), ()],
    "one": [(("trace", b"\x00\xff"),), ()],
    "repeated": [(("tag", b"a"), ("tag", b"b"), ("tag", b"a")), (("", b""),)],
    "words": [(("größe", b""),), (("x" * 1000, b"y" * 5000),)],
}


class ReadContract(LogCase):
    """Reads return the same batches to every reader and change nothing; bounds give the readable range."""

    def test_a_new_log_is_empty(self, log: Log) -> None:
        assert log.read(0) == []
        assert log.bounds() == Bounds(0, 0)
        assert log.bounds().count == 0

    def test_reading_at_and_behind_the_end_is_empty(self, log: Log, producer: Producer) -> None:
        log.append([producer.batch(b"a")])
        end = log.bounds().next
        assert log.read(end) == []
        assert log.read(end + 1000) == []

    def test_bounds_are_the_first_offset_and_the_one_after_the_last_record(self, log: Log, producer: Producer) -> None:
        log.append([producer.batch(b"a", b"b")])
        [base] = log.append([producer.batch(b"c", b"d", b"e")])
        assert log.bounds() == Bounds(0, base + 3)

    @pytest.mark.parametrize("inside", [0, 1, 2])
    def test_an_offset_inside_a_batch_reads_that_batch(self, log: Log, producer: Producer, inside: int) -> None:
        log.append([producer.batch(b"a")])
        [base] = log.append([producer.batch(b"b", b"c", b"d")])
        log.append([producer.batch(b"e")])
        assert [view.values() for view in views(log, base + inside)] == [(b"b", b"c", b"d"), (b"e",)]

    def test_a_read_returns_one_batch_however_small_the_limit(self, log: Log, producer: Producer) -> None:
        log.append([producer.batch(b"x" * 5000), producer.batch(b"y" * 5000)])
        assert len(log.read(0, max_bytes=1)) == 1

    def test_a_read_ends_soon_after_its_limit(self, log: Log, producer: Producer) -> None:
        log.append([producer.batch(b"x" * 1000) for _ in range(50)])
        found = log.read(0, max_bytes=10_000)
        assert 1 <= len(found) < 50
        assert values(log) == [b"x" * 1000] * 50

    def test_reading_changes_nothing(self, log: Log, producer: Producer) -> None:
        log.append([producer.batch(b"a", b"b"), producer.batch(b"c")])
        before = log.bounds(), log.read(0)
        for offset in (2, 0, 1, 0):
            log.read(offset)
        assert (log.bounds(), log.read(0)) == before

    def test_reading_again_asks_the_store(self, log: Log, producer: Producer) -> None:
        log.append([producer.batch(b"a", b"b"), producer.batch(b"c")])
        stored = log.read(0)
        for entry in stored:
            assert log.reread(entry.base) == entry
        assert log.reread(stored[0].base + 1) == stored[0]
        assert log.reread(log.bounds().next) is None
        log.append([producer.batch(b"d")])
        assert log.reread(log.bounds().next - 1) == log.read(log.bounds().next - 1)[-1]
        assert values(log) == [b"a", b"b", b"c", b"d"]

    def test_two_handles_see_the_same(self, log: Log, same_bus: Bus, producer: Producer) -> None:
        other = same_bus.open(log.name)
        log.append([producer.batch(b"a", b"b")])
        other.append([Producer("other").batch(b"c")])
        assert other.read(0) == log.read(0)
        assert other.bounds() == log.bounds()
        assert (other.name, other.identity, other.config) == (log.name, log.identity, log.config)

    def test_logs_of_a_bus_do_not_mix(self, bus: Bus, log: Log, producer: Producer) -> None:
        other = bus.create("other", log.config)
        log.append([producer.batch(b"a")])
        other.append([producer.batch(b"b"), producer.batch(b"c")])
        assert (values(log), values(other)) == ([b"a"], [b"b", b"c"])

    def test_append_times_never_go_back(self, log: Log, producer: Producer) -> None:
        for _ in range(5):
            log.append([producer.batch(b"a")])
            self.let_time_pass()
        stamps = [view.append_ns for view in views(log)]
        assert stamps == sorted(stamps)


class RoundTripContract(LogCase):
    """What was appended is read, byte for byte."""

    @pytest.mark.parametrize("name", _PAYLOADS)
    def test_values(self, log: Log, producer: Producer, name: str) -> None:
        value = _PAYLOADS[name]
        log.append([producer.batch(value), producer.batch(value, b"behind"), producer.batch(value, value)])
        assert values(log) == [value, value, b"behind", value, value]

    @pytest.mark.parametrize("name", _KEYS)
    def test_keys(self, log: Log, producer: Producer, name: str) -> None:
        log.append([producer.batch(b"a", b"bb", keys=_KEYS[name])])
        [view] = views(log)
        assert list(view.keys()) == _KEYS[name]
        assert view.values() == (b"a", b"bb")

    @pytest.mark.parametrize("name", _HEADERS)
    def test_headers(self, log: Log, producer: Producer, name: str) -> None:
        log.append([producer.batch(b"a", b"bb", keys=[b"k", None], headers=_HEADERS[name])])
        [view] = views(log)
        assert list(view.headers()) == _HEADERS[name]
        assert (view.keys(), view.values()) == ((b"k", None), (b"a", b"bb"))

    def test_who_sent_it_and_when_it_was_made(self, log: Log, producer: Producer) -> None:
        log.append([producer.batch(b"a", b"b"), producer.batch(b"c")])
        assert [(view.producer, view.sequence, view.created_ns) for view in views(log)] == [
            (producer.id, 0, 1),
            (producer.id, 2, 1),
        ]

    def test_a_thousand_records(self, log: Log, producer: Producer) -> None:
        sent = [b"%d" % number for number in range(1000)]
        for start in range(0, 1000, 50):
            log.append([producer.batch(*sent[start : start + 50])])
        assert [value for _, value in records(log)] == sent
