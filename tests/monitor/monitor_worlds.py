"""What tests of the monitor's core share: messages as agents send them, and a fleet that tells what it gave."""

from __future__ import annotations

import json

from lockstep.monitor.core.fleet import Fleet
from lockstep.monitor.core.output import Output

START_S = 1_767_225_600  # 2026-01-01T00:00:00Z, a Thursday


def compact(document) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def keepalive(name="web-1", **more) -> bytes:
    client = {"name": name, "address": "10.0.0.1", "subscriptions": ["linux"], "version": "0.26.5", **more}
    return compact(client)


def result(client="web-1", name="disk", status=0, *, head=None, executed=START_S, output="fine", **more) -> bytes:
    check = {"name": name, "issued": executed, "executed": executed, "duration": 0.012, "output": output, **more}
    return compact({"client": client, **(head or {}), "check": {**check, "status": status}})


def results_of(body):
    """The checks of a row of results; of one that was deleted nothing but its name."""
    lines = [line.split("\t", 1) for line in body.split("\n")]
    return [json.loads(check) if check else {"name": name, "_deleted": True} for name, check in lines]


def body_of(row):
    """What a row says; 0 if it is gone."""
    if row.body is None:
        return 0
    return results_of(row.body) if row.kind == "results" else json.loads(row.body)


class World:
    """A fleet with its clock, its changelog folded as a view folds it, and all notices."""

    def __init__(self, settings=None, *, start=True, fleet=None):
        self.fleet = fleet or Fleet()
        self.block, self.now = 0, START_S
        self.rows, self.notices, self.table, self.transitions = [], [], {}, []
        self.orders, self.clients = 0, {}
        self.pages = {}
        if start:
            self.tick(0)
        if settings is not None:
            assert self.order("settings", settings=settings, digest="d1", by="test")["status"] == 200

    def step(self, call):
        out = Output()
        self.block += 1
        call(self.block, out)
        assert all(each.block == self.block for each in (*out.rows, *out.notices))
        self.rows += out.rows
        self.notices += out.notices
        for row in out.rows:
            if row.body is None:
                self.table.pop(row.id, None)
            else:
                self.table[row.id] = results_of(row.body) if row.kind == "results" else json.loads(row.body)
            if row.kind == "transition":
                self.transitions.append(json.loads(row.body))
        return out

    def take(self, key, value):
        return self.step(lambda block, out: self.fleet.take(key, value, block, out))

    def keepalive(self, name="web-1", **more):
        """A keepalive with these members, and those of the last one."""
        more = self.clients[name] = {**self.clients.get(name, {}), **more}
        return self.take(f"k:{name}".encode(), keepalive(name, timestamp=self.now, **more))

    def result(self, client="web-1", name="disk", status=0, **more):
        more.setdefault("executed", self.now)
        return self.take(f"r:{client}".encode(), result(client, name, status, **more))

    def order(self, kind, **more):
        self.orders += 1
        self.take(b"o:", compact({"order": kind, "id": f"order-{self.orders}", **more}))
        return self.table[f"answer/order-{self.orders}"]

    def tick(self, seconds=1, *, lagging=False):
        """One tick, so many seconds after the last one."""
        self.now += seconds
        return self.step(lambda block, out: self.fleet.tick(self.now * 1_000_000, lagging, block, out))

    def wait(self, seconds, *, lagging=False, heard=()):
        """So many ticks of a second; clients in `heard` send keepalives every 20 seconds."""
        for _ in range(seconds):
            if self.now % 20 == 0:
                for name in heard:
                    self.keepalive(name)
            self.tick(lagging=lagging)

    def event(self, check="disk", client="web-1"):
        return self.table.get(f"event/{client}/{check}")

    def handled(self):
        """What handlers were told: handler, check, status and action."""
        found = []
        for notice in self.notices:
            if notice.kind == "handle":
                body = json.loads(notice.body)
                event = body["event"]
                found.append((body["handler"], event["check"]["name"], event["check"]["status"], event["action"]))
        return found

    def requests(self):
        return [(notice.key, json.loads(notice.body)) for notice in self.notices if notice.kind == "request"]

    def refused(self):
        return [row["reason"] for id_, row in self.table.items() if id_.startswith("refused/")]

    def snapshot(self):
        """Take a snapshot as the engine does: only pages that are marked."""
        for page in sorted(self.fleet.marked_pages()):
            state = self.fleet.dump_page(page)
            if state is None:
                self.pages.pop(page, None)
            else:
                self.pages[page] = state

    def restart(self, chance=None):
        """Go on in a new object from pages, which come in any order."""
        self.snapshot()
        self.fleet = type(self.fleet)()
        pages = list(self.pages.items())
        if chance is not None:
            chance.shuffle(pages)
        for page, state in pages:
            self.fleet.load_page(page, state)
