"""A scheduler of real processes: nodes with their APIs, what is asked of them, and what became of it.

Run as a program, this file is a node.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import lockstep
from lockstep.core.agenda import Option, Remove, Upsert
from lockstep.schedule.assembly import open_scheduler
from lockstep.schedule.node import NodeOptions
from lockstep.schedule.streams import SHARDS, SchedulerStreams
from lockstep.schedule.times import java_text, parse_time
from lockstep.schedule.validation import event_id
from lockstep.server.schedule import ScheduleServer
from lockstep.server.serving import bind
from lockstep.streams.client import connect

STREAM, HTTP = "to-stream", "to-http"
CRON = f"{STREAM}/second/QUARTZ"
ROLES = ("owner", "master", "api")
BOUND_S = 60.0
LOOK_S = 0.1
API_S = 45.0
PAUSES, PROBE_S = 50, 0.3
ACCEPTED = {"ACCEPTED", "UPDATED", "TRIGGERED"}
GROUP = lockstep.GroupOptions(lease_s=1.0, beat_s=0.2)


def main(bus_url, store, scheduler, name):
    """Be a node with an API until this process is ended."""
    bus = connect(bus_url)
    bound = bind("127.0.0.1", 0, "The scheduler's API")
    options = NodeOptions(group=GROUP, card_s=0.2, port=bound.getsockname()[1])
    made = open_scheduler(bus, scheduler, store=store or None, options=options, node_name=name)
    print(ScheduleServer(made, bound=bound).url, flush=True)
    pause = threading.Event()
    while made.node.error is None:
        pause.wait(0.2)
    raise made.node.error


@dataclass(frozen=True)
class Site:
    """Where a scheduler is: its bus, and its store, unless that is the bus."""

    bus: str
    store: str | None = None
    shards: int = SHARDS


class Nodes:
    """Node processes by name. One that ends without having been killed is found by `check`."""

    def __init__(self, site, scheduler):
        self._site, self._scheduler = site, scheduler
        self._numbers = count(1)
        self.processes, self.urls = {}, {}

    def start(self):
        name = f"n{next(self._numbers)}"
        command = [sys.executable, __file__, self._site.bus, self._site.store or "", self._scheduler, name]
        self.processes[name] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        return name

    def wait_started(self):
        for name, process in self.processes.items():
            if name not in self.urls:
                self.urls[name] = process.stdout.readline().strip()
                assert self.urls[name], f"node {name} did not start"

    def signal(self, name, number):
        os.kill(self.processes[name].pid, number)

    def pause(self, name):
        """SIGSTOP a process, and return when all its threads stand still: they go on for a while on a busy machine."""
        pid = self.processes[name].pid
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED)

    def forget(self, name):
        """Reap a process that was killed."""
        process = self.processes.pop(name)
        process.wait(BOUND_S)
        process.stdout.close()
        del self.urls[name]

    def check(self):
        ended = {name: process.returncode for name, process in self.processes.items() if process.poll() is not None}
        assert ended == {}

    def end(self):
        for name, process in list(self.processes.items()):
            process.kill()
            self.urls.setdefault(name, "")
            self.forget(name)


@dataclass(frozen=True)
class Arrival:
    """An event as it was received."""

    tenant: str
    id: str
    key: str
    at: int
    triggered: int
    arrived: int
    """All three in milliseconds since 1970."""

    @classmethod
    def of(cls, body, key, arrived_ns):
        fields = json.loads(body)
        at, triggered = parse_time(fields["eventTime"]), parse_time(fields["triggeredAt"])
        return cls(fields["tenant"], fields["id"], key, at, triggered, arrived_ns // 10**6)


@dataclass(frozen=True)
class Trap:
    """What is done once while a callback waits for its answer, or right after it was answered."""

    act: object
    after_answer: bool
    sprung: threading.Event = field(default_factory=threading.Event)


class Callbacks:
    """A receiver of HTTP callbacks; `traps` are by event id."""

    def __init__(self):
        self.arrivals, self.traps = [], {}
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True

    def handle_error(self, *_):
        """Nodes are killed while they wait for an answer."""


def _handler(callbacks):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self):
            arrived = time.time_ns()
            body = self.rfile.read(int(self.headers["Content-Length"]))
            arrival = Arrival.of(body, self.headers["Idempotency-Key"], arrived)
            callbacks.arrivals.append(arrival)
            trap = callbacks.traps.pop(arrival.id, None)
            if trap is not None and not trap.after_answer:
                spring(trap)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
            if trap is not None and trap.after_answer:
                spring(trap)

        def log_message(self, *_):
            pass

    return Handler


def spring(trap):
    trap.act()
    trap.sprung.set()


class World:
    """Three nodes, the events that were asked for, and where they arrived."""

    def __init__(self, site, undo, *, nodes=3, exactly_once=True):
        self._exactly_once = exactly_once
        self.name = f"jobs-{uuid.uuid4().hex[:8]}"
        self.streams = SchedulerStreams(self.name)
        self.bus = undo.enter_context(connect(site.bus))
        self._shards = site.shards
        self.streams.create(self.bus, shards=site.shards)
        self.callbacks = Callbacks()
        undo.callback(self.callbacks.close)
        self.scheduler = undo.enter_context(open_scheduler(self.bus, self.name, node=False, store=site.store))
        self.client = self.scheduler.client
        self.scheduler.register(STREAM, "MESSAGING", {"topic": f"{self.name}-out"})
        self.scheduler.register(HTTP, "HTTP", {"url": self.callbacks.url})
        self.out = self.bus.subscriber(f"{self.name}-out", initial="earliest", create=False)
        self.history = self.bus.subscriber(self.streams.history, initial="earliest", create=False)
        undo.callback(self.out.close)
        undo.callback(self.history.close)
        self.settled, self.settled_master = {}, None
        """The shards of each node, and the Master, when all were last shared out."""
        self.nodes = Nodes(site, self.name)
        undo.callback(self.nodes.end)
        self._ids = count(1)
        self.accepted, self.unanswered, self.cancelled = {}, set(), {}
        self.arrived, self.ticks, self.outcomes = {}, [], []
        self._callbacks_read = 0
        for _ in range(nodes):
            self.nodes.start()
        self.nodes.wait_started()
        self.wait_settled()
        self.scheduler.every("* * * * * ? *", id="second", tenant=STREAM, type="QUARTZ")

    # nodes

    def owned(self):
        """The shards of each node that runs, as it last said."""
        cards = self.client.nodes()
        return {card["node"]: card["shards"] for card in cards if card["node"] in self.nodes.processes}

    def master(self):
        cards = self.client.nodes()
        return next((card["node"] for card in cards if card["master"] and card["node"] in self.nodes.processes), None)

    def is_settled(self, without=None):
        """Whether the nodes, but for one, have all shards among them."""
        self.nodes.check()
        owned = {name: shards for name, shards in self.owned().items() if name != without}
        wanted = self.nodes.processes.keys() - {without}
        if (
            owned.keys() != wanted
            or sorted(shard for shards in owned.values() for shard in shards) != list(range(self._shards))
            or any(len(shards) < self._shards // 3 - 1 for shards in owned.values())
            or (master := self.master()) not in wanted
        ):
            return False
        self.settled, self.settled_master = owned, master
        return True

    def wait_settled(self, without=None):
        wait_until(lambda: self.is_settled(without), lambda: f"shards are shared out: {self.owned()}")

    def pause(self, node):
        """SIGSTOP a node while it does not hold the write lock of a bus on disk: that would stop everybody."""
        for _ in range(PAUSES):
            self.nodes.pause(node)
            probe = threading.Thread(target=self.client.send, args=([Remove(STREAM, "none")],), daemon=True)
            probe.start()
            probe.join(PROBE_S)
            if not probe.is_alive():
                return
            self.nodes.signal(node, signal.SIGCONT)
            probe.join(BOUND_S)
        raise AssertionError("it always holds the lock")

    def roles(self):
        """A node for each role: the Master, and of the two others one that takes requests, and one that only owns."""
        self.wait_settled()
        master = self.settled_master
        api, owner = sorted(self.nodes.processes.keys() - {master})
        return {"master": master, "api": api, "owner": owner}

    # requests

    def new_id(self, tenant, node=None):
        """An id; of an event that this node owns, if one is named."""
        shards = set(self.settled[node] if node else range(self._shards))
        found = (f"e{number}" for number in self._ids)
        return next(name for name in found if self.client.shard_of(tenant, name) in shards)

    def post(self, node, events):
        """Ask the API of a node for events (tenant, id, time); whether it answered."""
        fields = [{"tenant": tenant, "id": name, "eventTime": java_text(at)} for tenant, name, at in events]
        code, items = self._ask(node, "POST", "/events/schedule", fields)
        if code != 200:
            self.unanswered |= {(tenant, name) for tenant, name, _ in events}
            return False
        for (tenant, name, at), item in zip(events, items, strict=True):
            assert item["eventStatus"] in ACCEPTED, item
            self.accepted[tenant, name] = (at, item["eventId"])
        return True

    def send(self, events):
        """Put requests into the stream, without waiting for answers: they must be carried out all the same."""
        asked = [
            Upsert(tenant, name, at, event_id(self.bus.runtime.new_id, Option.FULL_EVENT))
            for tenant, name, at in events
        ]
        self.client.send(asked)
        self.accepted.update({(one.tenant, one.id): (one.at, one.event_id) for one in asked})

    def cancel(self, node, tenant, name):
        code, _ = self._ask(node, "DELETE", f"/v2/events/{tenant}/{name}")
        assert code in (200, 409, 0, 503), code
        if code == 200:
            self.cancelled[tenant, name] = time.time_ns() // 10**6
        if code not in (200, 409):  # it may have been carried out
            self.unanswered.add((tenant, name))

    def _ask(self, node, method, path, tree=None):
        """The code and the answer; 0 if there was none."""
        url = self.nodes.urls.get(node)
        if url is None:
            return 0, None
        data = None if tree is None else json.dumps(tree).encode()
        request = urllib.request.Request(url + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=API_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, None
        except (OSError, http.client.HTTPException):
            return 0, None

    # what became of it

    def read(self):
        """Take in what has arrived."""
        for arrival in self.callbacks.arrivals[self._callbacks_read :]:
            self._callbacks_read += 1
            self.arrived.setdefault((arrival.tenant, arrival.id), []).append(arrival)
        while batch := self.out.poll(0):
            for record in batch:
                key = dict(record.headers)["Idempotency-Key"].decode()
                arrival = Arrival.of(record.value, key, record.appended_ns)
                if record.key == CRON.encode():
                    self.ticks.append(arrival)
                else:
                    self.arrived.setdefault((arrival.tenant, arrival.id), []).append(arrival)
        while batch := self.history.poll(0):
            self.outcomes += [one for one in map(json.loads, batch.values()) if one.get("id") == CRON]

    def missing(self):
        """Events that must fire and have not arrived."""
        self.read()
        return self.accepted.keys() - self.cancelled.keys() - self.unanswered - self.arrived.keys()

    def wait_fired(self):
        wait_until(lambda: not self.missing(), lambda: f"these events fire: {sorted(self.missing())[:5]}")

    def anomalies(self):
        """Everything that breaks a promise, by its kind; empty if nothing does."""
        self.wait_answered()
        self.read()
        streams = {name: found for name, found in self.arrived.items() if name[0] == STREAM}
        every = [arrival for found in self.arrived.values() for arrival in found] + self.ticks
        late = [
            arrival for name, at in self.cancelled.items() for arrival in self.arrived.get(name, ())
            if name[0] == STREAM or arrival.arrived > at
        ]  # fmt: skip
        found = {
            "lost": sorted(self.missing()),
            "duplicated": [name for name, found in streams.items() if self._exactly_once and len(found) > 1],
            "early": [one for one in every if min(one.triggered, one.arrived) < one.at],
            "after a cancel": late,
            "other keys": [name for name, found in self.arrived.items() if len(self._keys(name, found)) > 1],
            "ticks": self._ticks(),
        }
        return {kind: which for kind, which in found.items() if which}

    def _keys(self, name, found):
        key = self.accepted.get(name, (0, None))[1]
        return {arrival.key for arrival in found} | ({key} if key is not None else set())

    def _ticks(self):
        """Seconds with no outcome or several, and ticks that were published more than once."""
        seconds = sorted(one["eventTime"] // 1000 for one in self.outcomes)
        wrong = set(range(seconds[0], seconds[-1] + 1)) ^ set(seconds) if seconds else {0}
        keys = [tick.key for tick in self.ticks]
        if self._exactly_once and (len(seconds) > len(set(seconds)) or len(keys) > len(set(keys))):
            wrong |= {second for second in seconds if seconds.count(second) > 1} or {-1}
        return sorted(wrong)

    def wait_answered(self):
        """Return when the owner of every shard has carried out a request: what came before is done."""
        names = {}
        for number in count():
            if len(names) == self._shards:
                break
            names.setdefault(self.client.shard_of(STREAM, f"none-{number}"), f"none-{number}")
        self.client.ask([Remove(STREAM, name) for name in names.values()], timeout=BOUND_S)

    def counts(self):
        """For people who read the report of a run."""
        found = [len(arrivals) for arrivals in self.arrived.values()]
        return {
            "accepted": len(self.accepted), "unanswered": len(self.unanswered), "cancelled": len(self.cancelled),
            "arrived": sum(found), "copies": sum(found) - len(found), "ticks": len(self.ticks),
            "outcomes": len(self.outcomes),
        }  # fmt: skip


@contextmanager
def opened(site, **options):
    with ExitStack() as undo:
        yield World(site, undo, **options)


def wait_until(condition, what, bound_s=BOUND_S):
    end = time.monotonic() + bound_s
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, f"not within {bound_s:g} s: {what()}"
        pause.wait(LOOK_S)


def now_ms():
    return time.time_ns() // 10**6


if __name__ == "__main__":
    main(*sys.argv[1:])
