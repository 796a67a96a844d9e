"""Which entries of a project's sequence log count.

A mark opens an epoch for one owner; after it, entries of lower epochs do not count, for any reader. An entry counts
if its owner is in force, its number follows the last one, and it was made knowing what came before (the digest).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Mark:
    """The first record of an epoch: from here on only this owner's entries count."""

    epoch: int
    owner: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One decision of the leader, number `number`, made when the sequence so far had digest `after`."""

    epoch: int
    owner: str
    number: int
    after: str
    body: str


@dataclass(frozen=True, slots=True)
class SequenceState:
    """The fold of a sequence log: who may write, and what was counted last."""

    epoch: int = 0
    owner: str | None = None
    number: int = 0
    digest: str = ""
    upto: int = -1


def fold(state: SequenceState, at: int, record: Mark | Entry) -> tuple[SequenceState, bool]:
    """The state after the record at offset `at`, and whether the record counted."""
    if at <= state.upto:
        return state, False
    state = replace(state, upto=at)
    if isinstance(record, Mark):
        if record.epoch <= state.epoch:
            return state, False
        return replace(state, epoch=record.epoch, owner=record.owner), True
    if not _counts(state, record):
        return state, False
    digest = chain(state.digest, record)
    return replace(state, number=record.number, digest=digest), True


def _counts(state: SequenceState, entry: Entry) -> bool:
    in_force = (entry.epoch, entry.owner) == (state.epoch, state.owner)
    return in_force and entry.number == state.number + 1 and entry.after == state.digest


def chain(digest: str, entry: Entry) -> str:
    """The digest of the sequence with `entry` added; the epoch is left out, so that a repeated decision is the same."""
    return hashlib.blake2b(f"{digest}\0{entry.number}\0{entry.body}".encode(), digest_size=12).hexdigest()
