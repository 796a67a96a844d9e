"""Two models of one project, engines that go from one to the other, and what subscribers must get on the way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import change_worlds
from cluster_oracle import Oracle
from kernel_worlds import Answer, texts
from local_cluster import LocalCluster
from run_worlds import SUMS, TRADES, trade

from lockstep.core.sequence import SequenceState
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import AggregateWindow, SourceWindow, Window
from lockstep.engine.runtime.output.event_streams import out_batches
from lockstep.engine.runtime.sequence.entries import Decision, counted
from lockstep.engine.runtime.sequence.model_statement import compiled
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.engine.runtime.sequence.streams import ProjectStreams, sources
from lockstep.log.port import Bus

WANTED = frozenset({"q/left", "q/sums"})
WANTED_THEN = frozenset({"q/sums", "q/minima"})


def _source(name: str) -> SourceWindow:
    return SourceWindow(name=name, schema=TRADES, insert_only=True)


def _total(name: str, text: str) -> AggregateWindow:
    return AggregateWindow(name=name, schema=SUMS, fields=(text,))


def _model(*windows: Window, **edges: str) -> Graph:
    drawn = tuple(Edge(source=source, target=target) for target, source in edges.items())
    query = ContinuousQuery(name="q", windows=windows, edges=drawn)
    return compile_project(Project(name="p", queries=(query,)))


def old_model() -> Graph:
    """Two sources, and a sum over the left one."""
    return _model(_source("left"), _source("right"), _total("sums", "ESP_aSum(price)"), sums="left")


def new_model() -> Graph:
    """The sources in the other order with one more between them, and a minimum over the right one."""
    sums, minima = _total("sums", "ESP_aSum(price)"), _total("minima", "ESP_aMin(price)")
    return _model(_source("right"), _source("more"), _source("left"), sums, minima, sums="left", minima="right")


def replace_params() -> Mapping[str, Any]:
    """What is asked for to go from the old to the new model."""
    return {"model": to_yaml(new_model().project), "publish": sorted(WANTED_THEN)}


class ReplaceCluster(LocalCluster):
    """Engines that begin with the old model."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(old_model(), WANTED, folder, **options)

    def send(self, path: str, *ids: int) -> None:
        """One trade in each block."""
        for one in ids:
            self.publish(path, [trade(one, symbol="ABC"[one % 3], price=one / 4)])

    def check_answer(self) -> None:
        """Every out stream holds what the interpreter says, through all changes of the model."""
        expected = answer(self.bus, self.streams)
        for graph in (old_model(), new_model()):
            for path in (WANTED | WANTED_THEN) & {node.path for node in graph.nodes}:
                assert self.out(graph, path) == expected.get(path, []), path

    def out(self, graph: Graph, path: str) -> list[tuple[int, str]]:
        """What is on an out stream, each block once."""
        node, found = graph.find(path), list[tuple[int, str]]()
        assert node is not None
        if self.streams.output(node) in self.bus.names():
            for batch in out_batches(self.bus.open(self.streams.output(node)), node.schema):
                for number, events in batch.blocks():
                    found += texts(number, events)
        return found


def answer(bus: Bus, streams: ProjectStreams) -> Answer:
    """The interpreter's answer to what was decided."""
    shown: dict[str, frozenset[str]] = {}
    oracle, ends, done, reader = None, dict[str, int](), set[str](), Oracle({})
    for _, entry in counted(bus.open(streams.sequence), SequenceState()):
        decision = Decision.of(entry)
        is_new = decision.request is None or decision.request not in done
        done |= {decision.request} if decision.request is not None else set()
        if decision.states is not None and is_new:
            graph = compiled(decision.states)
            shown[graph.fingerprint] = frozenset(decision.states.publish)
            if oracle is None:
                oracle = change_worlds.Oracle(graph, lambda model: shown[model.fingerprint])
            elif graph.fingerprint != oracle.graph.fingerprint:
                oracle.change(graph)
            ends = {path: ends.get(path, 0) for path in decision.ends}
            continue
        assert oracle is not None
        for node in sources(oracle.graph):
            log = bus.open(streams.input(node))
            for _, value in values_between(log, ends[node.path], decision.ends[node.path]):
                for block in reader.blocks_in(value, node):
                    reader.blocks += 1
                    oracle.feed([block])
        ends = dict(decision.ends)
    return oracle.answer if oracle is not None else {}
