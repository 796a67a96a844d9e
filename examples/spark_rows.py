"""Streams as rows in Spark: a query reads one stream and writes another, every row once, however often it is started.

The query takes prices in batches of at most 40 rows and keeps the high ones. It runs to the end of what is there,
stops, and goes on later from its checkpoint. Then its last batch is run a second time, as after a kill at the worst
moment: the stream knows that batch already and takes nothing twice.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import lockstep
from lockstep.engine.spark.rows import register
from lockstep.engine.spark.session import start_session, stop_session


def publish_prices(bus: lockstep.Lockstep, first: int, stop: int) -> None:
    with bus.publisher("prices") as publisher:
        for price in range(first, stop):
            publisher.publish(b"%d" % price, key=b"ACME")


def keep_high_prices(spark: SparkSession, url: str, checkpoint: Path) -> None:
    """The query: all that is there now, then stop."""
    prices = spark.readStream.format("lockstep").options(url=url, stream="prices", maxRecordsPerTrigger=40).load()
    high = prices.where("cast(cast(value as string) as int) >= 90").select("key", "value", "time")
    writer = high.writeStream.format("lockstep").options(url=url, stream="high")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, lockstep.connect(f"lmdb:{folder}/bus") as bus:
        spark = start_session(Path(folder))
        register(spark)
        checkpoint = Path(folder) / "checkpoint"
        bus.create("prices")
        bus.create("high")

        publish_prices(bus, 0, 100)
        keep_high_prices(spark, bus.url, checkpoint)
        print(f"100 prices were read, {bus.bounds('high').count} are high.")
        assert bus.bounds("high").count == 10

        publish_prices(bus, 100, 120)
        keep_high_prices(spark, bus.url, checkpoint)
        print(f"20 more came, the query went on: {bus.bounds('high').count} are high.")
        assert bus.bounds("high").count == 30

        (checkpoint / "commits" / "3").unlink()  # Spark forgets that it finished its last batch
        (checkpoint / "commits" / ".3.crc").unlink()
        keep_high_prices(spark, bus.url, checkpoint)
        assert (checkpoint / "commits" / "3").exists()
        assert bus.bounds("high").count == 30
        print("The last batch ran twice and was written once.")

        tail = spark.read.format("lockstep").options(url=bus.url, stream="high", startingOffset=25).load()
        values = [int(row.value) for row in tail.orderBy("offset").collect()]
        print(f"As a batch, from offset 25: {values}")
        assert values == [115, 116, 117, 118, 119]
        stop_session(spark)


if __name__ == "__main__":
    main()
