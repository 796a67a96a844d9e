"""Which member should own which seat: balanced, and moving as little as possible."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping

Order = tuple[int, int, bytes]


def assign(
    wanted: Mapping[str, Collection[str]], owners: Mapping[str, str | None], ranks: Mapping[str, int] | None = None
) -> dict[str, str]:
    """Give every seat to one of the members that want it.

    `wanted` maps a seat to the members that want it, `owners` to the member that has it now. Seats stay where they are
    unless their owner has at least two more than a member that could take one. Of equally loaded members the one with
    the lowest rank is chosen. The answer depends on the arguments alone, so members with the same view agree without
    talking.
    """
    placed = {seat: owner for seat, owner in owners.items() if owner is not None and owner in wanted.get(seat, ())}
    load = {member: 0 for members in wanted.values() for member in members}
    for owner in placed.values():
        load[owner] += 1

    def order(seat: str, member: str) -> Order:
        return load[member], (ranks or {}).get(member, 0), _weight(seat, member)

    for seat in sorted(wanted, key=lambda name: (len(wanted[name]), name)):
        if seat not in placed and wanted[seat]:
            placed[seat] = min(wanted[seat], key=lambda member: order(seat, member))
            load[placed[seat]] += 1
    _level(placed, load, wanted, order)
    return placed


def _level(
    placed: dict[str, str],
    load: dict[str, int],
    wanted: Mapping[str, Collection[str]],
    order: Callable[[str, str], Order],
) -> None:
    """Move seats from fuller to emptier members; every move lowers the sum of squared loads, so it ends.

    The widest gap first: one member levelled with a newcomer on its own would give more than its share.
    """

    def gap(seat: str) -> int:
        return load[placed[seat]] - min(load[member] for member in wanted[seat])

    while (widest := max(map(gap, placed), default=0)) > 1:
        for seat in sorted(placed):
            if gap(seat) >= widest:
                load[placed[seat]] -= 1
                placed[seat] = min(wanted[seat], key=lambda member: order(seat, member))
                load[placed[seat]] += 1


def _weight(seat: str, member: str) -> bytes:
    """Rendezvous hashing: which of several equally loaded members gets a seat, the same in every process."""
    return hashlib.blake2b(f"{seat}\0{member}".encode(), digest_size=8).digest()
