"""The undisturbed run: the windows alone over the same file, without a bus, without Spark, without anything to kill."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from lockstep.drill.scene import WINDOW, Scene
from lockstep.engine.data.trades import write_trades
from lockstep.engine.events.csvform import BadLine, CsvOptions, read_csv, write_csv
from lockstep.engine.events.writing import new_file
from lockstep.engine.kernels.evaluator import Evaluator
from lockstep.engine.kernels.span import Span
from lockstep.errors import DataError

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
