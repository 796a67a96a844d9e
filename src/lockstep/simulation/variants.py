"""Deliberately broken variants: each leaves out one rule, at the edge between a process and its logs and clock.

A simulator that finds nothing proves nothing unless it finds these.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lockstep.core.group import Claim, Confirm, GroupState, Record
from lockstep.core.sequence import Entry, Mark, SequenceState

if TYPE_CHECKING:
    from lockstep.core.member import MemberState
    from lockstep.simulation.world import Host

BEYOND_EVERY_OFFSET = 1 << 40


class Variant:
    """The protocol as it is: nothing left out."""

    name = "correct"
    summary = "nothing is left out"
    acknowledged_is_counted = False
    retries_renumber = False
    names_ranges = False
    private_copies = False
    drops_computed = False
    saves_at_once = False
    own_clock = False
    own_gaps = False
    empty_is_first = False
    digests = True

    def clock(self, host: Host, now: float) -> float:
        """The clock that leases are measured on."""
        return host.monotonic(now)

    def read_group(self, group: GroupState, record: Record) -> Record:
        """A record of a group's log, as the fold gets to see it."""
        _ = group
        return record

    def read_sequence(self, sequence: SequenceState, record: Mark | Entry) -> Mark | Entry:
        """A record of the sequence log, as the fold gets to see it."""
        _ = sequence
        return record

    def after_tick(self, state: MemberState) -> MemberState:
        """A member's memory after it decided what to send."""
        return state


class NoMark(Variant):
    """Marks do not fence: an entry of any epoch counts if its number follows."""

    name = "no-mark"
    summary = "entries of older epochs count behind a newer mark"

    def read_sequence(self, sequence: SequenceState, record: Mark | Entry) -> Mark | Entry:  # noqa: D102
        if isinstance(record, Entry) and sequence.owner is not None:
            return replace(record, epoch=sequence.epoch, owner=sequence.owner)
        return record


class LeaseOnWallClock(Variant):
    """Leases and silence are measured on a clock that can be set."""

    name = "lease-on-wall-clock"
    summary = "silence and leases are measured on the wall clock"

    def clock(self, host: Host, now: float) -> float:  # noqa: D102
        return host.wall(now)


class ConfirmWithoutGeneration(Variant):
    """A confirmation counts no matter which process made it, and in which epoch."""

    name = "confirm-without-generation"
    summary = "a confirmation counts in any generation"

    def read_group(self, group: GroupState, record: Record) -> Record:  # noqa: D102
        if isinstance(record, Confirm):
            seat = group.seat(record.seat)
            if seat.owner is not None:
                return replace(record, member=seat.owner, epoch=seat.epoch)
        return record


class AcknowledgedTakenForCounted(Variant):
    """The acknowledgement of the own append is enough to tell the user, or to publish."""

    name = "acknowledged-taken-for-counted"
    summary = "told and published on the acknowledgement, not on the read-back"
    acknowledged_is_counted = True


class RetryWithoutProducerSequence(Variant):
    """A publisher numbers a repeated append anew, so no reader knows it for a copy."""

    name = "retry-without-producer-sequence"
    summary = "a repeated append gets new sequence numbers"
    retries_renumber = True


class ClaimNamesNoOffset(Variant):
    """A claim wins by its epoch alone, however old the view it was made on."""

    name = "claim-names-no-offset"
    summary = "a claim made while lagging wins over an owner that beats"

    def read_group(self, group: GroupState, record: Record) -> Record:  # noqa: D102
        _ = group
        return replace(record, seen=_beyond(record.seen)) if isinstance(record, Claim) else record

    def after_tick(self, state: MemberState) -> MemberState:  # noqa: D102
        # A member knows its claim by the offset in it, and must know it in the form it will read.
        claims = {seat: replace(out, seen=_beyond(out.seen)) for seat, out in state.claims.items()}
        return replace(state, claims=claims)


class RangesInsteadOfEnds(Variant):
    """An entry names what it takes from where the leader believes to be, not only how far."""

    name = "ranges-instead-of-ends"
    summary = "entries name ranges of input, by the leader's own memory"
    names_ranges = True


class PrivateDeduplication(Variant):
    """The leader alone knows which messages are copies; its successor does not."""

    name = "private-de-duplication"
    summary = "copies are known to the leader's memory, not to the fold"
    private_copies = True


class BufferDroppedTooEarly(Variant):
    """A standby lets go of what it computed before anybody said that it is out."""

    name = "buffer-dropped-too-early"
    summary = "a standby drops blocks that are computed, not published"
    drops_computed = True


class SnapshotsNotGated(Variant):
    """A snapshot may be used at once, although output before it is not out."""

    name = "snapshots-not-gated"
    summary = "a snapshot is used before the output up to it is published"
    saves_at_once = True


class OwnClock(Variant):
    """Ticks bring every engine's own time."""

    name = "own-clock"
    summary = "an engine takes the time from its clock, not from the entry"
    own_clock = True


class OwnGaps(Variant):
    """Every engine finds out for itself which messages of an input are gone."""

    name = "own-gaps"
    summary = "an engine skips what it can't read itself, not what the entry says is gone"
    own_gaps = True


class EmptyTakenForFirst(Variant):
    """An engine that finds an out stream without its beginning believes that nothing is published."""

    name = "empty-taken-for-first"
    summary = "what is out is guessed from the out stream alone"
    empty_is_first = True


class NoDigests(Variant):
    """Nobody compares digests and checksums."""

    name = "no-digests"
    summary = "on a bus that loses records, digests are not compared"
    digests = False

    def read_sequence(self, sequence: SequenceState, record: Mark | Entry) -> Mark | Entry:  # noqa: D102
        return replace(record, after=sequence.digest) if isinstance(record, Entry) else record


def _beyond(seen: int) -> int:
    return seen if seen >= BEYOND_EVERY_OFFSET - 1 else seen + BEYOND_EVERY_OFFSET


VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant(), NoMark(), LeaseOnWallClock(), ConfirmWithoutGeneration(), AcknowledgedTakenForCounted(),
        RetryWithoutProducerSequence(), ClaimNamesNoOffset(), RangesInsteadOfEnds(), PrivateDeduplication(),
        BufferDroppedTooEarly(), SnapshotsNotGated(), OwnClock(), OwnGaps(), EmptyTakenForFirst(),
        NoDigests(),
    )
}  # fmt: skip
BROKEN = tuple(name for name in VARIANTS if name != Variant.name)
