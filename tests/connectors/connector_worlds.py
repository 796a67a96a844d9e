"""Connectors on a bus without an engine: blocks come out as engines write them, input counts as engines count it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager

from lockstep.connectors.factory import Workshop
from lockstep.connectors.plan import Planned, plan_connectors
from lockstep.connectors.port import Pace
from lockstep.connectors.runner import Connectors
from lockstep.connectors.subscriber import prepare
from lockstep.core.sequence import Entry, Mark
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.frames import cut_frames, decode_frame
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import Connector, CopyWindow, SourceWindow
from lockstep.engine.runtime.sequence.beats import Beat
from lockstep.engine.runtime.sequence.entries import BlockCounter, Decision, SequencePosition, Statement, encode
from lockstep.engine.runtime.sequence.reader import head_of, values_between
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.events import Events
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.streams.client import connect

SCHEMA = Schema.parse("ID*:int64,symbol:string,price:double")
WAIT_S = 30.0


def connector(kind: str, name: str, **properties: object) -> Connector:
    texts = tuple((key, str(value)) for key, value in properties.items())
    return Connector(kind=kind, name=name, properties=texts)


def model(
    *, into: Sequence[Connector] = (), out: Sequence[Connector] = (), name: str = "desk", **project: object
) -> Graph:
    """A source and a copy of it, with connectors."""
    windows = (
        SourceWindow(name="Trades", schema=SCHEMA, connectors=tuple(into)),
        CopyWindow(name="Copy", connectors=tuple(out)),
    )
    query = ContinuousQuery(name="q", windows=windows, edges=(Edge(source="Trades", target="Copy"),))
    return compile_project(Project(name=name, queries=(query,), **project))


def event(number: int, letter: str = "I", flags: Flag = Flag.NORMAL) -> Event:
    opcode = {"I": Opcode.INSERT, "D": Opcode.DELETE, "UB": Opcode.UPDATE_BLOCK}[letter]
    return Event(opcode, flags, (number, f"s{number}", number / 2))


def csv(*numbers: int) -> str:
    return "".join(f"I,N,{number},s{number},{number / 2}\n" for number in numbers)


class World:
    """The project `desk` on a bus, with what an engine would have made."""

    def __init__(self, url: str, graph: Graph, cluster: str = "local") -> None:
        self.graph = graph
        self.client = connect(url)
        self.bus = self.client.bus
        self.streams = ProjectStreams(cluster=cluster, project=graph.project.name)
        self.streams.create(self.bus, graph, frozenset({"q/Copy"}))
        self.project = Events(self.client, cluster).project(graph.project.name, model=graph)
        self.workshop = Workshop(self.project, {})
        self.last = 0

    def come_out(self, *numbers: int) -> None:
        """Blocks after the last one, each with an event of its number."""
        self.blocks_come_out(*((number, [event(number)]) for number in numbers))

    def blocks_come_out(self, *blocks: tuple[int, Sequence[Event]]) -> None:
        log = self.bus.open(self.streams.output(self.graph.find("q/Copy")))
        for frame in cut_frames(EventBatch.of(SCHEMA, blocks), 1 << 20, previous=self.last):
            log.append([pack([frame], producer=NO_PRODUCER, sequence=0, created_ns=0)])
        self.last = blocks[-1][0]
        beat = Beat(published=self.last, last={"q/Copy": self.last}, offsets={"q/Copy": log.bounds().next})
        self.bus.open(self.streams.control).append([beat.batch(0)])

    def state(self) -> None:
        """The model, as an engine states it."""
        states = Statement(to_yaml(self.graph.project), ("q/Copy",))
        entry = Entry(1, "me", 1, "", Decision(states=states).body())
        records = [encode(record) for record in (Mark(1, "me"), entry)]
        log = self.bus.open(self.streams.sequence)
        log.append([pack(records, producer=NO_PRODUCER, sequence=0, created_ns=0)])

    def taken(self) -> list[int]:
        """The IDs of the events on the input, as engines count them: copies once, and nothing that skips."""
        log, tally, found = (
            self.bus.open(self.streams.input(self.graph.find("q/Trades"))),
            BlockCounter.at(SequencePosition()),
            [],
        )
        for _, value in values_between(log, log.bounds().first, log.bounds().next):
            head = head_of(value)
            before = tally.block
            known = tally.take(head, 0)
            assert known is not None, "messages of its client before it are missing"
            batch = decode_frame(value, SCHEMA, number_from=before + 1 - known).batch
            found += [one.values[0] for number, events in batch.blocks() if number > before for one in events]
        return found

    def only(self) -> Planned:
        (planned,) = plan_connectors(self.graph)
        return planned

    def prepare(self) -> None:
        prepare(self.project, "q/Copy", self.workshop.notes(self.only()))

    def engine(self) -> Lead:
        return Lead(self)

    def close(self) -> None:
        self.client.close()


class Lead:
    """An engine that leads, as far as its only connector can tell."""

    def __init__(self, world: World) -> None:
        self.world, self.leads = world, True
        pause = threading.Event()
        self.pace = Pace(lambda: self.leads, pause.wait, time.monotonic)
        self.work = world.workshop.work(world.only(), self.pace)

    def step(self) -> bool:
        return self.work.step()

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end, "it did not come about"
            self.work.step()

    def die(self) -> None:
        """As kill -9 does, as far as a test can: what is open is closed by the system, nothing more is noted."""
        self.leads = False
        self.work.close()


@contextmanager
def running(world: World, leads: Callable[[], bool] = lambda: True):
    """All connectors of a world, in threads."""
    connectors = Connectors(world.graph, world.client, "local", {})
    connectors.prepare(frozenset({"q/Copy"}))
    connectors.start(leads)
    try:
        yield connectors
    finally:
        connectors.stop()


def until(condition: Callable[[], bool]) -> None:
    pause, end = threading.Event(), time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        pause.wait(0.01)
