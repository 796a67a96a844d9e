"""Exactly once: a process is killed at every step of its work, and what it read, wrote and remembers still agree.

The children are this file, run as a program.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

import lockstep
from lockstep.log.embedded.transaction import Changes

TIMING = lockstep.GroupOptions(lease_s=0.4, beat_s=0.1, confirm_s=0.01)
RECORDS = 24
BOUND_S = 30.0
STEPS = ("before the commit", "between two writes", "before the store commits", "after the commit")

pytestmark = pytest.mark.acceptance


# The child


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def arm(bus, step):
    """Have the next transaction end this process at a step of it."""
    if step == "between two writes":

        def put(self, key, value):
            die()

        Changes.put = put
    if step == "before the store commits":
        atomic = bus.bus.atomic

        def doomed(work):
            def to_the_end(changes):
                work(changes)
                die()

            return atomic(to_the_end)

        bus.bus.atomic = doomed


def main(folder, step, victims):
    """Count and pass on every record; at the record of a victim's number, die at the given step."""
    bus = lockstep.connect(f"lmdb:{folder}/bus")
    member = bus.subscriber("orders", group="g", group_options=TIMING)
    doomed = [int(number) for number in victims.split(",") if number]
    while True:
        for record in member.poll(0.5, max_records=3):
            together = bus.group_transaction(member)
            together.put("count", b"%d" % (int(together.get("count") or b"0") + 1))
            together.publish("out", record.value, headers=[("by", b"%d" % os.getpid())])
            together.confirm(record)
            hit = record.offset in doomed
            if hit:
                arm(bus, step)
            if hit and step == "before the commit":
                die()
            together.commit()
            if hit and step == "after the commit":
                die()


# The tests


@pytest.fixture
def bus(tmp_path):
    with lockstep.connect(f"lmdb:{tmp_path}/bus?map_bytes={1 << 28}") as bus:
        bus.create("out")
        with bus.publisher("orders") as publisher:
            publisher.publish_many([b"%d" % number for number in range(RECORDS)]).wait(BOUND_S)
        yield bus


@pytest.fixture
def start(tmp_path):
    started = []

    def start(step="", victims=""):
        child = subprocess.Popen([sys.executable, __file__, str(tmp_path), step, victims])
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()


def done(bus):
    return bus.bounds("out").next


def until(condition, what):
    end, pause = time.monotonic() + BOUND_S, threading.Event()
    while not condition():
        assert time.monotonic() < end, f"{what} did not come true"
        pause.wait(0.002)


def check(bus, *, whole):
    """Output, state and position agree; whole: all input was processed, each once, in order."""
    [stream] = bus.groups.describe("g").streams
    with bus.subscriber("out", initial="earliest") as reader:
        out = [record.value for record in reader.records(idle_s=0.05)]
    with bus.bus.snapshot() as view:
        count = int(view.get(b"state\0g\0count") or b"0")
    assert out == [b"%d" % number for number in range(len(out))]
    assert count == len(out) == (0 if stream.confirmed is None else stream.confirmed + 1)
    assert len(out) == RECORDS or not whole


@pytest.mark.parametrize("step", STEPS)
def test_f3_a_kill_at_any_step_leaves_all_or_nothing(bus, start, step):
    # Given processes that each die at that step of another record
    for victim in (0, 1, 7, 13):
        child = start(step, str(victim))
        # When it is dead
        assert child.wait(BOUND_S) == -signal.SIGKILL
        # Then output, state and position agree: the record is processed, or not at all
        check(bus, whole=False)
        assert done(bus) == victim + (step == "after the commit")
    # And when another process goes on, every record was processed exactly once, in order
    start()
    until(lambda: done(bus) >= RECORDS, "the end of the work")
    check(bus, whole=True)


def test_f3_kills_at_random_moments(bus, start):
    # Given a process that is killed whenever it got somewhat further, at a random moment
    chance = random.Random(3)
    for _ in range(5):
        child, reached = start(), done(bus)
        until(lambda reached=reached: done(bus) > reached or done(bus) == RECORDS, "progress")
        threading.Event().wait(chance.random() * 0.003)  # not a wait for anything: the moment is to be random
        child.kill()
        child.wait()
        # Then output, state and position agree
        check(bus, whole=False)
    start()
    until(lambda: done(bus) >= RECORDS, "the end of the work")
    check(bus, whole=True)


def test_f3_two_processes_of_which_one_is_killed_and_replaced(bus, start):
    # Given two members, of which the one at work dies in its transaction, twice
    first = start("before the store commits", "5,9")
    second = start("before the store commits", "5,9")
    assert {first.wait(BOUND_S), second.wait(BOUND_S)} == {-signal.SIGKILL}
    check(bus, whole=False)
    # When a third one goes on
    start()
    until(lambda: done(bus) >= RECORDS, "the end of the work")
    # Then every record was processed exactly once
    check(bus, whole=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
