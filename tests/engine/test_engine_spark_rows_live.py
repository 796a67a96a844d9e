"""format("lockstep") in a real Spark: ranges, triggers, restarts, batches that run twice, rows that are gone."""

from __future__ import annotations

import socket
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

import lockstep
from lockstep import events
from lockstep.engine.errors import SparkInUse
from lockstep.engine.model.loading import parse_yaml
from lockstep.engine.model.validation import compile_project
from lockstep.engine.runtime.engine import Engine, EngineOptions
from lockstep.engine.spark.query import OBSERVED, SHARD_VARIABLE
from lockstep.engine.spark.rows import PUSHDOWN, register
from lockstep.engine.spark.session import hosts_without, start_session, stop_session
from lockstep.runtime import ThreadRuntime

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


@pytest.mark.soak
def test_the_recipe_for_foreach_batch_refuses_a_new_checkpoint_instead_of_leaving_rows_out(spark, bus, tmp_path):
    bus.create("copy", KEEP)
    publish(bus, "orders", 0, 6)

    def handle(frame, number):
        to_stream = frame.select("key", "value").write.format("lockstep").mode("append")
        to_stream.options(url=bus.url, stream="copy", writer="copier", batch=number).save()

    def copy(checkpoint: str) -> None:
        query = on(spark.readStream, bus, "orders", maxRecordsPerTrigger=3).load().writeStream.foreachBatch(handle)
        query = query.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    copy("one")
    forget_commit(tmp_path / "one", 1)
    publish(bus, "orders", 6, 8)
    copy("one")
    assert contents(bus, "copy") == [b"%d" % number for number in range(8)]
    publish(bus, "orders", 8, 9)
    with pytest.raises(
        PySparkException, match=r"CONFLICT\] The writer 'copier' of stream 'copy' belongs to another query"
    ):
        copy("two")
    assert bus.bounds("copy").count == 8


def test_what_a_bounded_stream_would_drop_at_once_is_refused(spark, bus):
    bus.create("ring", lockstep.StreamConfig(capacity=10))
    rows = spark.range(11).selectExpr("cast(id as string) as value")
    with pytest.raises(
        PySparkException, match=r"BATCH_TOO_LARGE\] The stream ring keeps capacity=10, and this batch has 11"
    ):
        on(rows.write, bus, "ring").mode("append").save()
    assert [name for name in bus.bus.names() if name.startswith("_")] == []
    on(rows.limit(10).write, bus, "ring").mode("append").save()
    assert bus.bounds("ring").count == 10


@pytest.fixture
def pushing(spark):
    """The session, where Python sources may see conditions."""
    spark.conf.set(PUSHDOWN, "true")
    register(spark)
    yield spark
    spark.conf.unset(PUSHDOWN)
    register(spark)


def test_conditions_on_the_offset_are_pushed_down(pushing, bus):
    publish(bus, "orders", 0, 30)
    on(pushing.read, bus, "orders").load().createOrReplaceTempView("orders")
    found = pushing.sql("SELECT offset, cast(value as string) v FROM orders WHERE offset >= 10 AND offset < 13")
    assert [tuple(row) for row in found.collect()] == [(10, "10"), (11, "11"), (12, "12")]


MODEL = """
name: desk
queries:
  - name: q
    windows:
      - kind: source
        name: Trades
        schema: "id*:int64,symbol:string,price:money,at:stamp,day:date,n:int32,x:double,b:blob,l:array(dbl)"
      - kind: aggregate
        name: Sums
        schema: "symbol*:string,total:double,trades:int64"
        fields: ["ESP_aSum(x)", "ESP_aCount(symbol)"]
    edges: [{source: Trades, target: Sums}]
"""
ROWS = """
    SELECT id, if(id % 3 = 0, 'A', 'ä') symbol, cast(id / 8 as decimal(10, 4)) price, if(id = 4, null, n) n, x, b, l,
           timestamp_micros(1700000000000001 + id) at, timestamp_seconds(1700000000 - id) day
    FROM (SELECT id, cast(id as int) n, sqrt(id) x, encode(cast(id as string), 'utf-8') b, array(null, 0.1D * id) l
          FROM range({first}, {stop}, 1, 2))
"""


@pytest.fixture
def desk(bus, tmp_path):
    """An engine of the project `desk`, in this process, and the file of its model."""
    (tmp_path / "desk.yaml").write_text(MODEL)
    graph = compile_project(parse_yaml(MODEL, "desk"))
    wanted = frozenset({"q/Trades", "q/Sums"})
    with Engine(graph, wanted, bus.bus, tmp_path / "engine", ThreadRuntime(), EngineOptions(runner="local")) as engine:
        engine.drain(timeout=60)
        yield engine


def at_window(side, bus, window: str, **options: object):
    return side.format("lockstep").options(url=bus.url, project="desk", window=window, **options)


def test_rows_become_events_and_events_rows_with_every_value_as_it_was(spark, bus, desk, tmp_path):
    rows = spark.sql(ROWS.format(first=0, stop=40))
    at_window(rows.write, bus, "Trades").mode("append").save()
    desk.drain(timeout=60)
    trades = at_window(spark.read, bus, "Trades").load()
    assert dict(trades.dtypes)["price"] == "decimal(19,4)"
    assert trades.columns[-4:] == ["_block", "_opcode", "_flags", "_time"]
    same = trades.select(*rows.columns).collect()
    assert sorted(map(repr, same)) == sorted(
        map(repr, rows.withColumn("price", f.col("price").cast("decimal(19,4)")).collect())
    )
    assert {row._opcode for row in trades.collect()} == {"insert"}
    # the rows that a window holds, joined with a table in SQL, and written to Parquet
    at_window(spark.read, bus, "Sums", rows="current").load().createOrReplaceTempView("sums")
    spark.createDataFrame([("A", "Alpha"), ("ä", "Beta")], "symbol string, title string").createOrReplaceTempView(
        "titles"
    )
    found = spark.sql("SELECT title, trades FROM sums JOIN titles USING (symbol) ORDER BY title")
    assert [tuple(row) for row in found.collect()] == [("Alpha", 14), ("Beta", 26)]
    spark.table("sums").write.parquet(str(tmp_path / "sums"))
    assert sorted(map(repr, spark.read.parquet(str(tmp_path / "sums")).collect())) == sorted(
        map(repr, spark.table("sums").collect())
    )
    # a row again, and a row taken back
    more = spark.sql("SELECT 1L id, 'A' symbol, 'upsert' _opcode, 5.0D x UNION ALL SELECT 2L, null, 'delete', null")
    at_window(more.write, bus, "Trades").mode("append").save()
    desk.drain(timeout=60)
    held = at_window(spark.read, bus, "Trades", rows="current").load()
    assert held.count() == 39
    assert [tuple(row) for row in held.where("id = 1").select("symbol", "x", "n").collect()] == [("A", 5.0, None)]
    with pytest.raises(PySparkException, match="it has no key 'id'"):
        at_window(rows.drop("id").write, bus, "Trades").mode("append").save()


def test_a_directory_of_csv_files_feeds_a_window_and_a_batch_run_again_adds_nothing(spark, bus, desk, tmp_path):
    files, checkpoint = tmp_path / "csv", tmp_path / "feed"
    files.mkdir()

    def feed(number: int, lines: str) -> None:
        (files / f"{number}.csv").write_text(lines)
        rows = (
            spark.readStream.schema("id bigint, symbol string, x double")
            .option("maxFilesPerTrigger", 1)
            .csv(str(files))
        )
        query = at_window(rows.writeStream, bus, "Trades").option("checkpointLocation", str(checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()
        desk.drain(timeout=60)

    feed(1, "1,A,0.5\n2,B,1.5\n")
    feed(2, "3,A,2.5\n")
    forget_commit(checkpoint, 1)
    feed(3, "4,B,3.5\n")
    read = at_window(spark.readStream, bus, "Sums", collapse="true", maxBytesPerTrigger=1).load()
    batches: list[list[tuple]] = []

    def take(batch, number):
        batches.append([tuple(row) for row in batch.select("_opcode", "symbol", "total", "trades").collect()])

    query = read.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "read"))
    query = query.trigger(availableNow=True).start()
    query.awaitTermination()
    assert len(batches) > 1
    assert [row for batch in batches for row in batch] == [
        ("insert", "A", 0.5, 1), ("insert", "B", 1.5, 1), ("update", "A", 3.0, 2), ("update", "B", 5.0, 2),
    ]  # fmt: skip
    assert '"last"' in str(query.lastProgress["sources"][0]["latestOffset"])


@pytest.mark.soak
def test_a_query_that_updates_its_rows_feeds_a_window_with_upserts(spark, bus, desk, tmp_path):
    publish(bus, "numbers", 0, 20)
    rows = on(spark.readStream, bus, "numbers", maxRecordsPerTrigger=10).load()
    counts = rows.groupBy((f.col("value").cast("string").cast("int") % 2).cast("bigint").alias("id")).agg(
        f.sum(f.lit(1.0)).alias("x")
    )

    def send(frame, number):
        at_window(frame.write, bus, "Trades", writer="counts", batch=number).mode("append").save()

    query = counts.writeStream.outputMode("update").foreachBatch(send).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "update")).start().awaitTermination()
    desk.drain(timeout=60)
    held = at_window(spark.read, bus, "Trades", rows="current").load().orderBy("id").select("id", "x").collect()
    assert [tuple(row) for row in held] == [(0, 10.0), (1, 10.0)]
    for mode, reason in (("update", "does not support Update mode"), ("complete", "only be appended to")):
        straight = at_window(counts.writeStream.outputMode(mode), bus, "Trades").trigger(availableNow=True)
        straight = straight.option("checkpointLocation", str(tmp_path / f"straight-{mode}"))
        with pytest.raises(PySparkException, match=reason):
            straight.start().awaitTermination()


def test_an_engine_lives_in_the_spark_of_a_job_and_leaves_it_alone(spark, bus, tmp_path):
    graph, wanted, state = compile_project(parse_yaml(MODEL, "desk")), frozenset({"q/Sums"}), tmp_path / "a state"
    before = {name: spark.conf.get(name) for name in ("spark.sql.shuffle.partitions", "spark.sql.session.timeZone")}
    with pytest.raises(SparkInUse, match="has a session of Spark already"):
        start_session(tmp_path)
    engine = Engine(graph, wanted, bus.bus, state, ThreadRuntime(), EngineOptions(session=spark))
    with engine, events.Events(bus).project("desk", model=graph).publisher("Trades") as publisher:
        publisher.publish(*({"id": number, "symbol": "A", "x": 1.0} for number in range(7)))
        publisher.flush()
        engine.drain(timeout=120)
        [query] = engine._compute._queries

        def told() -> list[dict]:
            return [progress for progress in query.recentProgress if progress["observedMetrics"]]

        # Spark tells of a batch after its commit, when its output is out already
        engine.run_until(
            lambda _: any(one["observedMetrics"][OBSERVED]["last_block"] == 7 for one in told()), timeout=60
        )
        figures = [progress["observedMetrics"][OBSERVED] for progress in told()]
        assert query.name == "desk-0"
        assert sum(one["events"] for one in figures) == 7
        assert sum(one["output_bytes"] for one in figures) > 0
        assert '"number"' in str(told()[-1]["sources"][0]["latestOffset"])
    assert (state / "checkpoint" / "0" / "offsets").is_dir()
    sums = [
        tuple(row)
        for row in at_window(spark.read, bus, "Sums", rows="current").load().select("total", "trades").collect()
    ]
    assert sums == [(7.0, 7)]
    assert before == {name: spark.conf.get(name) for name in before}
    assert SHARD_VARIABLE not in spark.sparkContext.environment


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
