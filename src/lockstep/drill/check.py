"""Whether the output is what it must be: byte for byte that of an undisturbed run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.drill.arrivals import Arrival
from lockstep.drill.scene import WINDOW, Scene
from lockstep.engine.columns.evaluator import Evaluator
from lockstep.engine.columns.runner import Span
from lockstep.engine.data.trades import write_trades
from lockstep.engine.events.atomic_files import new_file
from lockstep.engine.events.csv_format import BadLine, CsvOptions, read_csv, write_csv
from lockstep.errors import DataError

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
    """Count what was lost, what was delivered twice, and what came after a later block."""
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


_CHUNK = 200_000
_EVENTS, _EXPECTED, _ROWS = "trades.csv", "expected.csv", "rows.json"


@dataclass(frozen=True, slots=True)
class Reference:
    """What goes in, what must come out, and the rows that each window must hold at the end."""

    events: Path
    expected: Path
    rows: dict[str, int]


def reference(scene: Scene, cache: Path, *, events: int, block: int, seed: int) -> Reference:
    """Made once for the same model, events and blocks within one cache."""
    folder = cache / _key(scene, events, block, seed)
    rows = folder / _ROWS
    if not rows.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_trades(folder / _EVENTS, events, seed)
        found = _evaluate(scene, folder / _EVENTS, folder / _EXPECTED, block)
        with new_file(rows) as file:  # last: it says that everything is there
            file.write(json.dumps(found).encode())
    return Reference(folder / _EVENTS, folder / _EXPECTED, json.loads(rows.read_text()))


def _key(scene: Scene, events: int, block: int, seed: int) -> str:
    text = json.dumps([scene.graph.fingerprint, WINDOW, events, block, seed])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _evaluate(scene: Scene, events: Path, expected: Path, block: int) -> dict[str, int]:
    evaluator = Evaluator(scene.graph, wanted=frozenset({scene.window.path}))
    path = scene.source.path
    with new_file(expected) as file:
        for batch in read_csv(events, scene.source.schema, CsvOptions(block_size=block), _refuse, chunk=_CHUNK):
            results = evaluator.evaluate(Span(int(batch.block[0]), int(batch.block[-1]), {path: batch}))
            write_csv(results.outputs[scene.window.path], file)
    return {path: counts.rows for path, counts in evaluator.counts().items()}


def _refuse(bad: BadLine) -> None:
    raise DataError(reason=f"A made-up trade can't be read: line {bad.line}: {bad.reason}.")
