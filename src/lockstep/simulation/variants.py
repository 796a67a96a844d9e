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
    """Leases and silence are measured on a clock that somebody sets."""

    name = "lease-on-wall-clock"
    summary = "silence and leases are measured on the wall clock"

    def clock(self, host: Host, now: float) -> float:  # noqa: D102
        return host.wall(now)


class ConfirmWithoutGeneration(Variant):
    """A confirmation counts whoever made it, in whichever epoch."""

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


def _beyond(seen: int) -> int:
    return seen if seen >= BEYOND_EVERY_OFFSET - 1 else seen + BEYOND_EVERY_OFFSET


VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant(), NoMark(), LeaseOnWallClock(), ConfirmWithoutGeneration(), AcknowledgedTakenForCounted(),
        RetryWithoutProducerSequence(), ClaimNamesNoOffset(),
    )
}  # fmt: skip
BROKEN = tuple(name for name in VARIANTS if name != Variant.name)
