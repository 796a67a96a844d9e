"""The monitor's own health: what is wrong with its deliveries becomes events of its own client, `lockstep`.

The server that leads looks once in 30 seconds. It sends an order for what is wrong, and one when it is right again.
Lag of the input and clocks of clients that are ahead the fleet tells by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lockstep.errors import LockstepError, StreamNotFound
from lockstep.runtime import Runtime, logger
from lockstep.streams.client import Lockstep
from lockstep.streams.deliveries import Deliveries
from lockstep.streams.handlers import fitting_name

LOOK_S = 30
WAITING_WARNING, WAITING_CRITICAL = 1_000, 10_000
"""Notices that no carrier has begun."""
RECENT_S = 3_600
"""How long a dead letter is reported, in seconds."""
SKEW_WARNING_S, SKEW_CRITICAL_S = 5, 30
OWN_CLIENT = "lockstep"


@dataclass(frozen=True, slots=True)
class Reading:
    """What one look came to: the check of a result."""

    name: str
    status: int
    output: str


class Orders(Protocol):
    """The way to the fleet."""

    def send(self, kind: str, fields: Mapping[str, Any]) -> str:
        """Append an order durably; return its id."""


class Health:
    """Looks at the deliveries of an outbox by some groups, while this server leads, until it is closed."""

    def __init__(
        self,
        bus: Lockstep,
        outbox: str,
        groups: Sequence[str],
        orders: Orders,
        *,
        leads: Callable[[], bool],
        is_open: Callable[[str], bool],
        model_s: Callable[[], int],
    ) -> None:
        """`is_open` says whether there is an event of a check of the own client, `model_s` the time of the model."""
        self._bus, self._outbox, self._groups, self._orders = bus, outbox, groups, orders
        self._leads, self._is_open, self._model_s = leads, is_open, model_s

    def start(self, runtime: Runtime) -> Callable[[], None]:
        """Look from now on; return what ends it."""
        task = runtime.spawn("lockstep-monitor-health", self._step, runtime.waiter(), _crashed)
        return task.stop

    def look(self) -> list[Reading]:
        """Report problems and recoveries to the fleet; returns what was reported."""
        told = []
        for reading in self._readings():
            if reading.status or self._is_open(reading.name):
                check = {"name": reading.name, "status": reading.status, "output": reading.output, "interval": LOOK_S}
                self._orders.send("health", {"check": check})
                told.append(reading)
        return told

    def _step(self) -> float:
        try:
            if self._leads():
                self.look()
        except LockstepError as error:
            logger.warning("The monitor's own health is not known: %s", error, extra={"action": "health_unknown"})
        return LOOK_S

    def _readings(self) -> Iterator[Reading]:
        now_s = self._bus.runtime.wall_ns() / 1e9
        yield skew_of(now_s - self._model_s())
        yield letters_of(self._letters(int((now_s - RECENT_S) * 1e9)))
        for group in self._groups:
            name = group.rpartition(".")[2]
            yield waiting_of(name, self._waiting(group))
            yield doubts_of(
                name, [each.id for each in Deliveries(self._bus, self._outbox, group).doubts(unresolved=True)]
            )

    def _waiting(self, group: str) -> int:
        names = {log.name for log in self._bus.logs(self._outbox)}
        return sum(max(0, one.lag) for one in self._bus.groups.describe(group).streams if one.stream in names)

    def _letters(self, since_ns: int) -> int:
        stream = fitting_name(self._outbox, ".dlq")
        try:
            return max(0, self._bus.bounds(stream).next - self._bus.offset_at(stream, since_ns))
        except StreamNotFound:
            return 0


def waiting_of(name: str, count: int) -> Reading:
    """How many notices wait for a carrier."""
    status = 2 if count >= WAITING_CRITICAL else 1 if count >= WAITING_WARNING else 0
    return Reading(f"{name}-lag", status, f"{_many(count, 'notice waits', 'notices wait')} for a carrier")


def doubts_of(name: str, ids: Sequence[str]) -> Reading:
    """Attempts of which it is not known how they ended."""
    shown = f": {', '.join(ids[:5])}" if ids else ""
    return Reading(
        f"{name}-doubts", 1 if ids else 0, f"{_many(len(ids), 'delivery is', 'deliveries are')} in doubt{shown}"
    )


def letters_of(count: int) -> Reading:
    """Notices that were given up lately."""
    return Reading(
        "dead-letters", 1 if count else 0, f"{_many(count, 'notice was', 'notices were')} given up in the last hour"
    )


def skew_of(ahead_s: float) -> Reading:
    """How far the clock of this server is from the time of the model."""
    away = abs(ahead_s)
    status = 2 if away >= SKEW_CRITICAL_S else 1 if away >= SKEW_WARNING_S else 0
    words = "ahead of" if ahead_s > 0 else "behind"
    return Reading("server-clock", status, f"The clock of this server is {away:.0f} s {words} the time of the model")


def _many(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def _crashed(error: BaseException) -> None:
    logger.error("The monitor's own health is not looked at any more", exc_info=error, extra={"action": "health_ended"})
