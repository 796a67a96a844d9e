"""Projects as engines write them down: reports, beats and the streams they stand on, without an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from run_worlds import sums_graph

from lockstep.engine.model.graph import Graph
from lockstep.engine.runtime.control.reports import Report, write_report
from lockstep.engine.runtime.sequence.beats import Beat
from lockstep.engine.runtime.sequence.entries import SequencePosition
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime

SECOND = 1_000_000_000
NOW = 1_000 * SECOND
COUNTS = {"q/in": [7, 7, 7, {}], "q/sums": [2, 7, 12, {}]}


class World:
    """A project `p` of cluster `local` on a bus in memory."""

    def __init__(self, graph: Graph | None = None, wanted: frozenset[str] = frozenset({"q/sums"})) -> None:
        self.graph = sums_graph() if graph is None else graph
        self.bus = open_bus(f"memory:world-{id(self)}", ThreadRuntime())
        self.wanted = wanted
        self.streams = ProjectStreams(cluster="local", project=self.graph.project.name)
        self.streams.create(self.bus, self.graph, wanted)

    def report(self, engine: str, *, ago_s: float = 0.5, **more: Any) -> Report:
        """An engine says how it is."""
        report = replace(report_of(self.graph, engine, ago_s), **more)
        write_report(self.bus.open(self.streams.reports), report)
        return report

    def beat(
        self,
        published: int,
        *,
        ago_s: float = 0.0,
        incarnation: str = "a1",
        counts: Mapping[str, Any] = COUNTS,
        running: bool = True,
    ) -> None:
        """A leader says what is published."""
        position = SequencePosition(block=published, events=published, running=running).tree()
        beat = Beat(incarnation, published, {"q/sums": published}, position, counts)
        self.bus.open(self.streams.control).append([beat.batch(NOW - int(ago_s * SECOND))])


def report_of(graph: Graph, engine: str, ago_s: float = 0.5) -> Report:
    return Report(
        engine=engine, incarnation=f"{engine}1", member=f"{engine}.m", pid=1, host="h", role="standby", epoch=1,
        state="running", number=7, block=7, events=7, sequenced=7, published=7, buffer_blocks=0, buffer_bytes=0,
        buffer_blocks_max=100, buffer_bytes_max=1000, buffer_peak_blocks=0, snapshot_block=0, snapshot_ns=0,
        model=graph.fingerprint, counts=COUNTS, at_ns=NOW - int(ago_s * SECOND),
    )  # fmt: skip
