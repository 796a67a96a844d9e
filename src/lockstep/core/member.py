"""One member of a group: when to beat, claim, yield and give up, decided from what it read and its own clock.

`step(state, event)` returns the new state and the actions to carry out. Time is the member's own monotonic clock, given
with every event; silence of others is measured on it, and never across a stall of the member itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from lockstep.core.assignment import assign
from lockstep.core.group import Beat, Claim, GroupState, Leave, Record, Release, fold
from lockstep.core.seats import Seat

BEATS_IN_FLIGHT = 32
EVICT_AFTER_LEASES = 10


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. A lease must outlast several beats, or one slow write costs the seat."""

    beat: float = 0.2
    lease: float = 1.0


@dataclass(frozen=True, slots=True)
class ClaimOut:
    """A claim that was not read back yet, and may be on the log once for each time it was sent."""

    seen: int
    first_sent: float
    last_sent: float


@dataclass(frozen=True, slots=True)
class MemberState:
    """What a member knows.

    `sent`, `claims` and `releasing` are its own records that it has not read back yet, with the time they were sent.
    `leases` has the end of the lease of each seat.
    """

    me: str
    wants: tuple[str, ...]
    timing: Timing = Timing()
    group: GroupState = field(default_factory=GroupState)
    heard: Mapping[str, float] = field(default_factory=dict)
    silence_from: float = 0.0
    last_tick: float | None = None
    number: int = 0
    beat_due: float = 0.0
    sent: Mapping[int, float] = field(default_factory=dict)
    claims: Mapping[str, ClaimOut] = field(default_factory=dict)
    leases: Mapping[str, float] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)
    yielding: frozenset[str] = frozenset()
    releasing: Mapping[str, float] = field(default_factory=dict)
    active: bool = True
    rank: int = 0

    @property
    def lease_until(self) -> float:
        """Until when it may work on everything it holds: the first of those leases to end."""
        return min((self.leases.get(name, float("-inf")) for name in self.held), default=float("-inf"))


@dataclass(frozen=True, slots=True)
class Observed:
    """A record was read from the group's log."""

    at: int
    record: Record
    now: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed. `caught_up`: the log was read to its end just now. `jitter`: 0 to 1, to keep claims apart."""

    now: float
    caught_up: bool
    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class Drained:
    """The work on a yielded seat is finished and confirmed, or its time is up: release it."""

    seat: str
    now: float


@dataclass(frozen=True, slots=True)
class SetActive:
    """Take part, or step back: an inactive member yields what it holds and claims nothing."""

    active: bool
    now: float


Event = Observed | Tick | Drained | SetActive


@dataclass(frozen=True, slots=True)
class Send:
    """Append this record to the group's log."""

    record: Record


@dataclass(frozen=True, slots=True)
class Assigned:
    """The seat is this member's, from `resume` on (None: nobody ever chose a start)."""

    seat: str
    epoch: int
    resume: int | None


@dataclass(frozen=True, slots=True)
class Revoked:
    """The seat went to another member, or was reset: stop at once; confirmations no longer count."""

    seat: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Yield:
    """Finish the work at hand on this seat, confirm it, then send Drained."""

    seat: str
    epoch: int


Action = Send | Assigned | Revoked | Yield
Duty = Callable[[MemberState, float, float], tuple[MemberState, list[Action]]]


def step(state: MemberState, event: Event) -> tuple[MemberState, list[Action]]:
    """The one entry: fold a record, let time pass, or do what the owner of this member asks."""
    match event:
        case Observed(at, record, now):
            return _observe(state, at, record, now)
        case Tick():
            return _tick(state, event)
        case Drained(seat, now):
            return _release(state, seat, now)
        case SetActive(active, now):
            return _set_active(state, active, now)


def holds(state: MemberState, seat: str, now: float) -> int | None:
    """The epoch in which this member may work on the seat right now, or None.

    The lease counts from the moment a beat was sent, others count from the moment they read it: the holder stops first.
    """
    return state.held.get(seat) if now < state.leases.get(seat, float("-inf")) else None


def next_wake(state: MemberState) -> float:
    """The time at which the next tick is due, on the member's clock.

    Soon enough, whatever the beat: whoever rests for half a lease takes that for a stall of its own, and forgets whose
    silence it noted.
    """
    last = state.last_tick or 0.0
    due = min(state.beat_due, last + state.timing.lease / 4)
    if not (state.active or state.held):
        due = last + min(state.timing.beat, state.timing.lease / 4)
    owners = {state.group.seat(name).owner for name in state.wants} - {None, state.me}
    vacant = [_silent_at(state, owner) + state.timing.beat / 2 for owner in owners if owner is not None]
    return min([due, *(time for time in vacant if time > last)])


def live_members(state: MemberState, now: float) -> dict[str, tuple[str, ...]]:
    """Members that were heard within the lease, this one included if it takes part, and the seats they want."""
    live = {
        name: member.seats
        for name, member in state.group.members.items()
        if name != state.me and now < _silent_at(state, name)
    }
    if state.active:
        live[state.me] = state.wants
    return live


def _silent_at(state: MemberState, member: str) -> float:
    known = state.group.members.get(member)
    lease = state.timing.lease if known is None else max(known.lease, state.timing.lease)
    return max(state.heard.get(member, state.silence_from), state.silence_from) + lease


def _observe(state: MemberState, at: int, record: Record, now: float) -> tuple[MemberState, list[Action]]:
    author = getattr(record, "member", None)
    group = fold(state.group, at, record)
    if author == state.me:
        state = _read_back(replace(state, group=group), record)
    elif author is None or isinstance(record, Leave):
        state = replace(state, group=group)
    else:
        state = replace(state, group=group, heard={**state.heard, author: now})
    return _notice_seats(state)


def _read_back(state: MemberState, record: Record) -> MemberState:
    """One of my own records is on the log: the lease of the seats it names runs from when it was sent.

    Of no other seat: a record that does not count for a seat does not keep a claim on it from winning.
    """
    if isinstance(record, Beat) and record.number in state.sent:
        sent_at = state.sent[record.number]
        waiting = {number: when for number, when in state.sent.items() if number > record.number}
        return _prolong(replace(state, sent=waiting), record.held, sent_at)
    if isinstance(record, Claim) and record.seat in state.claims:
        out = state.claims[record.seat]
        if out.seen != record.seen:  # an older claim of mine that landed late proves nothing about the newer one
            return state
        rest = {seat: claim for seat, claim in state.claims.items() if seat != record.seat}
        return _prolong(replace(state, claims=rest), (record.seat,), out.first_sent)
    return state


def _prolong(state: MemberState, seats: Iterable[str], sent_at: float) -> MemberState:
    until = sent_at + state.timing.lease
    longer = {name: until for name in seats if until > state.leases.get(name, float("-inf"))}
    return replace(state, leases={**state.leases, **longer})


def _notice_seats(state: MemberState) -> tuple[MemberState, list[Action]]:
    """Compare what the fold says with what this member believes it holds."""
    actions: list[Action] = []
    held = dict(state.held)
    for name, epoch in state.held.items():
        seat = state.group.seat(name)
        if (seat.owner, seat.epoch) != (state.me, epoch):
            del held[name]
            actions.append(Revoked(name, epoch))
    for name in state.wants:
        seat = state.group.seat(name)
        if seat.owner == state.me and name not in held and name not in state.releasing:
            held[name] = seat.epoch
            actions.append(Assigned(name, seat.epoch, seat.resume))
    if not actions and not state.releasing:
        return state, actions
    releasing = {name: when for name, when in state.releasing.items() if state.group.seat(name).owner == state.me}
    return replace(state, held=held, yielding=state.yielding & held.keys(), releasing=releasing), actions


def _tick(state: MemberState, tick: Tick) -> tuple[MemberState, list[Action]]:
    now = tick.now
    state = replace(_without_stall(state, now), last_tick=now)
    state, actions = _beat_if_due(state, now)
    duties: list[Duty] = [_release_again]
    if not state.active:
        duties.append(_yield_all)
    elif tick.caught_up:
        duties += [_claim_vacant, _yield_surplus, _evict_dead]
    for duty in duties:
        state, more = duty(state, now, tick.jitter)
        actions += more
    return state, actions


def _without_stall(state: MemberState, now: float) -> MemberState:
    """Do not count the time in which this member stalled as silence of others; the silence before it counts."""
    if state.last_tick is None:
        return replace(state, silence_from=now)
    stalled = now - state.last_tick
    if stalled <= state.timing.lease / 2:
        return state
    heard = {name: min(when + stalled, now) for name, when in state.heard.items()}
    return replace(state, heard=heard, silence_from=min(state.silence_from + stalled, now))


def _beat_if_due(state: MemberState, now: float) -> tuple[MemberState, list[Action]]:
    if now < state.beat_due or not (state.active or state.held):
        return state, []
    number = state.number + 1
    sent = {**dict(list(state.sent.items())[1 - BEATS_IN_FLIGHT :]), number: now}
    wants = state.wants if state.active else ()
    beat = Beat(state.me, number, wants, dict(state.held), state.timing.lease, state.rank)
    return replace(state, number=number, sent=sent, beat_due=now + state.timing.beat), [Send(beat)]


def _claim_vacant(state: MemberState, now: float, jitter: float) -> tuple[MemberState, list[Action]]:
    vacant = [
        n for n in state.wants if not _is_out(state, n, now) and _is_vacant(state, state.group.seat(n), now, jitter)
    ]
    if not vacant:
        return state, []
    actions: list[Action] = []
    claims = dict(state.claims)
    target = _target(state, now)
    for name in vacant:
        if target.get(name) == state.me:
            out, seen = claims.get(name), state.group.upto
            # Two claims made on one view look alike: whichever is read back, the lease runs from the first.
            claims[name] = ClaimOut(seen, out.first_sent if out and out.seen == seen else now, now)
            actions.append(Send(Claim(state.me, name, state.group.seat(name).epoch + 1, seen)))
    return replace(state, claims=claims), actions


def _is_out(state: MemberState, seat: str, now: float) -> bool:
    return seat in state.claims and now - state.claims[seat].last_sent < state.timing.lease


def _is_vacant(state: MemberState, seat: Seat, now: float, jitter: float) -> bool:
    if seat.owner is None:
        return True
    return seat.owner != state.me and now >= _silent_at(state, seat.owner) + jitter * state.timing.beat / 2


def _target(state: MemberState, now: float) -> dict[str, str]:
    live = live_members(state, now)
    names = {name for seats in live.values() for name in seats}
    wanted = {name: sorted(member for member, seats in live.items() if name in seats) for name in names}
    ranks = {name: member.rank for name, member in state.group.members.items()} | {state.me: state.rank}
    return assign(wanted, {name: state.group.seat(name).owner for name in names}, ranks)


def _yield_surplus(state: MemberState, now: float, _: float) -> tuple[MemberState, list[Action]]:
    """Cooperative balancing: give away only what another live member should have, one seat after the other drained."""
    if not state.held:
        return state, []
    target = _target(state, now)
    surplus = [name for name in state.held if target.get(name, state.me) != state.me and name not in state.yielding]
    return _yield(state, surplus)


def _yield_all(state: MemberState, _now: float, _jitter: float) -> tuple[MemberState, list[Action]]:
    return _yield(state, [name for name in state.held if name not in state.yielding])


def _yield(state: MemberState, names: list[str]) -> tuple[MemberState, list[Action]]:
    actions: list[Action] = [Yield(name, state.held[name]) for name in names]
    return replace(state, yielding=state.yielding | set(names)), actions


def _evict_dead(state: MemberState, now: float, jitter: float) -> tuple[MemberState, list[Action]]:
    patience = state.timing.lease * (EVICT_AFTER_LEASES + jitter)
    dead = [
        name
        for name in state.group.members
        if name != state.me and now >= _silent_at(state, name) - state.timing.lease + patience
    ]
    heard = {name: when for name, when in state.heard.items() if name not in dead}
    return replace(state, heard=heard), [Send(Leave(name, state.group.upto)) for name in dead]


def _release(state: MemberState, seat: str, now: float) -> tuple[MemberState, list[Action]]:
    epoch = state.held.get(seat)
    if epoch is None:
        return state, []
    held = {name: e for name, e in state.held.items() if name != seat}
    releasing = {**state.releasing, seat: now}
    state = replace(state, held=held, yielding=state.yielding - {seat}, releasing=releasing)
    return state, [Send(Release(state.me, seat, epoch))]


def _release_again(state: MemberState, now: float, _: float) -> tuple[MemberState, list[Action]]:
    """A release that got lost would leave the seat with a member that beats but does not work."""
    late = {name for name, when in state.releasing.items() if now - when >= state.timing.lease / 2}
    actions: list[Action] = [Send(Release(state.me, name, state.group.seat(name).epoch)) for name in sorted(late)]
    again = {name: now if name in late else when for name, when in state.releasing.items()}
    return replace(state, releasing=again), actions


def _set_active(state: MemberState, active: bool, now: float) -> tuple[MemberState, list[Action]]:
    if active == state.active:
        return state, []
    state = replace(state, active=active, beat_due=now)
    if active:
        return state, []
    state, actions = _yield_all(state, now, 0.0)
    return state, [*actions, Send(Leave(state.me, state.group.upto))]


__all__ = [
    "Action", "Assigned", "ClaimOut", "Drained", "Event", "MemberState", "Observed", "Revoked", "Send",
    "SetActive", "Tick", "Timing", "Yield", "holds", "live_members", "next_wake", "step",
]  # fmt: skip
