"""Which member should own which seat: balanced, and moving as little as possible."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def assign(wanted: Mapping[str, Collection[str]], owners: Mapping[str, str | None]) -> dict[str, str]:
    """Give every seat to one of the members that want it.

    `wanted` maps a seat to the members that want it, `owners` to the member that has it now. Seats stay where they are
    unless their owner has at least two more than a member that could take one. The answer depends on the arguments
    alone, so members with the same view agree without talking.
    """
    placed = {seat: owner for seat, owner in owners.items() if owner is not None and owner in wanted.get(seat, ())}
    load = {member: 0 for members in wanted.values() for member in members}
    for owner in placed.values():
        load[owner] += 1
    for seat in sorted(wanted, key=lambda name: (len(wanted[name]), name)):
        if seat not in placed and wanted[seat]:
            placed[seat] = min(wanted[seat], key=lambda member: (load[member], _weight(seat, member)))
            load[placed[seat]] += 1
    _level(placed, load, wanted)
    return placed


def _level(placed: dict[str, str], load: dict[str, int], wanted: Mapping[str, Collection[str]]) -> None:
    """Move seats one by one from fuller to emptier members; every move lowers the sum of squared loads, so it ends."""
    moved = True
    while moved:
        moved = False
        for seat in sorted(placed, key=lambda name: (-load[placed[name]], name)):
            target = min(wanted[seat], key=lambda member: (load[member], _weight(seat, member)))
            if load[target] + 1 < load[placed[seat]]:
                load[placed[seat]] -= 1
                load[target] += 1
                placed[seat] = target
                moved = True


def _weight(seat: str, member: str) -> bytes:
    """Rendezvous hashing: which of several equally loaded members gets a seat, the same in every process."""
    return hashlib.blake2b(f"{seat}\0{member}".encode(), digest_size=8).digest()
