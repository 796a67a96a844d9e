"""Small models and events in few words, for tests of windows.

An event is written opcode,fields...; flags other than N follow the opcode: U.P,1,,2 is a partial update. An empty
field is null. Output is written opcode,flags,fields...
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgpack

from lockstep.engine.events.event import FLAGS, OPCODES, Event, Flag, InputBlock
from lockstep.engine.events.schema import FieldType, Schema, Value
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import Window
from lockstep.engine.reference.interpreter import Interpreter

SECOND = 1_000_000


def graph(*windows: Window, edges: str = "") -> Graph:
    """A model of one query; edges as "a:b a:c@1", the number after @ being a slot."""
    made = []
    for edge in edges.split():
        source, _, rest = edge.partition(":")
        target, _, slot = rest.partition("@")
        made.append(Edge(source=source, target=target, slot=int(slot or -1)))
    return compile_project(
        Project(name="test", queries=(ContinuousQuery(name="q", windows=windows, edges=tuple(made)),))
    )


def chain(*windows: Window) -> Graph:
    """A model in which each window feeds the next."""
    pairs = pairwise(windows)
    return graph(*windows, edges=" ".join(f"{above.name}:{below.name}" for above, below in pairs))


def read(schema: Schema, text: str) -> Event:
    """An event from its text."""
    opcode, *texts = text.split(",")
    letter, _, flags = opcode.partition(".")
    texts += [""] * (len(schema) - len(texts))
    values = tuple(_value(field.type, each.strip()) for field, each in zip(schema, texts, strict=True))
    return Event(OPCODES[letter.strip().upper()], FLAGS[flags.upper()] if flags else Flag.NORMAL, values)


def _value(kind: FieldType, text: str) -> Value:
    if not text:
        return None
    if kind.is_integer:
        return int(text)
    return float(text) if kind is FieldType.DOUBLE else text


def write(events: Iterable[Event]) -> list[str]:
    """Events as texts."""
    return [
        ",".join([opcode.letter, flags.letters, *["" if value is None else str(value) for value in values]])
        for opcode, flags, values in events
    ]


class Run:
    """A model at work: blocks go in as texts, the output of one window comes out as texts."""

    def __init__(self, model: Graph, watch: str) -> None:
        self.graph = model
        self.interpreter = Interpreter(model)
        self.watch = f"q/{watch}"
        self.number = 0

    def send(self, window: str, *texts: str, transactional: bool = False) -> list[str]:
        """One block."""
        node = self.graph.find(window)
        assert node is not None
        events = tuple(read(node.schema, text) for text in texts)
        return self.block(window=window, events=events, transactional=transactional)

    def each(self, window: str, *texts: str) -> list[str]:
        """A block for each event; all that comes out."""
        return [line for text in texts for line in self.send(window, text)]

    def tick(self, seconds: float) -> list[str]:
        """The clock moves."""
        return self.block(tick_us=int(seconds * SECOND))

    def block(self, **parts: object) -> list[str]:
        """The next block."""
        self.number += 1
        return write(self.interpreter.evaluate(InputBlock(self.number, **parts))[self.watch])  # type: ignore[arg-type]

    @property
    def reasons(self) -> list[str]:
        """Why events were refused, in order."""
        return [bad.reason for bad in self.interpreter.bad]

    @property
    def rows(self) -> int:
        """How many rows the watched window has."""
        return self.interpreter.counts[self.watch].rows


def in_one_go(model: Graph, blocks: Sequence[InputBlock]) -> list[object]:
    """All that a model says about blocks: outputs, bad events, counts."""
    interpreter = Interpreter(model)
    outputs = [interpreter.evaluate(block) for block in blocks]
    return [repr(outputs), repr(interpreter.bad), repr(interpreter.counts)]


def with_a_break(model: Graph, blocks: Sequence[InputBlock], at: int) -> list[object]:
    """The same, by an interpreter that is dumped before block `at`, and another that goes on from there."""
    first, second = Interpreter(model), Interpreter(model)
    outputs = [first.evaluate(block) for block in blocks[:at]]
    second.load(msgpack.unpackb(msgpack.packb(first.dump()), strict_map_key=False))
    outputs += [second.evaluate(block) for block in blocks[at:]]
    return [repr(outputs), repr(first.bad + second.bad), repr(second.counts)]
