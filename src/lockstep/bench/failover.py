"""The figures of failover with their targets, as rows of one table: `lockstep bench failover`."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lockstep.bench.compare_means import PORTS
from lockstep.bench.compare_servers import Wanted, served
from lockstep.bench.engine_jobs import streams_of
from lockstep.bench.engine_profile import sequence
from lockstep.bench.rows import Row
from lockstep.drill import measure
from lockstep.drill.options import DrillOptions, Fault
from lockstep.drill.report import Silence
from lockstep.drill.result import Result
from lockstep.drill.run import run_drill
from lockstep.engine.data.models import CASES, DAY
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.runtime.output.event_streams import EventPublisher
from lockstep.engine.runtime.output.publisher import Publisher
from lockstep.engine.runtime.output.spool import Spool
from lockstep.engine.runtime.sequence.streams import sources
from lockstep.engine.runtime.setup import EngineSetup
from lockstep.engine.runtime.worker.shard_worker import ShardWorker
from lockstep.log.urls import open_bus, reopened_by
from lockstep.runtime import ThreadRuntime
from lockstep.streams.client import Lockstep

Say = Callable[[str], None]
BUFFERED = 75_095
"""The blocks between the last one published and the newest one computed, in the run that the document shows."""
_CASE = "seven"


@dataclass(frozen=True, kw_only=True, slots=True)
class FailoverBench:
    """What to measure. The targets are those for two cores, with everything on one machine."""

    only: tuple[str, ...] = ()
    takeovers: int = 20
    buses: tuple[Wanted, ...] = tuple(map(Wanted, PORTS))
    """Servers on which engines are killed too; those without a URL are started for it."""
    bus_takeovers: int = 5
    handovers: int = 10
    events: int = 1_000_000
    soak_events: int = 5_000_000

    def __post_init__(self) -> None:
        unknown = sorted(set(self.only) - set(PARTS))
        if unknown:
            message = f"there is no row {', '.join(unknown)}; there are {', '.join(PARTS)}"
            raise ValueError(message)


def all_rows(bench: FailoverBench, say: Say) -> Iterator[Row]:
    """Measure everything, one after the other."""
    for name, part in PARTS.items():
        if bench.only and name not in bench.only:
            continue
        say(name)
        others = measure.Others()
        for row in part(bench):
            yield replace(row, others_cores=others.cores())


def run(bench: FailoverBench, progress: Say) -> dict[str, Any]:
    """Everything as plain data."""
    return {"machine": measure.machine(), "rows": [asdict(row) for row in all_rows(bench, progress)]}


def _takeovers(bench: FailoverBench) -> Iterator[Row]:
    found = _drill(DrillOptions(fault=Fault.KILL, repeat=bench.takeovers))
    yield from _silences(found, f"kill -9 to the next block, {bench.takeovers} takeovers, 5 k events/s", (0.7, 1.5))
    yield from _faultless(found, f"{bench.takeovers} takeovers")
    back = [fault.in_step_s for fault in found.faults if fault.in_step_s is not None]
    if back:
        name = f"killed and started again until in step, {len(back)} times, longest"
        yield _row(name, max(back), "s", 20.0, at_least=False, details={})


def _buses(bench: FailoverBench) -> Iterator[Row]:
    for wanted in bench.buses:
        with served(wanted, lambda _: None) as server:
            found = _drill(DrillOptions(fault=Fault.KILL, repeat=bench.bus_takeovers, bus=server.url))
        name = f"{bench.bus_takeovers} takeovers on {wanted.bus}"
        yield from _silences(found, f"kill -9 to the next block, {name}, 5 k events/s", (None, 2.0))
        yield from _faultless(found, name)
        yield _row(f"{name}: takeovers without a fault", len(found.unexplained), "records", details={})


def _handovers(bench: FailoverBench) -> Iterator[Row]:
    found = _drill(DrillOptions(fault=Fault.HANDOVER, repeat=bench.handovers))
    yield from _silences(found, f"planned hand-over, {bench.handovers} times, 5 k events/s: silence", (0.3, None))
    yield from _faultless(found, f"{bench.handovers} hand-overs")


def _silences(found: Result, name: str, limits: tuple[float | None, float | None]) -> Iterator[Row]:
    silences, details = found.silences(), found.tree()
    assert silences is not None
    for which, limit in zip(("p50", "p99"), limits, strict=True):
        yield _row(f"{name}, {which}", silences[which], "s", limit, at_least=False, details=details)
    yield _row(f"{name}, longest", silences["max"], "s", details={})


def _throughput(bench: FailoverBench) -> Iterator[Row]:
    found = _drill(DrillOptions(fault=Fault.NONE, events=bench.events))
    name = f"{bench.events:,} trades through two engines, blocks of 1, Aggregate24HR published"
    yield _row(name, found.rate, "/s", 120_000, details=found.tree())
    yield from _faultless(found, name)


def _soak(bench: FailoverBench) -> Iterator[Row]:
    found = _drill(DrillOptions(fault=Fault.NONE, events=bench.soak_events))
    minutes = found.seconds / 60
    name = f"false takeovers in {minutes:.1f} minutes at full load"
    yield _row(name, len(found.unexplained), "records", 0, at_least=False, details=found.tree())


def _faultless(found: Result, name: str) -> Iterator[Row]:
    wrong = found.account.lost + found.account.doubled + found.account.out_of_order + (not found.ok)
    yield _row(f"{name}: lost, doubled, out of order, or other", wrong, "records", 0, at_least=False, details={})


def _drain(_: FailoverBench) -> Iterator[Row]:
    seconds = drain(BUFFERED)
    yield _row(f"drain of {BUFFERED:,} buffered blocks", seconds, "s", 1.0, at_least=False, details={})


def drain(blocks: int) -> float:
    """How long a standby takes to publish so many blocks from its buffer, from its mark to the last beat."""
    runtime = ThreadRuntime()
    graph, streams = CASES[_CASE].graph(), streams_of(_CASE)
    with (
        tempfile.TemporaryDirectory(prefix="lockstep-drain-") as folder,
        Lockstep(open_bus(f"lmdb:{folder}/bus", runtime), runtime) as connection,
    ):
        bus = connection.bus
        streams.create(bus, graph, frozenset({DAY}))
        (source,) = sources(graph)
        publisher = EventPublisher(connection, streams.input(source), source.schema)
        for batch in CASES[_CASE].events(blocks):
            publisher.publish_batch(batch)
        publisher.close()
        number = sequence(bus, _CASE)
        setup = EngineSetup(
            url=reopened_by(bus),
            cluster=streams.cluster,
            model=to_yaml(graph.project),
            wanted=(DAY,),
            folder=folder,
            host=socket.gethostname(),
            incarnation="drain",
        )
        ShardWorker(setup, 0, bus, runtime, {}).run(0, number, dict)
        nodes = [node for node in graph.nodes if node.path == DAY]
        standby = Publisher(bus, streams, nodes, [Spool(setup.spool(0))], runtime, "drain")
        return _publish_all(standby, blocks)


def _publish_all(standby: Publisher, blocks: int) -> float:
    began = time.perf_counter()
    standby.lead(1)
    while standby.published < blocks:
        standby.step()
    return time.perf_counter() - began


def _drill(options: DrillOptions) -> Result:
    with tempfile.TemporaryDirectory(prefix="lockstep-figures-") as cache:
        return run_drill(options, Silence(), cache=Path(cache))


def _row(
    name: str,
    value: float,
    unit: str,
    limit: float | None = None,
    *,
    at_least: bool = True,
    details: dict[str, Any],
) -> Row:
    return Row(name=name, value=value, unit=unit, limit=limit, at_least=at_least, details=details)


PARTS: dict[str, Callable[[FailoverBench], Iterator[Row]]] = {
    "drain": _drain,
    "throughput": _throughput,
    "takeover": _takeovers,
    "buses": _buses,
    "handover": _handovers,
    "soak": _soak,
}
