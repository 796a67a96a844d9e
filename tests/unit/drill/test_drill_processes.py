"""Processes that are started are ended, with everything below them."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from lockstep.drill.engines import Probe
from lockstep.drill.processes import Child, Member, jvms, members, tail, workers
from lockstep.streams.client import connect

TIMEOUT_S = 20.0
FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import subprocess, sys, time\\n"
    "subprocess.Popen([sys.executable, '-c', 'import time; print(7, flush=True); time.sleep(600)'])\\n"
    "sys.exit()"])
child.wait()
print("the middle one is gone", file=sys.stderr, flush=True)
time.sleep(600)
"""


@pytest.fixture
def start(tmp_path):
    started = []

    def begin(code: str) -> Child:
        started.append(Child("child", [sys.executable, "-c", code], tmp_path / "child.log"))
        return started[-1]

    yield begin
    for child in started:
        child.kill()


def until(condition):
    end = time.monotonic() + TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come about"
    return found


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


@pytest.mark.slow
def test_a_grandchild_whose_parent_is_gone_is_found_and_killed_too(start):
    # Given a process whose grandchild was left behind by the child between them
    child = start(FAMILY)
    until(lambda: [line for _, line in child.lines()] == ["7"])
    until(lambda: "the middle one is gone" in child.tail())
    pids = [member.pid for member in child.tree()]
    assert len(pids) == 2
    # When it is killed
    child.kill()
    # Then nothing is left
    assert members(child.pid) == []
    assert child.code == -signal.SIGKILL
    until(lambda: not any(map(is_alive, pids)))


@pytest.mark.slow
def test_a_process_in_another_session_is_found_and_killed_too_even_if_its_parent_dies_first(start):
    # Given a process that started another one in a session of its own, as an engine does with its JVM
    other = f"import time; time.sleep({TIMEOUT_S})"
    child = start(
        "import subprocess, sys, time; "
        f"print(subprocess.Popen([sys.executable, '-c', {other!r}], start_new_session=True).pid, flush=True); "
        f"time.sleep({TIMEOUT_S})"
    )
    ((_, pid),) = until(child.lines)
    assert sorted(member.pid for member in child.tree()) == sorted([child.pid, int(pid)])
    # When its parent is killed alone
    os.kill(child.pid, signal.SIGKILL)
    until(lambda: child.code is not None)
    # Then it is still known, and killed with the rest
    assert [member.pid for member in child.tree()] == [int(pid)]
    child.kill()
    until(lambda: not is_alive(int(pid)))


@pytest.mark.slow
def test_a_child_is_asked_before_it_is_killed_and_its_lines_come_with_their_times(start):
    before = time.monotonic()
    child = start("import sys\nfor line in sys.stdin: print(line.strip()[::-1], flush=True)")
    child.tell("abc")
    ((at, line),) = until(child.lines)
    assert (line, before < at < time.monotonic()) == ("cba", True)
    child.stop()
    assert child.code == -signal.SIGTERM
    child.tell("nobody hears this")


@pytest.mark.slow
def test_a_stopped_tree_stands_still_until_it_goes_on(start):
    child = start("import time\nwhile True: print('x', flush=True); time.sleep(0.001)")
    until(child.lines)
    child.pause()
    assert Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    until(lambda: not child.lines())
    child.signal_all(signal.SIGCONT)
    until(child.lines)


@pytest.mark.slow
def test_the_error_of_a_child_that_failed_shows_its_last_words(start):
    child = start("raise SystemExit('no such thing')")
    until(lambda: child.code is not None)
    error = child.failure("The drill can't go on")
    assert "child (pid" in str(error)
    assert "ended with code 1" in str(error)
    assert "no such thing" in str(error)
    assert error.exit_code == 6


def test_the_end_of_a_long_file_is_its_last_lines(tmp_path):
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(10_000)))
    shown = tail(log).splitlines()
    assert shown[-1].strip() == "line 9999"
    assert len(shown) == 15
    assert tail(tmp_path / "none").strip() == "(it said nothing)"


def test_the_jvm_and_the_workers_of_an_engine():
    daemon = "/venv/bin/python -m pyspark.daemon pyspark.worker"
    tree = [
        Member(10, 1, "/venv/bin/python -m lockstep.cli.main engine run trades.yaml"),
        Member(11, 10, "/usr/lib/jvm/java-17/bin/java -cp /venv/pyspark/jars org.apache.spark.deploy.SparkSubmit"),
        Member(12, 11, daemon),
        Member(13, 12, daemon),
        Member(14, 12, daemon),
    ]
    assert jvms(tree) == [11]
    assert workers(tree) == [13, 14]
    assert (jvms(tree[:1]), workers(tree[:3])) == ([], [])


def test_a_bus_that_can_be_written_to_says_so():
    with connect("memory:") as client:
        probe = Probe(client.bus, "probe")
        assert probe.is_writable()
        assert probe.is_writable()
        assert client.bounds("probe").next == 2


@pytest.mark.slow
def test_a_bus_whose_writer_was_stopped_within_a_commit_says_so(start, tmp_path):
    # Given a process that was stopped while it held the store
    url = f"lmdb:{tmp_path / 'bus'}"
    with connect(url) as client:
        probe = Probe(client.bus, "probe")
        assert probe.is_writable()
        child = start(
            "import time\n"
            "from lockstep.streams.client import connect\n"
            f"with connect({url!r}) as client:\n"
            "    client.bus.atomic(lambda _: (print('in', flush=True), time.sleep(600)))\n"
        )
        until(child.lines)
        # When somebody wants to know, then the answer comes at once, and is no
        found = probe.is_writable()
        child.kill()
        probe.wait()
        assert (found, probe.is_writable()) == (False, True)
