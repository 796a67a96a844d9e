"""A process that forks while its threads use the store: the child never hangs."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

import lockstep
from lockstep.errors import IllegalState
from lockstep.log.lmdb import environment

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def ended(child, seconds=20.0):
    """The exit code of a child; killed and None if it hangs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def test_a_child_does_not_hang_though_a_thread_was_in_the_middle_of_a_write(tmp_path, monkeypatch):
    # Given a thread that waits inside of LMDB for the lock of another writer
    monkeypatch.setattr(environment, "_FORK_WAITS_S", 0.05)
    monkeypatch.setattr(environment, "_CLOSE_WAITS_S", 0.05)
    url = f"lmdb:{tmp_path / 'bus'}?map_bytes={1 << 24}"
    with lockstep.connect(url) as bus:
        bus.create("orders")
        other = bus.bus._store.environment.lmdb.begin(write=True)
        writer = threading.Thread(target=bus.bus.atomic, args=(lambda changes: changes.put(b"cell", b"x"),))
        writer.start()
        while not bus.bus._store.environment.gate.locked():
            time.sleep(0.001)
        time.sleep(0.02)  # from taking the gate to waiting in LMDB
        # When the process forks
        child = os.fork()
        if child == 0:
            code = 1
            try:
                lockstep.connect(url)
            except IllegalState:
                code = 0
            finally:
                os._exit(code)
        other.abort()
        writer.join()
        # Then the child lives, and is told if it can't open the store; the parent goes on
        assert ended(child) == 0
        bus.bus.atomic(lambda changes: changes.put(b"cell", b"y"))


def test_writers_finish_before_a_fork_so_that_the_child_can_open_the_store(tmp_path):
    url = f"lmdb:{tmp_path / 'bus'}?map_bytes={1 << 24}"
    with lockstep.connect(url) as bus, bus.publisher("orders", batch_records=1) as publisher:
        receipts = [publisher.publish(b"x") for _ in range(50)]
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with lockstep.connect(url) as own:
                    own.bounds("orders")
                code = 0
            finally:
                os._exit(code)
        assert ended(child) == 0
        assert [receipt.result() for receipt in receipts] == list(range(50))
