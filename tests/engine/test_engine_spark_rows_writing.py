"""Rows written to streams: staged by tasks, published once. The classes as Spark would call them."""

from __future__ import annotations

import json
import pickle
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    BinaryType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import lockstep
from lockstep.engine.spark import rows_writer
from lockstep.engine.spark.rows import tidy
from lockstep.engine.spark.rows_columns import HEADERS, arrow_schema, schema_of
from lockstep.engine.spark.rows_options import WriteOptions
from lockstep.engine.spark.rows_writer import Author, RowStreamWriter, RowWriter, Task
from lockstep.errors import (
    BadConfig,
    BadRecord,
    Conflict,
    DataError,
    RecordTooLarge,
    StreamNotFound,
    UnsupportedByBackend,
)
from lockstep.log.config import StreamConfig

sys.path.append(str(Path(__file__).parents[1] / "contract"))
from strided_bus import StridedBus

KEEP = StreamConfig(capacity=None)
VALUE = schema_of(["value"])
WIDE = schema_of(["value", "key"])


@pytest.fixture
def bus(tmp_path):
    with lockstep.connect(f"lmdb:{tmp_path}/bus?durability=relaxed") as made:
        made.create("out", KEEP)
        yield made


def table(values, keys=None) -> pa.RecordBatch:
    columns = {"value": pa.array(values, pa.binary())}
    if keys is not None:
        columns["key"] = pa.array(keys, pa.binary())
    return pa.RecordBatch.from_pydict(columns)


def writer_of(kind, bus, schema=VALUE, task=None, **options: str):
    given = {"url": bus.url.partition("?")[0], "stream": "out", **options}
    made = kind(WriteOptions.of(given, streaming=kind is RowStreamWriter), schema)
    if task is not None:
        made._task = lambda: task
    return made


def write_batch(bus, batch: int, parts, *, query="q1", schema=VALUE, commit=True, **options: str):
    """One micro-batch as Spark runs it: each task with a writer of its own, the commit with another."""
    messages = []
    for partition, rows in enumerate(parts):
        worker = writer_of(RowStreamWriter, bus, schema, Task(partition, query, batch), **options)
        messages.append(pickle.loads(pickle.dumps(worker.write(iter(rows)))))
    if commit:
        writer_of(RowStreamWriter, bus, schema, **options).commit(messages, batch)
    return messages


def contents(bus, stream="out") -> list[bytes]:
    with bus.subscriber(stream, initial="earliest") as subscriber:
        found = []
        while part := subscriber.poll():
            found += part.values()
    return found


def hidden(bus) -> list[str]:
    return [name for name in bus.bus.names() if name.startswith(rows_writer.PREFIX)]


# --- exactly once ------------------------------------------------------------------------------------------------


def test_rows_appear_in_the_order_of_partitions_when_the_batch_is_committed(bus):
    messages = write_batch(bus, 0, [[table([b"a", b"b"]), table([b"c"])], [], [table([b"d"])]], commit=False)
    assert contents(bus) == []
    writer_of(RowStreamWriter, bus).commit(list(reversed(messages)), 0)
    assert contents(bus) == [b"a", b"b", b"c", b"d"]
    assert hidden(bus) == []


def test_a_batch_that_comes_again_adds_nothing(bus):
    write_batch(bus, 0, [[table([b"a"])]])
    write_batch(bus, 1, [[table([b"b"])]])
    write_batch(bus, 1, [[table([b"b"])]])
    write_batch(bus, 0, [[table([b"a"])]])
    write_batch(bus, 2, [[table([b"c"])]])
    assert contents(bus) == [b"a", b"b", b"c"]
    assert hidden(bus) == []


def test_another_query_is_another_writer(bus):
    write_batch(bus, 5, [[table([b"a"])]], query="q1")
    write_batch(bus, 0, [[table([b"b"])]], query="q2")
    assert contents(bus) == [b"a", b"b"]


def test_a_writer_name_belongs_to_one_query(bus):
    write_batch(bus, 5, [[table([b"a"])]], query="q1", writer="copier")
    with pytest.raises(Conflict, match="writer 'copier' of stream 'out' belongs to another query"):
        write_batch(bus, 0, [[table([b"b"])]], query="q2", writer="copier")
    write_batch(bus, 5, [[table([b"a"])]], query="q1", writer="copier")
    assert contents(bus) == [b"a"]


def test_a_stream_made_anew_has_no_batches_yet(bus):
    write_batch(bus, 3, [[table([b"a"])]])
    bus.delete("out")
    bus.create("out", KEEP)
    write_batch(bus, 3, [[table([b"a"])]])
    assert contents(bus) == [b"a"]


def test_rows_staged_for_a_stream_that_was_made_anew_are_refused(bus):
    messages = write_batch(bus, 0, [[table([b"a"])]], commit=False)
    bus.delete("out")
    bus.create("out", KEEP)
    with pytest.raises(StreamNotFound):
        writer_of(RowStreamWriter, bus).commit(messages, 0)
    assert contents(bus) == []


def test_what_fails_half_way_leaves_nothing(bus):
    # Given a batch of two tasks, and the rows of the second one got lost
    messages = write_batch(bus, 0, [[table([b"a"])], [table([b"b"])]], commit=False)
    lost = messages[1].logs[0].name
    bus.bus.delete(lost)
    bus.bus.create(lost, KEEP)
    # When it is committed
    with pytest.raises(DataError, match=r"are not complete; nothing was published"):
        writer_of(RowStreamWriter, bus).commit(messages, 0)
    # Then nothing was published, and the batch can be written again
    assert contents(bus) == []
    write_batch(bus, 0, [[table([b"a"])], [table([b"b"])]])
    assert contents(bus) == [b"a", b"b"]
    assert hidden(bus) == []


def test_abort_removes_what_was_staged(bus):
    messages = write_batch(bus, 0, [[table([b"a"])], [table([b"b"])]], commit=False)
    writer_of(RowStreamWriter, bus).abort([messages[0], None], 0)
    assert hidden(bus) == []
    assert contents(bus) == []


def test_what_a_killed_run_left_behind_goes_with_the_next_commit_and_nothing_else(bus):
    write_batch(bus, 1, [[table([b"lost"])]], commit=False)
    write_batch(bus, 7, [[table([b"other"])]], query="q2", commit=False)
    write_batch(bus, 2, [[table([b"later"])]], commit=False)
    write_batch(bus, 1, [[table([b"a"])]])
    assert len(hidden(bus)) == 2
    assert contents(bus) == [b"a"]


def test_a_task_that_fails_leaves_nothing(bus):
    def rows():
        yield table([b"a"])
        raise RuntimeError("the rows ran dry")

    with pytest.raises(RuntimeError, match="ran dry"):
        writer_of(RowStreamWriter, bus, task=Task(0, "q", 0)).write(rows())
    assert hidden(bus) == []


def test_a_batch_without_tasks_is_nothing(bus):
    writer_of(RowStreamWriter, bus).commit([], 0)
    writer_of(RowStreamWriter, bus).abort([None], 0)
    assert contents(bus) == []


def test_a_task_that_does_not_know_its_query_is_refused(bus):
    with pytest.raises(BadConfig, match="does not tell this task its query"):
        writer_of(RowStreamWriter, bus, task=Task(0, None, 3)).write(iter([]))
    with pytest.raises(BadConfig, match="does not tell this task its query"):
        writer_of(RowStreamWriter, bus, task=Task(0, "q", None), writer="w").write(iter([]))


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["commit", "abort", "killed", "again"])), max_size=12))
def test_whatever_happens_between_each_batch_is_there_once_and_in_order(tmp_path_factory, steps):
    with lockstep.connect(f"lmdb:{tmp_path_factory.mktemp('rows')}/bus?durability=relaxed") as bus:
        bus.create("out", KEEP)
        batch, expected = 0, []
        for tasks, fate in steps:
            rows = [[table([b"%d.%d.%d" % (batch, task, row) for row in range(2)])] for task in range(tasks)]
            flat = [value.as_py() for parts in rows for part in parts for value in part.column(0)]
            messages = write_batch(bus, batch, rows, commit=fate in ("commit", "again"))
            if fate == "abort":
                writer_of(RowStreamWriter, bus).abort(messages, batch)
            if fate == "again":
                write_batch(bus, batch, rows)
            if fate in ("commit", "again"):
                batch, expected = batch + 1, expected + flat
        assert contents(bus) == expected


# --- rows --------------------------------------------------------------------------------------------------------


def test_every_column_arrives(bus):
    schema = schema_of(["value", "key", "headers", "time"])
    moment = datetime(2026, 1, 31, 12, 0, 0, 250, UTC)
    rows = [
        {"value": b"a", "key": b"k", "headers": [{"name": "h", "value": b"1"}, {"name": "h", "value": b""}],
         "time": moment},
        {"value": b"b", "key": None, "headers": None, "time": None},
    ]  # fmt: skip
    write_batch(bus, 0, [[pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema))]], schema=schema)
    first, second = bus.get("out", 0), bus.get("out", 1)
    assert (first.value, first.key, first.headers) == (b"a", b"k", (("h", b"1"), ("h", b"")))
    assert first.created_ns == (int(moment.timestamp()) * 10**6 + 250) * 1000
    assert (second.value, second.key, second.headers) == (b"b", None, ())
    assert second.created_ns > first.created_ns


def test_text_and_maps_are_taken_too(bus):
    schema = StructType(
        [
            StructField("key", StringType()),
            StructField("value", StringType()),
            StructField("headers", MapType(StringType(), BinaryType())),
        ]
    )
    columns = [pa.array(["ä"]), pa.array(["ö"]), pa.array([[("h", b"1")]], pa.map_(pa.string(), pa.binary()))]
    write_batch(bus, 0, [[pa.RecordBatch.from_arrays(columns, names=schema.fieldNames())]], schema=schema)
    record = bus.get("out", 0)
    assert (record.key, record.value, record.headers) == ("ä".encode(), "ö".encode(), (("h", b"1"),))


def test_columns_are_found_by_name(bus):
    schema = StructType([StructField("time", TimestampType()), StructField("value", BinaryType())])
    batch = pa.RecordBatch.from_pylist([{"time": datetime(1970, 1, 1, tzinfo=UTC), "value": b"a"}], pa.schema(
        [("time", pa.timestamp("us", "UTC")), ("value", pa.binary())]))  # fmt: skip
    write_batch(bus, 0, [[batch]], schema=schema)
    assert bus.get("out", 0).created_ns == 0


def test_a_row_that_no_stream_can_take_is_refused(bus):
    with pytest.raises(BadRecord, match="a row has no value"):
        write_batch(bus, 0, [[table([b"a", None])]])
    bad = pa.RecordBatch.from_pylist(
        [{"value": b"a", "headers": [{"name": "h", "value": None}]}],
        schema=arrow_schema(StructType([StructField("value", BinaryType()), StructField("headers", HEADERS)])),
    )
    with pytest.raises(BadRecord, match="a header has no name or no value"):
        write_batch(bus, 0, [[bad]], schema=schema_of(["value", "headers"]))
    bus.create("small", StreamConfig(max_record_bytes=3))
    with pytest.raises(RecordTooLarge):
        write_batch(bus, 0, [[table([b"long"])]], stream="small")
    assert hidden(bus) == []


def test_rows_go_to_the_shard_of_their_key_and_those_without_take_turns(bus):
    bus.create("many", StreamConfig(shards=3, compression="zstd"))
    keys = [b"%d" % (number % 11) for number in range(44)] + [None] * 6
    rows = table([b"%d" % number for number in range(50)], keys)
    write_batch(bus, 0, [[rows]], schema=WIDE, stream="many")
    write_batch(bus, 0, [[rows]], schema=WIDE, stream="many")
    keyless = {}
    for shard in range(3):
        with bus.subscriber(f"many/{shard}", initial="earliest") as subscriber:
            records = list(subscriber.poll(max_records=100))
        keyed = [record for record in records if record.key is not None]
        assert all(lockstep.shard_of(record.key, 3) == shard for record in keyed)
        for key in {record.key for record in keyed}:
            numbers = [int(record.value) for record in keyed if record.key == key]
            assert numbers == sorted(numbers)
        keyless[shard] = [record.value for record in records if record.key is None]
    assert [len(keyless[shard]) for shard in range(3)] == [2, 2, 2]
    assert sum(bus.bounds(f"many/{shard}").count for shard in range(3)) == 50


def test_rows_without_a_key_take_turns_across_tasks(bus):
    bus.create("many", StreamConfig(shards=3))
    write_batch(bus, 0, [[table([b"%d" % task])] for task in range(3)], stream="many")
    write_batch(bus, 1, [[table([b"3"]), table([b"4"]), table([b"5"])]], stream="many")
    assert [bus.bounds(f"many/{shard}").count for shard in range(3)] == [2, 2, 2]


def test_readers_that_wait_are_woken_by_a_commit(bus):
    with bus.subscriber("out") as subscriber:
        write_batch(bus, 0, [[table([b"a"])]])
        assert subscriber.poll(timeout=5).values() == [b"a"]


# --- one-shot writes ---------------------------------------------------------------------------------------------


def write_once(bus, rows, **options: str) -> None:
    writer = writer_of(RowWriter, bus, **options)
    worker = pickle.loads(pickle.dumps(writer))  # one writer, sent to every task and to the commit
    messages = []
    for partition, part in enumerate(rows):
        worker._task = lambda partition=partition: Task(partition)
        messages.append(worker.write(iter(part)))
    writer.commit(messages)


def test_a_one_shot_write_appends_and_is_not_remembered(bus):
    for _ in range(2):
        write_once(bus, [[table([b"a"])], [table([b"b"])]])
    assert contents(bus) == [b"a", b"b", b"a", b"b"]
    assert hidden(bus) == []


def test_a_numbered_write_counts_once(bus):
    for number in ("7", "7", "8", "7"):
        write_once(bus, [[table([number.encode()])]], writer="nightly", batch=number)
    assert contents(bus) == [b"7", b"8"]


def test_a_one_shot_write_that_fails_leaves_nothing(bus):
    writer = writer_of(RowWriter, bus, task=Task(0))
    writer.abort([writer.write(iter([table([b"a"])])), None])
    assert (contents(bus), hidden(bus)) == ([], [])


def test_what_a_killed_one_shot_write_left_behind_can_be_removed(bus):
    bus.create("untouched")
    writer_of(RowWriter, bus, task=Task(0)).write(iter([table([b"a"])]))
    going_on = writer_of(RowWriter, bus, task=Task(0))
    message = going_on.write(iter([table([b"b"])]))
    assert tidy(bus.url.partition("?")[0]) == 2
    assert bus.bus.names() == ["out", "untouched"]
    with pytest.raises(StreamNotFound):
        going_on.commit([message])
    assert contents(bus) == []


def test_a_missing_stream_is_named_before_anything_runs(bus):
    for kind in (RowWriter, RowStreamWriter):
        with pytest.raises(StreamNotFound, match="'nowhere' does not exist"):
            writer_of(kind, bus, stream="nowhere")


# --- buses that can't do several things in one step --------------------------------------------------------------


def test_a_bus_without_transactions_says_so_or_writes_at_least_once():
    bus = StridedBus()
    bus.close = lambda: None
    bus.create("out", KEEP)
    given = {"url": "strided:", "stream": "out"}
    with pytest.raises(UnsupportedByBackend, match="can't write rows exactly once; option allowDuplicates=true"):
        RowStreamWriter(WriteOptions.of(given, streaming=True), VALUE, open_url=lambda url: bus)
    options = WriteOptions.of({**given, "allowDuplicates": "true"}, streaming=True)
    writer = RowStreamWriter(options, VALUE, open_url=lambda url: bus, task=lambda: Task(0, "q", 0))
    for _ in range(2):
        writer.commit([writer.write(iter([table([b"a", b"b"]), table([b"c"])]))], 0)
    entries = bus.open("out").read(0)
    values = [value for entry in entries for value in lockstep.log.batch.BatchView(entry.base, entry.data, "").values()]
    assert values == [b"a", b"b", b"c"] * 2
    assert bus.names() == ["out"]


def test_the_note_of_a_batch_is_plain_json(bus):
    write_batch(bus, 4, [[table([b"a"])]], query="q1")
    with bus.bus.snapshot() as view:
        note = json.loads(view.get(rows_writer._cell("out", Author("q1"))))
        assert note == {"identity": view.identity("out"), "query": "q1", "batch": 4}
