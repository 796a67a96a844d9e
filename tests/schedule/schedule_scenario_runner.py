"""Carries out scenarios of schedulers in virtual time: commands, and below `----` what they print.

rounds EVENTS                                                    how much the nodes to be started do at once
start NODE | kill NODE | pause NODE | go-on NODE | shards        processes
schedule ID +SECONDS [tenant=T] [payload=P]                      ask for an event, and print the answer
send ID +SECONDS [tenant=T] | send-many COUNT ID +SECONDS        the same without waiting
cancel ID [tenant=T]                                             remove it, and print the answer
late ID +SECONDS [tenant=T] | land                               a request that is under way until `land`, then twice
cron ID EXPRESSION [tenant=T] [tz=Z] [misfire=M]                 set up a UNIX cron (fields joined by _)
tenant T pause|resume|rate=N|stream=NAME                         change a tenant
courier hold|let-go|T=OUTCOME,OUTCOME                            what receivers answer
delete-stream NAME | create-stream NAME | full | room            the bus
begin TIME | wait SECONDS | until TIME | clock SECONDS           the clock is set; time passes; the clock jumps
fired [STREAM] | count [STREAM] | place ID | delivered | find ID [tenant=T] | history [ID]             what became of it
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from scheduler_processes import GROUP, Cluster

from lockstep.core.agenda import Remove, Upsert
from lockstep.core.ticks import Misfire, Policy
from lockstep.errors import StoreFull
from lockstep.log.config import StreamConfig
from lockstep.schedule import bodies
from lockstep.schedule.delivery.port import Outcome
from lockstep.schedule.node import NodeOptions
from lockstep.schedule.requests import PutCron
from lockstep.schedule.rows import CronRow
from lockstep.schedule.tenants import Paused, Registered, Tenant, TenantType
from lockstep.schedule.times import java_text, parse_time
from lockstep.testing.faults import FaultPlan

START = "2027-01-01T00:00:00Z"
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
        else:
            (block.expected if below else block.lead if line.startswith("#") or not line else block.commands).append(
                line
            )
    assert not block.commands, f"no {SEPARATOR} after {block.commands}"
    return blocks


def options_of(words):
    plain = [word for word in words if "=" not in word or word.startswith("+")]
    return plain, dict(word.split("=", 1) for word in words if word not in plain)


class Runner(Cluster):
    """See module."""

    def __init__(self):
        super().__init__(0, shards=1, options=NodeOptions(group=GROUP))
        self.clock.set_wall(parse_time(START) * 10**6)
        self.plan = FaultPlan()
        self.asker = self.client(self.plan)
        self.answers, self.delivered, self.numbers = {}, [], {}
        self.full = False
        for name, kind, props in (
            ("s", TenantType.MESSAGING, {"topic": "out"}),
            ("h", TenantType.HTTP, {"url": "http://localhost/"}),
        ):
            self.asker.control(Registered(Tenant(tenant=name, type=kind, props=props)))
        self.held = None
        self.out = []

    def run(self, block):
        self.out = []
        for command in block.commands:
            name, *words = command.split()
            getattr(self, f"do_{name.replace('-', '_')}")(*words)
        return self.out or ["ok"]

    def say(self, text):
        self.out.append(text)

    # what goes wrong

    def before_commit(self, process):
        if self.full:
            raise StoreFull(stream="memory:", reason="it is full on order")

    def delivery_s(self):
        return 0.01 if self.held is None else 10**6

    def receive(self, process, delivery):
        event = delivery.event
        self.delivered.append(f"{event.id} try {event.attempt} by {process.name} under {self._short(event.event_id)}")
        answers = self.answers.get(event.tenant, [Outcome.TAKEN])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def _short(self, event_id):
        """Event ids in the order in which they are seen."""
        return f"id{self.numbers.setdefault(event_id, len(self.numbers) + 1)}"

    # processes

    def do_rounds(self, events):
        self.options = replace(self.options, round_events=int(events))

    def do_start(self, name):
        self.start(name)

    def do_kill(self, name):
        self.kill(name)

    def do_pause(self, name):
        self.nodes[name].runtime.pause(10**6)

    def do_go_on(self, name):
        self.nodes[name].runtime.go_on()

    def do_shards(self):
        for process in self.live():
            self.say(f"{process.name} has {process.node.shards}")

    # requests

    def _upsert(self, words):
        (name, when), options = options_of(words)
        at = self.now + round(float(when) * 1000)
        payload = options.get("payload")
        made = Upsert(
            options.get("tenant", "s"), name, at, f"{len(self.numbers)}-{self.clock.new_id().hex()}",
            None if payload is None else payload.encode(),
        )  # fmt: skip
        self._short(made.event_id)
        return made

    def _ask(self, request):
        [answer] = self.asker.ask([request])
        event = answer["event"]
        shown = "" if event is None else f" {event['id']} {self._short(event['key'])} {answer['status']}"
        conflict = f", {answer['code']}" if answer["code"] else ""
        self.say(f"{answer['verdict']}{shown}{conflict}")

    def do_schedule(self, *words):
        self._ask(self._upsert(words))

    def do_send(self, *words):
        self.asker.send([self._upsert(words)])

    def do_send_many(self, count, *words):
        self.asker.send([self._upsert((f"{words[0]}{number}", *words[1:])) for number in range(int(count))])

    def do_cancel(self, *words):
        (name,), options = options_of(words)
        self._ask(Remove(options.get("tenant", "s"), name))

    def do_late(self, *words):
        self.plan.late().duplicate()
        try:
            self.asker.send([self._upsert(words)])
        except Exception as error:  # noqa: BLE001 - whatever a client is told
            self.say(type(error).__name__)
        self.plan._planned.clear()

    def do_land(self):
        bus = self.asker.bus.bus
        late = list(bus._late)
        bus.release_late()
        for log, batches, expected in late:
            log.append(batches, expected_next=expected)

    def do_cron(self, *words):
        (name, expression), options = options_of(words)
        row = CronRow(
            tenant=options.get("tenant", "s"), id=name, type="UNIX", expression=expression.replace("_", " "),
            tz=options.get("tz", "UTC"), policy=Policy(misfire=Misfire(options.get("misfire", "once"))),
        )  # fmt: skip
        [answer] = self.asker.ask([PutCron(row)])
        self.say(answer["verdict"])

    def do_tenant(self, name, change):
        word, _, value = change.partition("=")
        known = self.asker.tenants().get(name)
        if word in ("pause", "resume"):
            self.asker.control(Paused(name, word == "pause"))
            return
        rate = float(value) if word == "rate" else None
        props = {"topic": value} if word == "stream" else dict(known.props)
        kind = TenantType.MESSAGING if word == "stream" else known.type
        self.asker.control(Registered(Tenant(tenant=name, type=kind, props=props, rate=rate)))

    # the world around

    def do_courier(self, change):
        tenant, _, outcomes = change.partition("=")
        if change == "hold":
            self.held = True
        elif change == "let-go":
            self.held = None
            for process in self.live():
                courier = process.courier
                courier._waiting = [(0.0, *rest) for _, *rest in courier._waiting]
                courier.waiter.wake()
        else:
            self.answers[tenant] = [Outcome[name.upper()] for name in outcomes.split(",")]

    def do_delete_stream(self, name):
        self.bus.delete(name)

    def do_create_stream(self, name):
        self.bus.create(name, StreamConfig(capacity=None))

    def do_full(self):
        self.full = True

    def do_room(self):
        self.full = False

    def do_begin(self, time):
        self.clock.set_wall(parse_time(time) * 10**6)

    def do_wait(self, seconds):
        self.clock.advance(float(seconds))

    def do_until(self, time):
        self.clock.advance(parse_time(time) / 1000 - self.now / 1000)

    def do_clock(self, seconds):
        self.clock.jump_wall(float(seconds))

    # what became of it

    def do_fired(self, stream="out"):
        for record in self.records(stream):
            event_id = dict(record.headers)[bodies.EVENT_ID_HEADER].decode()
            tick = "/UNIX/" in event_id
            self.say(event_id if tick else f"{record.key.decode()} {self._short(event_id)}")

    def do_place(self, name, stream="out"):
        keys = [record.key.decode() for record in self.records(stream)]
        self.say(f"{name} is number {keys.index(name) + 1} of {len(keys)}")

    def do_delivered(self):
        self.out += self.delivered or ["nothing"]

    def do_count(self, stream="out"):
        self.say(f"{len(self.records(stream))} records")

    def do_find(self, *words):
        (name,), options = options_of(words)
        event = self.asker.find(options.get("tenant", "s"), name)
        error = "" if event is None or event.error is None else f": {event.error}"
        self.say(f"{name} is unknown" if event is None else f"{name} {self._short(event.event_id)} "
                 f"{event.status.name} due {java_text(event.due)}{error}")  # fmt: skip

    def do_history(self, *names):
        for record in self.records(self.streams.history):
            one = json.loads(record.value)
            if not names or one.get("id", "").split("/")[:2][-1] in names or one.get("id") in names:
                reason = f" ({one['reason']})" if "reason" in one else ""
                reason += f" and {one['count'] - 1} more" if "count" in one else ""
                seconds = f" by {one['seconds']:.0f} s" if "seconds" in one else ""
                what = f" {one['id']}" if "id" in one else ""
                self.say(f"{java_text(one['at'])} {one['what']}{what}{seconds}{reason}")
