"""The streams of one scheduler: their names, how they are kept, and the group of its nodes."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.log.config import StreamConfig, check_name
from lockstep.streams.client import Lockstep

SHARDS = 32
DAY_S = 86_400
HISTORY_DAYS = 30
ANSWERS_KEPT = 200_000
CARDS_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class SchedulerStreams:
    """The streams of the scheduler of a name."""

    name: str

    def __post_init__(self) -> None:
        check_name("Scheduler", self.name)

    @property
    def requests(self) -> str:
        """What is asked for: events, crons, removals; one order for each key."""
        return f"{self.name}.requests"

    @property
    def control(self) -> str:
        """Tenants and pauses, which every node follows."""
        return f"{self.name}.control"

    @property
    def answers(self) -> str:
        """What became of requests that asked for an answer."""
        return f"{self.name}.answers"

    @property
    def history(self) -> str:
        """One record for each outcome."""
        return f"{self.name}.history"

    @property
    def nodes(self) -> str:
        """A card of each node every second; the owner of this stream is the Master."""
        return f"{self.name}.nodes"

    @property
    def group(self) -> str:
        """The group whose members share the shards."""
        return f"{self.name}.nodes"

    @property
    def own(self) -> frozenset[str]:
        """All streams that are the scheduler's and no tenant's."""
        return frozenset((self.requests, self.control, self.answers, self.history, self.nodes))

    def fired(self, tenant: str) -> str:
        """Where events of a tenant of Python programs are published."""
        return f"{self.name}.fired.{tenant}"

    def create(self, bus: Lockstep, *, shards: int = SHARDS, history_days: float = HISTORY_DAYS) -> None:
        """Make the streams that are missing; those that are there stay as they are."""
        protect = "protect" in bus.promises.retention
        kept = {
            self.requests: StreamConfig(retain_age_s=7 * DAY_S, shards=shards, protect=protect),
            self.control: StreamConfig(capacity=None),
            self.answers: StreamConfig(capacity=ANSWERS_KEPT),
            self.history: StreamConfig(retain_age_s=history_days * DAY_S),
            self.nodes: StreamConfig(capacity=CARDS_KEPT),
        }
        present = set(bus.bus.names())
        for name, config in kept.items():
            if name not in present:
                bus.create(name, config)
