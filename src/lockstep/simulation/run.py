"""Runs seeds: one at a time, or many on several cores."""

from __future__ import annotations

import random
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Protocol

from lockstep.simulation import checks
from lockstep.simulation.checks import Anomaly
from lockstep.simulation.engine_sim import EngineSim
from lockstep.simulation.group_sim import GroupSim
from lockstep.simulation.leader_sim import LeaderSim
from lockstep.simulation.trace import Trace
from lockstep.simulation.variants import VARIANTS
from lockstep.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

FAULT_TICKS = (50, 100)
LONGER = {"engine": 2}  # what is to be seen of engines needs several takeovers
HEALING_TICKS = 200
STEADY_TICKS = 12  # longer than a lease: converged means that it stays so
CHUNK = 25


class Sim(Protocol):
    """A run of one kind."""

    def after_tick(self) -> None:
        """Look around."""

    def heal(self) -> None:
        """No more faults."""

    def unfinished(self) -> str | None:
        """What has not converged yet, or None."""

    def finish(self) -> None:
        """The last look."""


KINDS: dict[str, Callable[[World], Sim]] = {"leader": LeaderSim, "group": GroupSim, "engine": EngineSim}


@dataclass(frozen=True, slots=True)
class SeedResult:
    """What became of one seed."""

    seed: int
    events: int
    seconds: float
    faults: Counter[str]
    anomalies: tuple[Anomaly, ...]
    healing_ticks: int
    seen: Counter[str]
    trace: str = ""


@dataclass(slots=True)
class Summary:
    """What became of many seeds."""

    variant: str
    seeds: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    events: int = 0
    simulated_seconds: float = 0.0
    elapsed_seconds: float = 0.0
    healing_ticks_max: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    anomalies: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    failed: list[SeedResult] = field(default_factory=list)

    def add(self, result: SeedResult) -> None:
        """Count one seed in."""
        self.seeds += 1
        self.kinds[kind_of(result.seed)] += 1
        self.events += result.events
        self.simulated_seconds += result.seconds
        self.healing_ticks_max = max(self.healing_ticks_max, result.healing_ticks)
        self.faults.update(result.faults)
        self.seen.update(result.seen)
        self.anomalies.update({anomaly.name for anomaly in result.anomalies})
        if result.anomalies:
            self.failed.append(result)


def kind_of(seed: int) -> str:
    """Which kind of run a seed is."""
    return tuple(KINDS)[seed % len(KINDS)]


def run_seed(seed: int, variant: str = "correct", *, trace: bool = False) -> SeedResult:
    """One run: faults, then healing. It ends with the tick in which something was found."""
    world = World(random.Random(seed), VARIANTS[variant], Trace(trace))
    sim = KINDS[kind_of(seed)](world)
    longer = LONGER.get(kind_of(seed), 1)
    for _ in range(world.rng.randint(*FAULT_TICKS) * longer):
        world.tick()
        sim.after_tick()
        if world.findings.anomalies:
            break
    healing_ticks = 0 if world.findings.anomalies else _heal(world, sim, HEALING_TICKS * longer)
    text = world.trace.text() if trace else ""
    found = tuple(world.findings.anomalies)
    return SeedResult(seed, world.events, world.now, world.faults.count, found, healing_ticks, world.seen, text)


def _heal(world: World, sim: Sim, ticks: int) -> int:
    """Let everything converge, and stay so for a while; the number of ticks until it began to."""
    world.heal()
    sim.heal()
    steady = 0
    for tick in range(ticks):
        world.tick()
        sim.after_tick()
        if world.findings.anomalies:
            return tick
        steady = steady + 1 if sim.unfinished() is None else 0
        if steady == STEADY_TICKS:
            sim.finish()
            return tick - STEADY_TICKS
    world.report(checks.NOT_CONVERGED, f"after {ticks} ticks without faults: {sim.unfinished()}")
    return ticks


def run_many(
    seeds: range, variant: str = "correct", *, jobs: int = 1, progress: Callable[[int], None] = lambda _done: None
) -> Summary:
    """Run all seeds. The outcome does not depend on `jobs`."""
    began = time.perf_counter()
    summary = Summary(variant)
    for result in _results(seeds, variant, jobs):
        summary.add(result)
        progress(summary.seeds)
    summary.elapsed_seconds = time.perf_counter() - began
    return summary


def _results(seeds: range, variant: str, jobs: int) -> Iterator[SeedResult]:
    if jobs == 1:
        yield from _run_chunk(seeds, variant)
        return
    chunks = [seeds[first : first + CHUNK] for first in range(0, len(seeds), CHUNK)]
    # Not by fork: the caller may have threads.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for results in pool.map(partial(_run_list, variant=variant), chunks):
            yield from results


def _run_list(seeds: Iterable[int], variant: str) -> list[SeedResult]:
    return list(_run_chunk(seeds, variant))


def _run_chunk(seeds: Iterable[int], variant: str) -> Iterator[SeedResult]:
    for seed in seeds:
        yield run_seed(seed, variant)
