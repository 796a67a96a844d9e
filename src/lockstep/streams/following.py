"""A subscriber's cursors, kept in step with what its group gave it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lockstep.errors import Fenced
from lockstep.log.port import Log
from lockstep.streams.member import GroupMember
from lockstep.streams.metrics import SubscriberMeter
from lockstep.streams.options import OnStream, SubscriberOptions
from lockstep.streams.reading import Reading


class Following:
    """The streams a member has now. `epochs` is the fencing token of each, `lost` that of those it had before."""

    def __init__(
        self,
        member: GroupMember,
        reading: Reading,
        seats: Mapping[str, Log],
        options: SubscriberOptions,
        meter: SubscriberMeter,
    ) -> None:
        self.member = member
        self.epochs: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        self.is_busy: Callable[[str], bool] = lambda _: False
        """Says whether work on a stream is still under way, so that it can't be handed over yet."""
        self._reading, self._seats, self._options, self._meter = reading, seats, options, meter
        self.seat_of = {log.name: seat for seat, log in seats.items()}

    def follow(self) -> None:
        """Make the cursors match what the group gave this member."""
        self.finish_yielding()
        held = {self._seats[seat].name: epoch for seat, epoch in self.member.held().items()}
        for name in [name for name, epoch in self.epochs.items() if not self._is_known(name, epoch)]:
            self._drop(name)
            _tell(self._options.on_lost, name)
        for name, epoch in held.items():
            if name not in self.epochs:
                self._take(name, epoch)

    def finish_yielding(self) -> None:
        """The caller polls again, which by default means that it is done with what it got: confirm, hand over."""
        for seat in self.member.yielding():
            name = self._seats[seat].name
            if self.is_busy(name):
                self._reading.stop(name)
                continue
            if name in self.epochs:
                _tell(self._options.on_revoked, name)
                self._meter.revocations += 1
                self._drop(name)
            self.member.drained(seat)

    def is_mine(self, name: str) -> bool:
        """Checked after a read: records read while the lease ran out are not handed out."""
        return self.member.holds(self.seat_of[name], self.epochs.get(name, -1))

    def fenced(self, name: str, epoch: int) -> Fenced:
        """The error of a confirmation that came too late."""
        reason = "its lease ended or another member owns the stream"
        group = self.member.grouplog.group
        return Fenced(member=self.member.id, group=group, stream=name, epoch=epoch, reason=reason)

    def _is_known(self, name: str, epoch: int) -> bool:
        """Whether the group's log, as read so far, still names this member and epoch."""
        state = self.member.group_state.seat(self.seat_of[name])
        return (state.owner, state.epoch) == (self.member.id, epoch)

    def _take(self, name: str, epoch: int) -> None:
        seat = self.seat_of[name]
        resume = self.member.resume(seat)
        assert resume is not None, "an owner was given a start with its claim"
        self._reading.begin(self._seats[seat], resume)
        self.epochs[name] = epoch
        self.lost.pop(name, None)
        self._meter.takeovers += 1
        _tell(self._options.on_assigned, name)

    def _drop(self, name: str) -> None:
        epoch = self.epochs.pop(name)
        if self._reading.end(name) is not None:
            self.lost[name] = epoch  # a confirmation of what was read then fails: it is too late


def _tell(callback: OnStream | None, name: str) -> None:
    if callback is not None:
        callback(name)
