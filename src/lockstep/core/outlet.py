"""A leader at one out stream: a barrier, read through it, then one frame after the other, each until it is read back.

Standbys run it too, to know how far the stream is out. What must be sent is sent by the next tick; what is not read
back in time is sent again, since copies are harmless.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lockstep.core.outputs import Barrier, Cut, OutState, Verdict, fold, further


@dataclass(frozen=True, slots=True)
class OutletState:
    """What an engine knows of an out stream. It may publish once it `is_open`, what follows `out`."""

    me: str
    out: OutState
    epoch: int | None = None
    is_open: bool = False
    in_flight: Cut | None = None
    sent_at: float = float("-inf")
    resend_after: float = 0.5


@dataclass(frozen=True, slots=True)
class Lead:
    """The sequence log has this engine's mark for `epoch`, read back."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Follow:
    """This engine leads no more: it sends nothing, and still reads."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A record was read from the out stream."""

    record: Cut | Barrier


@dataclass(frozen=True, slots=True)
class Reset:
    """The stream was trimmed under the cursor: a beat says that it is out at least so far. A new barrier is needed."""

    out: OutState


@dataclass(frozen=True, slots=True)
class Offer:
    """The frame that is to be published next. It is passed over unless `ready`."""

    cut: Cut


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed on this process's own clock."""

    now: float


Event = Lead | Follow | Observed | Reset | Offer | Tick


@dataclass(frozen=True, slots=True)
class Send:
    """Append this record to the out stream."""

    record: Cut | Barrier


@dataclass(frozen=True, slots=True)
class Published:
    """All of this frame was read back, whichever leader wrote it."""

    cut: Cut


@dataclass(frozen=True, slots=True)
class Broken:
    """This frame does not chain to block `last`, which is out: the engine must not lead with what it has."""

    cut: Cut
    last: int


@dataclass(frozen=True, slots=True)
class Differs:
    """Block `block` was published from another sequence (`found`) than the one that is known here."""

    block: int
    found: str
    known: str


Action = Send | Published | Broken | Differs
Step = tuple[OutletState, list[Action]]


def ready(state: OutletState) -> bool:
    """Whether the next frame may be offered: it must follow `state.out`."""
    return state.is_open and state.in_flight is None


def step(state: OutletState, event: Event) -> Step:
    """Fold a record, an order or the passing of time."""
    match event:
        case Lead(epoch):
            return (state if epoch == state.epoch else _closed(state, epoch)), []
        case Follow():
            return _closed(state, None), []
        case Observed(record):
            return _observe(state, record)
        case Reset(out):
            return replace(_closed(state, state.epoch), out=further(out, state.out)), []
        case Offer(cut):
            return _look(replace(state, in_flight=cut, sent_at=float("-inf"))) if ready(state) else (state, [])
        case Tick(now):
            return _tick(state, now)


def _observe(state: OutletState, record: Cut | Barrier) -> Step:
    if isinstance(record, Barrier):
        mine = (record.epoch, record.owner) == (state.epoch, state.me)
        return replace(state, is_open=state.is_open or mine), []
    out, verdict = fold(state.out, record)
    if verdict is Verdict.DIFFERS:
        last, known = state.out.last, state.out.digest
        return _closed(state, None), [Differs(last, record.digest_at(last), known)]
    return (state, []) if verdict in (Verdict.COPY, Verdict.GAP) else _look(replace(state, out=out))


def _closed(state: OutletState, epoch: int | None) -> OutletState:
    """Nothing is known of the stream's end until a barrier of this epoch was read."""
    return replace(state, epoch=epoch, is_open=False, in_flight=None, sent_at=float("-inf"))


def _look(state: OutletState) -> Step:
    """Is the frame in flight out, is it still to be sent, or can it never follow?"""
    cut = state.in_flight
    if cut is None:
        return state, []
    match fold(state.out, cut)[1]:
        case Verdict.COPY:
            return replace(state, in_flight=None), [Published(cut)]
        case Verdict.DIFFERS:
            last, found = state.out.last, state.out.digest
            return _closed(state, None), [Differs(last, found, cut.digest_at(last))]
        case Verdict.GAP if not cut.first <= state.out.last <= cut.last:  # else it lands piece by piece
            return _closed(state, None), [Broken(cut, state.out.last)]
    return state, []


def _tick(state: OutletState, now: float) -> Step:
    if state.epoch is None or now - state.sent_at < state.resend_after:
        return state, []
    if not state.is_open:
        return replace(state, sent_at=now), [Send(Barrier(state.epoch, state.me))]
    if state.in_flight is None:
        return state, []
    return replace(state, sent_at=now), [Send(state.in_flight)]
