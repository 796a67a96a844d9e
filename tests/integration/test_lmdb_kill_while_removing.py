"""A process killed while it trims or deletes a large stream: the stream is as before or as after, and sound."""

from __future__ import annotations

import random
import subprocess
import sys
import threading

import pytest

import lockstep
from lockstep.log.lmdb.verify import verify

RECORDS, KEPT_FROM = 60_000, 50_000
CHILD = f"""
import sys, lockstep
bus = lockstep.connect(sys.argv[1])
print("ready", flush=True)
bus.trim("orders", {KEPT_FROM}) if sys.argv[2] == "trim" else bus.delete("orders")
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("verb", ["trim", "delete"])
def test_a_kill_while_removing_leaves_a_sound_store(tmp_path, verb, seed):
    # Given a stream of many batches
    url = f"lmdb:{tmp_path / 'bus'}"
    with (
        lockstep.connect(url) as bus,
        bus.publisher("orders", config=lockstep.StreamConfig(capacity=None)) as publisher,
    ):
        publisher.publish_many([b"x" * 100] * RECORDS).wait()
    # When the process that removes it, or most of it, is killed at a random moment
    child = subprocess.Popen([sys.executable, "-c", CHILD, url, verb], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    threading.Event().wait(random.Random(seed).random() * 0.01)  # not a wait for anything: the moment is to be random
    child.kill()
    child.communicate(timeout=20)
    # Then the store is sound, and the stream is there, there in part, or gone
    assert verify(tmp_path / "bus").faults == ()
    with lockstep.connect(url) as bus:
        if "orders" in bus.streams():
            assert bus.bounds("orders").first in (0, KEPT_FROM)
        else:
            assert verb == "delete"
        # And it can be used at once
        with bus.publisher("orders") as publisher:
            offset = publisher.publish(b"after").result(20)
        assert bus.get("orders", offset).value == b"after"
