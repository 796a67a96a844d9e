"""Streams read as rows: ranges, shards, admission control, rows that are gone. The classes as Spark would call them."""

from __future__ import annotations

import json
import logging
import pickle
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import lockstep
from lockstep.engine.errors import BusNotShared, RowsLost
from lockstep.engine.spark.rows import LockstepSource
from lockstep.engine.spark.rows_columns import DEFAULT, arrow_schema, schema_of
from lockstep.engine.spark.rows_options import ReadOptions
from lockstep.engine.spark.rows_positions import after
from lockstep.engine.spark.rows_reader import RowRange, RowReader, RowStreamReader, spread
from lockstep.errors import BadConfig, BadOffset, GroupBusy, StreamNotFound
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.config import StreamConfig

sys.path.append(str(Path(__file__).parents[1] / "contract"))
from strided_bus import StridedBus

KEEP = StreamConfig(capacity=None)


@pytest.fixture
def bus(tmp_path):
    with lockstep.connect(f"lmdb:{tmp_path}/bus?durability=relaxed") as made:
        yield made


def publish(bus, stream: str, values, **more) -> None:
    with bus.publisher(stream) as publisher:
        for value in values:
            publisher.publish(value, **more).result()


def numbers(first: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, stop)]


def batch_reader(bus, stream: str, columns=DEFAULT, **options: str) -> RowReader:
    url = bus.url.partition("?")[0]
    return RowReader(ReadOptions.of({"url": url, "stream": stream, **options}, streaming=False), schema_of(columns))


def stream_reader(bus, stream: str, columns=("value",), **options: str) -> RowStreamReader:
    url = bus.url.partition("?")[0]
    made = ReadOptions.of({"url": url, "stream": stream, **options}, streaming=True)
    return RowStreamReader(made, schema_of(columns))


def rows_of(reader, parts) -> list[dict]:
    parts = pickle.loads(pickle.dumps(parts))
    worker = pickle.loads(pickle.dumps(reader))  # as Spark sends it
    return [row for part in parts for found in worker.read(part) for row in found.to_pylist()]


def values_of(reader, parts) -> list[bytes]:
    return [row["value"] for row in rows_of(reader, parts)]


def run(reader: RowStreamReader, start=None, limit=None) -> list[list[bytes]]:
    """All batches of an availableNow run, as Spark makes them."""
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset() if start is None else start
    batches = []
    while (end := reader.latestOffset(start, limit or reader.getDefaultReadLimit())) != start:
        start, end = (json.loads(json.dumps(position)) for position in (start, end))
        batches.append(values_of(reader, reader.partitions(start, end)))
        start = end
    return batches


# --- batch -------------------------------------------------------------------------------------------------------


def test_a_row_is_a_record_with_all_its_parts(bus):
    bus.create("orders", KEEP)
    with bus.publisher("orders") as publisher:
        publisher.publish(b"a", key=b"k", headers=[("h", b"1"), ("h", b"2")]).result()
        publisher.publish(b"").result()
    first, second = rows_of(reader := batch_reader(bus, "orders"), reader.partitions())
    record = bus.get("orders", 0)
    assert first == {
        "offset": 0,
        "key": b"k",
        "value": b"a",
        "headers": [{"name": "h", "value": b"1"}, {"name": "h", "value": b"2"}],
        "time": datetime.fromtimestamp(record.created_ns // 10**9, UTC).replace(
            microsecond=record.created_ns // 1000 % 10**6
        ),
    }
    assert (second["key"], second["value"], second["headers"]) == (None, b"", [])


def test_batches_have_exactly_the_schema_that_spark_expects(bus):
    publish(bus, "orders", [b"a"])
    columns = ("stream", "appended", "offset", "key", "value", "headers", "time")
    reader = batch_reader(bus, "orders", columns)
    [found] = reader.read(reader.partitions()[0])
    assert found.schema.equals(arrow_schema(schema_of(columns)))
    assert found.to_pylist()[0]["stream"] == "orders"
    assert found.to_pylist()[0]["appended"] >= found.to_pylist()[0]["time"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (0, 20)),
        ({"startingOffset": "latest"}, (20, 20)),
        ({"startingOffset": "5", "endingOffset": "9"}, (5, 9)),
        ({"startingOffset": "20"}, (20, 20)),
        ({"startingOffset": '{"orders": 18}', "endingOffset": "latest"}, (18, 20)),
        ({"endingOffset": "earliest"}, (0, 0)),
    ],
)
def test_ranges_of_offsets(bus, options, expected):
    publish(bus, "orders", numbers(0, 20))
    reader = batch_reader(bus, "orders", **options)
    assert values_of(reader, reader.partitions()) == numbers(*expected)


def test_ranges_cut_stored_batches(bus):
    bus.create("orders", KEEP)
    log = bus.bus.open("orders")
    log.append([pack(numbers(0, 10), producer=NO_PRODUCER, sequence=0, created_ns=0)])
    log.append([pack(numbers(10, 20), producer=NO_PRODUCER, sequence=0, created_ns=0)])
    reader = batch_reader(bus, "orders", startingOffset="3", endingOffset="14")
    rows = rows_of(reader, reader.partitions())
    assert [row["offset"] for row in rows] == list(range(3, 14))
    assert [row["value"] for row in rows] == numbers(3, 14)


def test_ranges_of_times_look_at_when_records_were_appended(bus):
    publish(bus, "orders", numbers(0, 5))
    edge = bus.get("orders", 3).appended_ns // 1000 + 1  # the next microsecond
    text = datetime.fromtimestamp(edge // 10**6, UTC).replace(microsecond=edge % 10**6).isoformat()
    earlier = batch_reader(bus, "orders", endingTime=text)
    later = batch_reader(bus, "orders", startingTime=text)
    before, behind = (values_of(reader, reader.partitions()) for reader in (earlier, later))
    assert before + behind == numbers(0, 5)
    assert numbers(0, 4) == before[:4]


def test_an_offset_beyond_the_end_and_an_end_before_the_beginning_are_refused(bus):
    publish(bus, "orders", numbers(0, 5))
    for option in ("startingOffset", "endingOffset"):
        with pytest.raises(BadOffset, match=rf"Offset 6 of orders is not valid: {option} lies beyond the end"):
            batch_reader(bus, "orders", **{option: "6"}).partitions()
    with pytest.raises(BadConfig, match=r"endingOffset.*ends orders at 2, before it begins at 4"):
        batch_reader(bus, "orders", startingOffset="4", endingOffset="2").partitions()


def test_a_missing_stream_is_named_at_once(bus):
    with pytest.raises(StreamNotFound, match=r"'orders' does not exist"):
        LockstepSource({"url": bus.url.partition("?")[0], "stream": "orders"}).schema()


def test_every_shard_is_a_partition_and_its_rows_tell_so(bus):
    bus.create("orders", StreamConfig(shards=3))
    with bus.publisher("orders") as publisher:
        for number in range(60):
            publisher.publish(b"%d" % number, key=b"%d" % (number % 17)).result()
    source = LockstepSource({"url": bus.url.partition("?")[0], "stream": "orders"})
    assert source.schema().fieldNames() == [*DEFAULT, "stream"]
    reader = source.reader(source.schema())
    parts = reader.partitions()
    assert [part.log for part in parts] == ["orders/0", "orders/1", "orders/2"]
    rows = rows_of(reader, parts)
    assert {row["value"] for row in rows} == set(numbers(0, 60))
    assert all(row["stream"] == f"orders/{lockstep.shard_of(row['key'], 3)}" for row in rows)
    one = batch_reader(bus, "orders", startingOffset='{"0": "latest", "1": 2, "orders/2": "latest"}')
    assert [(part.log, part.start) for part in one.partitions()] == [("orders/1", 2)]


def test_several_streams_are_read_together_and_none_twice(bus):
    publish(bus, "a", [b"1"])
    publish(bus, "b", [b"2"])
    reader = batch_reader(bus, "b, a", ("stream", "value"))
    assert [tuple(row.values()) for row in rows_of(reader, reader.partitions())] == [("b", b"2"), ("a", b"1")]
    bus.create("c", StreamConfig(shards=2))
    with pytest.raises(BadConfig, match=r"c/1 would be read twice"):
        batch_reader(bus, "c,c/1").partitions()


def test_columns_are_those_asked_for(bus):
    publish(bus, "orders", [b"1"])
    options = {"url": bus.url.partition("?")[0], "stream": "orders", "columns": "value, appended"}
    assert LockstepSource(options).schema().fieldNames() == ["value", "appended"]


def test_a_folder_of_the_same_name_elsewhere_is_another_bus(bus):
    publish(bus, "orders", [b"1"])
    reader = batch_reader(bus, "orders")
    [part] = reader.partitions()
    away = RowRange(part.log, part.identity, part.start, part.stop, "elsewhere")
    with pytest.raises(BusNotShared, match=r"on host elsewhere only"):
        list(reader.read(away))


# --- streaming ---------------------------------------------------------------------------------------------------


def test_all_rows_come_in_batches_of_at_most_the_wanted_size(bus):
    publish(bus, "orders", numbers(0, 25))
    batches = run(stream_reader(bus, "orders", maxRecordsPerTrigger="10"))
    assert batches == [numbers(0, 10), numbers(10, 20), numbers(20, 25)]


def test_all_that_is_there_is_taken_if_spark_asks_for_all(bus):
    publish(bus, "orders", numbers(0, 25))
    assert run(stream_reader(bus, "orders", maxRecordsPerTrigger="10"), limit=ReadAllAvailable()) == [numbers(0, 25)]
    assert stream_reader(bus, "orders").getDefaultReadLimit() == ReadAllAvailable()
    assert stream_reader(bus, "orders", maxRecordsPerTrigger="10").getDefaultReadLimit() == ReadMaxRows(10)


def test_available_now_ends_with_what_was_there_when_it_began(bus):
    publish(bus, "orders", numbers(0, 4))
    reader = stream_reader(bus, "orders", maxRecordsPerTrigger="3")
    reader.prepareForTriggerAvailableNow()
    publish(bus, "orders", numbers(4, 9))
    middle = reader.latestOffset(reader.initialOffset(), ReadMaxRows(3))
    end = reader.latestOffset(middle, ReadMaxRows(3))
    assert values_of(reader, reader.partitions(middle, end)) == [b"3"]
    assert reader.latestOffset(end, ReadMaxRows(3)) == end
    assert reader.reportLatestOffset()["orders"]["next"] == 9


def test_a_batch_run_again_reads_the_same_rows(bus):
    publish(bus, "orders", numbers(0, 5))
    reader = stream_reader(bus, "orders")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    publish(bus, "orders", numbers(5, 9))
    again = stream_reader(bus, "orders")
    assert values_of(again, again.partitions(start, end)) == numbers(0, 5)


def test_the_first_batch_from_latest_run_again_reads_the_same_rows(bus):
    # Given a query that begins at the end, and is killed in its first batch
    publish(bus, "orders", numbers(0, 5))
    killed = stream_reader(bus, "orders", startingOffset="latest")
    start = killed.initialOffset()
    publish(bus, "orders", numbers(5, 8))
    assert killed.initialOffset() == start
    end = killed.latestOffset(start, ReadAllAvailable())
    # When it starts again, and Spark asks once more where it begins
    again = stream_reader(bus, "orders", startingOffset="latest")
    # Then the batch has the rows that it had
    assert values_of(again, again.partitions(again.initialOffset(), end)) == numbers(5, 8)


def test_an_open_bus_does_not_travel(bus):
    publish(bus, "orders", [b"1"])
    reader = stream_reader(bus, "orders")
    reader.initialOffset()
    assert pickle.loads(pickle.dumps(reader))._bus is None
    reader.stop()
    reader.stop()
    assert reader.reportLatestOffset()["orders"]["next"] == 1


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=8), st.integers(1, 9), st.integers(1, 3))
def test_gaps_between_offsets_change_nothing(sizes, rows, shards):
    # Given a bus whose offsets have gaps, and stored batches of any size
    bus = StridedBus()
    names = [f"s{shard}" for shard in range(shards)]
    written: dict[str, list[bytes]] = {name: [] for name in names}
    logs = [bus.create(name, KEEP) for name in names]
    for number, size in enumerate(sizes):
        log = logs[number % shards]
        values = [b"%d-%d" % (number, index) for index in range(size)]
        log.append([pack(values, producer=NO_PRODUCER, sequence=0, created_ns=0)])
        written[log.name] += values
    bus.close = lambda: None
    options = ReadOptions.of(
        {"url": "strided:", "stream": ",".join(names), "maxRecordsPerTrigger": str(rows)}, streaming=True
    )
    reader = RowStreamReader(options, schema_of(("value", "stream")), open_url=lambda url: bus)
    # When all is read in batches
    reader.prepareForTriggerAvailableNow()
    start, read = reader.initialOffset(), {name: [] for name in names}
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        found = [row for part in reader.partitions(start, end) for b in reader.read(part) for row in b.to_pylist()]
        # Then no batch is too large
        assert len(found) <= rows
        for row in found:
            read[row["stream"]].append(row["value"])
        start = end
    # And each log's rows are all there, in order
    assert read == written


def test_counting_rows_stops_at_the_range(bus):
    publish(bus, "orders", numbers(0, 9))
    log = bus.bus.open("orders")
    assert after(log, 2, 9, 3) == 5
    assert after(log, 2, 4, 100) == 4
    log.trim(6)
    assert after(log, 2, 9, 3) == 6  # gone meanwhile: the task that reads the range says so


# --- as a group --------------------------------------------------------------------------------------------------


def test_a_query_is_seen_as_a_group(bus):
    bus.create("orders", StreamConfig(shards=2, capacity=None))
    with bus.publisher("orders") as publisher:
        for number in range(20):
            publisher.publish(b"%d" % number, key=b"%d" % number).result()
    reader = stream_reader(bus, "orders", group="report", maxRecordsPerTrigger="8")
    middle = reader.latestOffset(reader.initialOffset(), ReadMaxRows(8))
    reader.latestOffset(middle, ReadMaxRows(8))
    reader.commit(middle)
    reader.commit(middle)
    progress = {found.stream: found for found in bus.groups.describe("report").streams}
    assert {name: found.next for name, found in progress.items()} == {
        name: position["next"] for name, position in middle.items()
    }
    assert sum(found.lag for found in progress.values()) == 12
    # a later run of the query goes on in the same group
    again = stream_reader(bus, "orders", group="report")
    end = again.latestOffset(middle, ReadAllAvailable())
    again.commit(end)
    assert sum(found.lag for found in bus.groups.describe("report").streams) == 0


def test_a_protected_stream_keeps_what_the_query_has_not_read(bus):
    bus.create("orders", StreamConfig(capacity=5, protect=True))
    publish(bus, "orders", numbers(0, 4))
    reader = stream_reader(bus, "orders", group="report")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    publish(bus, "orders", numbers(4, 30))
    assert values_of(reader, reader.partitions(start, end)) == numbers(0, 4)
    assert bus.bounds("orders").first == 0
    reader.commit(end)
    publish(bus, "orders", numbers(30, 31))
    assert bus.bounds("orders").first == 4


def test_a_group_with_members_is_not_for_queries(bus):
    publish(bus, "orders", numbers(0, 4))
    with bus.subscriber("orders", group="report") as subscriber:
        assert subscriber.poll(timeout=5)
        reader = stream_reader(bus, "orders", group="report")
        with pytest.raises(GroupBusy, match="'report' is at work on orders"):
            reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


def test_a_long_query_keeps_its_group_log_short(bus, monkeypatch):
    monkeypatch.setattr("lockstep.streams.grouplog.SNAPSHOT_EVERY", 5)
    publish(bus, "orders", numbers(0, 40))
    reader = stream_reader(bus, "orders", group="report")
    start = reader.initialOffset()
    for _ in range(40):
        start = reader.latestOffset(start, ReadMaxRows(1))
        reader.commit(start)
    assert bus.bus.open("_group.report").bounds().count < 20
    assert bus.groups.describe("report").streams[0].next == 40


# --- rows that are gone ------------------------------------------------------------------------------------------


def test_trimmed_rows_are_an_error_that_names_them(bus):
    publish(bus, "orders", numbers(0, 10))
    reader = stream_reader(bus, "orders")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    bus.bus.open("orders").trim(4)
    with pytest.raises(RowsLost, match=r"^\[ROWS_LOST\] Offsets 0 to 3 of orders can't be read: they were trimmed"):
        values_of(reader, reader.partitions(start, end))
    with pytest.raises(RowsLost, match=r"Offsets 0 to 3"):
        reader.latestOffset(start, ReadAllAvailable())
    batch = batch_reader(bus, "orders", startingOffset="1")
    with pytest.raises(RowsLost, match=r"Offsets 1 to 3"):
        values_of(batch, batch.partitions())


def test_trimmed_rows_are_skipped_with_a_warning_and_counted_if_wanted(bus, caplog):
    publish(bus, "orders", numbers(0, 10))
    reader = stream_reader(bus, "orders", failOnDataLoss="false")
    start = reader.initialOffset()
    bus.bus.open("orders").trim(4)
    end = reader.latestOffset(start, ReadMaxRows(3))
    assert end["orders"]["lost"] == 4
    caplog.clear()
    with caplog.at_level(logging.WARNING, "lockstep"):
        assert values_of(reader, reader.partitions(start, end)) == numbers(4, 7)
    [warning] = caplog.records
    assert (warning.action, warning.first, warning.count) == ("rows_lost", 0, 4)
    further = reader.latestOffset(end, ReadAllAvailable())
    assert further["orders"]["lost"] == 4


def test_a_range_that_is_gone_altogether_has_no_rows(bus):
    publish(bus, "orders", numbers(0, 10))
    reader = batch_reader(bus, "orders", endingOffset="4", failOnDataLoss="false")
    parts = reader.partitions()
    bus.bus.open("orders").trim(8)
    assert values_of(reader, parts) == []


def test_a_stream_made_anew_is_not_mistaken_for_the_old_one(bus):
    publish(bus, "orders", numbers(0, 5))
    reader = stream_reader(bus, "orders")
    middle = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    publish(bus, "orders", numbers(5, 7))
    end = reader.latestOffset(middle, ReadAllAvailable())
    parts = reader.partitions(middle, end)
    bus.delete("orders")
    publish(bus, "orders", numbers(100, 120))
    with pytest.raises(RowsLost, match=r"deleted and made anew"):
        reader.latestOffset(end, ReadAllAvailable())
    with pytest.raises(RowsLost, match=r"Offsets 5 to 6 of orders .* deleted and made anew"):
        values_of(reader, parts)
    easy = stream_reader(bus, "orders", failOnDataLoss="false")
    assert values_of(easy, parts) == []
    assert run(easy, start=end) == [numbers(100, 120)]


def test_a_stream_that_ends_before_the_position_is_noticed(bus):
    publish(bus, "orders", numbers(0, 5))
    reader = stream_reader(bus, "orders")
    start = reader.initialOffset()
    beyond = {"orders": {**start["orders"], "next": 9}}
    with pytest.raises(RowsLost, match=r"Offsets 5 to 8 of orders .* ends before them"):
        reader.latestOffset(beyond, ReadAllAvailable())
    with pytest.raises(RowsLost, match=r"Offsets 5 to 8"):
        values_of(reader, reader.partitions(start, beyond))
    easy = stream_reader(bus, "orders", failOnDataLoss="false")
    assert values_of(easy, easy.partitions(start, beyond)) == numbers(0, 5)
    back = easy.latestOffset(beyond, ReadAllAvailable())
    assert back["orders"]["next"] == 5
    publish(bus, "orders", numbers(5, 7))
    assert run(easy, start=back) == [numbers(5, 7)]


def test_a_stream_that_is_no_longer_listed_is_an_error_or_goes_on_where_it_was(bus):
    for stream in ("a", "b"):
        publish(bus, stream, numbers(0, 3))
    both = stream_reader(bus, "a,b")
    at = both.latestOffset(both.initialOffset(), ReadAllAvailable())
    for others in ("a", "c"):
        bus.create("c", KEEP)
        with pytest.raises(RowsLost, match=r"Offsets 3 to 3 of [ab] .* no longer listed"):
            stream_reader(bus, others).latestOffset(at, ReadAllAvailable())
    publish(bus, "a", numbers(3, 4))
    publish(bus, "b", numbers(3, 5))
    alone = stream_reader(bus, "a", failOnDataLoss="false")
    then = alone.latestOffset(at, ReadAllAvailable())
    assert [(part.log, part.start, part.stop) for part in alone.partitions(at, then)] == [("a", 3, 4)]
    again = stream_reader(bus, "b,a")
    end = again.latestOffset(then, ReadAllAvailable())
    assert [(part.log, part.start, part.stop) for part in again.partitions(then, end)] == [("b", 3, 5)]
    assert json.dumps(again.latestOffset(end, ReadAllAvailable())) == json.dumps(end)


@given(st.lists(st.integers(0, 50), max_size=5), st.integers(1, 20))
def test_ranges_are_cut_into_enough_pieces_that_cover_them_once(lengths, least):
    parts = [RowRange(str(at), "i", 10 * at, 10 * at + length, "h") for at, length in enumerate(lengths)]
    found = spread(parts, least)
    offsets = [(part.log, offset) for part in found for offset in range(part.start, part.stop)]
    assert offsets == [(part.log, offset) for part in parts for offset in range(part.start, part.stop)]
    assert len(found) >= min(least, sum(lengths))
    assert len(found) <= least + len(parts)


def test_a_stream_is_read_by_as_many_tasks_as_are_wanted(bus):
    publish(bus, "orders", numbers(0, 10))
    reader = batch_reader(bus, "orders", minPartitions="3")
    assert [(part.start, part.stop) for part in reader.partitions()] == [(0, 3), (3, 6), (6, 10)]
    streaming = stream_reader(bus, "orders", minPartitions="2")
    start = streaming.initialOffset()
    assert len(streaming.partitions(start, streaming.latestOffset(start, ReadAllAvailable()))) == 2
