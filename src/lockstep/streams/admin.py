"""Looking at groups and changing them from outside: list, describe, reset, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace

from lockstep.core.group import Beat, GroupState, Reset
from lockstep.errors import BadArgument, GroupBusy, GroupNotFound, StreamNotFound, TimedOut, Trimmed
from lockstep.log.batch import peek
from lockstep.log.offsets import records_between
from lockstep.log.port import Bus, Log
from lockstep.runtime import Runtime
from lockstep.streams import arguments
from lockstep.streams.cursor import first_at
from lockstep.streams.grouplog import PREFIX, GroupLog, holder
from lockstep.streams.member import seat_name
from lockstep.streams.shards import only_log

_LEASES_OBSERVED = 1.2
"""A member that did not beat for a little more than its lease is taken for gone."""
LISTEN_MAX_S = 5.0
"""The longest time that a look at a group listens for beats, whatever the leases."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamProgress:
    """How far a group is on one stream."""

    stream: str
    owner: str | None
    epoch: int
    confirmed: int | None
    next: int | None
    end: int
    lag: int
    lag_s: float
    lease_left_s: float | None
    """Seconds until the owner, if it is not heard again, can be replaced; None if the stream has no owner."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupView:
    """A group as its log describes it now. `members` maps each member to the streams it wants."""

    name: str
    members: Mapping[str, tuple[str, ...]]
    streams: tuple[StreamProgress, ...]
    silent: frozenset[str] = frozenset()
    """Members that were not heard within their lease, by the time stamps of the bus: killed, or paused."""
    beats: Mapping[str, int] = field(default_factory=dict)
    """Of each member the offset of its last beat: who looks twice hears it by this, whatever the clocks of hosts."""
    leases: Mapping[str, float] = field(default_factory=dict)


class Groups:
    """The groups of a bus."""

    def __init__(self, bus: Bus, runtime: Runtime) -> None:
        self._bus, self._runtime = bus, runtime

    def names(self) -> list[str]:
        """All groups."""
        return [name.removeprefix(PREFIX) for name in self._bus.names() if name.startswith(PREFIX)]

    def describe(self, group: str) -> GroupView:
        """Members, owners, positions and lag."""
        grouplog = self._open(group)
        state = grouplog.load()
        members = {name: tuple(map(_stream_of, member.seats)) for name, member in state.members.items()}
        found = [self._progress(grouplog, seat, state) for seat in sorted(state.seats)]
        streams = tuple(item for item in found if item is not None)
        silent = frozenset(name for name in members if self._lease_left(grouplog, state, name) == 0.0)
        return GroupView(
            name=group, members=members, streams=streams, silent=silent,
            beats={name: member.beat_at for name, member in state.members.items()},
            leases={name: member.lease for name, member in state.members.items()},
        )  # fmt: skip

    def live_owner(self, group: str, stream: str | None = None) -> tuple[str, str] | None:
        """A stream and the member that owns it and is heard within its lease, or None. Takes that long to say None."""
        grouplog = self._open(group)
        state = grouplog.load()
        owners = {
            seat.owner: _stream_of(name)
            for name, seat in state.seats.items()
            if seat.owner is not None and stream in (None, _stream_of(name))
        }
        leases = [state.members[owner].lease for owner in owners if owner in state.members]
        end = self._runtime.monotonic() + _LEASES_OBSERVED * max(leases, default=1.0)
        waiter = self._runtime.waiter()
        while owners and self._runtime.monotonic() < end:
            for _, record in grouplog.read_new():
                if isinstance(record, Beat) and owners.get(record.member, "") in map(_stream_of, record.held):
                    return owners[record.member], record.member
            waiter.wait(0.02)
        return None

    def target(self, stream: str, to: str | int) -> int:
        """The offset that 'earliest', 'latest', an offset or 'time:NANOSECONDS' means on a stream now."""
        log = only_log(self._bus, stream)
        bounds = log.bounds()
        if to == "earliest":
            return bounds.first
        if to == "latest":
            return bounds.next
        if isinstance(to, str) and (time := to.removeprefix("time:")).isdecimal() and time != to:
            return first_at(log, int(time))
        reason = f"give earliest, latest, time:NANOSECONDS, or an offset from {bounds.first} to {bounds.next}"
        if isinstance(to, str):
            raise BadArgument(name="to", value=to, reason=reason)
        position = arguments.integer("to", to, least=arguments.INT64_MIN)
        if not bounds.first <= position <= bounds.next:
            raise BadArgument(name="to", value=to, reason=reason)
        return position

    def reset(self, group: str, stream: str, to: str | int, *, force: bool = False, timeout: float = 10.0) -> int:
        """Have a group read a stream from another position; return the position. The owner of the stream loses it.

        Refused while a live member owns the stream, unless forced.
        """
        position = self.target(stream, to)
        grouplog = self._open(group)
        if not force and (busy := self.live_owner(group, stream)) is not None:
            raise GroupBusy(group=group, stream=busy[0], member=busy[1])
        log = self._bus.open(stream)
        request = self._runtime.new_id().hex()
        grouplog.load()
        grouplog.append([Reset(seat_name(log), position, request)])
        self._wait_for_reset(grouplog, request, timeout)
        if log.config.protect:
            log.hold(holder(group), position)
        return position

    def delete(self, group: str, *, force: bool = False) -> None:
        """Forget a group and its positions. Refused while a live member works, unless forced."""
        state = self._open(group).load()
        if not force and (busy := self.live_owner(group)) is not None:
            raise GroupBusy(group=group, stream=busy[0], member=busy[1])
        for seat in state.seats:
            log = self._log(_stream_of(seat))
            if log is not None and self._can_protect:  # also if it is not protected now: it may have been
                log.hold(holder(group), None)
        self._bus.delete(PREFIX + group)

    def _hold_positions(self, logs: Sequence[Log]) -> None:
        """Have logs that are about to be protected keep what each group has not confirmed."""
        for group in self.names() if self._can_protect else ():
            with suppress(GroupNotFound):  # deleted meanwhile
                state = self._open(group).load()
                for log in logs:
                    resume = state.seat(seat_name(log)).resume
                    if resume is not None:
                        log.hold(holder(group), resume)

    @property
    def _can_protect(self) -> bool:
        return "protect" in self._bus.promises.retention

    def _open(self, group: str) -> GroupLog:
        try:
            return GroupLog(self._bus, group, self._runtime, create=False)
        except StreamNotFound as error:
            raise GroupNotFound(name=group, bus=self._bus.url) from error

    def _log(self, stream: str) -> Log | None:
        try:
            return self._bus.open(stream)
        except StreamNotFound:
            return None

    def _lease_left(self, grouplog: GroupLog, state: GroupState, owner: str | None) -> float | None:
        """By the time stamp of the owner's last beat: good enough to look at, never to decide by."""
        member = state.members.get(owner) if owner is not None else None
        if member is None:
            return None
        try:
            entries = grouplog.log.read(member.beat_at, max_bytes=1)
        except Trimmed:
            return None
        age = (self._runtime.wall_ns() - peek(entries[0].data)[1]) / 1e9 if entries else 0.0
        return max(member.lease - age, 0.0)

    def _progress(self, grouplog: GroupLog, name: str, state: GroupState) -> StreamProgress | None:
        log = self._log(_stream_of(name))
        if log is None or seat_name(log) != name:
            return None  # the stream was deleted, perhaps made anew: this position means nothing
        seat, bounds = state.seats[name], log.bounds()
        position = bounds.first if seat.resume is None else max(seat.resume, bounds.first)
        entries = log.read(position, max_bytes=1) if position < bounds.next else []
        waited = (self._runtime.wall_ns() - peek(entries[0].data)[1]) / 1e9 if entries else 0.0
        return StreamProgress(
            stream=log.name, owner=seat.owner, epoch=seat.epoch, confirmed=seat.confirmed, next=seat.resume,
            end=bounds.next, lag=records_between(log, position, bounds.next), lag_s=max(waited, 0.0),
            lease_left_s=self._lease_left(grouplog, state, seat.owner),
        )  # fmt: skip

    def _wait_for_reset(self, grouplog: GroupLog, request: str, timeout: float) -> None:
        """Done means read back."""
        end = self._runtime.monotonic() + timeout
        waiter = self._runtime.waiter()
        while self._runtime.monotonic() < end:
            if any(isinstance(record, Reset) and record.request == request for _, record in grouplog.read_new()):
                return
            waiter.wait(0.01)
        raise TimedOut(what=f"Resetting group {grouplog.group!r}", seconds=timeout)


def _stream_of(seat: str) -> str:
    return seat.rsplit("@", 1)[0]


def listen(bus: Bus, runtime: Runtime, views: Sequence[GroupView]) -> list[GroupView]:
    """The same views, without the silent members whose beats come while this listens: for as long as a lease.

    Time stamps alone do not tell who is silent where the clocks of hosts differ.
    """
    unheard = {view.name: set(view.silent) for view in views if view.silent}
    with ExitStack() as opened:
        logs: dict[str, GroupLog] = {}
        leases = [0.0]
        for name, members in unheard.items():
            with suppress(StreamNotFound):  # deleted meanwhile
                logs[name] = opened.enter_context(closing(GroupLog(bus, name, runtime, create=False)))
                leases += [known.lease for one, known in logs[name].load().members.items() if one in members]
        waiter, end = runtime.waiter(), runtime.monotonic() + min(_LEASES_OBSERVED * max(leases), LISTEN_MAX_S)
        while any(unheard.values()) and runtime.monotonic() < end:
            waiter.wait(0.05)
            for name, grouplog in logs.items():
                unheard[name] -= {record.member for _, record in grouplog.read_new() if isinstance(record, Beat)}
    return [replace(view, silent=frozenset(unheard.get(view.name, ()))) for view in views]
