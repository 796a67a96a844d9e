"""The evaluator: a model over ranges of blocks, on columns where a window has a column form, else row by row.

A window's state depends on its own inputs only, so each window goes over all blocks of a span before the next one does.
The answer is the interpreter's, whatever the spans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from lockstep.engine.events.columns import EventBatch, Int64s
from lockstep.engine.kernels import pages
from lockstep.engine.kernels.building import Builder, source_fields
from lockstep.engine.kernels.copying import CopyColumns
from lockstep.engine.kernels.division import duty_of
from lockstep.engine.kernels.flow import Flow
from lockstep.engine.kernels.moments import Moments
from lockstep.engine.kernels.sharding import InputShare, Share
from lockstep.engine.kernels.source import SourceColumns
from lockstep.engine.kernels.span import History, Results, Span, no_blocks
from lockstep.engine.kernels.station import Station
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.windows.counts import WindowCounts
from lockstep.engine.windows.operator import BadEvent, moves_clock

_MODEL = "model"


class Evaluator:
    """Runs a model over spans of blocks.

    evaluator = Evaluator(graph, wanted=frozenset({"query/window"}), history=log)
    results = evaluator.evaluate(Span(1, 200_000, {"query/source": batch}))

    With `history` windows over what the log holds keep no rows. As one of several shards it gives the outputs, counts
    and bad events of its own windows and rows only. After an error in user code the state is not defined.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        wanted: frozenset[str],
        history: History | None = None,
        shard: int = 0,
        shards: int = 1,
    ) -> None:
        self.graph, self.wanted, self.clock_us = graph, wanted, 0
        self._duty = duty_of(graph, shard, shards)
        operators, needs = Builder(graph, self._duty, history).build(self._wanted_here())
        self._stations = {
            index: Station(graph.nodes[index], operator, self._is_looked_at(index))
            for index, operator in operators.items()
        }
        self._by_path = {station.node.path: station for station in self._stations.values()}
        self.needed: Mapping[str, frozenset[str]] = {
            graph.nodes[index].path: source_fields(graph.nodes[index], operators[index], needs[index])
            for index in operators
            if graph.nodes[index].is_source
        }
        self.divided_inputs = self._divided_inputs(needs)
        self._dirty = False

    def evaluate(self, span: Span, *, silent: bool = False) -> Results:
        """Take the blocks of a span, which begins where the last one ended; silent: nobody wants to see the output."""
        span = replace(span, ticks=tuple(tick for tick in span.ticks if moves_clock(tick[1])))
        results = Results({}, {}, [], [])
        moments = Moments(span, self.clock_us, lambda bad: self._refused(bad, results), results.notices.append)
        outputs: dict[str, EventBatch] = {}
        places: dict[str, tuple[Int64s, Int64s]] = {}
        for index, station in self._stations.items():
            shown = not silent and index in self._duty.owned and station.node.path in self.wanted
            station.run(self._inputs(station.node, span), moments, shown=shown)
            if shown:
                outputs[station.node.path] = station.output.batch()
                if index in self._duty.divided:
                    places[station.node.path] = station.output.places or (no_blocks(), no_blocks())
        for station in self._stations.values():
            station.forget()
        self.clock_us = max([self.clock_us, *(time for _, time in span.ticks)])
        self._dirty = True
        # By block, within it by window: the order in which going block by block would have met them.
        bad = sorted(results.bad, key=lambda each: each.block)
        return Results(outputs, places, bad, sorted(results.notices, key=lambda each: each.block))

    def counts(self) -> dict[str, WindowCounts]:
        """The counts of the windows it answers for, by path."""
        return {self.graph.nodes[index].path: self._stations[index].counts for index in sorted(self._duty.owned)}

    def earliest_block(self) -> int | None:
        """The first block whose input events some window still needs from the log."""
        found = [station.operator.earliest_block() for station in self._stations.values()]
        return min((block for block in found if block is not None), default=None)

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """The pages of state that changed since the last call, by name; None: the page is gone."""
        for station in self._stations.values():
            for name, page in station.changed_pages():
                yield f"{station.node.path}:{name}", page
        if self._dirty:
            self._dirty = False
            counts = {station.node.path: station.counts.dump() for station in self._stations.values()}
            yield _MODEL, pages.pack([self.clock_us, counts])

    def load(self, found: Mapping[str, bytes]) -> None:
        """Go on from pages: a new evaluator becomes the one that made them."""
        by_path: dict[str, dict[str, bytes]] = {}
        for name, page in found.items():
            path, _, rest = name.rpartition(":")
            by_path.setdefault(path, {})[rest] = page
        if _MODEL in found:
            self.clock_us, counts = pages.unpack(found[_MODEL])
            for station in self._stations.values():
                station.counts = WindowCounts.load(counts[station.node.path])
        for station in self._stations.values():
            station.load(by_path.get(station.node.path, {}))

    def _divided_inputs(self, needs: Mapping[int, frozenset[str]]) -> Mapping[str, InputShare]:
        """What it needs of each source, if it is enough for all to have the rows of one shard; else nothing."""
        found = {}
        for index in sorted(self._duty.active):
            node = self.graph.nodes[index]
            if node.is_source:
                share, columns = self._duty.share_of(self.graph, index), self._looked_at(index)
                if share is None or columns is None or node.path in self._wanted_here():
                    return {}
                found[node.path] = InputShare(share, columns, self._own_columns(index, share, needs))
        return found

    def _looked_at(self, source: int) -> frozenset[str] | None:
        """The columns that are looked at in rows of other shards; None if it may be all."""
        operator = self._stations[source].operator
        found = operator.checked if isinstance(operator, SourceColumns) else None
        for station in self._fed(source):
            if found is not None and isinstance(station.operator, CopyColumns):
                followed = station.operator.followed
                found = None if followed is None else found | followed
        return found

    def _own_columns(self, source: int, share: Share, needs: Mapping[int, frozenset[str]]) -> frozenset[str]:
        """The columns of a source that are needed of the rows of this shard."""
        fed = self._fed(source)
        if not all(isinstance(station.operator, CopyColumns) for station in fed):
            return self.needed[self.graph.nodes[source].path]
        return frozenset(share.fields).union(*(needs[station.node.index] for station in fed))

    def _fed(self, source: int) -> list[Station]:
        stations = self._stations.values()
        return [each for each in stations if any(parent.node == source for parent in each.node.parents)]

    def _wanted_here(self) -> frozenset[str]:
        return frozenset(self.graph.nodes[index].path for index in self._duty.owned) & self.wanted

    def _is_looked_at(self, index: int) -> bool:
        children = (self.graph.nodes[child] for child in self._duty.active)
        return any(parent.node == index for node in children for parent in node.parents)

    def _inputs(self, node: Node, span: Span) -> list[Flow]:
        if node.is_source:
            batch = span.inputs.get(node.path)
            return [Flow.empty(node.schema) if batch is None else Flow.of(batch)]
        flows = [self._stations[parent.node].seen(parent.slot) for parent in node.parents]
        share = self._duty.shares.get(node.index)
        if share is not None and not self._stations[node.index].divides:
            return [shared(flow, share) for flow in flows]
        return flows

    def _refused(self, bad: BadEvent, results: Results) -> None:
        station = self._by_path[bad.window]
        station.counts.count_bad(bad.reason)
        if station.node.index in self._duty.owned:
            results.bad.append(bad)


def shared(flow: Flow, share: Share) -> Flow:
    """The events of one shard, with their places."""
    own = share.own_of(flow)
    at, index = own.places, flow.index_in_block(own.places)
    return Flow(
        flow.schema, flow.block[at], flow.opcode[at], flow.flags[at], own.parts, own.rows, (index, np.zeros_like(index))
    )
