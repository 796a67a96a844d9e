"""Two flows with PyFlink's SQL: a program of its own.

python engine_peer_flink.py TRADES.tsv                 # lines of symbol, time in seconds, price, quantity
python engine_peer_flink.py TRADES.tsv TRADERS.tsv     # of ID, symbol, price, quantity, buyer; and of the table

The first is the volume-weighted price of each symbol over its last five minutes, the second joins each trade with its
buyer's row of a table. It needs PyFlink with Java and nothing of Lockstep, so that any Python can run it. Flink reads
the files itself, one slot, no checkpoints, and what comes out is dropped; measured is the job without Flink's start.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

_CSV = "WITH ('connector' = 'filesystem', 'format' = 'csv', 'csv.field-delimiter' = '\t', 'path' = '{path}')"
_PRICE = (
    (
        "CREATE TABLE trades (symbol STRING, `second` BIGINT, price DOUBLE, quantity BIGINT, "
        "met AS TO_TIMESTAMP_LTZ(`second`, 0), WATERMARK FOR met AS met) " + _CSV
    ),
    "CREATE TABLE dropped (symbol STRING, vwap DOUBLE) WITH ('connector' = 'blackhole')",
    (
        "INSERT INTO dropped SELECT symbol, SUM(price * quantity) OVER five / SUM(quantity) OVER five FROM trades "
        "WINDOW five AS (PARTITION BY symbol ORDER BY met RANGE BETWEEN INTERVAL '5' MINUTE PRECEDING AND CURRENT ROW)"
    ),
)
_JOIN = (
    "CREATE TABLE trades (ID BIGINT, symbol STRING, price DOUBLE, quantity BIGINT, buyer BIGINT) " + _CSV,
    "CREATE TABLE traders (id BIGINT, name STRING, country STRING, fee DOUBLE) " + _CSV,
    (
        "CREATE TABLE dropped (ID BIGINT, symbol STRING, price DOUBLE, quantity BIGINT, buyer BIGINT, name STRING, "
        "country STRING, fee DOUBLE) WITH ('connector' = 'blackhole')"
    ),
    "INSERT INTO dropped SELECT t.*, r.name, r.country, r.fee FROM trades t LEFT JOIN traders r ON t.buyer = r.id",
)


def main(paths: list[str]) -> dict[str, Any]:
    """Run the flow of prices over one file, that of the join over two."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("parallelism.default", "1")
    *made, insert = _PRICE if len(paths) == 1 else _JOIN
    files = iter(paths)
    for text in made:
        tables.execute_sql(text.format(path=next(files)) if "{path}" in text else text)
    events = sum(len(Path(path).read_text().splitlines()) for path in paths)
    began = time.monotonic()
    client = tables.execute_sql(insert).get_job_client()
    spent = client.get_job_execution_result().result().get_net_runtime() / 1e3
    whole = time.monotonic() - began
    return {"events": events, "seconds": round(spent, 3), "with_start_s": round(whole, 3),
            "events_per_s": round(events / spent)}  # fmt: skip


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1:])) + "\n")
