"""Groups of real processes on real servers, killed in the middle of their work. The children are this file, run.

A child writes down each record that it got and each confirmation that counted, so that nothing is lost with it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

import lockstep
from lockstep.errors import Fenced, LockstepError

QUICK_LEASE_S, LEASE_S = 0.6, 1.5
"""Redis answers within a millisecond; the others need longer on a busy machine."""
RECORDS, KILLS = 120, 2
BOUND_S = 60.0
SERVERS = ["redis", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("kafka", "rabbitmq", "hazelcast"))]

pytestmark = [pytest.mark.slow, pytest.mark.acceptance]


# The children


def reader(bus, member, note):
    """Confirm each record, and write down what was got and what counts."""
    while True:
        for record in (batch := member.poll(0.5, max_records=5)):
            note(got=record.offset, value=int(record.value), epoch=batch.epoch)
            try:
                member.confirm(record, sync=True)
            except LockstepError as error:
                note(refused=record.offset, code=error.code)
                break
            note(confirmed=record.offset, epoch=batch.epoch)


def forwarder(bus, member, note):
    """Pass each record on together with its confirmation."""
    while True:
        for record in member.poll(0.5, max_records=5):
            together = bus.group_transaction(member)
            together.publish("out", record.value)
            try:
                together.confirm(record)
                together.commit()
            except Fenced:
                break


def main(role, url, folder):
    bus = lockstep.connect(url)
    lease_s = QUICK_LEASE_S if url.startswith("redis") else LEASE_S
    timing = lockstep.GroupOptions(lease_s=lease_s, beat_s=lease_s / 5, confirm_s=0.01, revoke_s=0.3)
    member = bus.subscriber("orders", group="g", initial="earliest", group_options=timing)
    with Path(folder, f"journal-{os.getpid()}").open("a", buffering=1) as journal:

        def note(**words):
            journal.write(json.dumps({**words, "at": time.monotonic(), "pid": os.getpid()}) + "\n")

        {"reader": reader, "forwarder": forwarder}[role](bus, member, note)


# The tests


class Crew:
    """Processes that are surely gone in the end."""

    def __init__(self, url, folder):
        self._url, self._folder = url, folder
        self.bus = lockstep.connect(url)
        self._children = []

    def start(self, role, count=2):
        for _ in range(count):
            command = [sys.executable, __file__, role, self._url, str(self._folder)]
            env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            self._children.append(subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL))

    def kill_one(self, chance):
        """Kill one at random, and start another in its place."""
        child = self._children.pop(chance.randrange(len(self._children)))
        child.kill()
        child.wait(BOUND_S)

    def publish(self):
        with self.bus.publisher("orders") as publisher:
            for number in range(RECORDS):
                publisher.publish(b"%d" % number)

    def said(self):
        lines = [line for path in self._folder.glob("journal-*") for line in path.read_text().splitlines()]
        return [json.loads(line) for line in lines if line.endswith("}")]

    def until(self, is_so, what):
        end, pause = time.monotonic() + BOUND_S, threading.Event()
        while not is_so():
            assert all(child.poll() is None for child in self._children), "a child ended by itself"
            assert time.monotonic() < end, f"{what} did not come true"
            pause.wait(0.02)

    def close(self):
        for child in self._children:
            child.kill()
            child.wait(BOUND_S)
        self.bus.close()


@pytest.fixture
def crew(request, tmp_path):
    made = []

    def begin(kind):
        server = request.getfixturevalue(f"{kind}_server")
        url = f"{server.url}{'&' if '?' in server.url else '?'}prefix=t{uuid.uuid4().hex[:12]}."
        made.append(Crew(url, tmp_path))
        return made[-1]

    yield begin
    for one in made:
        one.close()


@pytest.mark.parametrize("kind", SERVERS)
def test_members_that_are_killed_lose_nothing_and_what_was_confirmed_does_not_come_again(crew, kind):
    work, chance = crew(kind), random.Random(1)
    work.publish()
    work.start("reader")
    values = lambda: {words["value"] for words in work.said() if "got" in words}  # noqa: E731
    for turn in range(1, KILLS + 1):
        work.until(lambda turn=turn: len(values()) >= turn * RECORDS // (KILLS + 2), "progress")
        work.kill_one(chance)
        work.start("reader", 1)
    work.until(lambda: len(values()) == RECORDS, "every record was got")
    said = work.said()
    got = [words for words in said if "got" in words]
    for confirmed in (words for words in said if "confirmed" in words):
        again = [
            words for words in got
            if words["got"] <= confirmed["confirmed"] and words["at"] > confirmed["at"]
            and words["epoch"] >= confirmed["epoch"]
        ]  # fmt: skip
        assert again == []
    assert len({words["epoch"] for words in got}) > 1, "the stream moved, or the test shows nothing"


def test_a_transaction_of_members_that_are_killed_passes_each_record_on_once(crew, redis_server):
    work, chance = crew("redis"), random.Random(2)
    work.publish()
    work.bus.create("out")
    work.start("forwarder")
    for turn in range(1, KILLS + 1):
        reached = turn * RECORDS // (KILLS + 2)
        work.until(lambda reached=reached: work.bus.bounds("out").next >= reached, "progress")
        work.kill_one(chance)
        work.start("forwarder", 1)
    work.until(lambda: work.bus.bounds("out").next >= RECORDS, "the end of the work")
    with work.bus.subscriber("out", initial="earliest") as subscriber:
        passed = [int(record.value) for record in subscriber.records(idle_s=0.2)]
    assert passed == list(range(RECORDS))


if __name__ == "__main__":
    main(*sys.argv[1:])
