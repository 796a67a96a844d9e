"""A query that feeds a window is killed with kill -9, again and again: each row is an event once, in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import lockstep
from forks import exit_code_of_a_fork
from lockstep.drill.processes import members, send_signal
from lockstep.engine.events.frames import decode_frame
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.loading import load_model, to_yaml
from lockstep.engine.model.project import ContinuousQuery, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import SourceWindow
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.engine.runtime.sequence.streams import ProjectStreams, own_input
from lockstep.engine.spark.rows import LockstepSource
from lockstep.engine.spark.rows_writer import Task
from lockstep.engine.spark.sources import open_shared

FIELDS = Schema.parse("ID*:int64,name:string")
KILLED = -signal.SIGKILL
ROWS = 120


def make_model(folder: Path) -> None:
    query = ContinuousQuery(name="q", windows=(SourceWindow(name="w", schema=FIELDS, insert_only=True),), edges=())
    (folder / "desk.yaml").write_text(to_yaml(Project(name="desk", queries=(query,))))


def options(folder: Path) -> dict[str, str]:
    return {"url": f"lmdb:{folder}/bus", "project": "desk", "window": "w", "model": f"{folder}/desk.yaml"}


def stream_of(folder: Path) -> str:
    """The window's own stream."""
    [node] = compile_project(load_model(f"{folder}/desk.yaml")).nodes
    return own_input(ProjectStreams(cluster="local", project="desk"), node)


def taken(bus: lockstep.Lockstep, folder: Path) -> list[tuple[int, str]]:
    """The events on the window's stream, in the order in which an engine takes them."""
    log = bus.bus.open(stream_of(folder))
    frames = [decode_frame(value, FIELDS, number_from=1) for _, value in values_between(log, 0, log.bounds().next)]
    return [event.values for frame in frames for event in frame.batch.events()]


def hidden(bus: lockstep.Lockstep) -> list[str]:
    return [name for name in bus.bus.names() if name.startswith("_")]


# Without a JVM: killed before and after each change of the bus, from the first staged row to the last log removed


class MortalBus:
    """A bus whose process is killed at its so manieth change: before that, or after it."""

    def __init__(self, inner, left):
        self._inner, self._left = inner, left

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def create(self, *given):
        return MortalLog(self.change(self._inner.create, *given), self)

    def open(self, name):
        return MortalLog(self._inner.open(name), self)

    def delete(self, name):
        self.change(self._inner.delete, name)

    def atomic(self, work):
        return self.change(self._inner.atomic, work)

    def change(self, call, *given, **named):
        self._tick()
        result = call(*given, **named)
        self._tick()
        return result

    def _tick(self):
        self._left[0] -= 1
        if self._left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class MortalLog:
    def __init__(self, inner, bus):
        self._inner, self._bus = inner, bus

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def append(self, *given, **named):
        return self._bus.change(self._inner.append, *given, **named)


def write_batch(folder: Path, batch: int, at: int, *, streaming: bool) -> int:
    """A batch of two tasks as Spark runs it, in a process that is killed at its so manieth change."""
    left = [at]
    more = {} if streaming else {"writer": "feed", "batch": str(batch)}
    source = LockstepSource({**options(folder), **more})
    rows = StructType([StructField("ID", LongType()), StructField("name", StringType())])
    messages = []
    for partition in (0, 1):
        writer = source.streamWriter(rows, overwrite=False) if streaming else source.writer(rows, overwrite=False)
        writer._task = lambda partition=partition: Task(partition, "query", batch)
        writer._sink.open_url = lambda url: MortalBus(open_shared(url), left)
        ids = np.arange(3, dtype=np.int64) + 10 * batch + 3 * partition
        part = pa.RecordBatch.from_pydict({"ID": ids, "name": [f"n{one}" for one in ids]})
        messages.append(writer.write(iter([part])))
    writer.commit(messages, *([batch] if streaming else []))
    return 0


@pytest.mark.parametrize("streaming", [True, False], ids=["writeStream", "foreachBatch"])
def test_a_kill_at_any_change_of_the_bus_neither_loses_nor_doubles_an_event(tmp_path, streaming):
    make_model(tmp_path)
    with lockstep.connect(f"lmdb:{tmp_path}/bus"):
        """Makes it."""
    # When a batch is killed at its first change, the next one at its second, ..., and each comes again
    batch, code = 0, KILLED
    while code == KILLED:
        code = exit_code_of_a_fork(lambda batch=batch: write_batch(tmp_path, batch, batch + 1, streaming=streaming))
        assert code in (KILLED, 0)
        assert exit_code_of_a_fork(lambda batch=batch: write_batch(tmp_path, batch, -1, streaming=streaming)) == 0
        batch += 1
    # Then there were some, and each row is an event once, in the order of batches and partitions
    assert batch > 14
    with lockstep.connect(f"lmdb:{tmp_path}/bus") as bus:
        ids = [10 * number + one for number in range(batch) for one in range(6)]
        assert taken(bus, tmp_path) == [(one, f"n{one}") for one in ids]
        assert hidden(bus) == []


# With all of Spark


def feed(folder: Path, how: str) -> None:
    """The child process: rows of a stream become events of a window."""
    from pyspark.sql import functions as f

    from lockstep.engine.spark.rows import register
    from lockstep.engine.spark.session import start_session, stop_session

    spark = start_session(folder / "spark", master="local[2]")
    register(spark)
    given = {"url": f"lmdb:{folder}/bus", "stream": "numbers", "maxRecordsPerTrigger": "10", "columns": "value"}
    text = f.col("value").cast("string")
    rows = spark.readStream.format("lockstep").options(**given).load()
    rows = rows.select(text.cast("bigint").alias("ID"), f.concat(f.lit("n"), text).alias("name"))
    writer = rows.writeStream.format("lockstep").options(**options(folder))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(**({"availableNow": True} if how == "to-the-end" else {"processingTime": "0 seconds"}))
    query.start().awaitTermination()
    stop_session(spark)


def start(folder: Path, how: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, str(folder), how]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, start_new_session=True, stdout=quiet, stderr=quiet, env=paths)


def wait_for(bus: lockstep.Lockstep, stream: str, events: int) -> None:
    with bus.subscriber(stream, initial="earliest") as subscriber:
        count = 0
        while count < events:
            found = subscriber.poll(timeout=120).values()
            assert found, "the query did not get so far"
            count += sum(len(decode_frame(value, FIELDS, number_from=1).batch) for value in found)


@pytest.mark.slow
@pytest.mark.acceptance
@pytest.mark.timeout(300)
@pytest.mark.soak
def test_kills_at_any_moment_neither_lose_nor_double_an_event(tmp_path):
    (tmp_path / "spark").mkdir()
    make_model(tmp_path)
    with lockstep.connect(f"lmdb:{tmp_path}/bus") as bus:
        with bus.publisher("numbers") as publisher:
            publisher.publish_many([b"%d" % number for number in range(ROWS)]).wait()
        bus.create(stream_of(tmp_path))
        # When the query is killed with all of Spark, in whatever it is doing
        for events in (10, 30, 50, 90):  # are on the window's stream by then
            child = start(tmp_path, "for-ever")
            try:
                wait_for(bus, stream_of(tmp_path), events)
            finally:
                for member in members(child.pid):  # the JVM is in a session of its own
                    send_signal(member.pid, signal.SIGKILL)
                child.wait()
        # And run to the end at last
        with start(tmp_path, "to-the-end") as child:
            assert child.wait(timeout=120) == 0
        # Then each row is an event once, in order
        assert taken(bus, tmp_path) == [(number, f"n{number}") for number in range(ROWS)]
        assert hidden(bus) == []


if __name__ == "__main__":
    feed(Path(sys.argv[1]), sys.argv[2])
