"""Those around an engine: producers that repeat, an operator, a reader of the logs, and subscribers."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from lockstep.core.outputs import Barrier, OutState, Verdict, before, fold, further
from lockstep.core.snapshots import Reach
from lockstep.simulation import checks, faults
from lockstep.simulation.delivery_checks import Published
from lockstep.simulation.engine_model import Fact, Frame, Piece, Request
from lockstep.simulation.engine_outlets import PATIENCE
from lockstep.simulation.logs import Cursor, LogShorter, LogTrimmed, SimLog
from lockstep.simulation.world import REFUSED, Host, Process, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstep.simulation.engine_sim import EngineSim

REPEAT_AFTER = 0.3
PUBLISH_ODDS = 0.4
REQUEST_ODDS = 0.02
SAVE_ODDS = 0.3
NOT_STOPPED = frozenset({faults.CLEAN_STOP, faults.RESET})


class Producer(Process):
    """Numbers its messages, remembers the last one across crashes, and repeats it until it is acknowledged."""

    immune = NOT_STOPPED | {faults.READ_STALL, faults.READ_SLOW}

    def __init__(self, world: World, host: Host, sim: EngineSim, log: SimLog[Published], values: Iterator[int]) -> None:
        super().__init__(world, host)
        self.sim = sim
        self.log = log
        self.values = values
        self.numbers = count()
        self.waiting: Published | None = None  # on its disk, as are the numbers

    def boot(self) -> None:
        """Go on with what may have been sent."""
        self.sent_at = float("-inf")

    def act(self) -> None:
        """Repeat what is overdue, or publish something new."""
        if self.waiting is None and not self.sim.finishing and self.world.rng.random() < PUBLISH_ODDS:
            self.waiting = Published(self.host.name, next(self.numbers), next(self.values))
            self.sent_at = float("-inf")
        if self.waiting is None or self.world.now - self.sent_at < REPEAT_AFTER:
            return
        self.sent_at = self.world.now
        told = self.append(self.log, self.waiting)
        if told is not None and told != REFUSED:
            self.sim.book.acknowledged.append((self.host.name, self.waiting.value))
            self.waiting = None


class Operator(Process):
    """Asks for another model now and then; asking twice does no harm."""

    immune = Producer.immune

    def __init__(self, world: World, host: Host, requests: SimLog[Request]) -> None:
        super().__init__(world, host)
        self.requests = requests
        self.numbers = count(1)
        self.asked: Request | None = None

    def boot(self) -> None:
        """Nothing is kept in memory."""

    def act(self) -> None:
        """Ask, or ask again."""
        rng = self.world.rng
        if self.world.faults.healed or rng.random() >= REQUEST_ODDS:
            return
        if self.asked is None or rng.random() < 0.5:
            number = next(self.numbers)
            self.asked = Request(f"r{number}", number + 1)
        self.append(self.requests, self.asked)


class Archive(Process):
    """Reads the sequence log and the inputs for its own purposes: nothing is trimmed that it has not read."""

    immune = NOT_STOPPED

    def __init__(self, world: World, host: Host, sim: EngineSim) -> None:
        super().__init__(world, host)
        self.sim = sim
        self.sequence: Cursor[Any] = Cursor(sim.sequence)
        self.inputs: dict[str, Cursor[Any]] = {name: Cursor(log) for name, log in sim.own_inputs.items()}

    def boot(self) -> None:
        """Its place is kept elsewhere, and survives."""
        self.readers = [self.sequence, *self.inputs.values()]

    def act(self) -> None:
        """Read."""
        for cursor in (self.sequence, *self.inputs.values()):
            try:
                cursor.read(self.world.now)
            except LogTrimmed as trimmed:
                self.world.report(checks.TRIMMED_TOO_FAR, f"{trimmed} was trimmed before it was read")
            except LogShorter:
                cursor.next = cursor.log.end

    def reach(self) -> Reach:
        """What it still needs."""
        return Reach(self.sequence.next, {name: cursor.next for name, cursor in self.inputs.items()})


class Subscription:
    """A subscriber's place on one out stream: saved with what was delivered."""

    def __init__(self, log: SimLog[Any]) -> None:
        self.cursor: Cursor[Any] = Cursor(log)
        self.out: OutState | None = OutState()
        self.digest: int | None = 0
        self.missing_since: float | None = None
        self.got_at = 0.0
        self.anew = 0
        """How many pieces had been delivered when it was told that the stream was trimmed past it."""

    def begin_at_head(self, *, delivered: int) -> None:
        """Part of the stream is gone: take its first frame as given.

        The product's reader stops here with HISTORY_TRIMMED; this one goes on as a new one would.
        """
        self.cursor.next = self.cursor.log.first
        self.out = self.digest = None
        self.anew = delivered


class Subscriber(Process):
    """Delivers every block once, and says so if it can't."""

    immune = NOT_STOPPED

    def __init__(self, world: World, host: Host, sim: EngineSim) -> None:
        super().__init__(world, host)
        self.sim = sim
        self.places = {name: Subscription(log) for name, log in sim.outs.items()}
        self.facts: Cursor[Fact] = Cursor(sim.control)
        self.said: dict[str, OutState] = {}
        self.delivered: dict[str, list[Piece]] = {name: [] for name in sim.outs}
        self.stopped = ""

    def boot(self) -> None:
        """It goes on at its saved place: delivering and saving are one step here."""
        self.readers = [self.facts, *(place.cursor for place in self.places.values())]

    def act(self) -> None:
        """Read, deliver, and compare with what a leader says is out."""
        if self.stopped:
            return
        self._read_facts()
        for name, place in self.places.items():
            try:
                batch = place.cursor.read(self.world.now)
            except LogTrimmed:
                place.begin_at_head(delivered=len(self.delivered[name]))
                batch = place.cursor.read(self.world.now)
            except LogShorter:  # what it knows shows whether what comes again is the same
                place.cursor.next = place.cursor.log.first
                batch = []
            for _, record in batch:
                self._take(name, place, record)
            self._look_for_gap(name, place)

    def _read_facts(self) -> None:
        try:
            batch = self.facts.read(self.world.now)
        except (LogTrimmed, LogShorter):
            self.facts.next = self.sim.control.first
            batch = self.facts.read(self.world.now)
        for _, fact in batch:
            for name, (out, _) in fact.outs.items():
                self.said[name] = further(out, self.said.get(name, out))
                self._look_for_loss(name, self.places[name], out)

    def _look_for_loss(self, name: str, place: Subscription, said: OutState) -> None:
        """Leaders that still say less than came long ago have lost it: what came does not belong to the sequence."""
        long_ago = self.world.now - place.got_at > 2 * PATIENCE
        if long_ago and place.out is not None and further(said, place.out) != said:
            self.sim.subscriber_warns(self.host.name, f"{name}: {place.out} came, and only {said} is out")

    def _take(self, name: str, place: Subscription, record: Frame | Barrier) -> None:
        if isinstance(record, Barrier) or self.stopped:
            return
        known = place.out if place.out is not None else before(record.cut)
        after, verdict = fold(known, record.cut)
        if verdict in (Verdict.COPY, Verdict.GAP):
            return
        for piece in record.pieces:
            if further(known, piece.state) != known:
                self._deliver(name, place, piece)
        place.out, place.missing_since, place.got_at = after, None, self.world.now

    def _deliver(self, name: str, place: Subscription, piece: Piece) -> None:
        expected = hash((place.digest, piece.block, piece.part, piece.content))
        if self.world.variant.digests and place.digest is not None and expected != piece.digest:
            self._stop(f"{name}: block {piece.block} does not follow from what came before")
            return
        place.digest = piece.digest
        self.delivered[name].append(piece)
        self.sim.book.delivered(self.host.name, name, piece)

    def _look_for_gap(self, name: str, place: Subscription) -> None:
        """What is said to be out, and does not come, is missing: trimmed unread, or lost."""
        said = self.said.get(name, OutState())
        if self.stopped or place.out is None or further(place.out, said) == place.out:
            place.missing_since = None
            return
        if place.missing_since is None:
            place.missing_since = self.world.now
        elif self.world.now - place.missing_since > PATIENCE:
            self._stop(f"{name}: {said} is out, and {place.out} was the last to come")

    def _stop(self, reason: str) -> None:
        self.stopped = reason
        if self.world.trace.on:
            self.say(f"stops: {reason}")
        self.sim.subscriber_stopped(self.host.name, reason)
