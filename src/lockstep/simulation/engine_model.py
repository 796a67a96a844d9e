"""A model of an engine that is small enough to be checked: its state is a fold of its input, order and all.

Each message is a block, and so is each tick that moves the clock. A block leaves output on some out streams, on some of
them in several pieces. What another owner's stream trimmed before it was decided on is one empty block.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from lockstep.core.outputs import Cut, OutState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lockstep.simulation.delivery_checks import Published

FOREIGN = "x"  # how the names of producers begin that know nothing of the project
LONG_EVERY = 5  # every fifth value makes a block that is too long for one frame
PIECES = 3


@dataclass(frozen=True, slots=True)
class Decision:
    """The body of an entry: how far each input is taken, and what else happens there."""

    ends: tuple[int, ...]
    crc: int = 0
    tick: float | None = None
    model: int | None = None
    request: str | None = None
    persist: str | None = None  # the incarnation that is to take a snapshot here
    trim: tuple[int, ...] | None = None  # of the sequence log, then of each input
    gaps: tuple[int, ...] | None = None  # up to where messages of each input were gone; 0: none was
    starts: tuple[int, ...] | None = None  # only in a broken variant
    copies: tuple[int, ...] | None = None  # only in a broken variant: which messages the leader takes for copies

    def body(self) -> str:
        """As it stands on the sequence log."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})

    def begin(self, ends: Sequence[int]) -> tuple[int, ...]:
        """From where each input is taken, if the last entry took them up to these ends."""
        return tuple(map(max, zip(ends, self.gaps, strict=True))) if self.gaps else tuple(ends)

    @property
    def gap_count(self) -> int:
        """How many inputs have a gap."""
        return sum(map(bool, self.gaps or ()))

    @classmethod
    def of(cls, body: str) -> Decision:
        """Back from a body."""
        fields: dict[str, Any] = json.loads(body)
        lists: dict[str, Any] = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
        return cls(**{**fields, **lists})


class Piece(NamedTuple):
    """Something of a block on an out stream, with a digest of the stream up to and including it."""

    block: int
    part: int
    parts: int
    previous: int
    content: int
    digest: int

    @property
    def state(self) -> OutState:
        """The stream when this piece is out."""
        return OutState(self.block, 0 if self.part + 1 == self.parts else self.part + 1)

    @property
    def key(self) -> tuple[int, int]:
        """Its place among all pieces of a stream."""
        return self.block, self.part


@dataclass(frozen=True, slots=True)
class Frame:
    """Some pieces on an out stream."""

    cut: Cut
    pieces: tuple[Piece, ...]

    def __str__(self) -> str:
        """As the trace shows it."""
        part = f".{self.cut.part}" if self.cut.part or self.cut.more else ""
        return f"blocks {self.cut.first}{part}..{self.cut.last} behind {self.cut.previous}" + "+" * self.cut.more


def frame_of(pieces: Sequence[Piece]) -> Frame:
    """A frame of pieces that follow each other."""
    first, last = pieces[0], pieces[-1]
    return Frame(Cut(first.block, last.block, first.previous, first.part, last.part + 1 < last.parts), tuple(pieces))


@dataclass(frozen=True, slots=True)
class Fact:
    """What a leader says on the control log: how far each out stream is out, and at which offset that was read."""

    epoch: int
    owner: str
    number: int
    outs: Mapping[str, tuple[OutState, int]]

    def __str__(self) -> str:
        """As the trace shows it."""
        outs = " ".join(f"{name}={out.last}.{out.part}@{at}" for name, (out, at) in self.outs.items())
        return f"fact #{self.epoch} number={self.number} {outs}"


class Request(NamedTuple):
    """A request for another model."""

    id: str
    model: int


@dataclass(slots=True)
class Windows:
    """The state of the model: a running value, and the end of every out stream."""

    outs: dict[str, tuple[int, int]]  # last block, digest of the stream
    block: int = 0
    time: float = 0.0
    model: int = 1
    value: int = 0

    def copy(self) -> Windows:
        """To be kept."""
        return replace(self, outs=dict(self.outs))

    @property
    def state(self) -> int:
        """Everything in one number, to be compared."""
        return hash((self.block, self.value, self.model, self.time))

    def take(self, value: int) -> list[tuple[str, Piece]]:
        """One message, one block."""
        self.block += 1
        self.value = hash((self.value, value, self.model))
        pieces = PIECES if value % LONG_EVERY == 0 else 1
        streams = [name for index, name in enumerate(self.outs) if value % (index + 1) == 0]
        return [piece for name in streams for piece in self._emit(name, pieces)]

    def pass_gaps(self, decision: Decision) -> None:
        """What was gone before it was decided on: an empty block for each gap."""
        self.block += decision.gap_count

    def tick(self, time: float) -> list[tuple[str, Piece]]:
        """The clock never goes back; a tick that does not move it is an empty block."""
        self.block += 1
        if time <= self.time:
            return []
        self.time = time
        return [piece for name in self.outs for piece in self._emit(name, 1)]

    def _emit(self, stream: str, parts: int) -> list[tuple[str, Piece]]:
        previous, digest = self.outs[stream]
        found = []
        for part in range(parts):
            content = hash((self.block, part, self.value, self.model, self.time))
            digest = hash((digest, self.block, part, content))
            found.append((stream, Piece(self.block, part, parts, previous, content, digest)))
        self.outs[stream] = (self.block, digest)
        return found


@dataclass(slots=True)
class Fold:
    """Everything that follows from the first `number` entries."""

    windows: Windows
    ends: tuple[int, ...]
    number: int = 0
    last: dict[str, int] = field(default_factory=dict)  # the last message of each producer
    requests: frozenset[str] = frozenset()
    refused: int = 0

    @classmethod
    def first(cls, inputs: Iterable[str], outs: Iterable[str]) -> Fold:
        """Before the first entry."""
        return cls(Windows(dict.fromkeys(outs, (0, 0))), tuple(0 for _ in inputs))

    def copy(self) -> Fold:
        """To be kept."""
        return replace(self, windows=self.windows.copy(), last=dict(self.last))

    def apply(self, decision: Decision, messages: Iterable[Published]) -> tuple[list[int], list[tuple[str, Piece]]]:
        """One entry with its input: the values that counted, and the output."""
        self.number += 1
        self.ends = decision.ends
        if decision.request is not None and decision.request not in self.requests:
            self.requests |= {decision.request}
            self.windows.model = decision.model or self.windows.model
        self.windows.pass_gaps(decision)
        accepted = [message.value for index, message in enumerate(messages) if self._is_new(index, message, decision)]
        output = [piece for value in accepted for piece in self.windows.take(value)]
        if decision.tick is not None:
            output += self.windows.tick(decision.tick)
        return accepted, output

    def _is_new(self, index: int, message: Published, decision: Decision) -> bool:
        if decision.copies is not None:
            return index not in decision.copies
        last = self.last.get(message.producer, -1)
        if is_foreign(message.producer):  # nobody promised that all of them come
            self.last[message.producer] = max(last, message.number)
            return message.number > last
        self.refused += message.number > last + 1
        if message.number != last + 1:
            return False
        self.last[message.producer] = message.number
        return True


def is_foreign(producer: str) -> bool:
    """Whether a producer publishes to a stream that is not the project's."""
    return producer.startswith(FOREIGN)


def checksum(messages: Iterable[Published]) -> int:
    """Of the input that an entry closes."""
    return crc32(repr([tuple(message) for message in messages]).encode())
