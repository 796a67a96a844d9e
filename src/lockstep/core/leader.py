"""A leader on the sequence log: mark the epoch, wait to read it back, then one decision after the other.

It acts only on what it read back. The acknowledgement of its own append is not enough: the entry may stand behind a
newer mark and not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lockstep.core.sequence import Entry, Mark, SequenceState, fold


@dataclass(frozen=True, slots=True)
class LeaderState:
    """What an engine knows of the sequence log and of its own part in it.

    `epoch` is the epoch it won on the control log, or None; it leads once the fold says the epoch is its own.
    """

    me: str
    sequence: SequenceState = field(default_factory=SequenceState)
    epoch: int | None = None
    waiting: tuple[str, ...] = ()
    in_flight: Entry | None = None
    sent_at: float = float("-inf")
    resend_after: float = 0.5


@dataclass(frozen=True, slots=True)
class Won:
    """The control log made this process the owner of an epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The control log gave the lead to another engine, or this process gave it up."""


@dataclass(frozen=True, slots=True)
class Propose:
    """Something to put into the sequence."""

    body: str


@dataclass(frozen=True, slots=True)
class Observed:
    """A record was read from the sequence log."""

    at: int
    record: Mark | Entry


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed on this process's own clock."""

    now: float


Event = Won | Lost | Propose | Observed | Tick


@dataclass(frozen=True, slots=True)
class Send:
    """Append this record to the sequence log."""

    record: Mark | Entry


@dataclass(frozen=True, slots=True)
class Apply:
    """The entry counted: every process computes with it; the leader may publish what follows from it."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class StepDown:
    """A higher mark is on the log: stop leading, release the seat."""

    epoch: int


Action = Send | Apply | StepDown


def leads(state: LeaderState) -> bool:
    """True once the own mark was read back and no newer one."""
    return state.epoch is not None and (state.sequence.epoch, state.sequence.owner) == (state.epoch, state.me)


def step(state: LeaderState, event: Event) -> tuple[LeaderState, list[Action]]:
    """Fold a record or an order; what must be sent is sent by the next tick."""
    match event:
        case Won(epoch):
            epoch = max(epoch, state.sequence.epoch + 1)
            return replace(state, epoch=epoch, in_flight=None, sent_at=float("-inf")), []
        case Lost():
            return replace(state, epoch=None, in_flight=None), []
        case Propose(body):
            return replace(state, waiting=(*state.waiting, body)), []
        case Observed(at, record):
            return _observe(state, at, record)
        case Tick(now):
            return _tick(state, now)


def _observe(state: LeaderState, at: int, record: Mark | Entry) -> tuple[LeaderState, list[Action]]:
    sequence, counted = fold(state.sequence, at, record)
    state = replace(state, sequence=sequence)
    actions: list[Action] = []
    if counted and isinstance(record, Entry):
        actions.append(Apply(record))
        if record.owner == state.me and state.waiting[:1] == (record.body,):
            state = replace(state, in_flight=None, waiting=state.waiting[1:])
    if state.epoch is not None and sequence.epoch >= state.epoch and not leads(state):
        actions.append(StepDown(state.epoch))
        state = replace(state, epoch=None, in_flight=None)
    return state, actions


def _tick(state: LeaderState, now: float) -> tuple[LeaderState, list[Action]]:
    if state.epoch is None or (state.in_flight and now - state.sent_at < state.resend_after):
        return state, []
    if not leads(state):
        if now - state.sent_at < state.resend_after:
            return state, []
        return replace(state, sent_at=now), [Send(Mark(state.epoch, state.me))]
    if state.in_flight is None and state.waiting:
        last = state.sequence
        entry = Entry(state.epoch, state.me, last.number + 1, last.digest, state.waiting[0])
        return replace(state, in_flight=entry, sent_at=now), [Send(entry)]
    if state.in_flight is not None:
        return replace(state, sent_at=now), [Send(state.in_flight)]
    return state, []
