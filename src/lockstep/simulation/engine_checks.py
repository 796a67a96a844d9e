"""The observer of engines: it folds everything that lands on its own, and holds engines and output to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lockstep.core.outputs import Barrier
from lockstep.core.sequence import Entry, Mark
from lockstep.simulation import checks
from lockstep.simulation.engine_model import Decision, Frame, Piece, Windows, is_foreign

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lockstep.simulation.delivery_checks import Published
    from lockstep.simulation.engine_model import Fold
    from lockstep.simulation.engine_process import Counted
    from lockstep.simulation.group_checks import Report
    from lockstep.simulation.logs import SimLog


@dataclass(slots=True)
class Oracle:
    """What follows from a sequence log and its inputs, with everything that ever came of it."""

    inputs: Mapping[str, SimLog[Published]]
    windows: Windows
    ends: list[int]
    numbers: dict[str, int] = field(default_factory=dict)
    values: list[int] = field(default_factory=list)
    refused: list[Published] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)  # values in gaps
    needless: list[str] = field(default_factory=list)  # gaps where there was none
    requests: set[str] = field(default_factory=set)
    entries: list[tuple[list[int], int]] = field(default_factory=list)  # values that counted, state after it
    pieces: dict[str, list[Piece]] = field(default_factory=dict)
    place: dict[str, dict[tuple[int, int], int]] = field(default_factory=dict)

    @classmethod
    def of(cls, inputs: Mapping[str, SimLog[Published]], outs: list[str]) -> Oracle:
        """Before anything happened."""
        found = cls(inputs, Windows(dict.fromkeys(outs, (0, 0))), [0 for _ in inputs])
        found.pieces = {name: [] for name in outs}
        found.place = {name: {} for name in outs}
        return found

    def input_of(self, decision: Decision) -> list[Published]:
        """What lies between the last ends, or the end of a gap after them, and the ends of this decision."""
        ranges = zip(self.inputs.values(), decision.begin(self.ends), decision.ends, strict=True)
        return [message for log, low, high in ranges for _, message in log.between(low, high)]

    def take(self, decision: Decision) -> None:
        """One more entry that counts."""
        self._pass_gaps(decision)
        new = [message for message in self.input_of(decision) if self._first_copy(message)]
        if decision.request is not None and decision.request not in self.requests:
            self.requests.add(decision.request)
            self.windows.model = decision.model or self.windows.model
        for message in new:
            self._out(self.windows.take(message.value))
        if decision.tick is not None:
            self._out(self.windows.tick(decision.tick))
        self.values += [message.value for message in new]
        self.ends = list(decision.ends)
        self.entries.append(([message.value for message in new], self.windows.state))

    def _pass_gaps(self, decision: Decision) -> None:
        self.windows.pass_gaps(decision)
        for log, low, high in zip(self.inputs.values(), self.ends, decision.gaps or (), strict=False):
            self.gone |= {message.value for _, message in log.between(low, high)}
            if high > log.first:
                self.needless.append(f"{log.name} from {low} to {high}, it begins at {log.first}")

    def _first_copy(self, message: Published) -> bool:
        wanted = self.numbers.get(message.producer, 0)
        if is_foreign(message.producer):
            self.numbers[message.producer] = max(wanted, message.number + 1)
            return message.number >= wanted
        if message.number > wanted:
            self.refused.append(message)
        if message.number != wanted:
            return False
        self.numbers[message.producer] = wanted + 1
        return True

    def _out(self, output: list[tuple[str, Piece]]) -> None:
        for name, piece in output:
            self.place[name][piece.key] = len(self.pieces[name])
            self.pieces[name].append(piece)

    def has(self, stream: str, piece: Piece) -> bool:
        """Whether this very piece belongs on the stream."""
        at = self.place[stream].get(piece.key)
        return at is not None and self.pieces[stream][at] == piece


@dataclass(slots=True)
class EngineBook:
    """Every entry as it lands, and every promise as it is made. On a bus that loses records it waits for the end."""

    oracle: Oracle
    report: Report
    decision: Callable[[str], Decision]
    lossy: bool
    acts_on_acknowledgement: bool = False
    in_force: tuple[int, str] | None = None
    in_force_at: dict[int, tuple[int, str] | None] = field(default_factory=dict)
    writer_of: dict[int, tuple[int, str]] = field(default_factory=dict)
    counts_at: dict[int, bool] = field(default_factory=dict)
    out: dict[str, int] = field(default_factory=dict)  # pieces that everybody can have read
    acknowledged: list[tuple[str, int]] = field(default_factory=list)  # producer, value
    errors: list[str] = field(default_factory=list)

    def landed(self, at: int, record: Mark | Entry) -> None:
        """A record is on the sequence log."""
        if self.lossy:
            return
        if isinstance(record, Mark):
            if self.in_force is None or record.epoch > self.in_force[0]:
                self.in_force = (record.epoch, record.owner)
        else:
            number = len(self.oracle.entries) + 1
            self.counts_at[at] = self.in_force == (record.epoch, record.owner) and record.number == number
            if self.counts_at[at]:
                self.oracle.take(self.decision(record.body))
                self._nothing_refused()
            self.writer_of[at] = (record.epoch, record.owner)
        self.in_force_at[at] = self.in_force

    def _nothing_refused(self) -> None:
        for message in self.oracle.refused:
            self.report(checks.INPUT_NOT_ONCE, f"{message} came before its predecessor")
        for gap in self.oracle.needless:
            self.report(checks.NEEDLESS_GAP, gap)
        self.oracle.refused.clear()
        self.oracle.needless.clear()

    def applied(self, who: str, counted: Counted, accepted: list[int], fold: Fold) -> None:
        """An engine computed an entry."""
        if self.lossy or self.acts_on_acknowledgement:
            return
        at, entry, _ = counted
        if self.in_force_at[at] != self.writer_of[at]:
            text = f"{who} at {at}: entry of {self.writer_of[at]} behind mark {self.in_force_at[at]}"
            self.report(checks.STALE_ENTRY, text)
            return
        if not self.counts_at[at] or entry.number != fold.number:
            self.report(checks.MISCOUNTED, f"{who} at {at}: number {entry.number} computed as {fold.number}")
            return
        self._compare(f"{who} at number {fold.number}", accepted, fold)

    def _compare(self, where: str, accepted: list[int], fold: Fold) -> None:
        values, state = self.oracle.entries[fold.number - 1]
        if values != accepted:
            self.report(checks.INPUT_NOT_ONCE, f"{where}: counted {accepted}, and should count {values}")
        elif state != fold.windows.state:
            self.report(checks.DIVERGED, f"{where}: state {fold.windows.state}, and should be {state}")

    def passed(self, who: str, at: int) -> None:
        """An engine read a record and did not count it."""
        if self.counts_at.get(at):
            self.report(checks.MISCOUNTED, f"{who} at {at}: an entry that counts was not counted")

    def published(self, stream: str, at: int, record: Frame | Barrier) -> None:
        """A record is on an out stream: a reader that misses nothing takes what is next."""
        if self.lossy or isinstance(record, Barrier):
            return
        for piece in record.pieces:
            if not self.oracle.has(stream, piece):
                self.report(checks.WRONG_OUTPUT, f"{stream} @{at}: {piece}")
                return
            place, out = self.oracle.place[stream][piece.key], self.out.get(stream, 0)
            if place > out:
                self.report(checks.SKIP, f"{stream} @{at}: {piece.key} after {out} pieces, it is number {place}")
            self.out[stream] = max(out, place + 1)

    def delivered(self, who: str, stream: str, piece: Piece) -> None:
        """A subscriber got something."""
        if not self.lossy and not self.oracle.has(stream, piece):
            self.report(checks.WRONG_OUTPUT, f"{who} got {stream} {piece}")

    def can_not_publish(self, who: str, detail: str) -> None:
        """A leader has not got what is next."""
        if not self.lossy:
            self.report(checks.CANNOT_PUBLISH, f"{who}: {detail}")

    def visible(self, who: str, reason: str) -> None:
        """An engine stopped, and said why."""
        self.errors.append(f"{who}: {reason}")
        if not self.lossy:
            self.report(checks.NEEDLESS_STOP, f"{who}: {reason}")

    def after_healing(self) -> None:
        """What was acknowledged counted once, in its producer's order."""
        counted = set(self.oracle.values)
        if len(counted) != len(self.oracle.values):
            self.report(checks.INPUT_NOT_ONCE, "a value counted twice")
        last: dict[str, int] = {}
        place = {value: index for index, value in enumerate(self.oracle.values)}
        for producer, value in self.acknowledged:
            if value in self.oracle.gone:  # an entry says so
                continue
            if value not in place or place[value] < last.get(producer, -1):
                self.report(checks.INPUT_NOT_ONCE, f"v{value} of {producer} was acknowledged")
            last[producer] = place.get(value, -1)
