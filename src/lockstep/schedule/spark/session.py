"""A Spark session for one command: on all cores, with batches of Arrow that fit a worker's memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from lockstep.engine.spark.session import start_session, stop_session
from lockstep.errors import UnsupportedByBackend
from lockstep.log.port import Bus
from lockstep.log.urls import password_variable, reopened_by

ARROW_ROWS = 10_000
_OWN = {
    "spark.driver.memory": "2g",
    "spark.sql.files.maxPartitionBytes": str(16 << 20),
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}
"""Adaptive execution would join partitions, each of which writes shards of its own."""


def partitions() -> int:
    """Return how many tasks share the work after a shuffle."""
    return 2 * (os.cpu_count() or 1)


@contextmanager
def spark_session(
    *, master: str | None = None, own: Mapping[str, str] | None = None, verbose: bool = False
) -> Iterator[SparkSession]:
    """Start Spark, and stop it at the end."""
    chosen = {**_OWN, "spark.sql.shuffle.partitions": str(partitions()), **(own or {})}
    with TemporaryDirectory(prefix="lockstep-spark-", ignore_cleanup_errors=True) as folder:
        spark = start_session(Path(folder), master=master, own=chosen, verbose=verbose)
        try:
            yield spark
        finally:
            stop_session(spark)


def shared_url(bus: Bus, given: str) -> str:
    """Return the URL by which workers open the bus; a password goes by the environment."""
    if bus.promises.opened_by == "process":
        raise UnsupportedByBackend(
            bus=bus.url, feature="be shared with Spark, whose workers are processes of their own"
        )
    if secret := password_variable(given):
        os.environ.setdefault(*secret)
    url = reopened_by(bus)
    scheme, _, rest = url.partition(":")
    if bus.promises.opened_by != "host" or rest.startswith("/"):
        return url
    return f"{scheme}:{Path.cwd() / rest}"  # workers stand in another folder


def reason_of(error: Exception) -> str:
    """Return why Spark failed, in one line: what a worker raised, or Spark's own first words and their cause."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith(("at ", "An error occurred while calling"))]
    raised = [line for line in lines if re.match(r"[\w.]+(?:Error|Exception|[A-Z]\w+): ", line)]
    if raised and any("Traceback" in line for line in lines):
        return raised[-1].removesuffix(".")
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    said = [(lines or [type(error).__name__])[0], *causes[-1:]]
    return "; ".join(said).removesuffix(".")
