"""The anomalies an observer may find, by name. What it sees is kept apart from the code under test."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

# The list a Kafka-class checker of Jepsen uses.
ABORTED_READ = "aborted-read"  # a value was handed on although its append was refused
INCONSISTENT_OFFSETS = "inconsistent-offsets"  # one offset, two values
LOST = "lost"  # acknowledged, passed over, and never handed on
UNSEEN = "unseen"  # acknowledged, and not handed on after healing
REORDER = "reorder"  # one publisher's records in another order than its own
DUPLICATE = "duplicate"  # one value counted at two places
SKIP = "skip"  # a reader jumped over a record in one generation
BACKWARDS = "backwards"  # a reader went back in one generation

# What this protocol promises beyond that.
TWO_OWNERS = "two-owners-counted-in-an-epoch"
TWO_AT_WORK = "two-at-work"  # two running processes both believed that they hold a seat
NEEDLESS_TAKEOVER = "needless-takeover"  # a claim beat an owner whose newer beat its maker had not read
STALE_ENTRY = "stale-entry-counted"  # after a mark, an entry of an older epoch counted
STALE_CONFIRM = "stale-confirm-counted"  # a confirmation counted in a generation it was not made in
CONFIRM_BACK = "confirm-went-back"
TOLD_CONFIRMED = "told-confirmed-but-not"
TOLD_ACKNOWLEDGED = "told-acknowledged-but-not"
DIVERGED = "diverged"  # two processes disagree at the same place of a log
MISCOUNTED = "miscounted"  # all may agree, but not with the rules as the observer applies them
NOT_CONVERGED = "not-converged"

# What engines promise: invariants 1 and 2; 3 is "diverged", 4 is "stale-entry-counted", 5 is "not-converged".
WRONG_OUTPUT = "wrong-output"  # an out stream is not what follows from the sequence and the inputs
INPUT_NOT_ONCE = "input-not-exactly-once"  # acknowledged, and not counted, or counted again
CANNOT_PUBLISH = "cannot-publish"  # a leader has not got the block that is next
NEEDLESS_STOP = "needless-stop"  # an engine gave up although no log lost anything
TRIMMED_TOO_FAR = "trimmed-too-far"
NEEDLESS_GAP = "needless-gap"  # an entry says that messages are gone that can still be read
SILENT_LOSS = "silent-loss"  # a bus lost records, the output is wrong, and nobody said so

NAMES = (
    ABORTED_READ, INCONSISTENT_OFFSETS, LOST, UNSEEN, REORDER, DUPLICATE, SKIP, BACKWARDS, TWO_OWNERS, TWO_AT_WORK,
    NEEDLESS_TAKEOVER, STALE_ENTRY, STALE_CONFIRM, CONFIRM_BACK, TOLD_CONFIRMED, TOLD_ACKNOWLEDGED, DIVERGED,
    MISCOUNTED, NOT_CONVERGED, WRONG_OUTPUT, INPUT_NOT_ONCE, CANNOT_PUBLISH, NEEDLESS_STOP, TRIMMED_TOO_FAR,
    NEEDLESS_GAP, SILENT_LOSS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One broken promise: its name, and what exactly was seen."""

    name: str
    detail: str


@dataclass(slots=True)
class Findings:
    """What the observer found in one seed."""

    anomalies: list[Anomaly] = field(default_factory=list)

    def report(self, name: str, detail: str) -> None:
        """Note a broken promise."""
        assert name in NAMES
        self.anomalies.append(Anomaly(name, detail))

    def by_name(self) -> Counter[str]:
        """How often each anomaly was seen."""
        return Counter(anomaly.name for anomaly in self.anomalies)
