"""A publisher: numbers its records, has one append unacknowledged at a time, and repeats what it is unsure of."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from lockstep.simulation import faults
from lockstep.simulation.delivery_checks import Published, StreamBook
from lockstep.simulation.world import REFUSED, Host, Process, World

if TYPE_CHECKING:
    from collections.abc import Iterator

REPEAT_AFTER = 0.3
PUBLISH_ODDS = 0.5


@dataclass(slots=True)
class Waiting:
    """A record whose fate is not known yet."""

    stream: str
    record: Published
    sent_at: float


class Publisher(Process):
    """Publishes new values to random streams until asked to finish."""

    immune = frozenset({faults.CLEAN_STOP, faults.RESET, faults.READ_STALL, faults.READ_SLOW})

    def __init__(self, world: World, host: Host, streams: dict[str, StreamBook], values: Iterator[int]) -> None:
        super().__init__(world, host)
        self.streams = streams
        self.values = values
        self.finishing = False
        self.waiting: Waiting | None = None

    def boot(self) -> None:
        """A new incarnation is a new producer; what the old one was unsure of nobody will ever know."""
        self.numbers = {name: count() for name in self.streams}
        self.unused: dict[str, int] = {}
        self.waiting = None

    def act(self) -> None:
        """Repeat what is overdue, or publish something new."""
        rng = self.world.rng
        if self.waiting is not None:
            if self.world.now - self.waiting.sent_at >= REPEAT_AFTER:
                self._repeat(self.waiting)
        elif not self.finishing and rng.random() < PUBLISH_ODDS:
            stream = rng.choice(list(self.streams))
            number = self.unused.pop(stream, None)
            number = next(self.numbers[stream]) if number is None else number
            self._publish(stream, Published(self.host.me, number, next(self.values)))

    def _publish(self, stream: str, record: Published) -> None:
        told = self.append(self.streams[stream].log, record)
        if told == REFUSED:
            # Nothing was written: the number is free again, and the value must never be seen.
            self.unused[stream] = record.number
            self.streams[stream].refused.add(record.value)
        elif told is None:
            self.waiting = Waiting(stream, record, self.world.now)
        else:
            self._acknowledged(stream, record)

    def _repeat(self, waiting: Waiting) -> None:
        record = waiting.record
        if self.world.variant.retries_renumber:
            record = record._replace(number=next(self.numbers[waiting.stream]))
        told = self.append(self.streams[waiting.stream].log, record)
        waiting.sent_at = self.world.now
        if told is not None and told != REFUSED:
            self.waiting = None
            self._acknowledged(waiting.stream, record)

    def _acknowledged(self, stream: str, record: Published) -> None:
        self.streams[stream].acknowledged.append(record.value)
        if self.world.trace.on:
            self.say(f"told published {stream} {record}")
