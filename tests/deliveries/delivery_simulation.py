"""Carriers under random faults, seed by seed: production carriers and ledgers on a bus in memory, in virtual time.

python tests/deliveries/delivery_simulation.py --seeds 1000 [--variant no-begun]

While faults are injected, carriers are killed, paused and hung before and after an item is carried out, appends to
ledgers, outbox and group are lost, late and duplicated, receivers fail. Then all of it heals, and what was carried out
is compared with what was asked for. A broken variant leaves out one rule.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile

from lockstep.core.delivery import AGAIN, DEAD, SKIP, Begun, Ended, Ledger
from lockstep.core.dispatch import Dispatcher, Job
from lockstep.errors import DeliveryRefused, Fenced, IllegalState, ServerUnreachable
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.config import StreamConfig
from lockstep.log.memory import MemoryBroker
from lockstep.platform import Lockstep
from lockstep.streams.carrier import Carrier, CarrierOptions
from lockstep.streams.carrier_shard import entries_of, ledger_name
from lockstep.streams.deadletters import dead_letters
from lockstep.streams.grouplog import PREFIX
from lockstep.streams.options import GroupOptions
from lockstep.streams.outbox import item_headers
from lockstep.testing.faults import FaultPlan, FaultyBus
from lockstep.testing.virtual import VirtualRuntime
from lockstep.testing.virtual_process import Killed, ProcessRuntime

OUTBOX, GROUP = "outbox", "g"
GROUP_OPTIONS = GroupOptions(lease_s=2.0, beat_s=0.5, revoke_s=3.0)
SHARDS, WORKERS, KEYS = 2, 3, 5
LEDGERS = [f"{ledger_name(OUTBOX, GROUP)}/{shard}" for shard in range(SHARDS)]
ROUNDS, HEALING_S = 11, 12.0

LOST = "neither carried out, nor given up, nor skipped"
TWICE = "carried out again without a doubt"
NOBODYS = "carried out and never asked for"
NOT_TOLD = "carried out again, and neither attempt was in doubt"
NOT_BEGUN = "carried out before its begun counted"
OVERTAKEN = "carried out before an earlier item of its key"
MANY_DOUBTS = "more doubts than workers times interruptions"
DEAD_DONE = "given up although it was carried out, without a doubt"
CARRIER_DIED = "a carrier ended"
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


@dataclass(frozen=True)
class Effect:
    """Something that was done outside."""

    id: str
    process: str
    epoch: int
    offset: int
    attempt: int
    in_doubt: bool


class NoBegun(Dispatcher):
    """Carries out what it reads, and says so afterwards."""

    def _next_step(self, waiting):
        entry = super()._next_step(waiting)
        if isinstance(entry, Begun):
            self._counted.append(Job(waiting.offset, waiting.id, entry.attempt))
            return None
        return entry


class NotReadBack(Dispatcher):
    """Takes an append that was sent for one that counts."""

    def wants(self, now, room):
        entries = super().wants(now, room)
        for entry in entries:
            if isinstance(entry, Begun) and entry.id not in self._running:
                in_doubt = self.ledger.in_doubt(entry.id)
                self._counted.append(Job(entry.offset, entry.id, entry.attempt, in_doubt=in_doubt))
        return entries

    def _read_back(self, begun, now):
        pass


class Unfenced(Ledger):
    """A ledger in which what an older owner begins counts as before."""

    def is_in_force(self, epoch, owner):
        return True


class NoBarrier(Dispatcher):
    """Goes on from what it has read of the ledger."""

    def __init__(self, ledger, owner, group_epoch, rules):
        super().__init__(Unfenced(), owner, group_epoch, rules)
        self.epoch, self._is_open = group_epoch, True


class ConfirmedBeforeDone(Carrier):
    """Moves the group's position when an item is begun."""

    def _confirm(self, subscriber):
        for stream, shard in self._shards.items():
            work = shard.dispatcher
            passed = work._over | {job.offset for job in work._running.values()}
            begun = list(takewhile(lambda offset: offset in passed, work._order))  # noqa: B023 - used up at once
            if begun:
                with suppress(Fenced):
                    subscriber.confirm(begun[-1], stream=stream)
        super()._confirm(subscriber)


VARIANTS = {
    "no-begun": NoBegun,
    "not-read-back": NotReadBack,
    "no-barrier": NoBarrier,
    "confirmed-before-done": ConfirmedBeforeDone,
}


class SlowRuntime(ProcessRuntime):
    """A process whose monotonic clock may be slow: it takes its lease for longer than it is."""

    def __init__(self, clock):
        self._since, self._base, self._rate = clock.monotonic(), clock.monotonic(), 1.0
        super().__init__(clock)

    def monotonic(self):
        return self._base + (self.clock.monotonic() - self._since) * self._rate

    def run_at(self, rate):
        self._base, self._since, self._rate = self.monotonic(), self.clock.monotonic(), rate


class Process:
    """One process with a carrier."""

    def __init__(self, world, name):
        self.world, self.name = world, name
        self.runtime = SlowRuntime(world.clock)
        self.plan = FaultPlan()
        self.doomed = False
        self.bus = Lockstep(FaultyBus(world.grid.bus(self.runtime), self.plan), self.runtime)
        options = CarrierOptions(
            workers=WORKERS, retries=2, backoff_s=0.3, backoff_max_s=2.0, on_doubt=world.on_doubt, window=8
        )
        self.carrier = Carrier(self.bus, OUTBOX, GROUP, options, GROUP_OPTIONS, dispatcher=world.variant or Dispatcher)
        self.carrier.on("*", self._handle)
        self.carrier.start()

    def _handle(self, item):
        self.world.carry_out(self, item)

    @property
    def is_alive(self):
        return not self.runtime.dead

    def kill(self):
        self.runtime.kill()
        member = self.carrier._subscriber._member
        for task in (self.carrier._task, member._task, *(worker._task for worker in self.carrier._workers)):
            task.stop()


class Simulation:
    """See module."""

    def __init__(self, seed, variant=None):
        self.chance = random.Random(f"deliveries {seed}")
        self.seed, self.variant = seed, VARIANTS[variant] if variant else None
        self.on_doubt = self.chance.choice([AGAIN, AGAIN, SKIP])
        self.clock = VirtualRuntime(seed, max_steps_per_instant=3000, max_steps_per_call=200_000)
        self.grid = MemoryBroker(dedupe=False)
        self.plan = FaultPlan()
        self.bus = Lockstep(FaultyBus(self.grid.bus(self.clock), self.plan), self.clock)
        self.bus.create(OUTBOX, StreamConfig(capacity=None, shards=SHARDS))
        self.logs = self.bus.logs(OUTBOX)
        self.processes = {}
        self.started = self.asked_for = self.interruptions = 0
        self.is_faulty = False
        self.asked = {}
        self.ledgers = []
        self.calls = []
        self.effects = defaultdict(list)
        self.refuses = {}
        self.counts, self.anomalies = Counter(), []

    # what goes wrong

    def _goes_wrong(self, probability):
        return self.is_faulty and self.chance.random() < probability

    def carry_out(self, process, item):
        ledger = self.ledgers[int(item.stream.partition("/")[2])]
        self.calls.append((item, process.carrier._subscriber._member.id, ledger.bounds().next))
        self._interrupt(process, "before it is done")
        process.runtime.hang(self.chance.choice([0.0, 0.01, 0.1, 0.5]))
        fate = self.refuses.get(item.id)
        if fate == "refused":
            raise DeliveryRefused(reason="never")
        if fate == "failing" or self._goes_wrong(0.1):
            self.counts["receiver failed"] += 1
            msg = "later"
            raise ValueError(msg)
        self.effects[item.id].append(
            Effect(item.id, process.name, item.epoch, item.offset, item.attempt, item.in_doubt)
        )
        self._interrupt(process, "after it is done")

    def _interrupt(self, process, where):
        """Kill, pause or hang a carrier in the middle of its work."""
        if process.runtime.dead:
            raise Killed
        is_doomed = process.doomed and self.is_faulty and where == "after it is done"
        if not self._goes_wrong(0.25 if is_doomed else 0.04):
            return
        kind = "kill" if is_doomed else self.chance.choice(["kill", "pause", "pause", "hang"])
        self.counts[f"{kind} {where}"] += 1
        self.interruptions += 1
        if kind == "kill":
            process.kill()
            raise Killed
        if kind == "pause":
            process.runtime.pause(self.chance.uniform(0.5, 5.0))
        process.runtime.hang(self.chance.uniform(0.5, 5.0) if kind == "hang" else 0.0)

    # the run

    def run(self):
        for _ in range(self.chance.randint(1, 3)):
            self.start_one()
        self.clock.advance(3)
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
        for process in self.processes.values():
            faults += process.plan.counts
        seen = Counter(items=len(self.asked), effects=sum(map(len, self.effects.values())), doubts=self.doubts_found)
        return Outcomes(self.seed, self.anomalies, faults, seen)

    def live(self):
        return [process for process in self.processes.values() if process.is_alive]

    def start_one(self):
        self.started += 1
        self.processes[f"p{self.started}"] = Process(self, f"p{self.started}")
        self.ledgers = self.ledgers or [self.grid.bus(self.clock).open(name) for name in LEDGERS]

    def act(self):
        acts = [
            (60, self.ask), (6, self.start_another), (4, self.kill_one), (5, self.pause_one), (3, self.close_one),
            (16, self.lose_append), (6, self.cut_off),
        ]  # fmt: skip
        self.chance.choices([act for _, act in acts], [weight for weight, _ in acts])[0]()

    def ask(self):
        for _ in range(self.chance.choice([1, 2, 4, 8])):
            if self.asked and self.chance.random() < 0.1:  # a copy, as a leader writes that is none any more
                self.counts["copy"] += 1
                item, (shard, key) = self.chance.choice(list(self.asked.items()))
            else:
                self.asked_for += 1
                item = f"e{self.asked_for}"
                key = self.chance.choice([None, *[b"k%d" % n for n in range(KEYS)]])
                shard = self.chance.randrange(SHARDS) if key is None else int(key[1:]) % SHARDS
                self.asked[item] = shard, key
                self.refuses[item] = self.chance.choices([None, "refused", "failing"], [20, 1, 1])[0]
            batch = pack(
                [item.encode()], producer=NO_PRODUCER, sequence=0, created_ns=1, keys=[key],
                headers=[item_headers(id=item)],
            )  # fmt: skip
            self.logs[shard].append([batch])

    def start_another(self):
        if len(self.live()) < 3:
            self.start_one()

    def kill_one(self):
        if self.live():
            self.counts["kill"] += 1
            self.interruptions += 1
            self.chance.choice(self.live()).kill()

    def pause_one(self):
        if self.live():
            self.counts["pause"] += 1
            self.interruptions += 1
            self.chance.choice(self.live()).runtime.pause(self.chance.uniform(0.5, 5.0))

    def close_one(self):
        idle = [process for process in self.live() if not process.runtime.is_paused]
        if idle:
            self.counts["close"] += 1
            process = self.chance.choice(idle)
            process.carrier.close(20.0)
            process.kill() if process.carrier._task else process.runtime.kill()

    def lose_append(self):
        if not self.live():
            return
        process = self.chance.choice(self.live())
        kind = self.chance.choice(["drop", "lose_ack", "late", "duplicate", "away"])
        log = self.chance.choice([*LEDGERS, *LEDGERS, PREFIX + GROUP])
        self.interruptions += log not in LEDGERS  # it may cost a lease
        process.doomed = log in LEDGERS  # whoever loses a record and is killed then has told nobody
        times = self.chance.choice([1, 2, 4])
        if kind == "away":
            process.plan.fail(ServerUnreachable(server="the bus", reason="it is away on order"), times, log=log)
        else:
            getattr(process.plan, kind)(times, log=log)

    def cut_off(self):
        """For a while a process does not reach the group's log, and its clock is slow: its lease seems to run."""
        if not self.live():
            return
        self.counts["cut off"] += 1
        self.interruptions += 1
        process = self.chance.choice(self.live())
        log = PREFIX + GROUP
        self.join(process)
        process.bus.bus.stall(log)
        process.plan.drop(200, log=log)
        process.runtime.run_at(0.25)
        self.clock.advance(self.chance.uniform(2.0, 5.0))
        for _ in range(3):
            self.ask()
            self.clock.advance(self.chance.uniform(0.1, 0.6))
        self.join(process)

    def join(self, process):
        """It reads and writes the group's log, and its clock is right."""
        process.plan.clear()
        process.bus.bus.unstall()
        process.runtime.run_at(1.0)

    def heal(self):
        self.is_faulty = False
        for process in self.processes.values():
            self.join(process)
            process.bus.bus.release_late()
        for process in self.live():
            process.runtime.go_on()
        if not self.live():
            self.start_one()
        self.clock.advance(HEALING_S)

    # what became of it

    def note(self, name, detail):
        self.anomalies.append(Anomaly(name, detail))

    def check(self):
        for process in self.live():
            if process.carrier.error is not None:
                self.note(CARRIER_DIED, repr(process.carrier.error))
        deliveries = self.bus.deliveries(OUTBOX, group=GROUP)
        found = deliveries.doubts()
        self.doubts_found = len(found)
        doubts = Counter(doubt.id for doubt in found)
        dead = {letter.record.value.decode() for letter in self._letters()}
        states = {one.id: one.state for one in deliveries.items()}
        skipped = {item for item, state in states.items() if state == "skipped"}
        for item in self.asked:
            effects = self.effects.get(item, [])
            if not effects and item not in dead | skipped:
                self.note(LOST, f"{item} at {self.asked[item]}")
            if len(effects) > 1 + doubts[item]:
                self.note(TWICE, f"{item}: {effects}, {doubts[item]} doubts")
            if effects and states.get(item) == "dead" and not doubts[item]:  # a copy after its end is tried anew
                self.note(DEAD_DONE, f"{item}: {effects}")
            marked = [one for one in effects if one.in_doubt]
            if len(effects) > 1 and not marked:
                self.note(NOT_TOLD, f"{item}: {effects}")
        if self.effects.keys() - self.asked.keys():
            self.note(NOBODYS, repr(self.effects.keys() - self.asked.keys()))
        if len(found) > WORKERS * self.interruptions:
            self.note(MANY_DOUBTS, f"{len(found)} doubts, {self.interruptions} interruptions")
        self._check_order(doubts)
        self._check_calls()

    def _check_calls(self):
        """Whatever was handed to a handler had been begun by then, by the owner in force."""
        counted = {}
        for number, log in enumerate(self.ledgers):
            ledger = Ledger()
            for at, entry in entries_of(log, log.bounds().first):
                if ledger.apply(at, entry) and isinstance(entry, Begun):
                    counted[f"{OUTBOX}/{number}", entry.id, entry.mark] = at
        for item, owner, end in self.calls:
            at = counted.get((item.stream, item.id, (item.epoch, owner, item.offset, item.attempt)))
            if at is None or at >= end:
                self.note(NOT_BEGUN, f"{item.id} by {owner[:4]} in epoch {item.epoch}")

    def _check_order(self, doubts):
        """The first time that an item is carried out comes after that of those before it with the same key.

        One that was given up lets others pass: a copy that came later is carried out in its own turn.
        """
        firsts = {item: number for number, item in enumerate(self.effects)}
        given_up = self._given_up()
        lanes = defaultdict(list)
        for item, (shard, key) in self.asked.items():
            is_sent_back = item in firsts and self.effects[item][0].offset > given_up.get(item, sys.maxsize)
            if key is not None and item in firsts and not doubts[item] and not is_sent_back:
                lanes[shard, key].append((firsts[item], item))
        for lane, found in lanes.items():
            if found != sorted(found):
                self.note(OVERTAKEN, f"{lane}: {found}")

    def _given_up(self):
        """Where on the outbox the items stood that were given up."""
        entries = (entry for log in self.ledgers for _, entry in entries_of(log, log.bounds().first))
        return {entry.id: entry.offset for entry in entries if isinstance(entry, Ended) and entry.outcome == DEAD}

    def _letters(self):
        with suppress(LookupError):
            yield from dead_letters(self.bus, f"{OUTBOX}.dlq")


@dataclass
class Summary:
    """What many seeds showed."""

    failed: list[Outcomes]
    faults: Counter[str]
    seen: Counter[str]


def run_seed(seed, variant=None):
    """One run."""
    logger, before = logging.getLogger("lockstep"), logging.getLogger("lockstep").level
    logger.setLevel(logging.CRITICAL + 1)  # every fault that is injected would be a warning
    try:
        return Simulation(seed, variant).run()
    finally:
        logger.setLevel(before)


def run_many(seeds, variant=None):
    """Many runs, one after the other."""
    summary = Summary([], Counter(), Counter())
    for seed in seeds:
        outcomes = run_seed(seed, variant)
        summary.faults += outcomes.faults
        summary.seen += outcomes.seen
        if outcomes.anomalies:
            summary.failed.append(outcomes)
    return summary


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--variant", choices=[*VARIANTS])
    asked = parser.parse_args()
    summary = run_many(range(asked.first, asked.first + asked.seeds), asked.variant)
    for outcomes in summary.failed:
        for anomaly in outcomes.anomalies:
            print(f"seed {outcomes.seed}: {anomaly.name}: {anomaly.detail}")
    print(f"{len(summary.failed)} of {asked.seeds} seeds failed; {dict(summary.seen)}; {dict(summary.faults)}")
    return 1 if summary.failed else 0


if __name__ == "__main__":
    sys.exit(main())
