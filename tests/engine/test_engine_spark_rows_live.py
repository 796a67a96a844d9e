"""format("lockstep") in a real Spark: ranges, triggers, restarts, batches that run twice, rows that are gone."""

from __future__ import annotations

import socket
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

import lockstep
from lockstep.engine.spark.rows import register
from lockstep.engine.spark.session import hosts_without, start_session, stop_session

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
KEEP = lockstep.StreamConfig(capacity=None)


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    session = start_session(tmp_path_factory.mktemp("spark"), master="local[2]")
    register(session)
    yield session
    stop_session(session)


@pytest.fixture
def bus(tmp_path):
    with lockstep.connect(f"lmdb:{tmp_path}/bus") as made:
        yield made


def on(side, bus, stream: str, **options: object):
    """A reader or writer of Spark's for a stream."""
    return side.format("lockstep").options(url=bus.url, stream=stream, **options)


def publish(bus, stream: str, first: int, stop: int) -> None:
    with bus.publisher(stream) as publisher:
        for number in range(first, stop):
            publisher.publish(b"%d" % number, key=b"%d" % (number % 13), headers=[("n", b"%d" % number)])


def run(frame, checkpoint: Path) -> list[list[tuple]]:
    """Everything there is, batch by batch, as (log, offset, number)."""
    batches: list[list[tuple]] = []

    def take(batch, number):
        batches.append([(row.stream, row.offset, int(row.value)) for row in batch.collect()])

    query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    return batches


def contents(bus, stream: str) -> list[bytes]:
    with bus.subscriber(stream, initial="earliest") as subscriber:
        found = []
        while part := subscriber.poll():
            found += part.values()
    return found


def forget_commit(checkpoint: Path, batch: int) -> None:
    """As if Spark had been killed between the sink's commit and its own note of it."""
    for path in (checkpoint / "commits").glob(f"*{batch}*"):
        path.unlink()


def test_a_range_read_as_a_batch(spark, bus):
    publish(bus, "orders", 0, 30)
    frame = on(spark.read, bus, "orders", startingOffset="10", endingOffset="20").load()
    assert frame.columns == ["offset", "key", "value", "headers", "time"]
    rows = frame.orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(10, 20))
    assert [(bytes(row.value), bytes(row.key)) for row in rows[:1]] == [(b"10", b"10")]
    assert [(pair.name, bytes(pair.value)) for pair in rows[0].headers] == [("n", b"10")]
    assert on(spark.read, bus, "orders", startingOffset="latest").load().count() == 0
    assert on(spark.read, bus, "orders", columns="offset").load().agg(f.sum("offset")).first()[0] == sum(range(30))


def test_triggers_are_bounded_and_a_restart_goes_on(spark, bus, tmp_path):
    # Given two shards with 50 rows
    bus.create("orders", lockstep.StreamConfig(shards=2, capacity=None))
    publish(bus, "orders", 0, 50)
    frame = on(spark.readStream, bus, "orders", maxRecordsPerTrigger=20, group="report").load()
    # When a query takes what is there, and another run of it what came since
    batches = run(frame, tmp_path / "checkpoint")
    lag = sum(found.lag for found in bus.groups.describe("report").streams)
    publish(bus, "orders", 50, 57)
    further = run(frame, tmp_path / "checkpoint")
    # Then no batch is above the limit, and nothing is lost, doubled or out of order in its shard
    assert [len(batch) for batch in batches] == [20, 20, 10]
    assert lag == 10  # Spark tells of a finished batch when the next one begins
    rows = [row for batch in (*batches, *further) for row in batch]
    assert sorted(number for _, _, number in rows) == list(range(57))
    for shard in range(2):
        offsets = [offset for log, offset, _ in rows if log == f"orders/{shard}"]
        assert offsets == list(range(len(offsets)))


def test_the_first_batch_run_again_has_the_rows_it_had(spark, bus, tmp_path):
    publish(bus, "orders", 0, 9)
    columns = "stream,offset,value"
    [rows] = run(on(spark.readStream, bus, "orders", columns=columns).load(), tmp_path / "checkpoint")
    publish(bus, "orders", 9, 12)
    forget_commit(tmp_path / "checkpoint", 0)
    # "latest" is elsewhere now, but the query has begun, and its checkpoint says where
    again = on(spark.readStream, bus, "orders", columns=columns, startingOffset="latest").load()
    first, second = run(again, tmp_path / "checkpoint")
    assert first == rows
    assert [number for _, _, number in second] == [9, 10, 11]


def test_a_batch_that_runs_twice_is_written_once(spark, bus, tmp_path):
    # Given a query that copies a stream in three batches
    bus.create("copy", KEEP)
    publish(bus, "orders", 0, 25)
    checkpoint = tmp_path / "checkpoint"

    def copy() -> None:
        columns = "key,value,headers,time"
        frame = on(spark.readStream, bus, "orders", maxRecordsPerTrigger=10, columns=columns).load()
        writer = on(frame.writeStream, bus, "copy").option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    copy()
    assert contents(bus, "copy") == [b"%d" % number for number in range(25)]
    # When its last batch is run again, and more has come
    forget_commit(checkpoint, 2)
    publish(bus, "orders", 25, 28)
    copy()
    # Then every row is there once, as it was
    assert contents(bus, "copy") == [b"%d" % number for number in range(28)]
    original, copied = bus.get("orders", 17), bus.get("copy", 17)
    assert (copied.key, copied.headers) == (original.key, original.headers)
    assert copied.created_ns == original.created_ns // 1000 * 1000
    assert [name for name in bus.bus.names() if name.startswith("_")] == []


def test_trimmed_rows_stop_a_query_or_are_skipped(spark, bus, tmp_path):
    publish(bus, "orders", 0, 5)
    columns = "stream,offset,value"
    run(on(spark.readStream, bus, "orders", columns=columns).load(), tmp_path / "checkpoint")
    publish(bus, "orders", 5, 20)
    bus.bus.open("orders").trim(12)
    with pytest.raises(PySparkException, match=r"ROWS_LOST\] Offsets 5 to 11 of orders"):
        run(on(spark.readStream, bus, "orders", columns=columns).load(), tmp_path / "checkpoint")
    easy = on(spark.readStream, bus, "orders", columns=columns, failOnDataLoss="false").load()
    [rows] = run(easy, tmp_path / "checkpoint")
    assert [number for _, _, number in rows] == list(range(12, 20))
    with pytest.raises(PySparkException, match=r"ROWS_LOST\] Offsets 3 to 11 of orders"):
        on(spark.read, bus, "orders", startingOffset=3).load().collect()
    assert on(spark.read, bus, "orders", startingOffset=3, failOnDataLoss=False).load().count() == 8


def test_a_frame_is_written_whole_or_not_at_all(spark, bus):
    bus.create("out", KEEP)
    frame = spark.range(100).repartition(3).selectExpr("cast(id as string) as value")
    on(frame.write, bus, "out").mode("append").save()
    assert sorted(map(int, contents(bus, "out"))) == list(range(100))
    for _ in range(2):
        on(frame.write, bus, "out", writer="nightly", batch=7).mode("append").save()
    assert bus.bounds("out").count == 200
    bad = spark.range(100).repartition(3).selectExpr("if(id = 50, null, cast(id as string)) as value")
    with pytest.raises(PySparkException, match=r"BAD_RECORD.*a row has no value"):
        on(bad.write, bus, "out").mode("append").save()
    with pytest.raises(PySparkException, match="only be appended to"):
        on(frame.write, bus, "out").mode("overwrite").save()
    assert bus.bounds("out").count == 200
    assert [name for name in bus.bus.names() if name.startswith("_")] == []


def test_mistakes_are_told_in_our_words(spark, bus):
    with pytest.raises(PySparkException, match="STREAM_NOT_FOUND"):
        on(spark.read, bus, "nowhere").load()
    bus.create("orders")
    with pytest.raises(PySparkException, match=r"startingofset = 'latest' is not valid: there is no such option"):
        on(spark.readStream, bus, "orders", startingOfset="latest").load()


def test_workers_import_the_installed_pyspark(spark):
    """From the ZIP file that Spark brings it would be compiled anew in every worker."""

    def place(batches):
        import pyarrow
        import pyspark

        yield from (pyarrow.RecordBatch.from_pydict({"file": [pyspark.__file__]}) for _ in batches)

    [row] = spark.range(1, numPartitions=1).mapInArrow(place, "file string").collect()
    assert row.file == pyspark.__file__


def test_workers_that_do_not_see_a_file_are_found(spark, tmp_path):
    (tmp_path / "here").touch()
    assert hosts_without(spark, tmp_path / "here") == set()
    assert hosts_without(spark, tmp_path / "gone") == {socket.gethostname()}
