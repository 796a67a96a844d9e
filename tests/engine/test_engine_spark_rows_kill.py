"""A query that copies a stream is killed with kill -9, again and again: the copy has every row once, in order."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import lockstep
from lockstep.drill.processes import members, send_signal

ROWS = 120


def copy(folder: Path, how: str) -> None:
    """The child process."""
    from lockstep.engine.spark.rows import register
    from lockstep.engine.spark.session import start_session, stop_session

    spark = start_session(folder / "spark", master="local[2]")
    register(spark)
    url = f"lmdb:{folder}/bus"
    given = {"url": url, "stream": "orders", "maxRecordsPerTrigger": "10", "columns": "key,value"}
    rows = spark.readStream.format("lockstep").options(**given).load()
    writer = rows.writeStream.format("lockstep").options(url=url, stream="copy")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(**({"availableNow": True} if how == "to-the-end" else {"processingTime": "0 seconds"}))
    query.start().awaitTermination()
    stop_session(spark)


def start(folder: Path, how: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, str(folder), how]
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for(bus: lockstep.Lockstep, rows: int) -> None:
    with bus.subscriber("copy", initial="earliest") as copied:
        while (copied.last_read_offset("copy") or 0) < rows:
            assert copied.poll(timeout=120), "the query did not get so far"


@pytest.mark.slow
@pytest.mark.acceptance
@pytest.mark.timeout(300)
@pytest.mark.soak
def test_kills_at_any_moment_neither_lose_nor_double_a_row(tmp_path):
    (tmp_path / "spark").mkdir()
    with lockstep.connect(f"lmdb:{tmp_path}/bus") as bus:
        bus.create("copy", lockstep.StreamConfig(capacity=None))
        values = [b"%d" % number for number in range(ROWS)]
        with bus.publisher("orders") as publisher:
            publisher.publish_many(values).wait()
        # When the query is killed with all of Spark, in whatever it is doing
        for rows in (10, 30, 50, 90):  # are in the copy by then
            child = start(tmp_path, "for-ever")
            try:
                wait_for(bus, rows)
            finally:
                for member in members(child.pid):  # the JVM is in a session of its own
                    send_signal(member.pid, signal.SIGKILL)
                child.wait()
        # And run to the end at last
        with start(tmp_path, "to-the-end") as child:
            assert child.wait(timeout=120) == 0
        # Then the copy is the original
        with bus.subscriber("copy", initial="earliest") as copied:
            assert copied.poll(max_records=2 * ROWS).values() == values
        assert [name for name in bus.bus.names() if name.startswith("_")] == []


if __name__ == "__main__":
    copy(Path(sys.argv[1]), sys.argv[2])
