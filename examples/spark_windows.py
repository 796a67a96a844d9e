"""Windows as data frames in Spark: files feed a window, its answers are joined, stored and plotted.

A directory of CSV files is a stream of rows, and the rows are events of a source window. An engine computes what each
symbol was traded for. A Spark program reads the answer as a data frame, joins it with a table in SQL, writes it to
Parquet, and draws it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from lockstep.engine.spark.rows import register
from lockstep.engine.spark.session import start_session, stop_session
from lockstep.engines import Engine, EngineOptions
from lockstep.log.urls import open_bus
from lockstep.models import Graph, ProjectBuilder, compile_project
from lockstep.runtime import ThreadRuntime


def model() -> Graph:
    project = ProjectBuilder("desk")
    trades = project.query("q").source("Trades", "id*:int64,symbol:string,price:double", insert_only=True)
    trades.aggregate("Sums", by="symbol", total="ESP_aSum(price)", trades="ESP_aCount(symbol)")
    return compile_project(project.build())


def feed(spark: SparkSession, url: str, files: Path, checkpoint: Path) -> None:
    """Every file that is there and was not fed before; a kill at any moment loses and doubles nothing."""
    rows = spark.readStream.schema("id bigint, symbol string, price double").csv(str(files))
    writer = rows.writeStream.format("lockstep").options(url=url, project="desk", window="Trades")
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


def plot(spark: SparkSession, file: Path) -> None:
    from matplotlib.figure import Figure

    table = spark.table("sums").orderBy("symbol").toArrow()
    figure = Figure()
    figure.add_subplot().bar(table["symbol"].to_pylist(), table["total"].to_pylist())
    figure.savefig(file)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, graph, runtime = Path(name), model(), ThreadRuntime()
        url = f"lmdb:{folder}/bus"
        bus = open_bus(url, runtime)
        spark = start_session(folder)
        register(spark)
        (folder / "csv").mkdir()
        wanted = frozenset({"q/Sums"})
        with Engine(graph, wanted, bus, folder / "engine", runtime, EngineOptions(runner="local")) as engine:
            engine.drain()
            for number, lines in enumerate(("1,ACME,10\n2,IDEA,4\n", "3,ACME,12\n")):
                (folder / "csv" / f"{number}.csv").write_text(lines)
                feed(spark, url, folder / "csv", folder / "checkpoint")
            engine.drain()
        sums = spark.read.format("lockstep").options(url=url, project="desk", window="Sums", rows="current")
        sums.load().createOrReplaceTempView("sums")
        firms = [("ACME", "tools"), ("IDEA", "lamps")]
        spark.createDataFrame(firms, "symbol string, makes string").createOrReplaceTempView("firms")
        joined = spark.sql("SELECT makes, total, trades FROM sums JOIN firms USING (symbol) ORDER BY makes")
        for row in joined.collect():
            print(f"{row.makes}: {row.trades} trades, {row.total:g} in all")
        spark.table("sums").write.parquet(str(folder / "sums"))
        plot(spark, folder / "sums.png")
        assert (folder / "sums.png").stat().st_size > 0
        print(f"Parquet has {spark.read.parquet(str(folder / 'sums')).count()} rows, and the plot is drawn.")
        stop_session(spark)
        bus.close()


if __name__ == "__main__":
    main()
