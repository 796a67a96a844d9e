"""The leader's work on the sequence log: say how far each input is taken, and when the clock ticks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lockstep.core.leader import Apply, LeaderState, Lost, Observed, Propose, Send, StepDown, Tick, Won, leads, step
from lockstep.core.sequence import Entry, Mark
from lockstep.engine.run.decisions import Decision, Statement, encode, records
from lockstep.engine.run.position import Position, Tally
from lockstep.engine.run.reading import head_of, values_between
from lockstep.errors import AppendUncertain
from lockstep.log.batch import pack
from lockstep.log.port import Log
from lockstep.runtime import Runtime, logger


@dataclass(frozen=True, kw_only=True, slots=True)
class SequencerOptions:
    """How entries are cut."""

    entry_events: int = 50_000
    """An entry takes about this many events, and at least one record."""
    resend_s: float = 0.5
    """What was not read back for so long is sent again."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a sequencer must know of a model: its sources by path, in order, with their logs; and its heartbeat."""

    logs: Mapping[str, Log]
    tick_us: int | None = None

    def ends(self, before: Inputs, ends: Sequence[int]) -> tuple[int, ...]:
        """Where each input is taken up: where the model before had come to, or at its beginning."""
        known = dict(zip(before.logs, ends, strict=True))
        return tuple(known.get(path, log.bounds().first) for path, log in self.logs.items())

    def clients(self, before: Inputs, clients: Mapping[str, int]) -> dict[str, int]:
        """Clients by the places of their inputs now; those of inputs that are gone are left out."""
        places, found = {path: place for place, path in enumerate(self.logs)}, {}
        for client, last in clients.items():
            place, _, name = client.partition("/")
            path = list(before.logs)[int(place)]
            if path in places:
                found[f"{places[path]}/{name}"] = last
        return found


class Sequencer:
    """One process at a project's sequence log: it follows what others decide, or leads. Not shared between threads.

    `position` is what it read back: everything up to there is decided, and nothing else may be acted on.
    """

    def __init__(
        self,
        sequence: Log,
        inputs: Inputs,
        runtime: Runtime,
        options: SequencerOptions,
        position: Position,
        *,
        me: str | None = None,
        restate: Callable[[Statement], Inputs] | None = None,
    ) -> None:
        """`restate` opens the inputs of a model that is stated on the log."""
        self.position = position
        self.is_deposed = False
        """A newer mark than its own is on the log: it follows again."""
        self._sequence, self._inputs, self._runtime, self._options = sequence, inputs, runtime, options
        self._producer, self._sent = runtime.new_id(), 0
        self._leader = LeaderState(me or runtime.new_id().hex(), position.sequence, resend_after=options.resend_s)
        self._proposed: tuple[str, Tally] = ("", Tally.at(position))
        self._next_tick = 0.0
        self._asked: list[Decision] = []
        """Decisions to be made as soon as possible; their ends and counts are filled in then."""
        self._turned: list[tuple[Position, Decision]] = []
        self._restate = restate
        self._observe()

    @property
    def leads(self) -> bool:
        """Whether its own mark is the last one on the log."""
        return leads(self._leader)

    @property
    def epoch(self) -> int:
        """The epoch in force, whoever leads."""
        return self._leader.sequence.epoch

    def lead(self, epoch: int = 0) -> None:
        """Take over: mark an epoch of its own, at least this one, and decide from then on."""
        self._observe()
        self.is_deposed = False
        self._leader, _ = step(self._leader, Won(max(epoch, self._leader.sequence.epoch + 1)))

    def follow(self) -> None:
        """Decide on nothing more."""
        self._leader, _ = step(self._leader, Lost())
        self._leader, self._asked = replace(self._leader, waiting=()), []

    def step(self) -> bool:
        """Do what is due; true if there may be more to do at once."""
        before = self.position.number
        self._observe()
        if self.leads and not self._leader.waiting:
            self._propose()
        self._send()
        self._observe()
        return self.position.number != before or bool(self._leader.waiting)

    def tick(self, time_us: int) -> None:
        """Have the clock tick, behind everything that is decided so far."""
        self.ask(Decision((), 0, 0, time_us))

    def nudge(self) -> None:
        """Decide on nothing new: an entry for the sake of its number, so that what is decided is evaluated again."""
        self.ask(Decision((), 0, 0))

    def ask(self, decision: Decision) -> None:
        """Have something decided next; its ends and counts are filled in."""
        self._asked.append(decision)

    def turned(self) -> list[tuple[Position, Decision]]:
        """The entries since the last call that turned something, or let logs be trimmed; each with where it stands."""
        found, self._turned = self._turned, []
        return found

    def is_caught_up(self) -> bool:
        """Whether everything on the inputs is decided."""
        ends = tuple(log.bounds().next for log in self._inputs.logs.values())
        return self.leads and not self._leader.waiting and not self._asked and ends == self.position.ends

    def _propose(self) -> None:
        """Only while leading, as what is proposed names ends that nobody else may have moved meanwhile."""
        tally, asked = Tally.at(self.position), None
        while self._asked and asked is None:
            first = self._asked.pop(0)
            asked = None if self.position.knows(first) else first
        if asked is not None:
            clients = dict(self.position.clients) if asked.reset else None
            decision = replace(asked, ends=self._ends_of(asked), clients=clients)
        elif not self.position.running:
            return
        else:
            decision = Decision(self._look_ahead(tally), 0, 0, self._tick_due(), tally.crc)
            if decision.ends == self.position.ends and decision.tick_us is None:
                return
        tally.block += decision.tick_us is not None
        body = replace(decision, blocks=tally.block, events=tally.events).body()
        self._proposed = (body, tally)
        self._leader, _ = step(self._leader, Propose(body))

    def _ends_of(self, asked: Decision) -> tuple[int, ...]:
        if asked.states is None or self._restate is None:
            return self.position.ends
        return self._restate(asked.states).ends(self._inputs, self.position.ends)

    def _look_ahead(self, tally: Tally) -> tuple[int, ...]:
        """How far the next entry takes each input; they are counted on the way."""
        ends, room = [], self.position.events + self._options.entry_events
        for source, (log, start) in enumerate(zip(self._inputs.logs.values(), self.position.ends, strict=True)):
            ends.append(take_frames(log, start, tally, source, room))
        return tuple(ends)

    def _tick_due(self) -> int | None:
        every, now = self._inputs.tick_us, self._runtime.monotonic()
        if every is None or now < self._next_tick:
            return None
        self._next_tick = now + every / 1e6
        return self._runtime.wall_ns() // 1000

    def _send(self) -> None:
        self._leader, actions = step(self._leader, Tick(self._runtime.monotonic()))
        for action in actions:
            if isinstance(action, Send):
                self._append(action.record)

    def _append(self, record: Mark | Entry) -> None:
        self._sent += 1
        now = self._runtime.wall_ns()
        batch = pack([encode(record)], producer=self._producer, sequence=self._sent, created_ns=now)
        try:
            self._sequence.append([batch])
        except AppendUncertain as error:  # done means read back: what is not is sent again
            logger.warning("An entry was not acknowledged", extra={"action": "sequence", "reason": str(error)})

    def _observe(self) -> None:
        for at, record in records(self._sequence, self._leader.sequence.upto + 1):
            self._leader, actions = step(self._leader, Observed(at, record))
            for action in actions:
                if isinstance(action, Apply):
                    self._apply(action.entry)
                elif isinstance(action, StepDown):
                    self.is_deposed = True
                    self.follow()

    def _apply(self, entry: Entry) -> None:
        decision = Decision.of(entry)
        body, tally = self._proposed
        if entry.body != body:  # another leader's
            tally = Tally.at(self.position)
            if decision.states is None:
                ranges = zip(self._inputs.logs.values(), self.position.ends, decision.ends, strict=True)
                for source, (log, start, stop) in enumerate(ranges):
                    take_frames(log, start, tally, source, stop=stop)
            tally.block += decision.tick_us is not None
        before, self.position = self.position, self.position.after(self._leader.sequence, decision, tally)
        if decision.states is not None and self._restate is not None and not before.knows(decision):
            inputs = self._restate(decision.states)
            self.position = replace(self.position, clients=inputs.clients(self._inputs, self.position.clients))
            self._inputs = inputs
        if (decision.turns or decision.trim is not None) and not before.knows(decision):
            self._turned.append((self.position, decision))


def take_frames(
    log: Log, start: int, tally: Tally, source: int, room: int | None = None, stop: int | None = None
) -> int:
    """Count the frames of an input from `start` on while they fit into `room`, at least one; return where it ended.

    At least one, so that an input that is always full does not shut out the others.
    """
    stop, began = log.bounds().next if stop is None else stop, tally.events
    for offset, value in values_between(log, start, stop):
        head = head_of(value)
        if head is not None and room is not None and tally.events > began and tally.events + head.events > room:
            return offset
        tally.sum_up(value)
        tally.take(head, source)
    return stop
