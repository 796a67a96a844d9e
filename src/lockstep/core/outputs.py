"""Which blocks of an out stream count: each one once, in order, whoever wrote it and however often.

Every engine computes the same blocks, so a stale leader can only write copies, and epochs are not consulted. A frame
says which block it stands behind; the chain shows that nothing is missing, although empty blocks are not written. A
block that is too long for a frame is cut into pieces, at the same places by every engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

_WHOLE = float("inf")


@dataclass(frozen=True, slots=True)
class Cut:
    """What a frame says of itself: it holds the blocks `first` to `last`, and stands behind block `previous`.

    If `part` is above 0, it begins with piece number `part` of block `first` instead, and stands behind piece
    `part - 1`. If `more`, its last block goes on in the next frame.
    """

    first: int
    last: int
    previous: int
    part: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True)
class Barrier:
    """A leader's sign on an out stream: whoever has read it knows what was there before."""

    epoch: int
    owner: str


@dataclass(frozen=True, slots=True)
class OutState:
    """How far a stream is out: to block `last`; if `part` is above 0, only up to, not including, that piece of it."""

    last: int = 0
    part: int = 0


class Verdict(Enum):
    """What a frame is to a reader that knows how far the stream is out."""

    NEW = auto()
    """It begins right there: all of it counts."""
    PARTLY = auto()
    """It begins before and reaches beyond: its blocks above `last` count."""
    COPY = auto()
    """All of it is out already."""
    GAP = auto()
    """It does not chain: something before it is missing, or it contradicts what is out."""


def fold(state: OutState, cut: Cut) -> tuple[OutState, Verdict]:
    """The state after a frame, and what the frame was."""
    reached, begins, ends = _place(state), _place(before(cut)), _place(after(cut))
    if ends <= reached:
        return state, Verdict.COPY
    if begins == reached:
        return after(cut), Verdict.NEW
    if begins < reached and not state.part and cut.first <= state.last:
        return after(cut), Verdict.PARTLY
    return state, Verdict.GAP


def before(cut: Cut) -> OutState:
    """The state in which a frame is new: also where one begins that knows nothing but its first frame."""
    return OutState(cut.first, cut.part) if cut.part else OutState(cut.previous)


def after(cut: Cut) -> OutState:
    """The state when all of a frame is out."""
    if not cut.more:
        return OutState(cut.last)
    return OutState(cut.last, cut.part + 1 if cut.first == cut.last else 1)


def further(one: OutState, other: OutState) -> OutState:
    """Of two facts about a stream, the one that says more."""
    return one if _place(one) >= _place(other) else other


def _place(state: OutState) -> tuple[int, float]:
    return state.last, state.part or _WHOLE
