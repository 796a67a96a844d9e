"""Processes for the tests of stores on disk: started, paused and killed by them. `python lmdb_child.py ROLE ARGS...`

A child tells what it did on its output, one line a time, before it goes on; so whatever was told has happened.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

from lockstep.errors import LockstepError, StoreFull
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.config import StreamConfig
from lockstep.log.lmdb import backend  # noqa: F401 - nobody may not read the libraries
from lockstep.log.lmdb.environment import Environment
from lockstep.log.lmdb.replica import Mirror
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import Producer, values

KEEP_ALL = StreamConfig(capacity=None)


class Child:
    """A process in one of the roles below, as its test sees it."""

    def __init__(self, role, *args):
        command = [sys.executable, __file__, role, *map(str, args)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid

    def line(self):
        """The next thing it told, or None at the end."""
        line = self.process.stdout.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def lines(self):
        """Everything it told that was not read yet; waits for its end."""
        return [json.loads(line) for line in self.process.stdout.read().splitlines(keepends=True) if line[-1:] == b"\n"]

    def go(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.end()

    def end(self):
        """Wait for its end; returns the exit code."""
        self.process.stdin.close()
        code = self.process.wait(60)
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        for pipe in (self.process.stdin, self.process.stdout):
            pipe.close()


def tell(what):
    os.write(1, json.dumps(what).encode() + b"\n")


def value_of(name, sequence):
    """What record `sequence` of a producer holds: small or large, and nobody else's."""
    size = random.Random(f"{name} {sequence}").choice((5, 50, 3000, 60_000))
    return f"{name} {sequence} ".encode() * (1 + size // 20)


def publish(url, name):
    """Append batch after batch until killed; tell the offset of each when it is acknowledged."""
    log, producer = open_bus(url, ThreadRuntime()).create("orders", KEEP_ALL), Producer(name)
    while True:
        first = producer.sequence
        count = random.Random(f"{name} {first} count").choice((1, 1, 3, 40))
        [base] = log.append([producer.batch(*(value_of(name, first + at) for at in range(count)))])
        tell([first, count, base])


def read_and_stay(url):
    """Begin to read, and stop in the middle of it."""
    bus = open_bus(url, ThreadRuntime(), create=False)
    with bus.snapshot() as view:
        tell(view.bounds("orders").next)
        sys.stdin.readline()


def publish_large(url, count):
    """Publish so much that it needs the map that the URL asks for."""
    bus = open_bus(url, ThreadRuntime())
    log, producer = bus.create("orders", KEEP_ALL), Producer("large")
    for _ in range(int(count)):
        log.append([producer.batch(os.urandom(200_000))])
    bus.close()


def make(url):
    """Make the store and a stream when told to, at the same time as others."""
    tell("ready")
    sys.stdin.readline()
    bus = open_bus(url, ThreadRuntime())
    log = bus.create("orders", KEEP_ALL)
    tell([json.loads((Path(url.removeprefix("lmdb:")) / "lockstep.json").read_text())["identity"], log.identity])
    log.append([Producer(f"p{os.getpid()}").batch(b"x")])
    bus.close()


def die_in_commit(url, point):
    """Acknowledge three records, then die at a point of the fourth's commit."""
    log, producer = open_bus(url, ThreadRuntime()).create("orders", KEEP_ALL), Producer("mortal")
    for number in range(3):
        log.append([producer.batch(b"%d" % number)])
        tell(number)
    mirror_commit = Mirror.commit

    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def commit_and_die(self, number, tables):
        mirror_commit(self, number, tables)
        die()

    if point == "before replica":
        Mirror.commit = die
    elif point == "between":
        Mirror.commit = commit_and_die
    else:
        Environment.after_commit = die
    log.append([producer.batch(b"3")])


def fill_file(url, limit):
    """Publish to a file that may not grow above a limit, as on a full disk; then get more room."""
    bus = open_bus(url, ThreadRuntime())
    log, producer = bus.create("orders", KEEP_ALL), Producer()
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    accepted = fill(log, producer)
    assert values(log) == accepted
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.trim(len(accepted) - 1)
    log.append([producer.batch(b"again")])
    tell([len(accepted), values(log)[-1].decode()])
    bus.close()


def fill(log, producer):
    """Publish until there is no room; returns what was accepted."""
    accepted = []
    while True:
        value = b"%d " % len(accepted) * 2000
        before = producer.sequence
        try:
            log.append([producer.batch(value)])
        except StoreFull:
            producer.sequence = before
            return accepted
        accepted.append(value)


def fork(url):
    """Use a bus in a forked child: the inherited one is refused, its own works, and the parent goes on."""
    bus = open_bus(url, ThreadRuntime())
    log = bus.create("orders", KEEP_ALL)
    log.append([Producer("parent").batch(b"before")])
    child = os.fork()
    if child == 0:
        for call in (bus.names, log.bounds, lambda: log.append([Producer("x").batch(b"x")]), bus.snapshot().__enter__):
            try:
                call()
                tell("no error")
            except LockstepError as error:
                tell(error.code)
        bus.close()
        own = open_bus(url, ThreadRuntime())
        own.open("orders").append([Producer("child").batch(b"child")])
        own.close()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    log.append([Producer("parent2").batch(b"after")])
    tell([status, [value.decode() for value in values(log)]])
    bus.close()


def open_as_nobody(url):
    """Open a store without the right to."""
    os.setuid(65534)
    try:
        open_bus(url, ThreadRuntime())
        tell("opened")
    except LockstepError as error:
        tell(error.code)


def follow(url):
    """Have a bus open, and so feed its asynchronous replica, until killed."""
    bus = open_bus(url, ThreadRuntime())
    tell(bus.promises.async_replicas)
    sys.stdin.readline()


def interrupted(url, rounds, threads):
    """Transactions in the main thread, which gets signals, and in others; tell what was done, and what was cut off."""
    bus = open_bus(url, ThreadRuntime())
    bus.create("orders", KEEP_ALL)
    stop, done = threading.Event(), []

    def add(value):
        # Without a producer, nothing keeps it from being stored twice but the store's care
        batch = pack([value.encode()], producer=NO_PRODUCER, sequence=0, created_ns=1)
        bus.atomic(lambda changes: changes.append("orders", [batch]))

    def work(name):
        number = 0
        while not stop.is_set():
            add(f"{name} {number}")
            done.append(f"{name} {number}")
            number += 1

    workers = [threading.Thread(target=work, args=(f"worker{at}",)) for at in range(int(threads))]
    for worker in workers:
        worker.start()
    cut_off = [add_until_interrupted(add, f"main{at}", done) for at in range(int(rounds))]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop.set()
    for worker in workers:
        worker.join()
    add("last")
    tell([done, cut_off, [value.decode() for value in values(bus.open("orders"))]])
    bus.close()


def add_until_interrupted(add, name, done):
    value = ""
    try:
        tell(name)
        for number in range(10_000_000):
            value = f"{name} {number}"
            add(value)
            done.append(value)
    except KeyboardInterrupt:
        return value


ROLES = (
    interrupted, publish, publish_large, read_and_stay, make, die_in_commit, fill_file, fork, open_as_nobody, follow,
)  # fmt: skip

if __name__ == "__main__":
    {role.__name__: role for role in ROLES}[sys.argv[1]](*sys.argv[2:])
