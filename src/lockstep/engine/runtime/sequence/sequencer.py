"""The leader's work on the sequence log: say how far each input is taken, and when the clock ticks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lockstep.core.doubts import contradicts
from lockstep.core.leader import Apply, LeaderState, Lost, Observed, Propose, Send, StepDown, Tick, Won, leads, step
from lockstep.core.sequence import Entry, Mark, SequenceState
from lockstep.engine.errors import LogTooShort, SequenceBroken
from lockstep.engine.runtime.sequence.entries import (
    BlockCounter,
    Decision,
    SequencePosition,
    Statement,
    decode,
    encode,
    records,
)
from lockstep.engine.runtime.sequence.outages import BUS_AWAY, LengthCheck
from lockstep.engine.runtime.sequence.reader import batches_between, end_of, head_of, records_between
from lockstep.engine.runtime.sequence.streams import Input, ProjectInputs
from lockstep.errors import Trimmed
from lockstep.log.batch import BatchView, pack
from lockstep.log.port import Bounds, Log
from lockstep.runtime import Runtime, logger

MARGIN_US = 1_000_000
"""A wall clock that is so far from what is expected is believed."""
SLEW = 0.1


@dataclass(slots=True)
class ModelClock:
    """The last tick that was read from the sequence log, and when it was made, on the reader's monotonic clock.

    Of a tick that another engine made it is known only that it was not on the log when that was last read to its end:
    after a pause or an outage it may be as old as that. A wall clock that fits to any such moment is right.
    """

    time_us: int | None = None
    """None: no tick came while this process looked, so that its wall clock is all there is."""
    seen_s: float = 0.0
    doubt_s: float = 0.0
    """The tick may have been made so long before it was seen."""
    is_slewing: bool = False

    def saw(self, time_us: int, now_s: float, since_s: float | None = None) -> None:
        """A tick was read from the sequence log; it was made between `since_s` and `now_s`, or right now."""
        if self.time_us is None or time_us >= self.time_us:
            self.time_us, self.seen_s = time_us, now_s
            self.doubt_s = 0.0 if since_s is None else now_s - since_s

    def next(self, wall_us: int, now_s: float) -> int:
        """The time of the next tick."""
        if self.time_us is None:
            return wall_us
        passed_us = int((now_s - self.seen_s) * 1e6)
        ahead_us = wall_us - self.time_us - passed_us
        ahead_us -= min(max(ahead_us, 0), int(self.doubt_s * 1e6))
        if abs(ahead_us) <= MARGIN_US:
            self.is_slewing = False
            return max(wall_us, self.time_us)
        if not self.is_slewing:
            self.is_slewing = True
            words = "The wall clock is %.1f s off the model's time, which is slewed by a tenth until they agree"
            logger.warning(words, ahead_us / 1e6, extra={"action": "clock"})
        return self.time_us + int(passed_us * (1 + SLEW if ahead_us > 0 else 1 - SLEW))


_ENTRY_BYTES = 64 << 20
"""An entry takes about so much of a stream of records, and at least one stored batch."""
_LENGTH_S, _LAST_S = 1.0, 5.0
"""How often a sequencer looks where its log ends, and whether what it read last still stands there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SequencerOptions:
    """How entries are cut."""

    entry_events: int = 50_000
    """An entry takes about this many events, and at least one record."""
    resend_s: float = 0.5
    """What was not read back for so long is sent again."""


class Sequencer:
    """Follows a project's sequence log, or leads: then it decides. Not to be shared between threads.

    `position` is how far it read back: what comes before is decided, and nothing else may be acted on.
    """

    def __init__(
        self,
        sequence: Log,
        inputs: ProjectInputs,
        runtime: Runtime,
        options: SequencerOptions,
        position: SequencePosition,
        *,
        me: str | None = None,
        restate: Callable[[Statement], ProjectInputs] | None = None,
    ) -> None:
        """`restate` opens the inputs of a model that is stated on the log."""
        self.position = position
        self.is_deposed = False
        """A newer mark than its own is on the log: it follows again."""
        self._sequence, self._inputs, self._runtime, self._options = sequence, inputs, runtime, options
        self._producer, self._sent = runtime.new_id(), 0
        self._leader = LeaderState(me or runtime.new_id().hex(), position.sequence, resend_after=options.resend_s)
        self._proposed: tuple[str, BlockCounter] = ("", BlockCounter.at(position))
        self._next_tick, self._clock = 0.0, ModelClock()
        self._proposed_at = self._read_at = runtime.monotonic()
        """When it made its last proposal, and when it last read the sequence log to its end."""
        self._unwritten_since: float | None = None
        """Since when no append to the sequence log was acknowledged."""
        self._asked: list[Decision] = []
        """Decisions to be made as soon as possible; their ends and counts are filled in then."""
        self._control_entries: list[tuple[SequencePosition, Decision]] = []
        self._restate = restate
        self._lengths: dict[str, LengthCheck] = {}
        """Of streams that are not the project's own, and were shorter than what was taken of them."""
        self._length, self._length_due, self._last_due = LengthCheck(sequence, runtime.monotonic), 0.0, 0.0
        self._last_read: tuple[int, Mark | Entry] | None = None
        self._observe()
        self._clock = ModelClock()  # when the ticks before were written nobody knows

    @property
    def leads(self) -> bool:
        """Whether its own mark is the last one on the log."""
        return leads(self._leader)

    @property
    def epoch(self) -> int:
        """The epoch in force, no matter who leads."""
        return self._leader.sequence.epoch

    def unwritten_s(self) -> float:
        """For how many seconds nothing that it appended was acknowledged; 0 if the last append was."""
        return 0.0 if self._unwritten_since is None else self._runtime.monotonic() - self._unwritten_since

    def lead(self, epoch: int = 0) -> None:
        """Start to lead: write a mark with an epoch of at least this, and decide once it is read back."""
        self._observe()
        self._check_last()
        self.is_deposed = False
        self._leader, _ = step(self._leader, Won(max(epoch, self._leader.sequence.epoch + 1)))

    def follow(self) -> None:
        """Stop leading, and drop what was asked for."""
        self._leader, _ = step(self._leader, Lost())
        self._leader, self._asked = replace(self._leader, waiting=()), []
        self._unwritten_since = None

    def step(self) -> bool:
        """Do what is due; true if there may be more to do at once."""
        before = self.position.number
        self._observe()
        self._check_length()
        if self.leads and not self._leader.waiting:
            self._propose()
        self._send()
        self._observe()
        return self.position.number != before or bool(self._leader.waiting)

    def tick(self, time_us: int, *, lagging: bool = False) -> None:
        """Have the clock tick, after everything that is decided so far."""
        self.ask(Decision(tick_us=time_us, lagging=lagging or None))

    def nudge(self) -> None:
        """Write an entry that changes nothing, so that workers have a batch to run."""
        self.ask(Decision())

    def ask(self, decision: Decision) -> None:
        """Have something decided next; its ends and counts are filled in."""
        self._asked.append(decision)

    def take_control_entries(self) -> list[tuple[SequencePosition, Decision]]:
        """The entries since the last call that concern the engine itself, each with the position after it."""
        found, self._control_entries = self._control_entries, []
        return found

    def is_caught_up(self) -> bool:
        """Whether everything on the inputs is decided."""
        ends = {path: log.bounds().next for path, log in self._inputs.logs.items()}
        return self.leads and not self._leader.waiting and not self._asked and ends == self.position.ends

    def _propose(self) -> None:
        """Only while leading, as what is proposed names ends that nobody else may have moved meanwhile."""
        counter = BlockCounter.at(self.position)
        self._asked = [decision for decision in self._asked if not self.position.knows(decision)]
        asked = self._asked[0] if self._asked else None
        if asked is not None:
            clients = dict(self.position.clients) if asked.reset else None
            decision = replace(asked, ends=self._ends_of(asked), clients=clients)
        elif not self.position.running:
            return
        else:
            began = self._runtime.monotonic()
            ends, gaps, is_cut = self._look_ahead(counter)
            tick_us = self._tick_due()
            lagging = tick_us is not None and (is_cut or self._took_long(began))
            decision = Decision(ends=ends, tick_us=tick_us, crc=counter.crc, gaps=gaps or None, lagging=lagging or None)
            if decision.ends == self.position.ends and decision.tick_us is None:
                return
        counter.block += decision.tick_us is not None
        body = replace(decision, blocks=counter.block, events=counter.events).body()
        self._proposed, self._asked = (body, counter), self._asked[1:] if asked is not None else self._asked
        self._proposed_at = self._runtime.monotonic()
        self._leader, _ = step(self._leader, Propose(body))

    def _ends_of(self, asked: Decision) -> Mapping[str, int]:
        if asked.states is None or self._restate is None:
            return self.position.ends
        return self._restate(asked.states).ends(self.position.ends)

    def _look_ahead(self, counter: BlockCounter) -> tuple[dict[str, int], dict[str, int], bool]:
        """The ends of the next entry for each input, counted in `counter`; and where inputs with a gap go on.

        The third value says whether some of what is there is left to a later entry.
        """
        ends, gaps, room = {}, {}, self.position.events + self._options.entry_events
        is_cut = False
        for each in self._inputs.inputs:
            start, bounds = end_of(each, self.position.ends), each.log.bounds()
            if each.takes_records and start < bounds.first:
                counter.pass_gap()
                gaps[each.name] = start = bounds.first
            ends[each.name] = self._look_into(each, start, bounds, counter, room)
            is_cut = is_cut or ends[each.name] < bounds.next
        return ends, gaps, is_cut

    def _look_into(self, each: Input, start: int, bounds: Bounds, counter: BlockCounter, room: int) -> int:
        if not each.takes_records:
            return take_frames(each, start, bounds.next, counter, room)
        if bounds.next < start:  # it may be a replica that lags; it is no end to go back to
            self._lengths.setdefault(each.name, LengthCheck(each.log, self._runtime.monotonic)).check(start)
            return start
        return take_records(each, start, bounds.next, counter, room)

    def _took_long(self, began: float) -> bool:
        """Whether so much time has passed since the inputs' ends were read that a tick can't speak for now."""
        every = self._inputs.tick_us
        return every is not None and self._runtime.monotonic() - began > every / 1e6

    def _tick_due(self) -> int | None:
        every, now = self._inputs.tick_us, self._runtime.monotonic()
        if every is None or now < self._next_tick:
            return None
        self._next_tick = now + every / 1e6
        return self._clock.next(self._runtime.wall_ns() // 1000, now)

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
            (base,) = self._sequence.append([batch])
            self._unwritten_since = None
            self._length.appended(base, self._leader.sequence.upto + 1, self.position.block)
        except BUS_AWAY as error:  # done means read back: what is not is sent again
            if self._unwritten_since is None:
                self._unwritten_since = self._runtime.monotonic()
            logger.warning("An entry was not acknowledged", extra={"action": "sequence", "reason": str(error)})

    def _observe(self) -> None:
        for at, record in records(self._sequence, self._leader.sequence.upto + 1):
            known = self._leader.sequence
            if isinstance(record, Entry) and contradicts(known, record):
                raise SequenceBroken(stream=self._sequence.name, number=record.number, last=known.number)
            after, actions = step(self._leader, Observed(at, record))
            for action in actions:
                if isinstance(action, Apply):  # it reads the inputs: if that fails the record is read again
                    self._apply(action.entry, after.sequence)
            self._leader, self._last_read = after, (at, record)
            if any(isinstance(action, StepDown) for action in actions):
                self.is_deposed = True
                self.follow()
        self._read_at = self._runtime.monotonic()

    def _check_length(self) -> None:
        """Look now and then whether the log still holds what was read from it."""
        now = self._runtime.monotonic()
        if now >= self._length_due:
            self._length_due = now + _LENGTH_S
            self._length.check(self._leader.sequence.upto + 1, self.position.block)
        if now >= self._last_due:
            self._last_due = now + _LAST_S
            self._check_last()

    def _check_last(self) -> None:
        """Raise if another record stands where the last one was read: the log lost it, and grew again since."""
        if self._last_read is None:
            return
        at, record = self._last_read
        try:
            stored = self._sequence.reread(at)
        except Trimmed:  # every reader that needs it has read what is released
            return
        if stored is None:  # it is too short, which it may be for a moment
            return
        view = BatchView(stored.base, stored.data, self._sequence.name)
        if not view.base <= at < view.end or decode(view.values()[at - view.base]) != record:
            self._length.appended(at, at + 1, self.position.block)

    def _apply(self, entry: Entry, sequence: SequenceState) -> None:
        decision = Decision.of(entry)
        body, counter = self._proposed
        if entry.body != body:  # another leader's
            counter = BlockCounter.at(self.position)
            if decision.states is None:
                for each in self._inputs.inputs:
                    start, stop = end_of(each, self.position.ends), end_of(each, decision.ends)
                    if decision.gaps and each.name in decision.gaps:
                        counter.pass_gap()
                        start = decision.gaps[each.name]
                    (take_records if each.takes_records else take_frames)(each, start, stop, counter)
            counter.block += decision.tick_us is not None
        before, position, inputs = self.position, self.position.after(sequence, decision, counter), self._inputs
        if decision.states is not None and self._restate is not None and not before.knows(decision):
            inputs = self._restate(decision.states)
            position = position.only(inputs.logs)
        self.position, self._inputs = position, inputs
        if decision.tick_us is not None:
            self._saw_tick(decision.tick_us, is_own=entry.body == body)
        concerns_engine = decision.is_control or decision.trim is not None or decision.prepare is not None
        if concerns_engine and not before.knows(decision):
            self._control_entries.append((self.position, decision))

    def _saw_tick(self, time_us: int, *, is_own: bool) -> None:
        """Note a tick for the model's clock; one of its own counts from when it was proposed."""
        if is_own:
            self._clock.saw(time_us, self._proposed_at)
        else:
            self._clock.saw(time_us, self._runtime.monotonic(), self._read_at)


def take_frames(each: Input, start: int, stop: int, counter: BlockCounter, room: int | None = None) -> int:
    """Count the frames of an input up to `stop` while they fit into `room`, at least one; return where it ended.

    At least one, so that an input that is always full does not shut out the others.
    """
    began = counter.events
    for offset, value, sender in records_between(each.log, start, stop):
        head = head_of(value)
        if head is not None and room is not None and counter.events > began and counter.events + head.events > room:
            return offset
        counter.sum_up(value)
        counter.take(head, each.name, sender)
    return stop


def take_records(each: Input, start: int, stop: int, counter: BlockCounter, room: int | None = None) -> int:
    """The same with records that are blocks themselves: stored batch by stored batch.

    With `room` the stream may let go of records meanwhile: it ends before them, and begins with a gap the next time.
    """
    began, at, size = counter.events, start, 0
    try:
        for part in batches_between(each.log, start, stop, each.node.path):
            size += len(part.view.raw)
            is_full = size > _ENTRY_BYTES or (room is not None and counter.events + part.count > room)
            if room is not None and is_full and counter.events > began:
                return part.low
            counter.sum_up_batch(part.view)
            counter.take_records(part.count, each.name, part.sender)
            at = part.high
    except LogTooShort:
        if room is None:
            raise
        return at
    return stop
