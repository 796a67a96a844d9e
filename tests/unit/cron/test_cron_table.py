"""Many crons in columns: slots, order, windows and changes."""

from __future__ import annotations

from datetime import UTC as datetime_utc
from datetime import datetime, timedelta

import pytest

from lockstep.cron import UTC, Zone, parse
from lockstep.cron.table import CronTable
from lockstep.errors import BadArgument

MIDNIGHT = 1_767_225_600  # 2026-01-01, a Thursday
BERLIN = Zone("Europe/Berlin")


def found(table: CronTable, start: int, stop: int) -> list[tuple[int, int]]:
    slots, seconds = table.due(MIDNIGHT + start, MIDNIGHT + stop)
    return [(second - MIDNIGHT, slot) for slot, second in zip(slots.tolist(), seconds.tolist(), strict=True)]


def test_an_empty_table_has_nothing() -> None:
    assert (len(CronTable()), found(CronTable(), 0, 3600)) == (0, [])
    assert found(CronTable.of([]), 0, 3600) == []


def test_a_window_begins_after_its_start_and_ends_with_its_stop() -> None:
    table = CronTable.of([(parse("* * * * *"), UTC)])
    assert found(table, 0, 60) == [(60, 0)]
    assert found(table, -1, 0) == [(0, 0)]
    assert found(table, 0, 59) == []
    assert found(table, 5, 5) == []
    assert found(table, 60, 0) == []


def test_second_by_second_gives_the_same_as_at_once() -> None:
    texts = ["*/7 * * * * ?", "0 * * * * ?", "59 0/2 * * * ?", "30-32 1 0 ? * THU"]
    table = CronTable.of([(parse(text, "QUARTZ"), UTC) for text in texts])
    at_once = found(table, -1, 300)
    assert at_once == [each for second in range(-1, 300) for each in found(table, second, second + 1)]
    assert (30 + 60, 3) in at_once


def test_order_is_by_second_and_then_by_slot_across_zones() -> None:
    table = CronTable.of([(parse("0 1 * * *"), BERLIN), (parse("0 0 * * *"), UTC), (parse("0 1 * * *"), BERLIN)])
    assert found(table, -1, 0) == [(0, 0), (0, 1), (0, 2)]


def test_slots_are_added_removed_and_replaced() -> None:
    minute, hour = parse("* * * * *"), parse("0 * * * *")
    table = CronTable.of([(minute, UTC), (hour, BERLIN), (minute, UTC)])
    assert found(table, 0, 60) == [(60, 0), (60, 2)]
    table.remove(0)
    assert (len(table), found(table, 0, 60)) == (2, [(60, 2)])
    assert (table.add(minute, BERLIN), table.add(hour, UTC)) == (0, 3)
    assert found(table, 0, 60) == [(60, 0), (60, 2)]
    table.replace(2, hour, BERLIN)
    assert found(table, 0, 60) == [(60, 0)]
    assert found(table, 3540, 3600) == [(3600, slot) for slot in range(4)]


def test_a_change_within_a_minute_counts_at_once() -> None:
    table = CronTable.of([(parse("0 * * * * ?", "QUARTZ"), UTC)])
    assert found(table, 0, 10) == []
    slot = table.add(parse("20 * * * * ?", "QUARTZ"), UTC)
    assert found(table, 10, 30) == [(20, slot)]
    table.remove(slot)
    assert found(table, 10, 30) == []


@pytest.mark.parametrize("slot", [-1, 1, 2, 100])
def test_a_slot_without_a_cron_can_not_be_changed(slot) -> None:
    table = CronTable.of([(parse("* * * * *"), UTC), (parse("* * * * *"), UTC)])
    table.remove(1)
    with pytest.raises(BadArgument, match="it has no cron"):
        table.remove(slot)
    with pytest.raises(BadArgument, match="it has no cron"):
        table.replace(slot, parse("* * * * *"), UTC)


def test_calendars_that_nobody_has_any_more_are_forgotten() -> None:
    table = CronTable.of([(parse("0 0 1 1 *"), UTC), (parse("0 1 2 * *"), BERLIN)])
    for number in range(3000):
        date, month, weekday = number % 28 + 1, number // 28 % 12 + 1, number // 336 % 7
        table.replace(0, parse(f"0 0 {date} {month} {weekday}"), UTC)
    table.replace(0, parse("0 0 * 1 4"), UTC)
    assert table._calendars.size <= 2 * len(table) + 1024
    assert found(table, -1, 86_400) == [(0, 0), (86_400, 1)]


@pytest.mark.parametrize(
    ("name", "hour"),
    [
        ("Europe/Berlin", "2026-03-29T00:50"),
        ("Europe/Berlin", "2026-10-25T00:10"),
        ("Europe/Berlin", "2026-10-25T01:10"),
        ("Australia/Lord_Howe", "2026-10-03T15:10"),
        ("Australia/Lord_Howe", "2026-04-04T14:50"),
        ("America/St_Johns", "2006-10-29T02:10"),
        ("Europe/Berlin", "1880-01-01T00:00"),
        ("Europe/Berlin", "1893-03-31T22:50"),
    ],
)
def test_hours_in_which_clocks_are_changed_or_show_odd_seconds(name, hour) -> None:
    texts = ["*/5 * * * *", "30 2 * * *", "* 2 * * *", "0 3 * * *", "15,45 1-3 * * *", "45 * * * *", "* 0,1,23 * * *"]
    crons = [(parse(text), Zone(name, dst)) for text in texts for dst in ("once", "literal")]
    start = datetime.fromisoformat(hour).replace(tzinfo=datetime_utc)
    stop = start + timedelta(minutes=50)
    expected = sorted(
        (int(at.timestamp()), slot) for slot, (cron, zone) in enumerate(crons)
        for at in cron.occurrences(start, stop, zone)
    )  # fmt: skip
    slots, seconds = CronTable.of(crons).due(int(start.timestamp()), int(stop.timestamp()))
    assert list(zip(seconds.tolist(), slots.tolist(), strict=True)) == expected


def test_many_crons_grow_and_shrink() -> None:
    table = CronTable()
    slots = [table.add(parse(f"{number % 60} * * * *"), UTC) for number in range(1000)]
    assert slots == [*range(1000)]
    for slot in slots[::2]:
        table.remove(slot)
    assert [slot for _, slot in found(table, 0, 60)] == [slot for slot in range(1000) if slot % 60 == 1]
    assert found(table, 60, 120) == []
