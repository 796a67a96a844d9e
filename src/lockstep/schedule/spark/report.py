"""The history of a scheduler in figures: lateness, retries and misses by tenant and hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from lockstep.engine.spark.rows import register
from lockstep.schedule.times import java_text

HOUR_MS = 3_600_000
HEADINGS = (
    "hour", "tenant", "fired", "late p50", "late p95", "late p99", "late max", "retries", "failed", "missed",
    "skipped", "removed",
)  # fmt: skip
_RECORD = "at bigint, what string, tenant string, eventTime bigint, lateMs bigint, count bigint"
_OUTCOMES = ("fired", "retry", "failed", "missed", "skipped", "removed")


@dataclass(frozen=True, kw_only=True, slots=True)
class HourRow:
    """The outcomes of one hour for one tenant. Lateness is in milliseconds; None if nothing fired."""

    hour: int
    tenant: str
    fired: int
    late_p50_ms: int | None
    late_p95_ms: int | None
    late_p99_ms: int | None
    late_max_ms: int | None
    retries: int
    failed: int
    missed: int
    skipped: int
    removed: int

    def plain(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)

    def cells(self) -> list[str | int | None]:
        """A row of the table."""
        lates = (self.late_p50_ms, self.late_p95_ms, self.late_p99_ms, self.late_max_ms)
        shown = [None if late is None else f"{late} ms" for late in lates]
        counts = (self.retries, self.failed, self.missed, self.skipped, self.removed)
        return [java_text(self.hour), self.tenant, self.fired, *shown, *counts]


def by_hour(
    spark: SparkSession,
    url: str,
    stream: str,
    *,
    tenant: str | None = None,
    start: int | None = None,
    stop: int | None = None,
    parquet: str | None = None,
) -> list[HourRow]:
    """Return the figures of each hour and tenant, by the time of the events; with `parquet` also write them there."""
    records = _records(spark, url, stream)
    if tenant is not None:
        records = records.where(f.col("tenant") == tenant)
    if start is not None:
        records = records.where(f.col("at") >= start)
    if stop is not None:
        records = records.where(f.col("at") < stop)
    rows = _figures(records).orderBy("hour", "tenant")
    if parquet is not None:
        rows = rows.persist()
        rows.withColumn("hour", f.timestamp_millis("hour")).coalesce(1).write.parquet(str(Path(parquet).absolute()))
    return [HourRow(**row.asDict()) for row in rows.collect()]


def _records(spark: SparkSession, url: str, stream: str) -> DataFrame:
    register(spark)
    rows = spark.read.format("lockstep").option("url", url).option("stream", stream).option("columns", "value").load()
    record = f.from_json(f.col("value").cast("string"), _RECORD)
    return rows.select(record.alias("r")).select("r.*").where(f.col("tenant").isNotNull())


def _figures(records: DataFrame) -> DataFrame:
    hour = (f.floor(f.col("at") / HOUR_MS) * HOUR_MS).cast("long")
    late = f.when(f.col("what") == "fired", f.col("lateMs"))
    found = records.where(f.col("what").isin(*_OUTCOMES)).groupBy(hour.alias("hour"), "tenant")
    return found.agg(
        _count("fired").alias("fired"),
        *(
            f.percentile(late, f.lit(part)).cast("long").alias(f"late_p{round(part * 100)}_ms")
            for part in (0.5, 0.95, 0.99)
        ),
        f.max(late).alias("late_max_ms"),
        _count("retry").alias("retries"),
        *(_count(what).alias(what) for what in ("failed", "missed", "skipped", "removed")),
    )


def _count(what: str) -> Column:
    """How often something happened; one record may tell it of several ticks."""
    times = f.coalesce(f.col("count"), f.lit(1))
    return f.sum(f.when(f.col("what") == what, times).otherwise(0))


def plot(rows: Sequence[HourRow], path: Path) -> None:
    """Draw lateness and counts over time, a line for each tenant."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, (above, below) = plt.subplots(2, 1, figsize=(10, 6), sharex=True, constrained_layout=True)
    for tenant in sorted({row.tenant for row in rows}):
        own = [row for row in rows if row.tenant == tenant]
        hours = [datetime.fromtimestamp(row.hour / 1000, UTC) for row in own]
        above.plot(hours, [row.late_p99_ms or 0 for row in own], marker="o", label=tenant)
        below.plot(hours, [row.fired for row in own], marker="o", label=tenant)
    above.set_ylabel("late, p99 (ms)")
    below.set_ylabel("fired an hour")
    below.tick_params(axis="x", rotation=30)
    if rows:
        above.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
