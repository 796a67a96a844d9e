"""The same price by hand: a Structured Streaming job with applyInPandasWithState, as one writes it without Lockstep.

It reads files, a micro-batch each, groups by symbol, and keeps the last five minutes of a symbol in Spark's state
store. A symbol's rows leave only when it trades again. Rows of a batch reach the function in no promised order,
so that it sorts them; what comes out is in the order of groups, and depends on how the input was cut into files.
Results are thrown away (noop). State is committed with every batch, as Spark does it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from pyspark.sql.streaming.state import GroupState

from lockstep.bench.engine_peer_bytewax import Vwap
from lockstep.bench.processes import Link
from lockstep.engine.data.models import trades
from lockstep.engine.spark.session import start_session, stop_session

_STATE = "seconds binary, prices binary, quantities binary"
"""Not arrays: with these a worker of Spark 4.3.0 fails, as it finds no elementType in the schema of the state."""
_CODES = ("<i8", "<f8", "<i8")
_RESULT = "symbol string, ID int, vwap double"
_COLUMNS = ("ID", "symbol", "price", "quantity", "udate")


def write_files(folder: Path, events: int, batch_events: int) -> None:
    """The trades as Parquet files of about a micro-batch each."""
    import pyarrow as pa

    folder.mkdir()
    table = pa.concat_tables(
        pa.table({name: batch.column(name) for name in _COLUMNS}) for batch in trades(events)
    ).combine_chunks()
    for number, start in enumerate(range(0, events, batch_events)):
        pq.write_table(table.slice(start, batch_events), folder / f"{number:06d}.parquet")


def vwap(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """The prices of one symbol after each of its trades in this batch."""
    kept = Vwap()
    if state.exists:
        for old in zip(*map(_unpacked, state.get, _CODES), strict=True):
            kept.add(old)
    given = list(frames)
    rows = given[0] if len(given) == 1 else pd.concat(given)
    order = np.argsort(rows["ID"].to_numpy())
    columns = [rows[name].to_numpy()[order] for name in ("udate", "price", "quantity", "ID")]
    prices = [kept.add(trade) for trade in zip(*(column.tolist() for column in columns[:3]), strict=True)]
    state.update(tuple(map(_packed, zip(*kept.rows, strict=True), _CODES)))
    yield pd.DataFrame({"symbol": key[0], "ID": columns[3], "vwap": prices})


def _packed(column: tuple[float, ...], code: str) -> bytes:
    return np.array(column, code).tobytes()


def _unpacked(packed: bytes, code: str) -> list[float]:
    found: list[float] = np.frombuffer(packed, code).tolist()
    return found


def run(link: Link, folder: str, events: int, batch_events: int) -> dict[str, Any]:
    """Run the job over all files; the first batch is left out of the steady rate."""
    link.ready()
    place = Path(folder)
    write_files(place / "trades", events, batch_events)
    began = time.monotonic()
    spark = start_session(place, own={"spark.sql.shuffle.partitions": str(os.cpu_count() or 1)})
    try:
        ready = time.monotonic()
        schema = spark.read.parquet(str(place / "trades")).schema
        source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(place / "trades"))
        prices = source.groupBy("symbol").applyInPandasWithState(vwap, _RESULT, _STATE, "append", "NoTimeout")
        writer = prices.writeStream.format("noop").option("checkpointLocation", str(place / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = [json.loads(each.json) for each in query.recentProgress]
        ended = time.monotonic()
    finally:
        stop_session(spark)
    return {
        **_figures([each for each in progress if each["numInputRows"]]),
        "events": events,
        "spark_ready_s": round(ready - began, 3),
        "total_s": round(ended - began, 3),
    }


def _figures(batches: list[dict[str, Any]]) -> dict[str, Any]:
    spent = [(each["numInputRows"], each["durationMs"]["triggerExecution"] / 1e3) for each in batches]
    steady = spent[1:] or spent
    return {
        "batches": len(spent),
        "batch_s": [seconds for _, seconds in spent],
        "taken": sum(rows for rows, _ in spent),
        "steady_events_per_s": round(sum(rows for rows, _ in steady) / sum(seconds for _, seconds in steady)),
    }
