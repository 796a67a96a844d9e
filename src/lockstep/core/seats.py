"""Who holds a seat, decided by records on a log that every reader folds alike.

A seat is anything that one process at a time may own: a stream within a group, the lead of a project. Claims, beats
and releases are records; each either counts or changes nothing. No clock is consulted here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Seat:
    """One seat as folded so far.

    `counted` is the offset of the last record that counted for the seat: a claim made without having read it loses.
    `start` is where the first owner was told to begin, `confirmed` the last offset confirmed since.
    """

    epoch: int = 0
    owner: str | None = None
    counted: int = -1
    start: int | None = None
    confirmed: int | None = None

    @property
    def resume(self) -> int | None:
        """The next offset to read, or None if nobody has chosen one yet."""
        return self.start if self.confirmed is None else self.confirmed + 1


def claim(seat: Seat, at: int, *, epoch: int, member: str, seen: int, start: int | None = None) -> Seat:
    """A claim wins if its epoch is new and nothing that counts came after the offset it names."""
    if epoch <= seat.epoch or seat.counted > seen:
        return seat
    first = start if seat.resume is None else seat.start
    return replace(seat, epoch=epoch, owner=member, counted=at, start=first)


def beat(seat: Seat, at: int, *, epoch: int, member: str) -> Seat:
    """The owner is alive. A beat of a higher epoch is adopted: its owner won a claim that this fold did not see."""
    if epoch > seat.epoch:
        return replace(seat, epoch=epoch, owner=member, counted=at)
    if (epoch, member) == (seat.epoch, seat.owner):
        return replace(seat, counted=at)
    return seat


def release(seat: Seat, at: int, *, epoch: int, member: str) -> Seat:
    """The owner gives the seat up: it is vacant at once, and the epoch is spent."""
    if (epoch, member) != (seat.epoch, seat.owner):
        return seat
    return replace(seat, owner=None, counted=at)


def confirm(seat: Seat, *, epoch: int, member: str, offset: int) -> Seat:
    """A confirmation counts only in the generation it was made in, and only forward."""
    behind = seat.confirmed is not None and offset <= seat.confirmed
    if (epoch, member) != (seat.epoch, seat.owner) or behind:
        return seat
    return replace(seat, confirmed=offset)


def reset(seat: Seat, at: int, *, start: int) -> Seat:
    """The one way back: a new generation that nobody owns, reading from `start`."""
    return Seat(epoch=seat.epoch + 1, owner=None, counted=at, start=start, confirmed=None)
