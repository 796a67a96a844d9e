"""The records on a group's log, and the fold that makes every reader agree on owners and positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lockstep.core import seats
from lockstep.core.seats import Seat

RESETS_REMEMBERED = 16  # a reset whose append landed twice, late, must not rewind twice


@dataclass(frozen=True, slots=True)
class Beat:
    """A member is alive, wants `seats`, and holds those in `held` (seat -> epoch). Also how a member joins."""

    member: str
    number: int
    seats: tuple[str, ...]
    held: Mapping[str, int]
    lease: float = 1.0
    """How long others are to wait for the next beat before they take this member for gone."""
    rank: int = 0
    """Of two that could have a seat, the one with the lower rank gets it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A member asks for a seat, having read the log up to and including `seen`."""

    member: str
    seat: str
    epoch: int
    seen: int
    start: int | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """The owner gives a seat up."""

    member: str
    seat: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Confirm:
    """The owner is done with everything up to and including `offset`."""

    member: str
    seat: str
    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class Reset:
    """An operator moves a seat's position; its owner loses it. `request` makes a doubled append harmless."""

    seat: str
    start: int
    request: str


@dataclass(frozen=True, slots=True)
class Leave:
    """A member is gone: said by itself, or by another that heard nothing from it after offset `seen`."""

    member: str
    seen: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The fold of everything up to and including offset `upto`; lets the log be trimmed below it."""

    upto: int
    group: GroupState


Record = Beat | Claim | Release | Confirm | Reset | Leave | Snapshot


@dataclass(frozen=True, slots=True)
class Member:
    """A process in the group: the seats it wants, the offset of its last beat, its lease and its rank."""

    seats: tuple[str, ...]
    beat_at: int
    lease: float = 1.0
    rank: int = 0


@dataclass(frozen=True, slots=True)
class GroupState:
    """What the log says up to and including offset `upto`."""

    seats: Mapping[str, Seat] = field(default_factory=dict)
    members: Mapping[str, Member] = field(default_factory=dict)
    resets: tuple[str, ...] = ()
    upto: int = -1

    def seat(self, name: str) -> Seat:
        """A seat nobody has touched is an empty one."""
        return self.seats.get(name, Seat())


def fold(state: GroupState, at: int, record: Record) -> GroupState:
    """The state after the record at offset `at`. What is already folded in is ignored."""
    if at <= state.upto:
        return state
    state = replace(state, upto=at)
    match record:
        case Beat():
            return _beat(state, at, record)
        case Claim(member, seat, epoch, seen, start):
            won = seats.claim(state.seat(seat), at, epoch=epoch, member=member, seen=seen, start=start)
            return _with_seat(state, seat, won)
        case Release(member, seat, epoch):
            return _with_seat(state, seat, seats.release(state.seat(seat), at, epoch=epoch, member=member))
        case Confirm(member, seat, epoch, offset):
            moved = seats.confirm(state.seat(seat), epoch=epoch, member=member, offset=offset)
            return _with_seat(state, seat, moved)
        case Reset():
            return _reset(state, at, record)
        case Leave():
            return _leave(state, record)
        case Snapshot():
            return state


def restore(snapshot: Snapshot) -> GroupState:
    """Begin a fold at a snapshot; records up to `upto` are in it already."""
    return replace(snapshot.group, upto=snapshot.upto)


def _with_seat(state: GroupState, name: str, seat: Seat) -> GroupState:
    if seat == state.seats.get(name):
        return state
    return replace(state, seats={**state.seats, name: seat})


def _beat(state: GroupState, at: int, record: Beat) -> GroupState:
    members = {name: member for name, member in state.members.items() if name != record.member}
    if record.seats:  # one that wants nothing only finishes its work, and is no member any more
        members[record.member] = Member(record.seats, at, record.lease, record.rank)
    held = {
        name: seats.beat(state.seat(name), at, epoch=epoch, member=record.member) for name, epoch in record.held.items()
    }
    return replace(state, members=members, seats={**state.seats, **held})


def _reset(state: GroupState, at: int, record: Reset) -> GroupState:
    if record.request in state.resets:
        return state
    remembered = (*state.resets, record.request)[-RESETS_REMEMBERED:]
    state = replace(state, resets=remembered)
    return _with_seat(state, record.seat, seats.reset(state.seat(record.seat), at, start=record.start))


def _leave(state: GroupState, record: Leave) -> GroupState:
    member = state.members.get(record.member)
    if member is None or member.beat_at > record.seen:
        return state
    return replace(state, members={name: m for name, m in state.members.items() if name != record.member})
