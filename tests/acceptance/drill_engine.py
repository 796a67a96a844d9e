"""A stand-in for `lockstep engine run`, for tests of the drill itself: the windows alone, no Spark, ready at once.

It takes the same arguments, prints the same lines and writes the same reports. Whoever holds a file's lock leads: the
system takes it from a process that dies. STAND_IN may break it on purpose: `wrong` changes a price after a takeover,
`gap` leaves a block out after one, `mute` never takes over, `miscount` reports a row too many.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from lockstep.drill.engines import engine_command
from lockstep.engine.columns.evaluator import Evaluator
from lockstep.engine.columns.runner import Span
from lockstep.engine.events.columns import EventBatch, concat
from lockstep.engine.events.frames import cut_frames, decode_frame, read_head
from lockstep.engine.model.loading import load_model
from lockstep.engine.model.validation import compile_project
from lockstep.engine.runtime.control.reports import Report, write_report
from lockstep.engine.runtime.sequence.entries import BlockCounter, SequencePosition
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.log.batch import NO_PRODUCER, BatchView, pack
from lockstep.streams.client import connect

FRAMES = 4


def stand_in_command(name: str, **given) -> list[str]:
    """In the place of engine_command."""
    _, _, _, *rest = engine_command(name, **given)
    return [sys.executable, __file__, *rest]


class StandIn:
    def __init__(self, options: argparse.Namespace, client) -> None:
        self.options, self.how = options, os.environ.get("STAND_IN", "")
        graph = compile_project(load_model(Path(options.model)))
        streams = ProjectStreams(cluster=options.cluster, project=graph.project.name)
        self.source, self.node = (node for node in graph.nodes if node.path in ("trades/TradesSource", options.publish))
        self.input, self.out, self.reports = map(
            client.bus.open, (streams.input(self.source), streams.output(self.node), streams.reports)
        )
        self.evaluator = Evaluator(graph, wanted=frozenset({self.node.path}))
        self.tally, self.at = BlockCounter.at(SequencePosition()), 0
        self.buffer, self.peak, self.has_taken_over = EventBatch.empty(self.node.schema), 0, False
        self.lock, self.leads, self.reported_at = (Path(options.state).parent / "lead").open("a"), False, 0.0

    def step(self) -> bool:
        """True if there was something to do."""
        bounds = self.input.bounds()
        end = min(bounds.next, self.at + FRAMES)
        for _, value in values_between(self.input, self.at, end):
            self.compute(value)
        is_idle, self.at = self.at == end, end
        if not self.leads:
            self.try_to_lead()
        last = self.last()
        self.buffer = self.buffer.slice(int(np.searchsorted(self.buffer.block, last, "right")), len(self.buffer))
        self.peak = max(self.peak, self.tally.block - last)
        if self.leads:
            self.send(last)
        self.report()
        return not is_idle

    def compute(self, value: bytes) -> None:
        first = self.tally.block + 1
        known = self.tally.take(read_head(value), 0)
        assert known is not None, "messages of the client are missing"
        batch = decode_frame(value, self.source.schema, number_from=first - known).batch
        batch = batch.slice(int(np.searchsorted(batch.block, first)), len(batch))
        if len(batch):
            found = self.evaluator.evaluate(Span(first, self.tally.block, {self.source.path: batch}))
            self.buffer = concat([self.buffer, found.outputs[self.node.path]])

    def try_to_lead(self) -> None:
        if self.how == "mute" and self.last():
            return
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        self.leads, last = True, self.last()
        self.has_taken_over = last > 0
        self.tell("role", role="active", epoch=time.monotonic_ns(), last=last, current=self.tally.block, drained_s=0.1)

    def last(self) -> int:
        bounds = self.out.bounds()
        if bounds.next == bounds.first:
            return 0
        stored = self.out.read(bounds.next - 1)[-1]
        return read_head(BatchView(stored.base, stored.data, "out").values()[-1]).last

    def send(self, last: int) -> None:
        batch = self.broken(self.buffer) if self.has_taken_over else self.buffer
        if not len(batch):
            return
        skipped = int(batch.block[0]) - 1 if self.how == "gap" and self.has_taken_over else last
        for frame in cut_frames(batch, max_bytes=50_000, previous=skipped):
            self.out.append([pack([frame], producer=NO_PRODUCER, sequence=0, created_ns=0)])

    def broken(self, batch: EventBatch) -> EventBatch:
        if self.how == "gap":
            return batch.slice(
                int(np.searchsorted(batch.block, batch.block[:1] + 1)[0]) if len(batch) else 0, len(batch)
            )
        if self.how == "wrong" and len(batch):
            prices = batch.columns[1].to_numpy().copy()
            prices[0] += 1.0
            return EventBatch(
                batch.schema,
                batch.block,
                batch.opcode,
                batch.flags,
                (batch.columns[0], pa.array(prices), *batch.columns[2:]),
            )
        return batch

    def report(self) -> None:
        if time.monotonic() - self.reported_at < 0.1:
            return
        self.reported_at = time.monotonic()
        counts = {path: counts.dump() for path, counts in self.evaluator.counts().items()}
        if self.how == "miscount":
            counts[self.node.path][0] += 1
        write_report(self.reports, Report(
            engine=self.options.name, incarnation=str(os.getpid()), member="", pid=os.getpid(), host="",
            role="active" if self.leads else "standby", epoch=1, state="running", number=0, block=self.tally.block,
            events=self.tally.events, sequenced=self.tally.block, published=self.last(), buffer_blocks=0,
            buffer_bytes=0, buffer_blocks_max=0, buffer_bytes_max=0, buffer_peak_blocks=self.peak, snapshot_block=0,
            snapshot_ns=0, model="", counts=counts,
        ))  # fmt: skip

    def tell(self, event: str, **fields) -> None:
        sys.stdout.write(json.dumps({"event": event, "engine": self.options.name, **fields}) + "\n")
        sys.stdout.flush()


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs=2)
    parser.add_argument("model")
    for name in ("bus", "state", "name", "cluster", "publish", "lease"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with connect(options.bus, create=False) as client:
        engine = StandIn(options, client)
        waiter = client.bus.waiter()
        waiter.watch(engine.input)
        engine.tell("ready", role="standby", pid=os.getpid())
        while True:
            if not engine.step():
                waiter.wait(0.05)


if __name__ == "__main__":
    sys.exit(main())
