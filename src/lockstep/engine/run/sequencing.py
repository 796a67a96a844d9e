"""The leader's work on the sequence log: say how far each input is taken, and when the clock ticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.core.leader import Apply, LeaderState, Observed, Propose, Send, StepDown, Tick, Won, leads, step
from lockstep.core.sequence import Entry, Mark
from lockstep.engine.errors import EngineRunning
from lockstep.engine.run.decisions import Decision, encode, records
from lockstep.engine.run.position import Position, Tally
from lockstep.engine.run.reading import head_of, values_between
from lockstep.log.batch import pack
from lockstep.log.port import Log
from lockstep.runtime import Runtime


@dataclass(frozen=True, kw_only=True, slots=True)
class SequencerOptions:
    """How entries are cut. `tick_us` is the heartbeat of the model's clock; None if no window follows it."""

    entry_events: int = 50_000
    """An entry takes about this many events, and at least one record."""
    tick_us: int | None = None


class Sequencer:
    """One process that leads a project's sequence log. Not to be shared between threads.

    `position` is what it read back: everything up to there is decided, and nothing else may be acted on.
    """

    def __init__(
        self,
        sequence: Log,
        inputs: Sequence[Log],
        runtime: Runtime,
        options: SequencerOptions,
        position: Position,
    ) -> None:
        self.position = position
        self._sequence, self._inputs, self._runtime, self._options = sequence, inputs, runtime, options
        self._producer, self._sent = runtime.new_id(), 0
        self._leader = LeaderState(runtime.new_id().hex(), position.sequence)
        self._proposed: tuple[str, Tally] = ("", Tally.at(position))
        self._observe()
        self._leader, _ = step(self._leader, Won(self._leader.sequence.epoch + 1))
        self._next_tick = 0.0
        self._asked: list[int | None] = []
        """Ticks to be decided on; None: an entry without one."""

    @property
    def leads(self) -> bool:
        """Whether its own mark is the last one on the log."""
        return leads(self._leader)

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
        self._asked.append(time_us)

    def nudge(self) -> None:
        """Decide on nothing new: an entry for the sake of its number, so that what is decided is evaluated again."""
        self._asked.append(None)

    def is_caught_up(self) -> bool:
        """Whether everything on the inputs is decided."""
        ends = tuple(log.bounds().next for log in self._inputs)
        return self.leads and not self._leader.waiting and not self._asked and ends == self.position.ends

    def _propose(self) -> None:
        """Only while leading, as what is proposed names ends that nobody else may have moved meanwhile."""
        if self._asked:
            ends, tally, tick = self.position.ends, Tally.at(self.position), self._asked.pop(0)
        else:
            ends, tally = self._look_ahead()
            tick = self._tick_due()
            if ends == self.position.ends and tick is None:
                return
        tally.block += tick is not None
        body = Decision(ends, tally.block, tally.events, tick).body()
        self._proposed = (body, tally)
        self._leader, _ = step(self._leader, Propose(body))

    def _look_ahead(self) -> tuple[tuple[int, ...], Tally]:
        """How far the next entry takes each input, and the count with it."""
        tally, ends = Tally.at(self.position), []
        room = self.position.events + self._options.entry_events
        for source, (log, start) in enumerate(zip(self._inputs, self.position.ends, strict=True)):
            ends.append(take_frames(log, start, tally, source, room))
        return tuple(ends), tally

    def _tick_due(self) -> int | None:
        every, now = self._options.tick_us, self._runtime.monotonic()
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
        self._sequence.append([pack([encode(record)], producer=self._producer, sequence=self._sent, created_ns=now)])

    def _observe(self) -> None:
        for at, record in records(self._sequence, self._leader.sequence.upto + 1):
            self._leader, actions = step(self._leader, Observed(at, record))
            for action in actions:
                if isinstance(action, Apply):
                    self._apply(action.entry)
                elif isinstance(action, StepDown):
                    raise EngineRunning(pid="of a newer epoch", place=self._sequence.name)

    def _apply(self, entry: Entry) -> None:
        decision = Decision.of(entry)
        body, tally = self._proposed
        if entry.body != body:  # another leader's, from before this process came
            tally = Tally.at(self.position)
            ranges = zip(self._inputs, self.position.ends, decision.ends, strict=True)
            for source, (log, start, stop) in enumerate(ranges):
                take_frames(log, start, tally, source, stop=stop)
            tally.block += decision.tick_us is not None
        self.position = Position(self._leader.sequence, decision.ends, tally.block, tally.events, tally.clients)


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
        tally.take(head, source)
    return stop
