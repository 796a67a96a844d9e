"""What may go wrong, how often, and how often it did."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

# An append that is not simply acknowledged.
ACK_LOST = "ack-lost"  # it landed, nobody was told
APPEND_LOST = "append-lost"  # it never lands, nobody was told
APPEND_LATE = "append-late"  # it lands after other records, nobody was told
APPEND_DOUBLED = "append-doubled"  # acknowledged, and lands a second time later
APPEND_REFUSED = "append-refused"  # it never lands, and the writer was told so

# What happens to a process.
PAUSE = "pause"  # stopped before it acts
PAUSE_IN_ACT = "pause-in-act"  # stopped between deciding and appending
CRASH = "crash"
CRASH_IN_ACT = "crash-in-act"  # decided, and died before appending
READ_STALL = "read-stall"  # one log looks as if it had ended, and has not
READ_SLOW = "read-slow"  # one log is read one record at a time
CUT_OFF = "cut-off"  # nothing this process appends arrives
WALL_JUMP = "wall-clock-jump"
CLEAN_STOP = "clean-stop"
RESET = "reset"

# What happens to a log.
OUT_TRIMMED = "out-stream-trimmed"  # by its own retention, even while it is read
INPUT_TRIMMED = "input-trimmed"  # a stream of another owner, by its own retention, even while it is read
TAIL_LOST = "tail-lost"  # records that were acknowledged are gone; only on a bus that is not durable

# Odds of each kind per append, and per process and tick; a seed scales them and leaves some out altogether.
APPEND_ODDS = {ACK_LOST: 0.05, APPEND_LOST: 0.05, APPEND_LATE: 0.05, APPEND_DOUBLED: 0.04, APPEND_REFUSED: 0.03}
PROCESS_ODDS = {
    PAUSE: 0.007,
    PAUSE_IN_ACT: 0.008,
    CRASH: 0.003,
    CRASH_IN_ACT: 0.003,
    READ_STALL: 0.020,
    READ_SLOW: 0.006,
    CUT_OFF: 0.010,
    WALL_JUMP: 0.025,
    CLEAN_STOP: 0.004,
    RESET: 0.005,
}
LOG_ODDS = {OUT_TRIMMED: 0.03, INPUT_TRIMMED: 0.08, TAIL_LOST: 0.012}
KINDS = (*APPEND_ODDS, *PROCESS_ODDS, *LOG_ODDS)
ENABLED = 0.7  # a seed without some kind of fault shows what the others do alone


@dataclass(slots=True)
class Faults:
    """The faults of one seed: drawn until `healed`, and counted by kind."""

    rng: random.Random
    append_odds: dict[str, float]
    process_odds: dict[str, float]
    count: Counter[str] = field(default_factory=Counter)
    healed: bool = False

    def for_append(self) -> str | None:
        """What befalls an append, or None."""
        return self._count(self._draw(self.append_odds))

    def for_process(self, immune: frozenset[str]) -> str | None:
        """What befalls a process in this tick, or None."""
        kind = self._draw(self.process_odds)
        return None if kind in immune else self._count(kind)

    def for_log(self, kind: str) -> bool:
        """Whether something befalls a log in this tick."""
        return self._count(self._draw({kind: LOG_ODDS[kind]})) is not None

    def _count(self, kind: str | None) -> str | None:
        if kind is not None:
            self.count[kind] += 1
        return kind

    def _draw(self, odds: dict[str, float]) -> str | None:
        if self.healed:
            return None
        chance = self.rng.random()
        for kind, probability in odds.items():
            chance -= probability
            if chance < 0:
                return kind
        return None


def plan(rng: random.Random) -> Faults:
    """The mix of faults of one seed."""
    return Faults(rng, _some_of(APPEND_ODDS, rng), _some_of(PROCESS_ODDS, rng))


def _some_of(odds: dict[str, float], rng: random.Random) -> dict[str, float]:
    scale = rng.uniform(0.3, 2.0)
    return {kind: probability * scale for kind, probability in odds.items() if rng.random() < ENABLED}
