"""Options of format("lockstep"), and the positions that Spark keeps in its checkpoint. No Spark is started here."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lockstep.engine.spark.rows import LockstepSource
from lockstep.engine.spark.rows_columns import TYPES, arrow_schema, schema_of, writable
from lockstep.engine.spark.rows_options import COLUMNS, ReadOptions, WriteOptions
from lockstep.engine.spark.rows_positions import LogPosition, from_json, range_start, share, to_json
from lockstep.errors import BadConfig, BadName, LockstepError, UnsupportedByBackend

HERE = {"url": "lmdb:x", "stream": "orders"}


def read(streaming: bool | None = None, **options: str) -> ReadOptions:
    return ReadOptions.of({**HERE, **options}, streaming=streaming)


def test_what_is_read_by_default():
    options = read()
    assert (options.url, options.streams, options.columns) == ("lmdb:x", ("orders",), None)
    assert (options.start.place_on("orders"), options.end.place_on("orders")) == ("earliest", "latest")
    assert options.fail_on_data_loss
    assert options.max_records is None


def test_names_of_options_have_no_case():
    options = ReadOptions.of(CaseInsensitiveDict({"URL": "lmdb:x", "Stream": "a, b", "FAILONDATALOSS": "False"}))
    assert options.streams == ("a", "b")
    assert not options.fail_on_data_loss


def test_a_table_is_refused_with_what_to_use_instead():
    with pytest.raises(BadConfig, match=r"load\(\)\.createOrReplaceTempView\(NAME\)"):
        read(provider="lockstep", owner="me")


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("url", " ", "needed"),
        ("stream", "", "needed"),
        ("stream", "a,,b", "each name once"),
        ("stream", "a,a", "each name once"),
        ("startingOffset", "-1", "earliest, latest, an offset"),
        ("startingOffset", "newest", "earliest, latest, an offset"),
        ("startingOffset", "{", "Expecting"),
        ("startingOffset", '{"orders": -3}', "earliest, latest, an offset"),
        ("startingOffset", '{"orders": true}', "earliest, latest, an offset"),
        ("endingTime", "yesterday", "2026-01-31T12:00:00Z"),
        ("maxRecordsPerTrigger", "0", "at least 1"),
        ("maxRecordsPerTrigger", "1e3", "whole number"),
        ("failOnDataLoss", "yes", "true or false"),
        ("columns", "offset,colour", "no column 'colour'"),
        ("startingOffsets", "earliest", "no such option; there are url, stream, columns, startingOffset"),
        ("path", "orders", "no such option"),
    ],
)
def test_a_bad_option_is_refused_by_name_and_reason(name, text, reason):
    with pytest.raises(BadConfig, match=rf"(?i){name}.*{reason}"):
        read(**{name: text})


def test_a_name_that_no_stream_can_have_is_refused():
    with pytest.raises(BadName):
        read(stream="or ders")


def test_an_offset_and_a_time_for_the_same_end_are_one_too_many():
    with pytest.raises(BadConfig, match=r"startingOffset is given too"):
        read(startingOffset="3", startingTime="0")


def test_a_stream_has_no_end_and_a_batch_no_triggers():
    with pytest.raises(BadConfig, match=r"endingOffset.*a stream has no end"):
        read(streaming=True, endingOffset="7")
    with pytest.raises(BadConfig, match=r"maxRecordsPerTrigger.*it is for readStream"):
        read(streaming=False, maxRecordsPerTrigger="7")
    assert read(maxRecordsPerTrigger="7", endingOffset="7").max_records == 7  # not known yet which it is


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("1500", 1_500_000_000),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01T00:00:01.500001", 1_500_001_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-02", 86_400_000_000_000),
    ],
)
def test_times_are_milliseconds_or_iso_in_utc(text, time_ns):
    assert read(startingTime=text).start.time_ns == time_ns


def test_a_shard_is_named_in_full_or_by_its_number():
    start = read(startingOffset='{"orders/0": 17, "1": "latest"}').start
    assert [start.place_on(f"orders/{shard}") for shard in (0, 1)] == [17, "latest"]
    with pytest.raises(BadConfig, match=r"nothing about orders/2"):
        start.place_on("orders/2")
    with pytest.raises(BadConfig, match=r"'1' is not among what is read: orders/0"):
        start.check_logs(["orders/0"])


def test_what_a_writer_needs():
    assert WriteOptions.of({**HERE, "checkpointLocation": "c", "queryName": "q"}, streaming=True).writer is None
    nightly = WriteOptions.of({**HERE, "writer": "nightly", "batch": "20260131"}, streaming=False)
    assert (nightly.writer, nightly.batch) == ("nightly", 20260131)
    with pytest.raises(BadConfig, match=r"Spark numbers the batches"):
        WriteOptions.of({**HERE, "batch": "1"}, streaming=True)
    with pytest.raises(BadConfig, match=r"writer and batch go together"):
        WriteOptions.of({**HERE, "writer": "nightly"}, streaming=False)
    with pytest.raises(BadConfig, match=r"no such option; there are url, stream, writer"):
        WriteOptions.of({**HERE, "columns": "value"}, streaming=False)


def test_a_stream_is_never_overwritten():
    source = LockstepSource(HERE)
    for make in (source.writer, source.streamWriter):
        with pytest.raises(BadConfig, match=r"only be appended to"):
            make(schema_of(["value"]), True)


def test_a_bus_of_one_process_is_refused():
    source = LockstepSource({"url": "memory:rows", "stream": "orders"})
    with pytest.raises(UnsupportedByBackend, match=r"workers are processes of their own"):
        source.schema()


def test_every_error_is_of_the_tree(tmp_path):
    with pytest.raises(LockstepError, match=r"\[STORE_NOT_FOUND\]"):
        LockstepSource({"url": f"lmdb:{tmp_path}/none", "stream": "orders"}).schema()


def test_a_schema_of_the_users_own_has_our_names_and_types():
    assert arrow_schema(schema_of(["time", "offset"])).names == ["time", "offset"]
    assert tuple(TYPES) == COLUMNS
    for field in (StructField("offset", StringType()), StructField("colour", LongType())):
        with pytest.raises(BadConfig, match=rf"{field.name} .*a stream has no such column; it has offset bigint"):
            arrow_schema(StructType([field]))


def test_columns_that_can_not_be_written_are_named():
    assert writable(StructType([StructField("Value", StringType())])) == {"value": "Value"}
    with pytest.raises(BadConfig, match=r"offset bigint.*select from value: binary or string"):
        writable(schema_of(["value", "offset"]))
    with pytest.raises(BadConfig, match=r"it has no value"):
        writable(schema_of(["key"]))


# --- positions ---------------------------------------------------------------------------------------------------


def test_positions_survive_spark_and_keep_their_order():
    positions = {f"orders/{shard}": LogPosition(f"id{shard}", 1, shard + 5, 2) for shard in (0, 2, 10)}
    text = json.dumps(to_json(positions))
    assert from_json(json.loads(text)) == positions
    assert json.dumps(to_json(from_json(json.loads(text)))) == text


def test_a_range_goes_on_where_the_last_one_ended():
    assert range_start(LogPosition("a", 0, 7), LogPosition("a", 0, 9)) == 7


def test_the_first_batch_run_again_begins_where_it_began():
    # Given a query that began at "latest", which was 5, and was stopped in its first batch
    logged = LogPosition("a", 5, 9)
    # When it starts again, "latest" is 9
    # Then the rows of the batch are still 5 to 9
    assert range_start(LogPosition("a", 9, 9), logged) == 5


def test_a_log_made_anew_or_not_seen_before_is_read_from_its_beginning():
    assert range_start(LogPosition("a", 0, 7), LogPosition("b", 3, 9)) == 3
    assert range_start(None, LogPosition("b", 3, 9)) == 3


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(st.integers(1, 1000), st.lists(st.integers(0, 500), min_size=1, max_size=6))
def test_rows_are_shared_out_to_the_last_one(rows, waiting):
    shares = share(rows, waiting)
    assert sum(shares) == min(rows, sum(waiting))
    assert all(0 <= one <= there for one, there in zip(shares, waiting, strict=True))


def test_no_log_starves():
    # Given a log that always has a thousand rows, and one with a single row, one row a trigger
    waiting = [1000, 1]
    for _ in range(1100):
        shares = share(1, waiting)
        waiting = [1000, waiting[1] + 1 - shares[1]]
        if shares[1]:
            return
    pytest.fail("the small log was never read")
