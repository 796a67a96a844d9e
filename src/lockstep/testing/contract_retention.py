"""Forgetting: by hand, by count, bytes and age, and never what a hold protects."""

from __future__ import annotations

import pytest

from lockstep.errors import StoreFull, Trimmed
from lockstep.log.batch import HEADER
from lockstep.log.config import StreamConfig
from lockstep.log.port import Bounds, Bus, Log
from lockstep.testing.contract_case import KEEP_ALL, LogCase, Producer, records, unsupported, values, views

_APPENDS_MAX = 100_000


class TrimContract(LogCase):
    """Trimmed records can't be read again, the others stay, and offsets are never used twice."""

    def test_trimmed_records_are_gone_and_the_others_stay(self, log: Log, producer: Producer) -> None:
        bases = log.append([producer.batch(b"a"), producer.batch(b"b"), producer.batch(b"c")])
        log.trim(bases[1])
        assert log.bounds().first == bases[1]
        assert records(log) == [(bases[1], b"b"), (bases[2], b"c")]

    def test_trimming_inside_a_batch_makes_the_rest_readable(self, log: Log, producer: Producer) -> None:
        [base] = log.append([producer.batch(b"a", b"b", b"c")])
        log.trim(base + 2)
        assert log.bounds() == Bounds(base + 2, base + 3)
        assert records(log) == [(base + 2, b"c")]

    @pytest.mark.parametrize("offset", [0, 1])
    def test_reading_below_the_first_offset_says_trimmed(self, log: Log, producer: Producer, offset: int) -> None:
        log.append([producer.batch(b"a", b"b", b"c")])
        log.trim(2)
        with pytest.raises(Trimmed) as caught:
            log.read(offset)
        assert caught.value.params == {"offset": offset, "stream": "orders", "first": 2}

    def test_trimming_never_goes_back(self, log: Log, producer: Producer) -> None:
        log.append([producer.batch(b"a", b"b", b"c")])
        log.trim(2)
        log.trim(1)
        log.trim(0)
        assert log.bounds().first == 2

    def test_trimming_beyond_the_end_trims_what_there_is(self, log: Log, producer: Producer) -> None:
        log.append([producer.batch(b"a", b"b")])
        end = log.bounds().next
        log.trim(end + 1000)
        assert log.bounds() == Bounds(end, end)
        assert log.read(end) == []

    def test_offsets_are_not_used_again_after_trimming_everything(self, log: Log, producer: Producer) -> None:
        log.append([producer.batch(b"a", b"b")])
        end = log.bounds().next
        log.trim(end)
        [base] = log.append([producer.batch(b"c")])
        assert base >= end
        assert records(log) == [(base, b"c")]

    def test_trimming_many_batches(self, log: Log, producer: Producer) -> None:
        bases = log.append([producer.batch(b"%d" % number) for number in range(1000)])
        log.trim(bases[990])
        assert len(values(log)) == 10
        assert log.read(bases[990])[0].base == bases[990]

    def test_every_handle_sees_the_trim(self, log: Log, same_bus: Bus, producer: Producer) -> None:
        other = same_bus.open(log.name)
        log.append([producer.batch(b"a", b"b")])
        log.trim(1)
        assert other.bounds() == log.bounds()
        with pytest.raises(Trimmed):
            other.read(0)


class RetentionContract(LogCase):
    """`capacity`, `retain_bytes` and `retain_age_s` drop the oldest records; without limits everything stays."""

    def test_capacity_keeps_the_last_records(self, bus: Bus, producer: Producer) -> None:
        log = self.create_retaining(bus, "capacity", StreamConfig(capacity=5))
        for number in range(0, 12, 3):
            log.append([producer.batch(*(b"%d" % at for at in range(number, number + 3)))])
        assert values(log) == [b"7", b"8", b"9", b"10", b"11"]

    def test_capacity_holds_within_one_append(self, bus: Bus, producer: Producer) -> None:
        log = self.create_retaining(bus, "capacity", StreamConfig(capacity=3))
        for _ in range(3):
            log.append([producer.batch(b"%d" % number) for number in range(600)])
        assert values(log) == [b"597", b"598", b"599"]

    def test_a_batch_above_the_capacity_keeps_its_last_records(self, bus: Bus, producer: Producer) -> None:
        log = self.create_retaining(bus, "capacity", StreamConfig(capacity=2))
        log.append([producer.batch(b"a", b"b", b"c")])
        assert values(log) == [b"b", b"c"]

    def test_bytes_keep_the_last_batches(self, bus: Bus, producer: Producer) -> None:
        config = StreamConfig(capacity=None, retain_bytes=3 * (HEADER.size + 1000))
        log = self.create_retaining(bus, "bytes", config)
        for number in range(10):
            log.append([producer.batch(b"%d" % number * 1000)])
        assert values(log) == [b"7" * 1000, b"8" * 1000, b"9" * 1000]

    def test_bytes_always_keep_the_last_batch(self, bus: Bus, producer: Producer) -> None:
        log = self.create_retaining(bus, "bytes", StreamConfig(capacity=None, retain_bytes=1))
        log.append([producer.batch(b"a"), producer.batch(b"b", b"c")])
        assert values(log) == [b"b", b"c"]

    def test_age_drops_old_batches(self, bus: Bus, producer: Producer) -> None:
        log = self.create_retaining(bus, "age", StreamConfig(capacity=None, retain_age_s=0.02))
        log.append([producer.batch(b"old")])
        for _ in range(_APPENDS_MAX):
            if log.bounds().first > 0:
                break
            self.let_time_pass()
            log.append([producer.batch(b"new")])
        assert set(values(log)) == {b"new"}

    def test_without_limits_everything_stays(self, log: Log, producer: Producer) -> None:
        for number in range(300):
            log.append([producer.batch(b"%d" % number)])
        assert values(log) == [b"%d" % number for number in range(300)]


class ProtectContract(LogCase):
    """A protected stream keeps everything from a hold on; when `protect_bytes` are used, appends are refused."""

    def _protected(self, bus: Bus, ceiling: int = 1 << 20) -> Log:
        if "protect" not in bus.promises.retention:
            log = bus.create("plain", KEEP_ALL)
            with unsupported():
                log.hold("group", 0)
        config = StreamConfig(capacity=1, protect=True, protect_bytes=ceiling)
        return self.create_retaining(bus, "protect", config)

    def test_a_hold_keeps_everything_from_its_offset_on(self, bus: Bus, producer: Producer) -> None:
        log = self._protected(bus)
        bases = log.append([producer.batch(b"a")])
        log.hold("group", bases[0])
        log.append([producer.batch(b"b")])
        log.append([producer.batch(b"c")])
        assert values(log) == [b"a", b"b", b"c"]

    def test_the_slowest_holder_counts(self, bus: Bus, producer: Producer) -> None:
        log = self._protected(bus)
        log.hold("slow", 0)
        bases = [log.append([producer.batch(value)])[0] for value in (b"a", b"b", b"c", b"d")]
        log.hold("fast", bases[2])
        log.hold("slow", bases[1])
        log.append([producer.batch(b"e")])
        assert values(log) == [b"b", b"c", b"d", b"e"]

    def test_retention_goes_on_when_a_hold_moves_or_ends(self, bus: Bus, producer: Producer) -> None:
        log = self._protected(bus)
        log.hold("group", 0)
        bases = [log.append([producer.batch(b"%d" % number)])[0] for number in range(5)]
        log.hold("group", bases[3])
        log.append([producer.batch(b"5")])
        assert values(log) == [b"3", b"4", b"5"]
        log.hold("group", None)
        log.append([producer.batch(b"6")])
        assert values(log) == [b"6"]

    def test_letting_go_of_nothing_is_fine(self, bus: Bus) -> None:
        self._protected(bus).hold("nobody", None)

    def test_at_the_ceiling_appends_are_refused_and_nothing_is_lost(self, bus: Bus, producer: Producer) -> None:
        log = self._protected(bus, ceiling=3 * (HEADER.size + 100))
        log.hold("group", 0)
        for number in range(3):
            log.append([producer.batch(b"%d" % number * 100)])
        refused = producer.batch(b"3" * 100)
        with pytest.raises(StoreFull, match="protect_bytes"):
            log.append([refused])
        assert values(log) == [b"0" * 100, b"1" * 100, b"2" * 100]
        # And when the group has confirmed, the same batch gets in, once
        log.hold("group", log.bounds().next)
        log.append([refused])
        assert [view.sequence for view in views(log)].count(refused.sequence) == 1
        assert values(log)[-1] == b"3" * 100

    def test_what_may_go_makes_room_before_anything_is_refused(self, bus: Bus, producer: Producer) -> None:
        # Given many small batches that nobody needs any more
        log = self._protected(bus, ceiling=1000 * (HEADER.size + 1))
        log.hold("group", 0)
        for _ in range(10):
            log.append([producer.batch(b"x") for _ in range(100)])
        log.hold("group", log.bounds().next)
        # When one comes that needs the room of most of them
        large = b"y" * (900 * HEADER.size)
        log.append([producer.batch(large)])
        # Then it gets it
        assert values(log)[-1] == large
