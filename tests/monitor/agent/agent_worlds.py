"""A machine of virtual time whose commands are played, and an agent on it with a broker in memory."""

from __future__ import annotations

import heapq
import itertools
import json
from datetime import UTC, datetime

from lockstep.cron import Zone
from lockstep.monitor.agent.agent import Agent
from lockstep.monitor.agent.machine import Finished
from lockstep.monitor.agent.sender import Sender
from lockstep.monitor.agent.spool import MemorySpool
from lockstep.monitor.settings.settings import Host, Settings, defaults, with_own_subscription
from lockstep.monitor.transport.memory import Broker, MemoryTransport
from lockstep.monitor.transport.port import DIRECT

START = 1_479_577_421.0
HOST = Host("web-1", "10.0.0.1")


class Timer:
    def __init__(self):
        self.cancelled = False

    def cancel(self):
        self.cancelled = True


class VirtualMachine:
    """Time passes when a test says so; commands end when it says so, or at once with a played answer."""

    def __init__(self, now=START):
        self._now, self._mono, self._turn = now, 0.0, itertools.count()
        self._timers = []
        self.started = []
        self.answers = {}

    def now(self):
        return self._now

    def local(self, time):
        return datetime.fromtimestamp(time, UTC)

    def set_clock(self, now):
        self._now = now

    def call_later(self, seconds, function):
        timer = Timer()
        heapq.heappush(self._timers, (self._mono + seconds, next(self._turn), timer, function))
        return timer

    def start(self, command, data, timeout, done):
        self.started.append((command, data, timeout, done))
        if command in self.answers:
            done(Finished(*self.answers[command]))

    def in_background(self, work, done):
        done(work())

    def pass_(self, seconds):
        """Let time pass, with everything that is due in it."""
        end = self._mono + seconds
        while self._timers and self._timers[0][0] <= end:
            at, _, timer, function = heapq.heappop(self._timers)
            self._now += at - self._mono
            self._mono = at
            if not timer.cancelled:
                function()
        self._now += end - self._mono
        self._mono = end

    def finish(self, index=0, output="done", status=0):
        """Have a command end that was started."""
        self.started.pop(index)[3](Finished(output, status))

    @property
    def commands(self):
        return [started[0] for started in self.started]


class World:
    """An agent, its broker, and a server's eyes on keepalives and results."""

    def __init__(self, *, checks=None, client=None, spawn=12, zone=None, extensions=None, spool=None):
        self.machine = VirtualMachine()
        self.broker = Broker(prefetch=0)
        self.transport = MemoryTransport(self.broker)
        self.keepalives, self.results = [], []
        server = MemoryTransport(self.broker)
        self.server = server
        server.subscribe(DIRECT, "keepalives", "keepalives", lambda m: self.keepalives.append(json.loads(m.body)))
        server.subscribe(DIRECT, "results", "results", lambda m: self.results.append(json.loads(m.body)))
        document = defaults()
        own = {"name": HOST.name, "address": HOST.address}
        document["client"] = with_own_subscription({**own, "subscriptions": ["all"], **(client or {})})
        document["checks"] = checks or {}
        document["sensu"]["spawn"]["limit"] = spawn
        self.spool = spool if spool is not None else MemorySpool()
        self.sender = Sender(self.transport, self.spool, "start1")
        self.agent = Agent(
            Settings(document), self.machine, self.transport, self.sender, lambda call: call(),
            zone=zone or Zone(), find_extension=(extensions or {}).get,
        )  # fmt: skip
        self._send = self.sender.send_next

    def start(self):
        self.agent.start()
        self.sent()
        return self

    def sent(self):
        """Have the sender send what waits; the results that a server has seen by now."""
        while self.sender.is_busy and self._send():
            pass
        return self.results

    def checked(self):
        """The check of each result, and forget them."""
        found = [result["check"] for result in self.sent()]
        self.results.clear()
        return found

    def request(self, kind, pipe, **request):
        self.server.publish(kind, pipe, json.dumps(request).encode())

    def pass_(self, seconds, step=1.0):
        """Let time pass, and have results sent meanwhile."""
        while seconds > 0:
            self.machine.pass_(min(step, seconds))
            self.sent()
            seconds -= step
