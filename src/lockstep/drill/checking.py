"""Whether the output is what it must be: byte for byte, block by block, window by window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.drill.arrivals import Arrival

_PIECE = 1 << 20
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two files part: the number of the line, and how it reads in both; None if a file has ended."""

    line: int
    expected: str | None
    found: str | None


def first_difference(expected: Path, found: Path) -> Difference | None:
    """None if both files hold the same bytes."""
    lines = 1
    with expected.open("rb") as one, found.open("rb") as other:
        while True:
            left, right = one.read(_PIECE), other.read(_PIECE)
            if left == right:
                if not left:
                    return None
                lines += left.count(b"\n")
                continue
            return _difference(expected, found, lines + _same(left, right).count(b"\n"))


def _same(left: bytes, right: bytes) -> bytes:
    """What both begin with."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[:middle] == right[:middle] else (low, middle - 1)
    return left[:low]


def _difference(expected: Path, found: Path, line: int) -> Difference:
    return Difference(line, _line(expected, line), _line(found, line))


def _line(path: Path, number: int) -> str | None:
    with path.open("rb") as file:
        for place, line in enumerate(file, 1):
            if place == number:
                return line.rstrip(b"\n").decode(errors="replace")[:_SHOWN]
    return None


@dataclass(frozen=True, slots=True)
class Account:
    """Blocks 1 to `blocks`, as they were delivered."""

    blocks: int
    lost: int
    doubled: int
    out_of_order: int


def account(arrivals: Iterable[Arrival], blocks: int) -> Account:
    """Count what was not delivered, what was delivered again, and what came behind a later block."""
    last = lost = doubled = late = part = 0
    holes: list[tuple[int, int]] = []
    for arrival in arrivals:
        first = arrival.first + (1 if part and arrival.first == last else 0)  # the rest of a block that is counted
        lost += max(arrival.last - arrival.first + 1 - arrival.blocks, 0)
        if first > last + 1:
            holes.append((last + 1, first - 1))
        elif first <= last:
            filled, holes = _fill(holes, first, arrival.last)
            late += filled
            doubled += min(arrival.last, last) - first + 1 - filled
        last, part = max(last, arrival.last), arrival.part
    lost += _size(holes) + max(blocks - last, 0)
    return Account(blocks, lost, doubled, late)


def _fill(holes: Sequence[tuple[int, int]], first: int, last: int) -> tuple[int, list[tuple[int, int]]]:
    """How many blocks were missing until now, and what is missing still."""
    pieces = [part for start, end in holes for part in ((start, min(end, first - 1)), (max(start, last + 1), end))]
    left = [(start, end) for start, end in pieces if start <= end]
    return _size(holes) - _size(left), left


def _size(ranges: Iterable[tuple[int, int]]) -> int:
    return sum(end - start + 1 for start, end in ranges)


def wrong_counts(expected: Mapping[str, int], engines: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Every window of every engine whose rows are not the expected ones, as sentences."""
    return [
        f"{engine} has {counts.get(window, 0):,} rows in {window}, not {rows:,}"
        for engine, counts in engines.items()
        for window, rows in expected.items()
        if counts.get(window, 0) != rows
    ]
