"""What will fire in each minute: crons expanded and stored events counted by Spark's workers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from lockstep.core.agenda import UNFIRED
from lockstep.core.group import GroupState
from lockstep.cron import parse
from lockstep.cron.table import CronTable
from lockstep.engine.spark.sources import check_host, open_shared, opened, this_host
from lockstep.errors import BadArgument
from lockstep.runtime import ThreadRuntime
from lockstep.schedule.requests import cron_row
from lockstep.schedule.rows import CronRow
from lockstep.schedule.scheduler import Scheduler
from lockstep.schedule.spark.session import partitions
from lockstep.schedule.store.port import Filter
from lockstep.schedule.store.urls import open_store
from lockstep.schedule.times import zone_of

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
EVENTS, TICKS = "events", "ticks"
PAGE = 5000
DAYS_MAX = 3660
SPAN_S = 6 * HOUR_S
"""Crons are expanded so many seconds at a time."""
COUNTED = "minute long, kind string, count long"
_SCHEMA = pa.schema([("minute", pa.int64()), ("kind", pa.string()), ("count", pa.int64())])


@dataclass(frozen=True, slots=True)
class MinuteRow:
    """A minute, in milliseconds since 1970, and what fires in it."""

    minute: int
    events: int
    ticks: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """What fires in a time, its busiest minutes first, and all hours if asked for."""

    events: int
    ticks: int
    busiest: Sequence[MinuteRow]
    hours: Sequence[MinuteRow] = ()


def forecast(
    spark: SparkSession,
    scheduler: Scheduler,
    *,
    url: str,
    store: str | None = None,
    start: int,
    days: float,
    tenant: str | None = None,
    top: int = 20,
    series: bool = False,
) -> Forecast:
    """Return what fires in the days after `start`, milliseconds since 1970: of one tenant, or of all.

    Crons that are paused do not fire, nor do tenants that are paused or not registered.
    """
    if not 0 < days <= DAYS_MAX:
        raise BadArgument(name="days", value=days, reason=f"it must be above 0, and at most {DAYS_MAX:,}")
    begin, end = start // 1000, start // 1000 + round(days * DAY_S)
    tenants = frozenset(name for name, one in scheduler.tenants().items() if not one.paused and tenant in (None, name))
    crons = [row for row in scheduler.crons() if not row.paused and row.tenant in tenants]
    rows = [json.dumps(_plain(row)) for row in crons]
    shards = len(scheduler.bus.logs(scheduler.streams.requests))
    ticks = _spread(spark, rows, "cron string").mapInArrow(TickCount(begin, end), COUNTED)
    counted = EventCount(
        url=url, host=this_host(), name=scheduler.name, store=store, start=begin * 1000, stop=end * 1000,
        tenants=tenants,
    )  # fmt: skip
    events = _spread(spark, [str(shard) for shard in range(shards)], "shard string").mapInArrow(counted, COUNTED)
    minutes = events.union(ticks).groupBy("minute").pivot("kind", [EVENTS, TICKS]).agg(f.sum("count"))
    minutes = minutes.fillna(0).persist()
    total = minutes.agg(f.sum(EVENTS).alias(EVENTS), f.sum(TICKS).alias(TICKS)).first()
    busiest = minutes.orderBy(f.desc(f.col(EVENTS) + f.col(TICKS)), "minute").limit(top)
    found = Forecast(
        (total and total[EVENTS]) or 0, (total and total[TICKS]) or 0, _rows(busiest, MINUTE_S),
        _rows(_hours(minutes), HOUR_S) if series else (),
    )  # fmt: skip
    minutes.unpersist()
    return found


def _plain(row: CronRow) -> dict[str, object]:
    return {**asdict(row), "payload": None}


def _spread(spark: SparkSession, items: Sequence[str], schema: str) -> DataFrame:
    return spark.createDataFrame([(item,) for item in items], schema).repartition(partitions())


def _hours(minutes: DataFrame) -> DataFrame:
    hour = f.floor(f.col("minute") / 60).cast("long").alias("minute")
    return minutes.groupBy(hour).agg(f.sum(EVENTS).alias(EVENTS), f.sum(TICKS).alias(TICKS)).orderBy("minute")


def _rows(counted: DataFrame, seconds: int) -> list[MinuteRow]:
    return [MinuteRow(row["minute"] * seconds * 1000, row[EVENTS], row[TICKS]) for row in counted.collect()]


@dataclass(frozen=True, slots=True)
class TickCount:
    """Counts the nominal ticks of crons by minute, from second `start` up to, not including, `stop`."""

    start: int
    stop: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the counts of the minutes."""
        crons = [
            (parse(row.expression, row.type), zone_of(row))
            for batch in batches
            for text in batch.column(0).to_pylist()
            for row in [cron_row(json.loads(text))]
        ]
        if not crons:
            return
        table, first = CronTable.of(crons), self.start // MINUTE_S
        counts = np.zeros(-(-self.stop // MINUTE_S) - first, np.int64)
        for begin in range(self.start - 1, self.stop - 1, SPAN_S):
            _, seconds = table.due(begin, min(begin + SPAN_S, self.stop - 1))
            counts += np.bincount(np.asarray(seconds) // MINUTE_S - first, minlength=len(counts))
        [busy] = counts.nonzero()
        yield _batch((busy + first).tolist(), TICKS, counts[busy].tolist())


@dataclass(frozen=True, kw_only=True, slots=True)
class EventCount:
    """Counts the stored events of shards by minute, from `start` up to, not including, `stop`, in milliseconds."""

    url: str
    host: str
    name: str
    store: str | None
    start: int
    stop: int
    tenants: frozenset[str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the counts of the minutes."""
        shards = [int(text) for batch in batches for text in batch.column(0).to_pylist()]
        if not shards:
            return
        counts: Counter[int] = Counter()
        chosen = Filter(status=UNFIRED, start=self.start, stop=self.stop)
        with opened(open_shared, self.url) as bus:
            check_host(bus, self.host)
            rows = open_store(self.store, self.name, bus, ThreadRuntime(), lambda _: GroupState())
            try:
                cursor = None
                while True:
                    page = rows.events(shards, chosen, PAGE, cursor)
                    found = (event.at for event in page.events if event.tenant in self.tenants)
                    counts.update(at // (MINUTE_S * 1000) for at in found)
                    if (cursor := page.next) is None:
                        break
            finally:
                rows.close()
        yield _batch(list(counts), EVENTS, list(counts.values()))


def _batch(minutes: Sequence[int], kind: str, counts: Sequence[int]) -> pa.RecordBatch:
    columns = [pa.array(minutes, pa.int64()), pa.array([kind] * len(minutes)), pa.array(counts, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def plot(found: Forecast, path: Path) -> None:
    """Draw what fires in each hour."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 4), constrained_layout=True)
    hours: list[Any] = [datetime.fromtimestamp(row.minute / 1000, UTC) for row in found.hours]
    axes.stackplot(hours, [row.events for row in found.hours], [row.ticks for row in found.hours],
                   labels=["events", "ticks of crons"])  # fmt: skip
    axes.set_ylabel("fires an hour")
    axes.tick_params(axis="x", rotation=30)
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
