"""Tests shared out to workers: a server is started once, and whatever happens to a worker is counted."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

import pytest

from worker_groups import group_of

TESTS = Path(__file__).parents[1]
SUITE = """
import os, time
import pytest

def note(text):
    with open("where.txt", "a") as file:
        file.write(f"{text} {os.getpid()}\\n")

@pytest.fixture(scope="session")
def redis_server():
    note("redis-start")

@pytest.fixture(scope="session")
def kafka_server():
    note("kafka-start")

@pytest.fixture(params=["memory", "redis", "kafka"])
def bus(request):
    if request.param != "memory":
        request.getfixturevalue(f"{request.param}_server")
    note(request.param)

@pytest.fixture(scope="module")
def shared():
    note("shared-start")

@pytest.mark.parametrize("number", range(6))
def test_on_a_bus(bus, number):
    time.sleep(0.01)

@pytest.mark.parametrize("number", range(4))
def test_with_its_module(shared, number):
    time.sleep(0.01)

def test_directly(redis_server):
    note("redis")

def test_fails():
    assert not "a reason"

def test_kills_its_worker():
    os._exit(7)

def test_hangs():
    time.sleep(60)

@pytest.mark.skip(reason="for the summary")
def test_is_skipped():
    pass
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "worker_groups", "-ra", "-q", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, env=_environment())


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    return kept | {"PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"}


@pytest.mark.parametrize("bus", ["redis", "memory"])
def test_a_test_belongs_to_the_server_that_its_parameters_name(request, bus):
    assert group_of(request.node) == {"redis": "redis_server"}.get(bus)


@pytest.fixture(scope="module")
def shared():
    """Something that tests of this file share."""


def test_tests_that_share_a_fixture_of_their_module_stay_together(request, shared):
    assert group_of(request.node) == "test_worker_groups"


HANGS = """
import signal, threading, time
import pytest

@pytest.fixture
def never_put_away():
    yield
    threading.Event().wait(60)

def test_fails_and_hangs_in_teardown(never_put_away):
    assert not "a reason"

def test_waits_where_python_cannot_interrupt_it():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    threading.Event().wait(60)

def test_passes():
    pass
"""


def test_a_test_that_cant_be_interrupted_ends_its_worker_and_is_named(tmp_path):
    (tmp_path / "test_suite.py").write_text(HANGS)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 1\n")
    (tmp_path / "conftest.py").write_text("import time_limits\ntime_limits.GRACE_S = 0.5\n")
    done = run(tmp_path, "-p", "time_limits", "-n", "2", "--dist", "loadgroup")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    for name in ("test_fails_and_hangs_in_teardown", "test_waits_where_python_cannot_interrupt_it"):
        assert f"FAILED test_suite.py::{name}" in done.stdout
        assert f"in {name}" in done.stderr or "never_put_away" in done.stderr


@pytest.mark.soak
def test_servers_start_once_and_failures_crashes_and_time_outs_are_counted(tmp_path):
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 2\n")
    done = run(tmp_path, "-n", "2", "--dist", "loadgroup", "--junitxml=found.xml")
    # Then the run failed, and says which tests did
    assert done.returncode == 1, done.stdout + done.stderr
    for name in ("test_fails", "test_kills_its_worker", "test_hangs"):
        assert f"FAILED test_suite.py::{name}" in done.stdout
    assert "SKIPPED [1] test_suite.py" in done.stdout
    [suite] = ElementTree.parse(tmp_path / "found.xml").iter("testsuite")
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "27", "failures": "2", "errors": "1", "skipped": "1",
    }  # fmt: skip
    # And each server was started once, where all its tests ran; a worker that replaces a dead one may start it again
    where = defaultdict(set)
    for line in (tmp_path / "where.txt").read_text().splitlines():
        name, pid = line.split()
        where[name].add(pid)
    assert where["kafka-start"] == where["kafka"]
    assert where["redis-start"] == where["redis"]
    assert len(where["kafka"]) == len(where["redis"]) == len(where["shared-start"]) == 1
