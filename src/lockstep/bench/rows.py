"""Every figure that is promised, with its target, as rows of one table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TextIO

from lockstep.bench import baselines, stream_costs, streams, takeover, waking
from lockstep.bench import streams as publishing
from lockstep.drill import measure


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One figure. Without a limit it is only reported."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    at_least: bool = True
    details: dict[str, Any]
    others_cores: float = 0.0
    """What everything else on the machine took meanwhile."""

    @property
    def ok(self) -> bool:
        """Whether the target is met; True where there is none."""
        if self.limit is None:
            return True
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def target(self) -> str:
        """The target as text."""
        if self.limit is None:
            return "-"
        return f"{'≥' if self.at_least else '≤'} {shown(self.limit)} {self.unit}"

    @property
    def measured(self) -> str:
        """The figure as text."""
        return f"{shown(self.value)} {self.unit}"

    @property
    def verdict(self) -> str:
        """One word."""
        if self.limit is None:
            return "-"
        return "ok" if self.ok else "miss"


def shown(value: float) -> str:
    """A number with as many digits as matter: 11.2 M, 357 k, 0.39."""
    for size, letter in ((1e6, " M"), (1e4, " k")):
        if abs(value) >= size:
            return f"{value / (size if letter == ' M' else 1e3):.3g}{letter}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def as_data(row: Row) -> dict[str, Any]:
    """A row as plain data."""
    return {
        "name": row.name, "value": row.value, "unit": row.unit, "target": row.target, "verdict": row.verdict,
        "others_cores": row.others_cores, "details": row.details,
    }  # fmt: skip


Say = Callable[[str], None]


def all_rows(*, quick: bool, say: Say) -> Iterator[Row]:
    """Measure everything, one after the other."""
    for part in (_fan_out, _baselines, _publishing, _waking, _idle, _takeover, _depth):
        say(part.__name__.strip("_").replace("_", "-"))
        others = measure.Others()
        for row in part(quick):
            yield replace(row, others_cores=others.cores())


def _fan_out(quick: bool) -> Iterator[Row]:
    for durability in ("relaxed", "fsync"):
        for objects in (False, True):
            found = streams.run(
                streams.BenchOptions(seconds=3.0 if quick else 10.0, durability=durability, objects=objects)
            )
            kind = found["materialised"]
            name = f"4 publishers, 16 subscribers, 100 B, {durability}, {kind}"
            limit = 3e6 if objects else 10e6
            yield Row(
                name=f"{name}: deliveries", value=found["deliveries_per_s"], unit="/s", limit=limit, details=found
            )
            wrong = found["lost"] + found["doubled"] + found["reordered"]
            yield Row(name=f"{name}: lost, doubled, reordered", value=wrong, unit="records", limit=0.0,
                      at_least=False, details={})  # fmt: skip


def _baselines(quick: bool) -> Iterator[Row]:
    for durability in ("relaxed", "fsync"):
        found = baselines.plain_lmdb(seconds=2.0 if quick else 5.0, durability=durability)
        name = f"for comparison: one LMDB value for each record, {durability}, 4 by 16: deliveries"
        yield Row(name=name, value=found["deliveries_per_s"], unit="/s", details=found)
    found = baselines.queues(records=500 if quick else 5000)
    name = "for comparison: multiprocessing.Queue, 4 by 16: deliveries"
    yield Row(name=name, value=found["deliveries_per_s"], unit="/s", details=found)


def _publishing(quick: bool) -> Iterator[Row]:
    seconds = 2.0 if quick else 5.0
    for durability in ("relaxed", "fsync"):
        found = publishing.one_by_one(seconds=seconds, durability=durability)
        name = f"one publisher, publish() with a receipt each, {durability}"
        yield Row(name=name, value=found["per_s"], unit="/s", limit=300e3, details=found)
        found = publishing.in_batches(seconds=seconds, durability=durability)
        name = f"one publisher, publish_many(), {durability}"
        limit = 2e6 if durability == "relaxed" else None
        yield Row(name=name, value=found["per_s"], unit="/s", limit=limit, details=found)


def _waking(quick: bool) -> Iterator[Row]:
    for durability, limit in (("relaxed", 1.0), ("fsync", 3.0)):
        found = waking.wake_latency(records=200 if quick else 2000, durability=durability)
        latency = found["latency_ms"]
        name = f"publish to the return of poll in another process, {durability}"
        yield Row(name=f"{name}: p50", value=latency["p50"], unit="ms", limit=limit, at_least=False, details=found)
        yield Row(name=f"{name}: p99", value=latency["p99"], unit="ms", details={})


def _idle(quick: bool) -> Iterator[Row]:
    for group, limit in ((None, 2.0), ("idle", None)):
        found = stream_costs.idle_cpu(seconds=2.0 if quick else 10.0, group=group)
        name = "16 idle members of a group" if group else "16 idle subscribers"
        yield Row(name=f"{name}: processor time", value=found["cpu_percent"], unit="% of a core", limit=limit,
                  at_least=False, details=found)  # fmt: skip


def _takeover(quick: bool) -> Iterator[Row]:
    for kill, limit in ((True, 1.5), (False, 0.2)):
        found = takeover.takeover(trials=5 if quick else 20, kill=kill)
        name = "reader killed with -9 to the next one's first record" if kill else "clean hand-over"
        yield Row(name=f"{name}: p50", value=found["seconds"]["p50"], unit="s", details=found)
        yield Row(name=f"{name}: p99", value=found["seconds"]["p99"], unit="s", limit=limit, at_least=False, details={})


def _depth(quick: bool) -> Iterator[Row]:
    lengths = stream_costs.LENGTHS[:3] if quick else stream_costs.LENGTHS
    found = stream_costs.by_length(lengths=lengths)
    for figure, what in (("get_us", "get by offset"), ("append_us", "append"), ("memory_mb", "memory")):
        name = f"{what}, {lengths[0]:,} to {lengths[-1]:,} records: worst by best"
        ratio = stream_costs.flatness(found["lengths"], figure)
        yield Row(name=name, value=ratio, unit="x", limit=2.0, at_least=False, details=found)


_WIDTH = 40
_BAR_EVERY_S, _LINE_EVERY_S = 0.1, 2.0


class Progress:
    """Shows progress, no more often than a person can read."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._shown_at = 0.0

    def say(self, text: str) -> None:
        """One line that stays."""
        self._out.write(f"\r\x1b[K{text}\n" if self._is_terminal else f"{text}\n")
        self._out.flush()

    def show(self, done: int, total: int) -> None:
        """How much is done."""
        now = time.monotonic()
        if now - self._shown_at < (_BAR_EVERY_S if self._is_terminal else _LINE_EVERY_S):
            return
        self._shown_at = now
        if self._is_terminal:
            filled = _WIDTH * done // total
            self._out.write(f"\r[{'#' * filled}{'.' * (_WIDTH - filled)}] {done}/{total}")
        else:
            self._out.write(f"{done}/{total} published\n")
        self._out.flush()

    def end(self) -> None:
        """Leave the bar."""
        if self._is_terminal:
            self._out.write("\n")
            self._out.flush()
