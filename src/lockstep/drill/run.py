"""The drill from its beginning to its end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from lockstep.drill.arrivals import Injected, Takeover
from lockstep.drill.check import Reference, first_difference, reference
from lockstep.drill.engines import EngineCommand, Machines, Probe, engine_command, machines
from lockstep.drill.faults import Faults
from lockstep.drill.options import DrillOptions
from lockstep.drill.plan import allowed, plan
from lockstep.drill.report import Telling
from lockstep.drill.result import Measured, Result, evaluate
from lockstep.drill.scene import area
from lockstep.drill.stage import QUIET_S_MAX, READY_S_MAX, STEP_S_MAX, Stage
from lockstep.engine.reference.operator import WindowCounts
from lockstep.streams.client import connect


def run_drill(
    options: DrillOptions,
    telling: Telling,
    *,
    cache: Path | None = None,
    command: EngineCommand = engine_command,
    servers: Machines | None = None,
) -> Result:
    """Do it. References are looked up in `cache`, so that drills of one command share them.

    `servers` are those that faults are about; None: they are found where `lockstep dev` keeps them.
    """
    servers = machines(options) if servers is None else servers
    with area(options) as place:
        telling.say(f"Making {options.total:,} trades, and what an undisturbed run makes of them.")
        known = reference(
            place.scene(),
            cache or place.folder / "reference",
            events=options.total,
            block=options.block,
            seed=options.seed,
        )
        with connect(place.url) as client:
            stage = Stage(options, place, client, known, telling, command)
            with stage:
                began, faults = play(stage, telling, servers)
                measured = look(stage, known, began, faults)
        return evaluate(measured)


def play(stage: Stage, telling: Telling, servers: Machines) -> tuple[float, list[Injected]]:
    """Start all processes, inject the faults and wait for the last block; returns the start and the faults done."""
    options, planned = stage.options, plan(stage.options)
    telling.say(f"Starting {options.engines} engines, a subscriber and a publisher.")
    stage.start_engines()
    stage.start_subscriber()
    stage.start_publisher()
    stage.wait(lambda: _is_ready(stage), "waiting until the engines are ready", READY_S_MAX)
    probe = Probe(stage.client.bus, f"{stage.area.cluster}.probe")
    faults, done, began = Faults(stage, probe, telling, servers), list[Injected](), time.monotonic()
    leads = stage.leader()
    telling.say(f"{leads.name if leads else 'Nobody'} is active; the events begin.")
    for settled, fault in enumerate(planned):
        stage.allow(fault.hold)
        at = fault.due(stage.seen)
        stage.wait(partial(_has_seen, stage, at), f"fault at {at:,}", QUIET_S_MAX, while_quiet=True)
        done.append(faults.inject(fault))
        stage.allow(allowed(planned, settled, options.total))
        faults.settle(done[-1])
        telling.say(_settled(done[-1], stage))
    stage.allow(options.total)
    stage.wait(lambda: stage.block >= options.blocks, "to the end", QUIET_S_MAX, while_quiet=True)
    stage.wait(lambda: _is_complete(stage), "waiting for the engines' counts", STEP_S_MAX)
    return began, done


def _is_ready(stage: Stage) -> bool:
    return stage.leader() is not None and all(seat.is_ready for seat in stage.seats)


def _has_seen(stage: Stage, events: int) -> bool:
    return stage.seen >= events


def _is_complete(stage: Stage) -> bool:
    """Whether every engine has computed the last block, and says so."""
    reports = [seat.report for seat in stage.seats]
    return all(report is not None and report.block >= stage.options.blocks for report in reports)


def _settled(done: Injected, stage: Stage) -> str:
    leads, back = stage.leader(), ""
    if done.in_step_s is not None:
        back = f"; what was started again was in step after {done.in_step_s:.1f} s"
    return f"{leads.name if leads else 'nobody'} is active, all engines are in step{back}."


def look(stage: Stage, known: Reference, began: float, faults: Sequence[Injected]) -> Measured:
    """Everything that was seen, put together."""
    taken = sorted((item for seat in stage.seats for item in seat.takeovers if item.at > began), key=_at)
    give_out(taken, faults)
    return Measured(
        options=stage.options,
        began_at=began,
        ended_at=stage.arrivals[-1].at,
        arrivals=stage.arrivals,
        faults=faults,
        takeovers=taken,
        expected=known.rows,
        counts={
            seat.name: {path: WindowCounts.load(dumped).rows for path, dumped in seat.report.counts.items()}
            for seat in stage.seats
            if seat.report is not None
        },
        buffer_peak=max(seat.buffer_peak for seat in stage.seats),
        difference=first_difference(known.expected, stage.file),
        size=stage.file.stat().st_size,
    )


def give_out(taken: Sequence[Takeover], faults: Sequence[Injected]) -> None:
    """Each takeover belongs to the last fault before it."""
    for item in taken:
        before = [fault for fault in faults if fault.at <= item.at]
        if before:
            before[-1].takeovers.append(item)


def _at(taken: Takeover) -> float:
    return taken.at
