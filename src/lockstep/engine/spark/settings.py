"""Spark's settings: measured ones for a pipeline that moves work orders, and silence unless asked for."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from lockstep.engine.errors import SparkSettingRefused

_STATE = "spark.sql.streaming.stateStore"
_STREAMING = "org.apache.spark.sql.execution.streaming"
CRASH_FILE = "hs_err_pid"
"""How the files begin that a crashed JVM leaves; then comes its process id."""
_QUIET = """status = off
rootLogger.level = off
rootLogger.appenderRef.none.ref = none
appender.none.type = Null
appender.none.name = none
"""
"""A logger needs an appender, or Spark brings its own."""

_FIXED = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    f"{_STATE}.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE}.rocksdb.trackTotalNumberOfRows": "false",
    f"{_STATE}.rocksdb.boundedMemoryUsage": "true",
    f"{_STATE}.rocksdb.maxMemoryUsageMB": "128",
}


_NEEDED = {
    "spark.sql.shuffle.partitions": ("1", "each shard is one task, so that it meets the worker that has its state"),
    "spark.python.worker.reuse": ("true", "workers keep the state of their shards between batches"),
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": (
        "false", "Spark would give the source of a shard a worker of its own"
    ),
}  # fmt: skip
"""Settings without which every batch begins with a snapshot and a replay, and why."""
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def check_engine(given: Mapping[str, str]) -> None:
    """Raise SparkSettingRefused for settings with which engines would work, but lose what they hold hot."""
    for name, (wanted, reason) in _NEEDED.items():
        value = str(given.get(name, wanted)).strip()
        if value.lower() != wanted:
            raise SparkSettingRefused(name=name, value=value, reason=f"it must be {wanted}: {reason}")


def runtime_settings() -> dict[str, str]:
    """Ours that a session takes while Spark runs."""
    return {name: value for name, value in _FIXED.items() if name.startswith("spark.sql.")}


def default_master() -> str:
    """Every core of this machine; a task that failed is tried again twice."""
    return f"local[{os.cpu_count() or 1},3]"


def settings(master: str | None, own: Mapping[str, str] | None = None) -> dict[str, str]:
    """All settings of a session; `own` wins over ours.

    Nothing listens to the network unless somebody says on which address: workers elsewhere call the driver back, so
    with a master elsewhere spark.driver.host must be given.
    """
    own = own or {}
    given = {**_FIXED, "spark.master": master or default_master(), **own}
    if "spark.driver.host" in own and "spark.driver.bindAddress" not in own:
        del given["spark.driver.bindAddress"]  # it binds to the host it names
    if not is_here(given["spark.master"]) and "spark.driver.host" not in own:
        reason = f"workers of {given['spark.master']} have to call this process back; name this machine as they know it"
        raise SparkSettingRefused(name="spark.driver.host", value=given["spark.driver.host"], reason=reason)
    return given


def is_here(master: str) -> bool:
    """Whether a master, and so its workers, are on this machine."""
    hosts = [place.rpartition(":")[0] for place in master.removeprefix("spark://").split(",")]
    return master.startswith("local") or (master.startswith("spark://") and all(host in _LOOPBACK for host in hosts))


def java_options(folder: Path, archive: Path | None, *, verbose: bool) -> str:
    """What the JVM is started with: a quick compiler and collector, no words unless asked for.

    What it leaves if it crashes goes into `folder`, and not to where the engine was started.
    """
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xss4m"]
    options += [f"-XX:ErrorFile={folder}/{CRASH_FILE}%p.log", f"-XX:HeapDumpPath={folder}"]
    if archive is not None and archive.exists():
        options += [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]
    if not verbose:
        quiet = folder / "log4j2.properties"
        quiet.write_text(_QUIET)
        options += ["-Xlog:disable", "-Xlog:all=error:stderr", f"-Dlog4j2.configurationFile=file:{quiet}"]
    return shlex.join(options)


def crash_files(folder: Path) -> set[Path]:
    """What JVMs that crashed have left in an engine's folder."""
    return set(folder.glob(f"{CRASH_FILE}*.log"))
