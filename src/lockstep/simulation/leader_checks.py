"""The observer of a sequence log: which entries count by the rules, told apart from what processes counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from lockstep.core.sequence import Entry, Mark
from lockstep.simulation import checks

if TYPE_CHECKING:
    from lockstep.simulation.group_checks import Report


class Block(NamedTuple):
    """What the leader publishes for one entry."""

    number: int
    body: str


@dataclass(slots=True)
class SequenceBook:
    """The sequence log as an observer keeps it: the mark in force, and the bodies that count."""

    report: Report
    in_force: tuple[int, str] | None = None
    sequence: list[str] = field(default_factory=list)
    made_by: dict[int, str] = field(default_factory=dict)  # number -> incarnation
    in_force_at: dict[int, tuple[int, str] | None] = field(default_factory=dict)  # offset -> mark
    counts_at: dict[int, bool] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def landed(self, at: int, record: Mark | Entry) -> None:
        """Take down what a record changes."""
        if isinstance(record, Mark):
            if self.in_force is None or record.epoch > self.in_force[0]:
                self.in_force = (record.epoch, record.owner)
        else:
            self._entry(at, record)
        self.in_force_at[at] = self.in_force

    def _entry(self, at: int, entry: Entry) -> None:
        self.counts_at[at] = self.in_force == (entry.epoch, entry.owner) and entry.number == len(self.sequence) + 1
        if not self.counts_at[at]:
            return
        if entry.body in self.sequence:
            self.report(checks.DUPLICATE, f"{entry.body} as number {entry.number} and before")
        self.sequence.append(entry.body)
        self.made_by[entry.number] = entry.owner

    def applied(self, who: str, at: int, entry: Entry, place: int) -> None:
        """A process applied an entry as its `place`-th."""
        if self.in_force_at[at] != (entry.epoch, entry.owner):
            mark = self.in_force_at[at]
            self.report(checks.STALE_ENTRY, f"{who} at {at}: entry of {entry.owner}#{entry.epoch} behind mark {mark}")
        elif not self.counts_at[at]:
            self.report(checks.MISCOUNTED, f"{who} at {at}: number {entry.number} does not count")
        if place != entry.number:
            self.report(checks.SKIP, f"{who} at {at}: number {entry.number} applied as number {place}")

    def passed(self, who: str, at: int) -> None:
        """A process read an entry and did not apply it."""
        if self.counts_at.get(at):
            self.report(checks.MISCOUNTED, f"{who} at {at}: an entry that counts was not applied")

    def told_sequenced(self, body: str) -> None:
        """Its proposer was promised that it is in the sequence."""
        self.told.append(body)
        if body not in self.sequence:
            self.report(checks.TOLD_ACKNOWLEDGED, f"{body} is not in the sequence")

    def delivered(self, block: Block) -> None:
        """A subscriber got a block."""
        if self.sequence[block.number - 1 : block.number] != [block.body]:
            self.report(checks.DIVERGED, f"block {block.number} is {block.body}, the sequence says otherwise")

    def compare(self, bodies_of: dict[str, list[str]]) -> None:
        """Engines are equal at equal numbers."""
        longest: list[str] = max(bodies_of.values(), key=len, default=[])
        for who, bodies in bodies_of.items():
            if bodies != longest[: len(bodies)]:
                self.report(checks.DIVERGED, f"{who} applied {bodies[-3:]}, another {longest[: len(bodies)][-3:]}")
