"""A scheduler under random faults, seed by seed: production nodes, stores and clients on a bus in memory.

python tests/schedule/scheduler_simulation.py --seeds 1000 [--variant no-fence]

While faults are injected, processes are killed, paused and hung in the middle of a commit, appends are lost, late and
duplicated, commits fail before and after they are stored, clocks jump, tenants are paused. Then all of it heals, and
what is on the streams and in the store is compared with what was asked for. A broken variant leaves out one rule.
With an odd seed nodes take the store for a server, and go on with other shards during a commit.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from scheduler_processes import GROUP, Cluster, Killed, uncertain, unreachable

from lockstep.core.agenda import ENDED, Remove, Replay, Status, Upsert
from lockstep.core.ladder import Ladder
from lockstep.core.ticks import Misfire, Policy
from lockstep.cron import Zone, instants, parse
from lockstep.errors import IllegalState, Unavailable
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.schedule import requests, shard_crons
from lockstep.schedule.client import _Waiting
from lockstep.schedule.delivery.port import Outcome
from lockstep.schedule.node import NodeOptions
from lockstep.schedule.requests import Ask, PauseCron, PutCron, RemoveCron
from lockstep.schedule.rows import Change, CronRow, cron_key
from lockstep.schedule.store import cells
from lockstep.schedule.store.cells import CellStore
from lockstep.schedule.tenants import Paused, Registered, Tenant, TenantType
from lockstep.schedule.times import parse_time
from lockstep.testing.faults import FaultPlan

LADDER = Ladder(max_retries=1, round_ms=5000, limit_ms=60_000)
ROUNDS, HEALING_S = 30, 25
STREAM_TENANTS, TENANTS = ("s", "p"), ("s", "p", "h")
CRONS = (
    CronRow(tenant="s", id="secondly", type="QUARTZ", expression="0/2 * * * * ?",
            policy=Policy(misfire=Misfire.ALL, grace_s=3)),
    CronRow(tenant="h", id="called", type="QUARTZ", expression="0/5 * * * * ?", policy=Policy(grace_s=4)),
    CronRow(tenant="p", id="jittered", type="QUARTZ", expression="1/6 * * * * ?", jitter_s=3,
            policy=Policy(misfire=Misfire.SKIP, grace_s=8)),
)  # fmt: skip

SET_BACK = b'"what":"ticks set back"'
FAR = 30
"""Some clocks are wrong by so many times more than others."""
CLOCK_BOUND_S = 5
"""A clock that is wrong by more for as long is noticed: less than usual, so that it happens in each seed."""

EARLY = "fired before its time"
FIRED_TWICE = "published twice"
LOST = "accepted and neither fired nor failed"
AFTER_DELETED = "fired although DELETED was answered"
NOBODYS = "fired under an id that nobody was given"
NOT_DELIVERED = "done without a delivery"
ANSWERED_TWICE = "answered twice"
UNANSWERED = "carried out and not answered"
WRONG_ANSWER = "an answer that a replay of the requests does not give"
WRONG_ROW = "a row that a replay of the requests does not give"
TICK_TWICE = "a tick with two outcomes"
TICK_LOST = "a tick without an outcome"
TICK_COUNT = "a run of skipped ticks with a wrong count"
TICK_PUBLISHED = "ticks on the stream are not those of the history"
POSITION_BACK = "a position or mark went back"
STALE_WRITE = "written by an owner of an older epoch"
NODE_DIED = "a node ended"
NEVER_RESTS = "a process works without end"


@dataclass(frozen=True)
class Anomaly:
    """What is wrong, by name, and where."""

    name: str
    detail: str


@dataclass
class Outcomes:
    """What one seed showed."""

    seed: int
    anomalies: list[Anomaly]
    faults: Counter[str]
    seen: Counter[str]


@dataclass
class Asked:
    """What a client asked for, and where it waits for the answer."""

    request: requests.Request
    waiting: _Waiting


@dataclass
class Life:
    """One event id, as a replay of the requests tells it."""

    key: tuple[str, str]
    at: int
    ended: bool = False
    fate: str = "live"
    """live, superseded, or DELETED with the status it had."""
    replayed: bool = False
    """It had failed and was asked to fire again."""


class Simulation(Cluster):
    """See module."""

    def __init__(self, seed: int, variant: str | None = None) -> None:
        self.chance = random.Random(f"scheduler {seed}")
        self.variant = VARIANTS[variant] if variant is not None else None
        self.is_faulty = False
        is_remote = seed % 2 == 1
        options = NodeOptions(
            ladder=LADDER, group=GROUP, in_flight=6, in_flight_tenant=4, round_requests=2 if is_remote else 8,
            round_events=3 if is_remote else 2000,  # so that a node is behind, and commits during its rounds
        )  # fmt: skip
        super().__init__(seed, shards=3, options=options, is_remote=is_remote)
        self.seed = seed
        self.anomalies: list[Anomaly] = []
        self.asked: dict[tuple[str, int], Asked] = {}
        self.deliveries: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self.epochs: Counter[int] = Counter()
        self.states: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self.started, self.furthest_s = 0, 0.0
        self.plan = FaultPlan()
        self.clients = [self.client(self.plan) for _ in range(2)]
        props = {"s": {"topic": "out"}, "p": {"topic": "out"}, "h": {"url": "http://localhost/"}}
        for name, values in props.items():
            kind = TenantType.HTTP if name == "h" else TenantType.MESSAGING
            self.clients[0].control(Registered(Tenant(tenant=name, type=kind, props=values)))

    # what goes wrong

    def open_store(self, process):
        if self.variant is None:
            return super().open_store(process)
        return self.variant(self, process)

    def _goes_wrong(self, probability: float) -> bool:
        return self.is_faulty and self.chance.random() < probability

    def before_commit(self, process):
        self.interrupt(process, "before the commit")
        if self._goes_wrong(0.02):
            self.counts["commit refused"] += 1
            raise unreachable()

    def after_commit(self, process):
        self.interrupt(process, "after the commit")
        if self._goes_wrong(0.02):
            self.counts["commit uncertain"] += 1
            raise uncertain()

    def interrupt(self, process, where: str) -> None:
        """Kill, pause or hang a process in the middle of its work."""
        if not self._goes_wrong(0.03):
            return
        kind = self.chance.choice(["kill", "pause", "pause", "hang"])
        self.counts[f"{kind} {where}"] += 1
        if kind == "kill":
            process.kill()
            raise Killed
        process.runtime.pause(self.chance.uniform(0.5, 6.0))
        more = self.chance.uniform(0.5, 8.0) if kind == "hang" else 0.0
        while process.runtime.is_paused and not process.runtime.dead:
            process.hang(0.5)
        process.hang(more)

    def committed(self, process, changes):
        now = process.runtime.latest_ns // 10**6  # it may have been set back since the step began
        for change in changes:
            if change.fence.epoch < self.epochs[change.shard]:
                self.note(STALE_WRITE, f"shard {change.shard} in epoch {change.fence.epoch}")
            self.epochs[change.shard] = max(self.epochs[change.shard], change.fence.epoch)
            position, mark = self.states[change.shard]
            new = (position if change.position is None else change.position, change.mark or mark)
            is_set_back = any(SET_BACK in one.value for one in change.outgoing)
            self.counts["ticks set back"] += is_set_back
            if new[0] < position or (new[1] < mark and not is_set_back):
                self.note(POSITION_BACK, f"shard {change.shard} from {(position, mark)} to {new}")
            self.states[change.shard] = new
            for before, after in change.events.values():
                began = after is not None and after.status in (Status.FIRING, Status.DONE)
                if began and (before is None or before.status in (Status.WAITING, Status.RETRY)) and after.at > now:
                    self.note(EARLY, f"{after.event_id} for {after.at} at {now}")

    def is_late(self):
        return self.chance.random() < 0.5

    def delivery_s(self):
        return self.chance.choice([0.01, 0.1, 1.0, 4.0])

    def receive(self, process, delivery):
        event = delivery.event
        self.deliveries[event.event_id].append((process.name, event.at))
        if not self.is_faulty:
            return Outcome.TAKEN
        return self.chance.choices([Outcome.TAKEN, Outcome.FAILED, Outcome.REFUSED], [6, 3, 1])[0]

    def note(self, name: str, detail: str) -> None:
        self.anomalies.append(Anomaly(name, detail))

    # the run

    def run(self) -> Outcomes:
        for _ in range(self.chance.randint(1, 3)):
            self.start_node()
        self.clock.advance(3)
        for row in CRONS:
            self.ask(PutCron(row))
        self.is_faulty = True
        try:
            for _ in range(ROUNDS):
                self.act()
                self.clock.advance(self.chance.choice([0.05, 0.2, 0.5, 1.0, 2.0]))
            self.heal()
        except IllegalState as error:
            self.note(NEVER_RESTS, str(error))
        self.check()
        faults = self.counts + self.plan.counts
        for process in self.nodes.values():
            faults += process.plan.counts
        return Outcomes(self.seed, self.anomalies, faults, self.seen())

    def start_node(self) -> None:
        self.started += 1
        self.start(f"n{self.started}")

    def act(self) -> None:
        acts: list[tuple[int, Callable[[], None]]] = [
            (60, self.ask_something), (4, self.start_another), (3, self.kill_one), (4, self.pause_one),
            (5, self.set_clock), (5, self.pause_tenant), (4, self.change_cron), (8, self.lose_append),
            (2, self.close_one),
        ]  # fmt: skip
        self.chance.choices([act for _, act in acts], [weight for weight, _ in acts])[0]()

    def ask_something(self) -> None:
        for _ in range(self.chance.choice([1, 1, 2, 5])):
            tenant, name = self.chance.choice(TENANTS), f"e{self.chance.randint(0, 5)}"
            kind = self.chance.random()
            if kind < 0.7:
                spread = self.chance.choice([(-2000, 4000), (0, 15_000)])
                at = self.now + self.chance.randint(*spread)
                at -= at % self.chance.choice([1, 5000, 5000])  # so that the same instant comes up again
                event_id = self.clock.new_id().hex()
                self.ask(Upsert(tenant, name, at, event_id, self.chance.choice([None, b"x", b"y"])))
            else:
                self.ask(Remove(tenant, name) if kind < 0.95 else Replay(tenant, name))

    def ask(self, request: requests.Request) -> None:
        """Send a request, and do not wait: the answers stream tells what became of it."""
        client = self.chance.choice(self.clients)
        client._number += 1
        ask = Ask(client._id, client._number)
        waiting = _Waiting(self.clock.waiter(), {ask.number})
        client._waiting.append(waiting)
        self.asked[ask.client, ask.number] = Asked(request, waiting)
        with suppress(Unavailable):
            client._append([requests.encode(request, ask)])

    def start_another(self) -> None:
        if len(self.live()) < 3:
            self.start_node()

    def kill_one(self) -> None:
        if self.live():
            self.counts["kill"] += 1
            self.chance.choice(self.live()).kill()

    def pause_one(self) -> None:
        if self.live():
            self.counts["pause"] += 1
            self.chance.choice(self.live()).runtime.pause(self.chance.uniform(0.5, 6.0))

    def close_one(self) -> None:
        idle = [process for process in self.live() if not process.runtime.is_paused]
        if idle:
            self.counts["close"] += 1
            process = self.chance.choice(idle)
            process.node.close(2.0)
            process.kill()

    def set_clock(self) -> None:
        if self.live():
            self.counts["clock set"] += 1
            ahead_ms = self.chance.randint(-4000, 4000) * self.chance.choice([1, 1, 1, FAR])
            self.furthest_s = max(self.furthest_s, abs(ahead_ms) / 1000)
            self.chance.choice(self.live()).runtime.ahead_ns = ahead_ms * 10**6

    def pause_tenant(self) -> None:
        self.counts["tenant paused"] += 1
        with suppress(Unavailable):
            self.clients[0].control(Paused(self.chance.choice(TENANTS), self.chance.random() < 0.6))

    def change_cron(self) -> None:
        row = self.chance.choice(CRONS)
        kind = self.chance.random()
        if kind < 0.6:
            self.ask(PauseCron(row.tenant, row.id, row.type, self.chance.random() < 0.4))
        elif kind < 0.8:
            self.ask(PutCron(row))
        else:
            self.ask(RemoveCron(row.tenant, row.id, row.type))

    def lose_append(self) -> None:
        kinds = ["drop", "lose_ack", "late"]
        if self.chance.random() < 0.6:
            log = f"jobs.requests/{self.chance.randint(0, 2)}"
            getattr(self.plan, self.chance.choice([*kinds, "duplicate"]))(log=log)
        elif self.live():
            process = self.chance.choice(self.live())
            getattr(process.plan, self.chance.choice(kinds))(log="jobs.nodes")
            getattr(process.plan, self.chance.choice(kinds))(log=process.grouplog.name)

    def heal(self) -> None:
        self.is_faulty = False
        for bus in (*(client.bus.bus for client in self.clients), *(one.bus for one in self.nodes.values())):
            bus.plan._planned.clear()
            bus.release_late()
        for process in self.live():
            process.runtime.go_on()
            process.runtime.ahead_ns = 0
        for tenant in TENANTS:
            self.clients[0].control(Paused(tenant, False))
        if not self.live():
            self.start_node()
        self.clock.advance(HEALING_S + self.furthest_s)

    # what became of it

    def check(self) -> None:
        for process in self.live():
            for error in (process.node.error, process.node.member.error):
                if error is not None:
                    self.note(NODE_DIED, repr(error))
        answers = self.read_answers()
        lives = self.replay(answers)
        out = [(record, dict(record.headers)["Idempotency-Key"].decode()) for record in self.records("out")]
        published = Counter(event_id for _, event_id in out)
        history = [json.loads(record.value) for record in self.records(self.streams.history)]
        for record, event_id in out:
            body = json.loads(record.value)
            if parse_time(body["triggeredAt"]) < parse_time(body["eventTime"]):
                self.note(EARLY, f"{event_id}: {body['triggeredAt']} for {body['eventTime']}")
        self.check_lives(lives, published)
        self.check_ticks(history, published, self.removals(answers))
        ticks = {one["eventId"] for one in history if "/QUARTZ/" in one.get("eventId", "")}
        for event_id in {*published, *self.deliveries} - lives.keys() - ticks:
            self.note(NOBODYS, event_id)

    def read_answers(self) -> dict[tuple[str, int], dict]:
        answers: dict[tuple[str, int], dict] = {}
        for record in self.records(self.streams.answers):
            answer = json.loads(record.value)
            place = (record.key.decode(), answer["number"])
            if place in answers:
                self.note(ANSWERED_TWICE, f"{self.asked[place].request}: {answers[place]} and {answer}")
            answers.setdefault(place, answer)
        for place, answer in answers.items():
            found = self.asked[place].waiting.found.get(place[1])
            if found != answer:
                self.note(WRONG_ANSWER, f"the client got {found} and not {answer}")
        return answers

    def replay(self, answers: dict[tuple[str, int], dict]) -> dict[str, Life]:
        """Carry out the requests in the order of their stream; each answer must be one that may be given."""
        lives: dict[str, Life] = {}
        current: dict[tuple[str, str], str] = {}
        for record in self.records(self.streams.requests):
            request, ask = requests.decode(record.value)
            answer = answers.get((ask.client, ask.number))
            if answer is None:
                self.note(UNANSWERED, f"{request}")
            elif isinstance(request, Upsert | Remove | Replay):
                self.replay_one(request, answer, lives, current)
        for key, event_id in current.items():
            event = self.clients[0].find(*key)
            if event is None or (event.event_id, event.at) != (event_id, lives[event_id].at):
                self.note(WRONG_ROW, f"{key} should have {event_id}: {event}")
        for key in {life.key for life in lives.values()} - current.keys():
            if self.clients[0].find(*key) is not None:
                self.note(WRONG_ROW, f"{key} should be gone")
        return lives

    def replay_one(self, request, answer, lives: dict[str, Life], current: dict[tuple[str, str], str]) -> None:
        key = (request.tenant, request.id)
        known = current.get(key)
        life = None if known is None else lives[known]
        verdict, status, event = answer["verdict"], answer["status"], answer["event"]
        shown = None if event is None else event["key"]
        conflict = answer["code"] == 409
        to_stream = request.tenant in STREAM_TENANTS
        unfired, ended = status in ("WAITING", "RETRY"), status in ("DONE", "FAILED")
        possible = not (life is not None and life.ended and unfired) and not (to_stream and status == "FIRING")
        if isinstance(request, Upsert) and life is not None and life.at == request.at:
            good = shown == known and verdict == ("UPDATED" if unfired else "TRIGGERED") and not conflict
        elif isinstance(request, Upsert):
            lapsed = event is not None and event["eventId"] is None
            word = "TRIGGERED" if lapsed else "ACCEPTED" if known is None else "UPDATED"
            good = (verdict, shown, status) == (word, request.event_id, "WAITING")
            good &= not conflict or (known is not None and not to_stream)
            possible = True
            if life is not None:
                life.fate = "superseded"
            lives[request.event_id] = Life(key, request.at)
            current[key] = request.event_id
            life = None
        elif life is None:
            good = verdict == "UNKNOWN"
        elif isinstance(request, Remove):
            good = shown == known and (verdict, conflict) == (
                ("TRIGGERED", True) if status == "FIRING" else ("DELETED", False)
            )
            if verdict == "DELETED":
                life.fate = f"DELETED {status}"
                del current[key]
        else:
            good = shown == known and verdict in ("UPDATED", "ERROR")
            if verdict == "UPDATED":  # the answer shows the event afterwards: one that had failed waits again
                possible = status == "WAITING"
                life.ended, life.replayed = False, True
                ended = False
        if life is not None and ended:
            life.ended = True
        if not good or not possible:
            self.note(WRONG_ANSWER, f"{request} on {life}: {answer}")

    def check_lives(self, lives: dict[str, Life], published: Counter[str]) -> None:
        for event_id, life in lives.items():
            copies, delivered = published[event_id], len(self.deliveries[event_id])
            to_stream = life.key[0] in STREAM_TENANTS
            if copies > 1 or (copies and not to_stream):
                self.note(FIRED_TWICE, f"{life.key} {event_id} {copies} times")
            if any(at != life.at for _, at in self.deliveries[event_id]):
                self.note(NOBODYS, f"{event_id} was delivered for another time")
            count = copies if to_stream else delivered
            if life.fate in ("DELETED WAITING", "DELETED FAILED") and to_stream and count:
                self.note(AFTER_DELETED, f"{life.key} {event_id}")
            if life.fate == "DELETED WAITING" and count and not life.replayed:
                self.note(AFTER_DELETED, f"{life.key} {event_id}")
            if life.fate == "DELETED DONE" and not count:
                self.note(NOT_DELIVERED, f"{life.key} {event_id}")
            if life.fate == "live":
                self.check_live(event_id, life, count)

    def check_live(self, event_id: str, life: Life, count: int) -> None:
        event = self.clients[0].find(*life.key)
        if event is None:
            return  # told as a wrong row
        if event.status not in ENDED:
            self.note(LOST, f"{event}")
        elif event.status is Status.DONE and not count:
            self.note(NOT_DELIVERED, f"{event}")
        elif event.status is Status.FAILED and not event.error:
            self.note(LOST, f"no reason: {event}")

    def removals(self, answers: dict[tuple[str, int], dict]) -> Counter[str]:
        """How often each cron was removed."""
        found = Counter[str]()
        for place, answer in answers.items():
            request = self.asked[place].request
            if isinstance(request, RemoveCron) and answer["verdict"] == "UPDATED":
                found[f"{request.tenant}/{request.id}/{request.type}"] += 1
        return found

    def check_ticks(self, history: list[dict], published: Counter[str], removals: Counter[str]) -> None:
        """A second has one outcome, and one more for each time that its ticks were set back; it fires once.

        A cron that was removed and set up again does not know what fired before: if ticks were set back meanwhile, they
        may fire once more for each time that it was removed.
        """
        outcomes: dict[tuple[str, int], list[str]] = defaultdict(list)
        for one in history:
            if one["what"] in ("fired", "skipped", "failed", "missed") and "/QUARTZ" in one.get("id", ""):
                for at in self.nominal_times(one):
                    outcomes[one["id"], at].append(one["what"])
        again = [(one["to"] * 1000, one["from"] * 1000) for one in history if one["what"] == "ticks set back"]
        most = dict[tuple[str, int], int]()
        for (name, at), found in outcomes.items():
            decided_again = sum(first < at <= last for first, last in again)
            forgotten = removals[name] if decided_again else 0
            most[name, at] = 1 + forgotten
            fires = sum(what != "skipped" for what in found)
            if fires > 1 + forgotten or len(found) > 1 + decided_again + forgotten:
                self.note(TICK_TWICE, f"{name} at {at}: {found}")
        fired = {f"{one['eventId']}" for one in history if one["what"] == "fired" and one.get("tenant") in "sp"}
        on_stream = {event_id for event_id in published if "/QUARTZ/" in event_id}
        if on_stream != {event_id for event_id in fired if "/QUARTZ/" in event_id}:
            self.note(TICK_PUBLISHED, f"{on_stream ^ fired}")
        for event_id in on_stream:
            name, _, time = event_id.rpartition("/")
            if published[event_id] > most.get((name, parse_time(time)), 1):
                self.note(TICK_TWICE, f"{event_id} is on the stream {published[event_id]} times")
        for row in CRONS:
            self.check_cron(row, outcomes)

    def nominal_times(self, one: dict) -> list[int]:
        """The nominal times of a record: of a run of skipped ticks, all from the first to the last of them."""
        if "count" not in one:
            return [one["eventTime"]]
        [row] = [row for row in CRONS if row.name == one["id"]]
        cron, zone = parse(row.expression, row.type), Zone(row.tz)
        seconds = range(one["eventTime"] // 1000, one["lastTime"] // 1000 + 1)
        found = [second * 1000 for second in seconds if instants.is_due(cron, second, zone)]
        if len(found) != one["count"]:
            self.note(TICK_COUNT, f"{one}")
        return found

    def check_cron(self, row: CronRow, outcomes: dict[tuple[str, int], list[str]]) -> None:
        shard = self.clients[0].shard_of(row.tenant, row.id)
        stored = self.store.cron(shard, cron_key(row.tenant, row.id, row.type))
        if stored is None:
            return
        cron, zone = parse(row.expression, row.type), Zone(row.tz)
        last = self.now // 1000 - 12  # by then it is delivered, jitter and tries included
        for second in range(stored.since + 1, last):
            if instants.is_due(cron, second, zone) and (row.name, second * 1000) not in outcomes:
                self.note(TICK_LOST, f"{row.name} at {second}, since {stored.since}")

    def seen(self) -> Counter[str]:
        return Counter(
            requests=len(self.asked), nodes=self.started, deliveries=sum(map(len, self.deliveries.values())),
            published=len(self.records("out")), epochs=sum(self.epochs.values()),
        )  # fmt: skip


# broken variants: each leaves out one rule


class _Variant(CellStore):
    """A store of a process of the simulation."""

    def __init__(self, simulation: Simulation, process) -> None:
        super().__init__(process.bus, simulation.streams.name, process.runtime, process.owners)
        self.simulation, self.process = simulation, process


class NoFence(_Variant):
    """Whoever comes may write."""

    def commit(self, changes):
        return _commit_without_fence(self, changes)


class FenceOutsideTransaction(_Variant):
    """The fence is looked at, and then the transaction begins."""

    def commit(self, changes):
        with self._bus.snapshot() as view:
            owners = self.process.owners(view)
        refused = {change.shard for change in changes if not cells._holds(owners, change.fence)}
        self.simulation.interrupt(self.process, "after the look at the fence")
        _commit_without_fence(self, [change for change in changes if change.shard not in refused])
        return refused


class MarkAfterPublishing(_Variant):
    """Ticks are published, and then the mark is stored."""

    def commit(self, changes):
        refused = super().commit([replace(change, mark=None) for change in changes])
        self.simulation.interrupt(self.process, "before the mark")
        marks = [
            Change(change.shard, change.fence, mark=change.mark)
            for change in changes
            if change.mark is not None and change.shard not in refused
        ]
        return refused | super().commit(marks)


class ClaimsWithoutEpoch(_Variant):
    """The fence names the member, but not the epoch in which it owned the shard."""

    def commit(self, changes):
        with self._bus.snapshot() as view:
            owners = self.process.owners(view)
        mine = [
            replace(change, fence=replace(change.fence, epoch=owners.seat(change.fence.seat).epoch))
            if owners.seat(change.fence.seat).owner == change.fence.member
            else change
            for change in changes
        ]
        return super().commit(mine)


class AnswerBeforeCommit(_Variant):
    """Answers are sent, and then what they say is stored."""

    def commit(self, changes):
        name = self.simulation.streams.answers
        answers = [one for change in changes for one in change.outgoing if one.stream == name]
        if answers:
            batch = pack(
                [one.value for one in answers], producer=NO_PRODUCER, sequence=0, created_ns=0,
                keys=[one.key for one in answers],
            )  # fmt: skip
            self._bus.open(name).append([batch])
        self.simulation.interrupt(self.process, "after the answers")
        return super().commit(
            [replace(change, outgoing=[one for one in change.outgoing if one.stream != name]) for change in changes]
        )


class StepsBeforeTheOutcome(_Variant):
    """The next step of a shard does not wait for the outcome of the one before."""

    is_remote = True

    def commit(self, changes):
        for owned in self.process.node._owned.values():
            owned.is_committing = False
        return super().commit(changes)


class SetBackWithoutSpans(_Variant):
    """After the clock was ahead, nobody knows which ticks fired."""

    def commit(self, changes):
        for change in changes:
            rows = {key: row if row is None else replace(row, fired=()) for key, row in change.crons.items()}
            if any(SET_BACK in one.value for one in change.outgoing):
                rows = {
                    key: row if row is None else replace(row, executed=None) for key, row in self._rows(change, rows)
                }
            change.crons = rows
        return super().commit(changes)

    def _rows(self, change, rows):
        stored = {cron_key(row.tenant, row.id, row.type): row for row in self.crons(change.shard)}
        return (stored | rows).items()


def _commit_without_fence(store: CellStore, changes) -> set[int]:
    held, cells._holds = cells._holds, lambda _owners, _fence: True
    try:
        return CellStore.commit(store, changes)
    finally:
        cells._holds = held


VARIANTS = {
    "no-fence": NoFence,
    "fence-outside-the-transaction": FenceOutsideTransaction,
    "mark-after-publishing": MarkAfterPublishing,
    "claims-without-epoch": ClaimsWithoutEpoch,
    "answer-before-commit": AnswerBeforeCommit,
    "steps-before-the-outcome": StepsBeforeTheOutcome,
    "set-back-without-spans": SetBackWithoutSpans,
}


@dataclass
class Summary:
    """What some seeds showed."""

    seeds: int = 0
    failed: list[Outcomes] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)

    def add(self, outcomes: Outcomes) -> None:
        self.seeds += 1
        self.faults += outcomes.faults
        self.seen += outcomes.seen
        if outcomes.anomalies:
            self.failed.append(outcomes)


def run_seed(seed: int, variant: str | None = None) -> Outcomes:
    logger = logging.getLogger("lockstep")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    bounds = {name: getattr(shard_crons, name) for name in ("JUMP_S", "BEHIND_S", "SET_BACK_AFTER_S")}
    for name in bounds:
        setattr(shard_crons, name, CLOCK_BOUND_S)
    try:
        return Simulation(seed, variant).run()
    finally:
        logger.setLevel(before)
        for name, value in bounds.items():
            setattr(shard_crons, name, value)


def run_many(seeds, variant: str | None = None) -> Summary:
    summary = Summary()
    for seed in seeds:
        summary.add(run_seed(seed, variant))
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--variant", choices=sorted(VARIANTS))
    given = parser.parse_args()
    summary = run_many(range(given.first, given.first + given.seeds), given.variant)
    for outcomes in summary.failed[:20]:
        for anomaly in outcomes.anomalies[:3]:
            print(f"seed {outcomes.seed}: {anomaly.name}: {anomaly.detail[:300]}")
    print("anomalies ", dict(Counter(name for one in summary.failed for name in {a.name for a in one.anomalies})))
    print("faults    ", dict(summary.faults))
    print("seen      ", dict(summary.seen))
    print(f"seeds      {summary.seeds}, {len(summary.failed)} with an anomaly")
    return 1 if summary.failed else 0


if __name__ == "__main__":
    sys.exit(main())
