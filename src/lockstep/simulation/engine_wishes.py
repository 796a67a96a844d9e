"""What a leader wants to be decided: input, time, another model, a snapshot, trimming."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lockstep.core import leader
from lockstep.core.leader import Propose
from lockstep.simulation.engine_model import Decision, Request, checksum
from lockstep.simulation.logs import Cursor, LogShorter, LogTrimmed

if TYPE_CHECKING:
    from lockstep.simulation.delivery_checks import Published
    from lockstep.simulation.engine_process import Engine

TICK_ODDS = 0.25
PERSIST_ODDS = 0.1
TRIM_ODDS = 0.15
TAKE_ODDS = 0.8


class Wishes:
    """One decision after the other, each made on what was read back of the one before."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.requests: Cursor[Request] = Cursor(engine.sim.requests)
        self.waiting: list[Request] = []
        self.done: set[str] = set(engine.fold.requests)
        self.taken = engine.fold.ends  # only for the variant that names ranges
        self.seen: dict[str, int] = {}  # only for the variant that keeps copies apart on its own

    def saw(self, decision: Decision) -> None:
        """A decision is on the log, whether it counts or not."""
        self.taken = tuple(map(max, zip(self.taken, decision.ends, strict=True)))

    def sequenced(self, decision: Decision) -> None:
        """A decision counts, no matter which engine made it."""
        if decision.request is not None:
            self.done.add(decision.request)

    def propose(self) -> None:
        """Propose what is next, if nothing is on its way."""
        engine = self.engine
        self._read_requests()
        if engine.leader.waiting or engine.yield_asked_at is not None:
            return
        decision = self._decision()
        if decision is not None:
            engine.leader, _ = leader.step(engine.leader, Propose(self._varied(decision).body()))

    def _read_requests(self) -> None:
        try:
            self.waiting += [request for _, request in self.requests.read(self.engine.world.now)]
        except (LogShorter, LogTrimmed):
            self.requests.next = self.engine.sim.requests.first
        self.waiting = [request for request in self.waiting if request.id not in self.done]

    def _decision(self) -> Decision | None:
        engine, rng, idle = self.engine, self.engine.world.rng, not self.engine.sim.goes_on
        decision = Decision(engine.decided, checksum([]))
        if rng.random() < TAKE_ODDS:
            decision = self._taking()
        ends = decision.ends
        if self.waiting:
            return replace(decision, model=self.waiting[0].model, request=self.waiting[0].id)
        if not idle and rng.random() < PERSIST_ODDS:
            return replace(decision, persist=engine.host.me)
        if not idle and rng.random() < TRIM_ODDS:
            reach = engine.sim.store.trimmable([engine.sim.archive.reach()])
            if reach.sequence > engine.sim.sequence.first:
                return replace(decision, trim=(reach.sequence, *reach.inputs.values()))
        if not idle and rng.random() < TICK_ODDS:
            return replace(decision, tick=engine.host.wall(engine.world.now))
        return decision if ends != engine.decided else None

    def _taking(self) -> Decision:
        """What was read, after what is gone."""
        engine, gaps = self.engine, self._gaps()
        starts = tuple(map(max, zip(engine.decided, gaps, strict=True))) if gaps else engine.decided
        ends = tuple(max(each.next, at) for each, at in zip(engine.inputs.values(), starts, strict=True))
        return Decision(ends, checksum(engine.taken(starts, ends)), gaps=gaps)

    def _gaps(self) -> tuple[int, ...] | None:
        """Up to where messages are gone that this engine has not read."""
        found = [
            each.log.first if each.next == at < each.log.first else 0
            for each, at in zip(self.engine.inputs.values(), self.engine.decided, strict=True)
        ]
        return tuple(found) if any(found) else None

    def _varied(self, decision: Decision) -> Decision:
        """What broken variants say instead."""
        engine, variant = self.engine, self.engine.world.variant
        if variant.names_ranges:
            starts = tuple(map(max, zip(self.taken, engine.decided, strict=True)))
            self.taken = decision.ends
            crc = checksum(engine.taken(starts, decision.ends))
            return replace(decision, starts=starts, crc=crc)
        if variant.private_copies:
            messages = engine.taken(decision.begin(engine.decided), decision.ends)
            copies = tuple(index for index, message in enumerate(messages) if self._is_copy(message))
            return replace(decision, copies=copies)
        return decision

    def _is_copy(self, message: Published) -> bool:
        if message.number <= self.seen.get(message.producer, -1):
            return True
        self.seen[message.producer] = message.number
        return False
