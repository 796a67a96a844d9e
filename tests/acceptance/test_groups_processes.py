"""Groups of real processes on the bus on disk, killed and paused. The children are this file, run as a program.

One member at a time reads a stream; a pause can't be seen by the one who is paused, so a member that was replaced may
still be working. What counts is that nothing of that counts: neither its confirmations nor its output.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import lockstep
from lockstep.errors import Fenced, LockstepError

LEASE_S = 0.4
TIMING = lockstep.GroupOptions(lease_s=LEASE_S, beat_s=0.1, confirm_s=0.01, revoke_s=0.3)
BOUND_S = 30.0

pytestmark = pytest.mark.acceptance


# The children


def worker(bus, member, journal):
    """Pass every record on, exactly once, and write down when it was worked on and whether that counted."""
    seat = member._seat("orders")
    while True:
        batch, got = member.poll(0.5, max_records=50), time.monotonic()
        for record in batch:
            epoch, entered = batch.epoch, time.monotonic()
            together = bus.group_transaction(member)
            together.publish("out", record.value)
            counted = True
            try:
                together.confirm(record)
                together.commit()
            except Fenced:
                counted = False
            line = {"pid": os.getpid(), "epoch": epoch, "offset": record.offset, "counted": counted}
            times = {"got": got, "enter": entered, "leave": time.monotonic()}
            journal.write(json.dumps({**line, **times, "held": member._member.holds(seat, epoch)}) + "\n")
            if not counted:
                break


def obedient(bus, member, journal):
    """Do what standard input says, and answer on standard output."""
    read = []
    for line in sys.stdin:
        order, *rest = line.split()
        try:
            if order == "read":
                while len(read) < int(rest[0]):
                    read += member.poll(0.5, max_records=int(rest[0]) - len(read))
                answer = [record.offset for record in read]
            elif order == "poll":
                answer = [record.offset for record in member.poll(float(rest[0]))]
            elif order == "confirm":
                member.confirm(int(rest[0]), sync=True)
                answer = "confirmed"
            elif order == "epoch":
                answer = member.epoch()
        except LockstepError as error:
            answer = error.code
        print(json.dumps(answer), flush=True)


def main(role, folder):
    bus = lockstep.connect(f"lmdb:{folder}/bus")
    member = bus.subscriber("orders", group="g", initial="earliest", group_options=TIMING)
    with Path(folder, f"journal-{os.getpid()}").open("a", buffering=1) as journal:
        {"worker": worker, "obedient": obedient}[role](bus, member, journal)


# The tests


class Crew:
    """Processes that are surely gone in the end."""

    def __init__(self, folder):
        self.folder = folder
        self.bus = lockstep.connect(f"lmdb:{folder}/bus?map_bytes={1 << 28}")
        self.bus.create("orders")
        self.bus.create("out")
        self.children = []
        self.pauses = []
        """Process id, begin and end of every pause."""

    def start(self, role):
        child = subprocess.Popen(
            [sys.executable, __file__, role, str(self.folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self.children.append(child)
        return child

    def join(self):
        return self.bus.subscriber("orders", group="g", group_options=TIMING)

    def publish(self, count):
        with self.bus.publisher("orders") as publisher:
            publisher.publish_many([b"%d" % number for number in range(count)]).wait(BOUND_S)

    def ask(self, child, order):
        child.stdin.write(order + "\n")
        return json.loads(child.stdout.readline())

    def pause(self, child):
        """SIGSTOP it at a moment when it does not hold the bus's write lock: that would stop everybody."""
        for _ in range(50):
            os.kill(child.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, child.pid, os.WSTOPPED)  # its threads go on for a while on a busy machine
            stopped_at = time.monotonic()
            probe = threading.Thread(target=self.bus.first_time, args=("probe", str(stopped_at)), daemon=True)
            probe.start()
            probe.join(0.2)
            if not probe.is_alive():
                return stopped_at
            self.go_on(child, stopped_at)
            probe.join(BOUND_S)
        raise AssertionError("it always holds the lock")

    def go_on(self, child, stopped_at):
        os.kill(child.pid, signal.SIGCONT)
        self.pauses.append((child.pid, stopped_at, time.monotonic()))

    def progress(self):
        [stream] = self.bus.groups.describe("g").streams
        return stream

    def close(self):
        for child in self.children:
            child.kill()
            os.kill(child.pid, signal.SIGCONT) if child.poll() is None else None
            child.wait()
            child.stdin.close()
            child.stdout.close()
        self.bus.close()


@pytest.fixture
def crew(tmp_path):
    crew = Crew(tmp_path)
    yield crew
    crew.close()


def until(condition, what):
    end, pause = time.monotonic() + BOUND_S, threading.Event()
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not come true"
        pause.wait(0.01)
    return found


def owner_of(crew, members):
    """The live child whose journal has the highest epoch, which is the one at work, if it has one."""
    lines = read_journals(crew.folder)
    pids = {child.pid: child for child in members}
    at_work = [line for line in lines if line["pid"] in pids]
    return pids[max(at_work, key=lambda line: line["enter"])["pid"]] if at_work else None


def read_journals(folder):
    lines = []
    for path in folder.glob("journal-*"):
        whole = [text for text in path.read_text().splitlines() if text.endswith("}")]  # a kill may leave half a line
        lines += map(json.loads, whole)
    return lines


def test_e1_audit_of_members_that_are_killed_and_paused(crew):
    # Given four members that work on a long stream
    count, chance = 1500, random.Random(1)
    crew.publish(count)
    members = [crew.start("worker") for _ in range(4)]
    # When whoever is at work is killed or paused, again and again
    for turn in range(8):
        passed = crew.bus.bounds("out").next
        until(lambda passed=passed: crew.bus.bounds("out").next > passed or passed == count, "progress")
        victim = owner_of(crew, members) or members[0]
        if turn % 2:
            victim.kill()
            victim.wait()
            members[members.index(victim)] = crew.start("worker")
        else:
            stopped_at = crew.pause(victim)
            length = LEASE_S * (0.5 + 2.5 * chance.random())
            until(lambda at=stopped_at, length=length: time.monotonic() > at + length, "the end of the pause")
            crew.go_on(victim, stopped_at)
    until(lambda: crew.bus.bounds("out").next >= count, "the end of the work")
    # Then the output has every input once, in order
    with crew.bus.subscriber("out", initial="earliest") as reader:
        out = [record.value for record in reader.records(idle_s=0.1)]
    assert out == [b"%d" % number for number in range(count)]
    assert [member.poll() for member in members] == [None] * 4, "whoever is fenced is told so, and lives on"
    lines = read_journals(crew.folder)
    assert any(not line["counted"] for line in lines), "somebody was fenced, or the test shows nothing"
    audit(lines, crew.pauses)


def audit(lines, pauses):
    """No two members work at once, but for one that was away; and of the two only what came first on the log counts."""
    lines.sort(key=lambda line: line["enter"])
    counted = sorted((line for line in lines if line["counted"]), key=lambda line: line["offset"])
    assert len({line["offset"] for line in counted}) == len(counted), "each record counts once"
    epochs = [line["epoch"] for line in counted]
    assert epochs == sorted(epochs), "once a new owner counts, an older one never does"
    assert len(set(epochs)) > 3, "the stream moved, or the test shows nothing"
    for number, first in enumerate(lines):
        for second in lines[number + 1 : number + 100]:
            if second["enter"] >= first["leave"] or first["pid"] == second["pid"]:
                continue
            older, newer = sorted((first, second), key=lambda line: line["epoch"])
            assert older["epoch"] < newer["epoch"], f"{first} and {second} overlap in one epoch"
            assert was_away(older, pauses), f"{first} and {second} overlap, and the older was there all the time"
            if older["counted"] and newer["counted"]:
                assert older["offset"] < newer["offset"], f"{older} counts behind {newer}"


def was_away(line, pauses):
    """Since it got the record it was paused, by us, or by a machine that is busy: then its own lease ran out."""
    paused = any(pid == line["pid"] and line["got"] < end and start < line["leave"] for pid, start, end in pauses)
    return paused or not line["held"]


def test_e5_kill_redelivers_in_order_and_none_is_missing(crew):
    # Given a member that confirmed some of what it read
    crew.publish(20)
    child = crew.start("obedient")
    assert crew.ask(child, "read 12") == list(range(12))
    assert crew.ask(child, "confirm 4") == "confirmed"
    # When it is killed
    child.kill()
    child.wait()
    # Then the next one gets everything from there
    heir = crew.start("obedient")
    assert crew.ask(heir, "read 15") == list(range(5, 20))


def test_e12_and_t1_a_paused_member_that_was_replaced_confirms_nothing(crew):
    # Given a member that is paused for more than two leases, while another takes over and confirms further
    crew.publish(10)
    child = crew.start("obedient")
    assert crew.ask(child, "read 6") == [0, 1, 2, 3, 4, 5]
    assert crew.ask(child, "confirm 1") == "confirmed"
    stopped_at = crew.pause(child)
    heir = crew.join()
    read = until(lambda: heir.poll(0.1, max_records=5).to_list(), "the takeover")
    assert read[0].offset == 2
    heir.confirm(read[-1], sync=True)
    until(lambda: time.monotonic() > stopped_at + 2 * LEASE_S + 0.05, "two leases")
    # When it goes on, and confirms at once
    child.stdin.write("confirm 4\n")
    crew.go_on(child, stopped_at)
    # Then it is told, and nothing has changed
    assert json.loads(child.stdout.readline()) == "FENCED"
    assert crew.progress().confirmed == read[-1].offset
    assert crew.progress().owner == heir._member.id
    # And neither does it later, when it knows
    assert crew.ask(child, "poll 0.2") == []
    assert crew.ask(child, "confirm 5") == "FENCED"
    assert crew.progress().confirmed == read[-1].offset
    # And it can take over again
    heir.close()
    assert crew.ask(child, "poll 10") == [*range(read[-1].offset + 1, 10)]


def test_t2_a_member_in_a_poll_longer_than_its_lease_keeps_the_stream(crew):
    # Given a member in a long poll, and another that would take over
    child = crew.start("obedient")
    assert crew.ask(child, "poll 0.3") == []
    until(lambda: crew.progress().owner, "an owner")
    other = crew.join()
    child.stdin.write("poll 20\n")
    # When several leases have passed
    started = time.monotonic()
    until(lambda: not other.poll(0.1) and time.monotonic() > started + 3 * LEASE_S, "three leases")
    # Then the record that comes is its own
    crew.publish(1)
    assert json.loads(child.stdout.readline()) == [0]
    assert crew.ask(child, "epoch") == 1
    assert not other.poll()


def test_t3_a_member_that_works_longer_than_its_lease_keeps_the_stream(crew):
    # Given a member that works on a record and does not poll, and another that would take over
    crew.publish(2)
    child = crew.start("obedient")
    assert crew.ask(child, "read 1") == [0]
    other = crew.join()
    # When several leases have passed
    started = time.monotonic()
    until(lambda: not other.poll(0.1) and time.monotonic() > started + 3 * LEASE_S, "three leases")
    # Then its confirmation counts
    assert crew.ask(child, "confirm 0") == "confirmed"
    assert crew.progress().confirmed == 0


def test_e8_a_lone_member_survives_a_pause(crew):
    # Given a lone member that has read but not confirmed
    crew.publish(10)
    child = crew.start("obedient")
    assert crew.ask(child, "read 4") == [0, 1, 2, 3]
    # When it is paused for more than two leases
    stopped_at = crew.pause(child)
    until(lambda: time.monotonic() > stopped_at + 2 * LEASE_S + 0.05, "two leases")
    crew.go_on(child, stopped_at)
    # Then it goes on as if nothing had been
    assert crew.ask(child, "read 10") == list(range(10))
    assert crew.ask(child, "epoch") == 1
    until(lambda: crew.ask(child, "confirm 9") == "confirmed", "the confirmation")
    assert crew.progress().confirmed == 9


if __name__ == "__main__":
    main(*sys.argv[1:])
