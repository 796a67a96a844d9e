"""One out stream as the engine sees it: where it ends, a barrier before the first own frame, and what was read back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from lockstep.core.outlet import (
    Broken,
    Differs,
    Event,
    Follow,
    Lead,
    Observed,
    Offer,
    OutletState,
    Published,
    Reset,
    Send,
    Tick,
    ready,
    step,
)
from lockstep.core.outputs import Barrier, Cut, OutState, agree
from lockstep.engine.errors import OutputBroken, OutputDiffers
from lockstep.engine.events.frames import FrameHead, read_head
from lockstep.engine.runtime.sequence.outages import BUS_AWAY, LengthCheck
from lockstep.errors import DataError, Trimmed
from lockstep.log.batch import NO_PRODUCER, Batch, BatchView, pack
from lockstep.log.port import Log, split_appends
from lockstep.runtime import Runtime, logger

_KIND = "barrier"


def encode_barrier(barrier: Barrier) -> bytes:
    """A barrier as the value of a record."""
    return json.dumps(
        {"kind": _KIND, "epoch": barrier.epoch, "owner": barrier.owner}, separators=(",", ":"), ensure_ascii=False
    ).encode()


def is_barrier(value: bytes) -> bool:
    """Whether a record of an out stream is a barrier, and not a frame."""
    return _fields(value) is not None


def decode_barrier(value: bytes) -> Barrier:
    """The barrier in a record's value."""
    fields = _fields(value)
    if fields is None:
        raise DataError(reason=f"This is no barrier: {value[:80]!r}.")
    return Barrier(*fields)


def _fields(value: bytes) -> tuple[int, str] | None:
    if value[:1] != b"{":  # a frame begins otherwise
        return None
    try:
        tree = json.loads(value)
    except ValueError:
        return None
    if tree.get("kind") != _KIND:
        return None
    epoch, owner = tree.get("epoch"), tree.get("owner")
    return (epoch, owner) if type(epoch) is int and type(owner) is str else None


Frame = bytes | memoryview
_READ_BYTES = 8 << 20


class Outlet:
    """Publishes frames in order, each until it was read back. Not to be shared between threads.

    `out` is what is known to be on the stream, and `at` the offset up to which it was read for that.
    """

    def __init__(self, log: Log, me: str, runtime: Runtime, out: OutState, at: int, *, resend_s: float = 0.5) -> None:
        self._log, self._runtime, self.at = log, runtime, at
        self._state = OutletState(me, out, resend_after=resend_s)
        self._frames: Sequence[Frame] = ()
        self._length = LengthCheck(log, runtime.monotonic)
        self._sent = 0
        """How often what is in flight was sent."""

    @property
    def out(self) -> OutState:
        """The last block that is on the stream."""
        return self._state.out

    @property
    def is_open(self) -> bool:
        """Whether everything that others wrote before this engine led was read."""
        return self._state.is_open

    @property
    def is_idle(self) -> bool:
        """Whether everything that was offered is on the stream."""
        return not self._frames

    def lead(self, epoch: int) -> None:
        """Publish from now on, after a barrier."""
        self._sent = 0
        self._do(Lead(epoch))

    def follow(self) -> None:
        """Publish nothing more."""
        self._frames = ()
        self._do(Follow())

    def learn(self, out: OutState, at: int) -> None:
        """Take over what is known of the stream up to `at`, so that it is not read; raises if digests differ."""
        if out.last == self.out.last and not agree(out.digest, self.out.digest):
            raise self._differs(out.last, out.digest, self.out.digest)
        if at > self.at:
            self.at = at
            self._do(Reset(out))

    def offer(self, frames: Sequence[Frame]) -> None:
        """Publish frames that go on where the stream ends."""
        self._frames, self._sent = frames, 0
        self._offer()

    def pump(self) -> None:
        """Send what is due, and read what is there."""
        if self._frames and ready(self._state):  # the stream was trimmed before they were read back
            self._offer()
        self._do(Tick(self._runtime.monotonic()))
        self._read()
        if self._sent > 1:  # what was sent is not read back: perhaps the log ends before what was read from it
            self._length.check(self.at, self.out.last)

    def _offer(self) -> None:
        cuts = [cut_of(read_head(frame)) for frame in self._frames]
        lineage = tuple(pair for cut in cuts for pair in cut.lineage)
        self._do(Offer(replace(cuts[0], last=cuts[-1].last, more=False, lineage=lineage)))

    def _do(self, event: Event) -> None:
        self._state, actions = step(self._state, event)
        for action in actions:
            match action:
                case Send(record):
                    self._append(record)
                case Published():
                    self._frames = ()
                case Broken(cut, last):
                    raise OutputBroken(number=cut.first, stream=self._log.name, previous=cut.previous, last=last)
                case Differs(block, found, known):
                    raise self._differs(block, found, known)

    def _differs(self, block: int, found: str, known: str) -> OutputDiffers:
        return OutputDiffers(block=block, stream=self._log.name, found=found, known=known)

    def _append(self, record: Cut | Barrier) -> None:
        now, self._sent = self._runtime.wall_ns(), self._sent + 1
        values = [encode_barrier(record)] if isinstance(record, Barrier) else self._frames
        try:
            for part in split_appends([pack_record(value, now) for value in values], self._log.limits):
                base = self._log.append(part)[0]
                self._length.appended(base, self.at, self.out.last)
        except BUS_AWAY as error:  # done means read back: what is not is sent again
            logger.warning("A frame was not acknowledged", extra={"action": "publish", "reason": str(error)})

    def _read(self) -> None:
        try:
            while stored := self._log.read(self.at, max_bytes=_READ_BYTES):
                for entry in stored:
                    self._observe(BatchView(entry.base, entry.data, self._log.name))
        except Trimmed:  # beyond the position: what is known stays, the rest comes after a new barrier
            self.at = self._log.bounds().first
            self._do(Reset(self.out))

    def _observe(self, view: BatchView) -> None:
        for index, value in enumerate(view.values()):
            if view.base + index >= self.at:
                self._do(Observed(decode_barrier(value) if is_barrier(value) else cut_of(read_head(value))))
        self.at = view.end


def cut_of(head: FrameHead) -> Cut:
    """What a frame says of itself."""
    return Cut(head.first, head.last, head.previous or 0, head.part, head.more, head.before, head.lineage)


def pack_record(frame: Frame, now_ns: int) -> Batch:
    """A frame as a record; a view of the spool is put into the batch without a copy of its own."""
    values: list[bytes] = [frame]  # type: ignore[list-item]
    return pack(values, producer=NO_PRODUCER, sequence=0, created_ns=now_ns)
