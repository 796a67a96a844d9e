"""Which batches of a producer were seen before.

A producer numbers its records and has one append unacknowledged at a time. Whatever is at or below its last number is
a copy. The window holds the most recently active producers; older ones are forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PRODUCERS_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Window:
    """The last sequence number of each producer, least recently active first."""

    last: Mapping[bytes, int] = field(default_factory=dict)
    limit: int = PRODUCERS_REMEMBERED


def admit(window: Window, producer: bytes, first: int, count: int) -> tuple[Window, int]:
    """The window after a batch, and how many records at its front were seen before (all of them: a copy)."""
    last = window.last.get(producer, -1)
    seen = min(max(last - first + 1, 0), count)
    if seen == count:
        return window, seen
    known = {name: number for name, number in window.last.items() if name != producer}
    if len(known) >= window.limit:
        known.pop(next(iter(known)))
    known[producer] = first + count - 1
    return Window(known, window.limit), seen


def window_of(batches: Iterable[tuple[bytes, int, int]], limit: int = PRODUCERS_REMEMBERED) -> Window:
    """The window after some batches, each given as producer, first sequence and count: as if admitted one by one."""
    known: dict[bytes, int] = {}
    for producer, first, count in batches:
        last = first + count - 1
        if last > known.get(producer, -1):
            known.pop(producer, None)
            known[producer] = last
            if len(known) > limit:
                known.pop(next(iter(known)))
    return Window(known, limit)
