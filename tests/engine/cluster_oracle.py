"""What a project's subscribers must get: its sequence log and inputs read in the plainest way, and the interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kernel_worlds import Answer, texts

from lockstep.core.sequence import SequenceState
from lockstep.engine.errors import FrameDamaged
from lockstep.engine.events.block import InputBlock
from lockstep.engine.events.frames import decode_frame
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.run.decisions import Decision, counted
from lockstep.engine.run.reading import values_between
from lockstep.engine.run.streams import ProjectStreams, sources
from lockstep.engine.windows.interpreter import Interpreter
from lockstep.log.port import Bus


@dataclass
class Oracle:
    """The answer, the counts, and the blocks of bad records, each as often as there are."""

    answer: Answer
    counts: dict[str, Any] = field(default_factory=dict)
    bad: list[int] = field(default_factory=list)
    notices: list[int] = field(default_factory=list)
    blocks: int = 0
    events: int = 0
    persists: int = 0

    @classmethod
    def of(cls, bus: Bus, streams: ProjectStreams, graph: Graph) -> Oracle:
        """Follow every entry that counts. Frames with client ids are not understood here."""
        found, interpreter = cls({node.path: [] for node in graph.nodes}), Interpreter(graph)
        ends, done = [0 for _ in sources(graph)], set[str]()
        for _, entry in counted(bus.open(streams.sequence), SequenceState()):
            decision = Decision.of(entry)
            is_new = decision.request is None or decision.request not in done
            done |= {decision.request} if decision.request is not None else set()
            found.persists += decision.persist is not None and is_new
            if decision.reset and is_new:
                found.note(interpreter)
                interpreter = Interpreter(graph)
            for at, node in enumerate(sources(graph)):
                log = bus.open(streams.input(node))
                for _, value in values_between(log, ends[at], decision.ends[at]):
                    for block in found.blocks_in(value, node):
                        found.take(interpreter, block)
                ends[at] = decision.ends[at]
            if decision.tick_us is not None:
                found.take(interpreter, InputBlock(found.blocks + 1, tick_us=decision.tick_us))
        found.note(interpreter)
        found.counts = {path: counts.dump() for path, counts in interpreter.counts.items()}
        return found

    def blocks_in(self, value: bytes, node: Node) -> Iterator[InputBlock]:
        """The blocks of a record of an input."""
        try:
            frame = decode_frame(value, node.schema, number_from=self.blocks + 1)
        except FrameDamaged:
            self.blocks += 1
            self.bad.append(self.blocks)
            return
        events = {number: tuple(given) for number, given in frame.batch.blocks()}
        for number in frame.numbers:
            yield InputBlock(int(number), node.path, events.get(int(number), ()), number in frame.transactional)

    def take(self, interpreter: Interpreter, block: InputBlock) -> None:
        self.blocks += 1
        self.events += len(block.events)
        assert block.number == self.blocks
        for path, events in interpreter.evaluate(block).items():
            self.answer[path] += texts(block.number, events)

    def note(self, interpreter: Interpreter) -> None:
        """What an interpreter refused, and told people."""
        self.bad = sorted(self.bad + [bad.block for bad in interpreter.bad])
        self.notices = sorted(self.notices + [notice.block for notice in interpreter.notices])
