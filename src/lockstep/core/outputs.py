"""Which blocks of an out stream count: each one once, in order, whichever leader wrote it and however often.

Every engine computes the same blocks, so a stale leader can only write copies, and epochs are not consulted. A frame
names the block before it; the chain shows that nothing is missing, although empty blocks are not written. A
block that is too long for a frame is cut into pieces, at the same places by every engine.

A frame also says from which sequence its blocks were computed: for each block the digest that the sequence log had
after the entry that decided it. Engines that read the same sequence write the same digests, wherever they cut frames;
a reader that meets another digest than its own reads the output of a sequence that was lost.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from enum import Enum, auto

_WHOLE = float("inf")


Lineage = tuple[tuple[int, str], ...]
"""Pairs of a block and a digest, in rising order: the blocks after the pair before, up to this one, have the digest."""


def digest_of(lineage: Lineage, block: int) -> str:
    """The digest of a block; empty if the lineage ends before it. It must not begin after the block."""
    at = bisect_left(lineage, block, key=lambda pair: pair[0])
    return lineage[at][1] if at < len(lineage) else ""


@dataclass(frozen=True, slots=True)
class Cut:
    """What a frame says of itself: it holds the blocks `first` to `last`, and follows block `previous`.

    If `part` is above 0, it begins with piece number `part` of block `first` instead, and stands behind piece
    `part - 1`. If `more`, its last block goes on in the next frame. `before` is the digest of block `previous`, and
    `lineage` has those of its own blocks; without them it does not say what it was computed from.
    """

    first: int
    last: int
    previous: int
    part: int = 0
    more: bool = False
    before: str = ""
    lineage: Lineage = ()

    def digest_at(self, block: int) -> str:
        """The digest of a block of this frame or of the one before it; empty if the frame does not say."""
        if self.first <= block <= self.last:
            return digest_of(self.lineage, block)
        return self.before if block == self.previous else ""


@dataclass(frozen=True, slots=True)
class Barrier:
    """A leader's sign on an out stream: a reader that has read it knows what was there before."""

    epoch: int
    owner: str


@dataclass(frozen=True, slots=True)
class OutState:
    """How far a stream is out: to block `last`; if `part` is above 0, only up to, not including, that piece of it.

    `digest` is that of block `last`; empty if nobody said.
    """

    last: int = 0
    part: int = 0
    digest: str = ""


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
    DIFFERS = auto()
    """It was computed from another sequence than what is out: records that the bus had acknowledged are lost."""


def fold(state: OutState, cut: Cut) -> tuple[OutState, Verdict]:
    """The state after a frame, and what the frame was."""
    if not agree(state.digest, cut.digest_at(state.last)):
        return state, Verdict.DIFFERS
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
    if cut.part:
        return OutState(cut.first, cut.part, cut.digest_at(cut.first))
    return OutState(cut.previous, 0, cut.before)


def after(cut: Cut) -> OutState:
    """The state when all of a frame is out."""
    digest = cut.digest_at(cut.last)
    if not cut.more:
        return OutState(cut.last, 0, digest)
    return OutState(cut.last, cut.part + 1 if cut.first == cut.last else 1, digest)


def agree(one: str, other: str) -> bool:
    """Whether two digests may be of the same sequence; one that is not known agrees with any."""
    return not one or not other or one == other


def further(one: OutState, other: OutState) -> OutState:
    """Of two facts about a stream, the one that says more."""
    return one if _place(one) >= _place(other) else other


def _place(state: OutState) -> tuple[int, float]:
    return state.last, state.part or _WHOLE
