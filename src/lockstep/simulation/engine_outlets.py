"""An engine's out streams: the buffer of what it computed, how far each stream is out, and publishing if it leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockstep.core import outlet
from lockstep.core.outlet import Broken, Follow, Lead, Observed, Offer, OutletState, Published, Reset, Send, Tick
from lockstep.core.outputs import Barrier, Cut, OutState, further
from lockstep.simulation.engine_model import Fact, Frame, Piece, frame_of
from lockstep.simulation.logs import Cursor, LogTrimmed, SimLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lockstep.simulation.world import Process

OutLog = SimLog[Any]  # frames and barriers
FRAME_PIECES = 3
BUFFERED_AT_MOST = 14  # pieces: a full buffer stops computing, it never drops
PATIENCE = 6.0  # longer than any reading stalls
STUCK_FOR_AT_MOST = 10.0  # no progress for so long: it is not the log that is slow
NOWHERE = -1


class Doubt(Exception):
    """Something can't be so: this engine, or a log, is not what it was."""


class CanNotPublish(Doubt):
    """The first block to publish does not chain to the last one that is out."""


class Outlet:
    """One out stream."""

    def __init__(self, process: Process, log: OutLog, out: OutState) -> None:
        self.process = process
        self.variant = process.world.variant
        self.log = log
        self.state = OutletState(process.host.me, OutState() if self.variant.empty_is_first else out)
        self.cursor: Cursor[Any] = Cursor(log, log.first)
        self.fact: tuple[OutState, int] = (OutState(), NOWHERE)
        self.out_at = NOWHERE
        self.buffer: list[Piece] = []
        self.flying: Frame | None = None
        self.offered_at = 0.0
        self.made: dict[tuple[int, int], int] = {}
        self.seen: dict[tuple[int, int], int] = {}
        self.behind_since: float | None = None

    @property
    def known(self) -> OutState:
        """How far the stream is out: read here, or said by a leader that read it."""
        return further(self.state.out, self.fact[0])

    def told(self, fact: tuple[OutState, int]) -> None:
        """A leader says how far the stream is out."""
        if further(fact[0], self.fact[0]) == fact[0] and not self.variant.empty_is_first:
            self.fact = fact

    def read(self) -> None:
        """Take in what is on the stream; begin anew at a fact if it was trimmed on the way."""
        now = self.process.world.now
        try:
            batch = self.cursor.read(now)
        except LogTrimmed:
            self._begin_anew()
            batch = self.cursor.read(now)
        for at, record in batch:
            self._observe(at, record)
        if self.cursor.at_end and self.cursor.next > self.fact[1] and self.known != self.state.out:
            self._begin_anew()  # the place that the fact names has been passed, so what leads to it is gone

    def _begin_anew(self) -> None:
        self._step(Reset(self.known))
        self.cursor.next = max(self.log.first, self.fact[1] + 1 if self.known == self.fact[0] else 0)
        self.out_at = self.fact[1]

    def _observe(self, at: int, record: Frame | Barrier) -> None:
        self.process.world.events += 1
        if isinstance(record, Barrier):
            self._step(Observed(record))
            return
        for piece in record.pieces:
            self._compare(self.seen, self.made, piece)
        before = self.state.out
        self._step(Observed(record.cut))
        if self.state.out != before:
            self.out_at = at

    def _compare(self, here: dict[tuple[int, int], int], there: dict[tuple[int, int], int], piece: Piece) -> None:
        """What is published must be what this engine computes, whichever comes first."""
        here.setdefault(piece.key, piece.digest)
        if self.variant.digests and there.get(piece.key, piece.digest) != piece.digest:
            message = f"{self.log.name}: block {piece.block} does not belong to this sequence"
            raise Doubt(message)

    def add(self, piece: Piece) -> None:
        """Keep what was computed until it is out."""
        self._compare(self.made, self.seen, piece)
        self.buffer.append(piece)

    def drop(self) -> None:
        """Drop what is published, and nothing else."""
        reached = self.known
        while self.buffer and further(reached, self.buffer[0].state) == reached:
            del self.buffer[0]
        if self.variant.drops_computed and self.state.epoch is None:
            del self.buffer[:-2]

    def lead(self, epoch: int | None) -> None:
        """Lead in an epoch, or follow."""
        if epoch != self.state.epoch:
            self._step(Follow() if epoch is None else Lead(epoch))

    def send(self) -> None:
        """Offer the next frame, and send what is due."""
        if outlet.ready(self.state) and self.buffer and self._has_read_what_is_out():
            rest = [piece for piece in self.buffer if further(self.state.out, piece.state) != self.state.out]
            self.flying, self.offered_at = frame_of(self._next_pieces(rest)), self.process.world.now
            self._step(Offer(self.flying.cut))
        self._look_for_progress()
        if self.state.epoch is not None:
            self._step(Tick(self.process.host.monotonic(self.process.world.now)))

    def _look_for_progress(self) -> None:
        if self.state.in_flight is not None and self.process.world.now - self.offered_at > STUCK_FOR_AT_MOST:
            message = f"{self.log.name}: {self.state.in_flight} does not come out behind {self.state.out}"
            raise Doubt(message)

    def _has_read_what_is_out(self) -> bool:
        """Blocks that a leader says are out may be gone from the buffer: they are read first, not published."""
        if self.known == self.state.out:
            self.behind_since = None
            return True
        now = self.process.world.now
        self.behind_since = now if self.behind_since is None else self.behind_since
        if now - self.behind_since > PATIENCE:
            message = f"{self.log.name}: {self.known} is said to be out, and {self.state.out} is"
            raise Doubt(message)
        return False

    def _next_pieces(self, rest: list[Piece]) -> list[Piece]:
        """One piece of a long block, or the last one and some whole blocks."""
        count = self.process.world.rng.randint(1, FRAME_PIECES)
        for index, piece in enumerate(rest[:count]):
            if piece.part + 1 < piece.parts:
                return rest[: index + 1]
        return rest[:count]

    def _step(self, event: outlet.Event) -> None:
        self.state, actions = outlet.step(self.state, event)
        for action in actions:
            self._carry_out(action)

    def _carry_out(self, action: outlet.Action) -> None:
        match action:
            case Send(Cut()):
                self.process.append(self.log, self.flying)
            case Send(barrier):
                self.process.append(self.log, barrier)
            case Published():
                self.flying = None
            case Broken(cut, last):
                message = f"{self.log.name}: {cut} does not follow block {last}"
                raise CanNotPublish(message)


class Outlets:
    """All out streams of an engine."""

    def __init__(self, process: Process, logs: Mapping[str, OutLog], outs: Mapping[str, OutState]) -> None:
        self.all = {name: Outlet(process, log, outs.get(name, OutState())) for name, log in logs.items()}

    def told(self, fact: Fact) -> None:
        """A leader says how far everything is out."""
        for name, out in fact.outs.items():
            self.all[name].told(out)

    def read(self) -> None:
        """Read every stream."""
        for each in self.all.values():
            each.read()
            each.drop()

    def add(self, output: list[tuple[str, Piece]]) -> None:
        """Buffer what an entry made."""
        for name, piece in output:
            self.all[name].add(piece)
        for each in self.all.values():
            each.drop()

    def lead(self, epoch: int | None) -> None:
        """Lead in an epoch, or follow."""
        for each in self.all.values():
            each.lead(epoch)

    def send(self) -> None:
        """Publish, if leading."""
        for each in self.all.values():
            each.send()

    @property
    def is_full(self) -> bool:
        """Whether computing must wait for publishing."""
        return sum(len(each.buffer) for each in self.all.values()) >= BUFFERED_AT_MOST

    def known(self) -> dict[str, OutState]:
        """How far each stream is out."""
        return {name: each.known for name, each in self.all.items()}

    def facts(self) -> dict[str, tuple[OutState, int]]:
        """What was read here, for others."""
        return {name: (each.state.out, each.out_at) for name, each in self.all.items()}
