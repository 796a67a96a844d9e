"""A bench for single windows: a node made by hand, blocks in, events out."""

from __future__ import annotations

import msgpack

from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Node, Parent
from lockstep.engine.reference.operator import Moment

I, D, UB = Opcode.INSERT, Opcode.DELETE, Opcode.UPDATE_BLOCK  # noqa: E741 - the letters of the text form
N, R = Flag.NORMAL, Flag.RETENTION
SECOND = 1_000_000


def ins(*values, flags=N):
    return [Event(I, flags, values)]


def gone(*values, flags=N):
    return [Event(D, flags, values)]


def upd(new, old, flags=N):
    return [Event(UB, flags, tuple(new)), Event(D, flags, tuple(old))]


def node_of(window, schema, *inputs, names=("source",), indexed=True):
    schemas = tuple(Schema.parse(each) if isinstance(each, str) else each for each in inputs)
    parents = tuple(Parent(place, name=name) for place, name in enumerate(names[: len(schemas)]))
    made = Schema.parse(schema) if isinstance(schema, str) else schema
    return Node(len(schemas), "cq", window, made, parents, schemas, indexed)


class Bench:
    """Runs one operator; blocks are numbered from 1, and the clock moves with ticks only."""

    def __init__(self, make):
        self.make = make
        self.operator = make()
        self.block = 0
        self.clock_us = 0
        self.bad = []
        self.notices = []

    def take(self, *inputs):
        """One block with the events of each input."""
        return self.operator.evaluate(list(inputs), self._moment(is_tick=False))

    def each(self, *events):
        """Single events, a block each, put together."""
        return [made for event in events for made in self.take(event)]

    def tick(self, time_us, *inputs):
        self.clock_us = max(self.clock_us, time_us)
        return self.operator.evaluate(list(inputs) or [[]], self._moment(is_tick=True))

    def restart(self):
        """Keep the state as bytes, and go on with a new operator."""
        kept = msgpack.packb(self.operator.dump())
        self.operator = self.make()
        self.operator.load(msgpack.unpackb(kept, strict_map_key=True))

    def reasons(self):
        return [bad.reason for bad in self.bad]

    def _moment(self, *, is_tick):
        self.block += 1
        return Moment(self.block, self.clock_us, is_tick, False, self.bad.append, self.notices.append)


def run(make, steps, cut=None):
    """All that a window gives for steps (lists of events, or a time to tick to), perhaps restarted before one."""
    bench = Bench(make)
    out = []
    for place, step in enumerate(steps):
        if place == cut:
            bench.restart()
        out.append(bench.tick(step) if isinstance(step, int) else bench.take(step))
    return out, bench.bad, bench.notices
