"""A project on a bus without an engine: frames and beats are written as engines write them."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.core.outputs import Barrier
from lockstep.core.sequence import Entry, Mark
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.frames import cut_frames, decode_frame
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import CopyWindow, SourceWindow
from lockstep.engine.runtime.output.outlet import encode_barrier
from lockstep.engine.runtime.sequence.beats import Beat
from lockstep.engine.runtime.sequence.entries import Decision, Statement, encode
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.events import Events, ProjectEvents
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.port import Bus, Log
from lockstep.runtime import ThreadRuntime
from lockstep.streams.client import Lockstep, connect

SCHEMA = Schema.parse("ID*:int64,symbol:string,price:double")


def graph(name: str = "desk", *, index: str | None = None) -> Graph:
    """A source and a copy of it."""
    windows = (SourceWindow(name="Trades", schema=SCHEMA), CopyWindow(name="Copy", index=index))
    query = ContinuousQuery(name="q", windows=windows, edges=(Edge(source="Trades", target="Copy"),))
    return compile_project(Project(name=name, queries=(query,)))


def event(number: int, letter: str = "I", price: float = 1.0, flags: Flag = Flag.NORMAL) -> Event:
    opcode = {"I": Opcode.INSERT, "D": Opcode.DELETE, "UB": Opcode.UPDATE_BLOCK}[letter]
    return Event(opcode, flags, (number, f"s{number}", price))


class Desk:
    """The project `desk` of cluster local, with what an engine would have made."""

    def __init__(self, url: str, *, model: Graph | None = None, runtime: ThreadRuntime | None = None) -> None:
        self.graph = model or graph()
        self.client: Lockstep = connect(url, runtime=runtime)
        self.bus: Bus = self.client.bus
        self.streams = ProjectStreams(cluster="local", project="desk")
        self.streams.create(self.bus, self.graph, frozenset({"q/Copy"}))
        self.project: ProjectEvents = Events(self.client).project("desk", model=self.graph)
        self.last = 0

    @property
    def out(self) -> Log:
        return self.bus.open("local.desk.q.Copy.O")

    @property
    def input(self) -> Log:
        return self.bus.open("local.desk.q.Trades.I")

    def frames(self, *blocks: tuple[int, Sequence[Event]], previous: int, max_bytes: int = 1 << 20) -> list[bytes]:
        return cut_frames(EventBatch.of(SCHEMA, blocks), max_bytes, previous=previous)

    def put(self, *values: bytes) -> None:
        for value in values:
            self.out.append([pack([value], producer=NO_PRODUCER, sequence=0, created_ns=0)])

    def come_out(self, *blocks: tuple[int, Sequence[Event]]) -> None:
        """Blocks after the last one."""
        self.put(*self.frames(*blocks, previous=self.last))
        self.last = blocks[-1][0]

    def barrier(self) -> None:
        self.put(encode_barrier(Barrier(2, "other")))

    def beat(self, published: int | None = None, last: int | None = None, offset: int | None = None) -> None:
        """The fact that everything that came out is published, or another one."""
        beat = Beat(
            published=self.last if published is None else published,
            last={"q/Copy": self.last if last is None else last},
            offsets={"q/Copy": self.out.bounds().next if offset is None else offset},
        )
        self.bus.open(self.streams.control).append([beat.batch(0)])

    def state(self) -> None:
        """The model, as an engine states it."""
        states = Statement(to_yaml(self.graph.project), ("q/Copy",))
        entry = Entry(1, "me", 1, "", Decision(states=states).body())
        records = [encode(record) for record in (Mark(1, "me"), entry)]
        log = self.bus.open(self.streams.sequence)
        log.append([pack(records, producer=NO_PRODUCER, sequence=0, created_ns=0)])

    def close(self) -> None:
        self.client.close()


def blocks_in(log: Log, schema: Schema = SCHEMA) -> list[tuple[int, list[Event]]]:
    """All blocks on an input stream, as they were sent."""
    bounds = log.bounds()
    found = []
    for _, value in values_between(log, bounds.first, bounds.next):
        found += decode_frame(value, schema).batch.blocks()
    return found
