"""Carries out scenarios of a fleet: commands, and below `----` what they print.

settings JSON                                            settings in force from now on
keepalive CLIENT [NAME=VALUE ...]                        values are JSON, or texts
result CLIENT CHECK STATUS [NAME=VALUE ...]              numbered by its agent, unless numbered=false
again                                                    the last message comes again, marked as delivered again
tick SECONDS [lagging]                                   one tick, so many seconds after the last one
wait SECONDS [lagging] [heard=CLIENT,CLIENT]             a tick each second; these clients send keepalives
order KIND [NAME=VALUE ...]                              print its answer
restart                                                  a new process goes on from the pages
events | why CLIENT/CHECK | silences | counters NAME     what is shown
Handlers that are told and requests that are given are printed as they come, with the seconds since the beginning.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

from monitor_worlds import START_S, World, keepalive, result

from lockstep.monitor.core.copies import redelivered

SEPARATOR = "----"


@dataclass
class Block:
    """Some commands and what they are expected to print; `lead` is the comment above them."""

    lead: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def text(self):
        return "\n".join([*self.lead, *self.commands, SEPARATOR, *self.expected, ""])


def parse(text):
    """The form of tests/scenarios: blocks end at the first empty line below their separator."""
    blocks, block, below = [], Block(), False
    for line in [*text.splitlines(), ""]:
        if below and not line:
            blocks.append(block)
            block, below = Block(), False
        elif line == SEPARATOR:
            below = True
        elif below:
            block.expected.append(line)
        else:
            (block.lead if line.startswith("#") or not line else block.commands).append(line)
    assert not block.commands, f"no {SEPARATOR} after {block.commands}"
    return blocks


def value_of(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def members(words):
    return {name: value_of(value) for name, value in (word.split("=", 1) for word in words)}


class Runner:
    """See module."""

    def __init__(self):
        self.world = World()
        self.numbers = {}
        self.last = None
        self.out = []
        self.seen = 0

    def run(self, block):
        self.out = []
        for command in block.commands:
            name, _, rest = command.partition(" ")
            getattr(self, f"do_{name}")(*([rest] if name == "settings" else rest.split()))
            self.tell_notices()
        return self.out or ["ok"]

    def tell_notices(self):
        for notice in self.world.notices[self.seen :]:
            at = f"{self.world.now - START_S} s:"
            body = json.loads(notice.body)
            if notice.kind == "request":
                source = f" for {body['source']}" if "source" in body else ""
                self.out.append(f"{at} {body['name']} is asked of {notice.key}{source}")
                continue
            event, check = body["event"], body["event"]["check"]
            place = f"{event['client']['name']}/{check['name']}"
            told = f"{body['handler']} is told {place} {check['status']} {event['action']}"
            self.out.append(f"{at} {told}, occurrence {event['occurrences']}, revision {notice.id.split('.')[1]}")
        self.seen = len(self.world.notices)

    def send(self, key, value):
        self.last = (key, value)
        self.world.take(key, value)

    def do_settings(self, text):
        self.world.order("settings", settings=json.loads(text), digest="d", by="scenario")

    def do_keepalive(self, client, *words):
        more = self.world.clients[client] = {**self.world.clients.get(client, {}), **members(words)}
        self.send(f"k:{client}".encode(), keepalive(client, timestamp=self.world.now, **more))

    def do_result(self, client, check, status, *words):
        more = members(words)
        head = None
        if more.pop("numbered", True):
            self.numbers[client] = self.numbers.get(client, 0) + 1
            head = {"_agent": "a", "_n": self.numbers[client]}
        value = result(client, check, int(status), head=head, executed=self.world.now, **more)
        self.send(f"r:{client}".encode(), value)

    def do_again(self):
        self.world.take(self.last[0], redelivered(self.last[1]))

    def do_tick(self, seconds, *words):
        self.world.tick(int(seconds), lagging="lagging" in words)

    def do_wait(self, seconds, *words):
        heard = next((word.removeprefix("heard=").split(",") for word in words if word.startswith("heard=")), ())
        for _ in range(int(seconds)):
            self.world.wait(1, lagging="lagging" in words, heard=heard)
            self.tell_notices()

    def do_order(self, kind, *words):
        answer = self.world.order(kind, **members(words))
        self.tell_notices()
        body = "" if answer["body"] is None else f" {json.dumps(answer['body'], ensure_ascii=False)}"
        self.out.append(f"{answer['status']}{body}".replace(str(START_S), "START"))

    def do_restart(self):
        self.world.restart(random.Random(1))

    def do_events(self):
        found = {id_: row for id_, row in sorted(self.world.table.items()) if id_.startswith("event/")}
        for id_, row in found.items():
            check, silenced = row["check"], f", silenced by {' '.join(row['silenced_by'])}" if row["silenced"] else ""
            place = id_.removeprefix("event/")
            count = f"occurrence {row['occurrences']} of at most {row['occurrences_watermark']}"
            self.out.append(f"{place} {check['status']} {row['action']}, {count}: {check['output']}{silenced}")
        self.out += [] if found else ["no events"]

    def do_why(self, place):
        for one in self.world.table[f"why/{place}"]["handlers"]:
            for gate in one["gates"]:
                state = "open" if gate["passed"] else "closed"
                self.out.append(f"{one['handler']}, {gate['gate']}: {state}: {gate['reason']}")

    def do_silences(self):
        found = sorted(id_.removeprefix("silence/") for id_ in self.world.table if id_.startswith("silence/"))
        self.out += found or ["no silences"]

    def do_counters(self, name):
        self.out.append(f"{name}: {self.world.fleet.state.counters[name]}")
