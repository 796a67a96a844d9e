"""Records that carry their own number, and the check that each arrives once and in its publisher's order.

A payload begins with four words of 32 bits, little endian: the run (publisher in the upper 8 bits, number of the run in
the others), the place in the run, and the time of sending in monotonic nanoseconds (only in the first record of a run;
else 0). A run is what one `publish_many` stores, so that thousands of records are made, and compared, by a few
operations in C: what makes and checks the records must not be what is measured.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

WORD_BYTES = 4
HEAD = struct.Struct("<IIQ")
PUBLISHERS_MAX = 256
_RUN_BITS = 24
_TIME_AT = 8


def check_size(size: int) -> None:
    """Refuse payloads that can't carry a number, or that are no whole words."""
    if size < HEAD.size or size % WORD_BYTES:
        message = f"size={size} must be a multiple of {WORD_BYTES} and at least {HEAD.size}"
        raise ValueError(message)


class Numbered:
    """Makes the records of one publisher, run by run."""

    def __init__(self, publisher: int, size: int, run: int) -> None:
        check_size(size)
        self.run = run
        self._publisher, self._size = publisher, size
        self._page = bytearray(size * run)
        self._words = memoryview(self._page).cast("I")
        self._words[1 :: size // WORD_BYTES] = memoryview(array("I", range(run)))
        self._cut = struct.Struct(f"{size}s" * run)
        self._made = 0

    def next_run(self) -> list[bytes]:
        """The values of the next run, all different."""
        word = self._publisher << _RUN_BITS | self._made
        self._made += 1
        self._words[:: self._size // WORD_BYTES] = memoryview(array("I", [word]) * self.run)
        return list(self._cut.unpack(self._page))


def stamp(values: list[bytes], sent_ns: int) -> None:
    """Write the time of sending into the first record of a run."""
    first = values[0]
    values[0] = first[:_TIME_AT] + sent_ns.to_bytes(8, "little") + first[HEAD.size :]


@dataclass(slots=True)
class Track:
    """What arrived of one publisher, number by number: finds out what a quick comparison can't tell."""

    next: int = 0
    doubled: int = 0
    reordered: int = 0
    missing: set[int] = field(default_factory=set)

    def add(self, number: int) -> None:
        """One record arrived."""
        if number >= self.next:
            self.missing.update(range(self.next, number))
            self.next = number + 1
        elif number in self.missing:
            self.missing.discard(number)
            self.reordered += 1
        else:
            self.doubled += 1

    def lost(self, sent: int) -> int:
        """How many of the records sent never came."""
        return len(self.missing) + max(sent - self.next, 0)


class Checker:
    """Checks every record of every publisher in one subscriber."""

    def __init__(self, publishers: int, size: int, run: int) -> None:
        check_size(size)
        self.tracks = [Track() for _ in range(publishers)]
        self._size, self._run = size, run
        self._stride = size // WORD_BYTES
        self._places = array("I", range(run)).tobytes()

    def check(self, values: Sequence[bytes]) -> list[int]:
        """Note the arrival of records; returns the times of sending found in them."""
        words = memoryview(b"".join(values)).cast("I")
        runs, places = words[:: self._stride], words[1 :: self._stride]
        if len(words) != len(values) * self._stride:
            message = f"a record has not the size of {self._size} bytes"
            raise ValueError(message)
        times, at = [], 0
        while at < len(values):
            count = min(self._run - places[at] % self._run, len(values) - at)
            if not self._as_expected(runs[at : at + count], places[at : at + count]):
                self._one_by_one(runs[at : at + count], places[at : at + count])
            sent_ns = HEAD.unpack_from(values[at])[2]
            if sent_ns:
                times.append(sent_ns)
            at += count
        return times

    def _as_expected(self, runs: memoryview, places: memoryview) -> bool:
        """True if these are just the next records of one publisher; every number is compared."""
        run, place, count = runs[0], places[0], len(runs)
        publisher = run >> _RUN_BITS
        number = self._number(run, place)
        if publisher >= len(self.tracks) or number != self.tracks[publisher].next:
            return False
        expected = self._places[place * WORD_BYTES : (place + count) * WORD_BYTES]
        if places.tobytes() != expected or runs.tobytes() != run.to_bytes(WORD_BYTES, "little") * count:
            return False
        self.tracks[publisher].next = number + count
        return True

    def _one_by_one(self, runs: memoryview, places: memoryview) -> None:
        for run, place in zip(runs, places, strict=True):
            self.tracks[run >> _RUN_BITS].add(self._number(run, place))

    def _number(self, run: int, place: int) -> int:
        return (run & (1 << _RUN_BITS) - 1) * self._run + place

    def result(self, sent: Sequence[int]) -> dict[str, int]:
        """What was lost, doubled and reordered, given how much each publisher sent."""
        return {
            "lost": sum(track.lost(count) for track, count in zip(self.tracks, sent, strict=True)),
            "doubled": sum(track.doubled for track in self.tracks),
            "reordered": sum(track.reordered for track in self.tracks),
        }
