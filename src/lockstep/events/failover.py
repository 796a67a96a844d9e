"""Publishers of a failover group: an election among them, and what each one knows and may do."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from lockstep.engine.errors import LogTooShort, SourceDiffers
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.frames import encode_frame
from lockstep.engine.model.graph import Node
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.errors import TimedOut
from lockstep.events.clients import ClientTail, client_id
from lockstep.events.connection import ProjectEvents
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.config import StreamConfig, check_name
from lockstep.log.port import Log
from lockstep.runtime import logger
from lockstep.streams.grouplog import GroupLog
from lockstep.streams.member import GroupMember, seat_name
from lockstep.streams.options import GroupOptions
from lockstep.streams.receipt import Receipt

CHECKS = StreamConfig(capacity=1_000)
"""The newest one says all; the others are for those who read in between."""
_REST_S = 0.05
_STOP_S = 10.0
_SEE = 256
"""Frames read in one go, between looks at everything else."""


@dataclass(frozen=True, slots=True)
class RoleChange:
    """A publisher became active or standby; `last` is the last block on the stream, `built` its own last one."""

    role: str
    last: int
    built: int
    epoch: int


class FailoverPublisher:
    """Publishes blocks together with others that read the same source. Not to be shared between threads.

    Feed it with `offer`, block by block from the start of the source; call `pump` whenever there is time.
    """

    def __init__(
        self,
        project: ProjectEvents,
        node: Node,
        group: str,
        *,
        buffered: int = 1000,
        check_every: int = 100,
        transactional: bool = False,
        options: GroupOptions | None = None,
        on_role: Callable[[RoleChange], None] = lambda _: None,
    ) -> None:
        check_name("Group", group)
        connection, root = project.connection, f"{project.streams.cluster}.{project.name}"
        self.name = f"{root}.P.{group}"
        self.client = client_id(self.name)
        self.relay = Relay(group, room=buffered, every=check_every)
        self._node, self._transactional, self._on_role = node, transactional, on_role
        self._options = options or GroupOptions()
        self._bus, self._runtime = connection.bus, connection.runtime
        self._input = self._bus.open(project.input(node))
        self._checks = self._bus.create(self.name, CHECKS)
        self._checks_at = self._checks.bounds().first
        self._tail = ClientTail.begin(self._bus, project.streams, node, self.client)
        self.relay.seen = self._tail.last
        self._publisher = connection.publisher(self._input.name, create=False)
        self._receipts: deque[Receipt] = deque()
        self._waiter = self._bus.waiter()
        self._waiter.watch(self._input)
        self._member: GroupMember | None = None
        self._epoch: int | None = None
        self._target = 0

    @property
    def is_active(self) -> bool:
        """Whether this one sends."""
        return self.relay.is_active

    def offer(self, block: EventBatch) -> None:
        """The next block of the source; waits while the buffer is full."""
        while not self.relay.has_room:
            self.pump()
            if not self.relay.has_room:
                self._waiter.wait(_REST_S)
        number = block.block[:1]
        marked = number if self._transactional else number[:0]
        frame = encode_frame(block, client=self.client, first_id=self.relay.built + 1, transactional=marked)
        self.relay.build(frame)

    def pump(self) -> None:
        """Do one round: read what the others wrote, follow the election, and send what is due."""
        self._read()
        self._elect()
        self._send()

    def wait(self) -> None:
        """Wait briefly, or until something arrives."""
        self._waiter.wait(_REST_S)

    def finish(self, timeout: float | None = None, *, is_whole: bool = True) -> None:
        """Return when all blocks are on the stream, whichever publisher sends them; raises TimedOut after `timeout`.

        Pass `is_whole=False` for a source that could have gone on: others may have read more of it.
        """
        end = None if timeout is None else self._runtime.monotonic() + timeout
        while True:
            self.pump()
            if self._tail.is_at_end and is_whole:
                self.relay.end()
            if not self.relay.unseen and self._tail.is_at_end:
                break
            if end is not None and self._runtime.monotonic() >= end:
                raise TimedOut(what=f"Publishing {self.relay.unseen} blocks", seconds=timeout)
            self._waiter.wait(_REST_S)
        self._write_check(now=True)

    def stop(self) -> None:
        """Stop: an active publisher first tries to bring its blocks onto the stream, a standby has nothing to do."""
        if self.is_active:
            try:
                self.finish(_STOP_S, is_whole=False)
            except TimedOut as error:  # the publisher that takes over has the same blocks
                logger.warning("Left blocks to others", extra={"action": "failover_stop", "reason": str(error)})

    def close(self) -> None:
        """Leave the group: another one takes over at once."""
        try:
            if self._member is not None:
                self._member.close()
        finally:
            self._publisher.close()
            self._waiter.close()

    def _read(self) -> None:
        self._read_checks()  # before the input: what is checked was there before
        if self.relay.may_see:
            for first, last, frame in self._tail.read(_SEE):
                self.relay.see(first, last, frame)

    def _read_checks(self) -> None:
        try:
            for offset, value in values_between(self._checks, self._checks_at, self._checks.bounds().next):
                self._checks_at = offset + 1
                tree = json.loads(value)
                self.relay.check(Check(tree["id"], bytes.fromhex(tree["digest"])))
        except LogTooShort:  # older ones make room for newer ones, which say more
            self._checks_at = self._checks.bounds().first

    def _elect(self) -> None:
        if self._member is None:
            if not self.relay.may_lead or not self._tail.is_at_end:
                return  # it can't be active yet, and must not keep another one from it
            self._member = self._join(self._input)
        member = self._member
        if member.error is not None:
            raise member.error
        member.touch()
        epoch = next(iter(member.held().values()), None)
        for seat in member.yielding():
            member.drained(seat)
        if epoch != self._epoch:
            self._epoch, self._target = epoch, self._input.bounds().next
            if self.relay.is_active:
                self.relay.follow()
                self._say("standby")
        if epoch is not None and not self.relay.is_active and self._tail.at >= self._target and self.relay.may_lead:
            self.relay.lead()
            self._say("active")
            self._write_check(now=True)

    def _join(self, log: Log) -> GroupMember:
        return GroupMember(
            GroupLog(self._bus, self.name, self._runtime),
            self._bus.waiter(),
            {seat_name(log): log},
            self._runtime,
            self._options,
            starts=lambda found: found.bounds().first,
            changed=self._waiter,
            on_error=_log_error,
        )

    def _send(self) -> None:
        while self._receipts and self._receipts[0].done():
            self._receipts.popleft().result()
        for frame in self.relay.to_send():
            self._receipts.append(self._publisher.publish(frame))
        self._write_check()

    def _write_check(self, *, now: bool = False) -> None:
        check = self.relay.check_due(now=now)
        if check is not None:
            text = json.dumps({"id": check.id, "digest": check.digest.hex()}).encode()
            self._checks.append([pack([text], producer=NO_PRODUCER, sequence=0, created_ns=self._runtime.wall_ns())])
            self.relay.checked = check.id

    def _say(self, role: str) -> None:
        relay = self.relay
        self._on_role(RoleChange(role, relay.seen, relay.built, self._epoch or 0))


def _log_error(summary: str, error: BaseException | None) -> None:
    logger.warning(summary, exc_info=error, extra={"action": "group_error"})


_DIGEST = 16


@dataclass(frozen=True, slots=True)
class Check:
    """What the blocks up to `id` were, all together."""

    id: int
    digest: bytes


def digest_of(frame: bytes, before: bytes = b"") -> bytes:
    """The digest of a block; with `before`, of all blocks up to it."""
    return blake2b(before + frame, digest_size=_DIGEST).digest()


@dataclass(slots=True)
class Relay:
    """One publisher of a group. `room`: blocks it keeps; `every`: a check is written at least every so many blocks."""

    group: str
    room: int = 1000
    every: int = 100
    built: int = 0
    """The number of blocks read from the source."""
    seen: int = 0
    """The last block of the group on the input stream."""
    sent: int = 0
    """The last block this one has sent since it became active."""
    checked: int = 0
    """The last block of which a check is known."""
    is_active: bool = False
    _chain: bytes = b""
    _chains: dict[int, bytes] = field(default_factory=dict)
    _waiting: deque[tuple[int, bytes]] = field(default_factory=deque)
    _ahead: dict[int, bytes] = field(default_factory=dict)
    _wanted: dict[int, bytes] = field(default_factory=dict)

    @property
    def has_room(self) -> bool:
        """Whether another block may be offered: a full buffer makes the source wait, and drops nothing."""
        return len(self._waiting) < self.room

    @property
    def may_see(self) -> bool:
        """Whether the input may be read further: what is ahead of the source is kept to be compared."""
        return len(self._ahead) < self.room

    @property
    def may_lead(self) -> bool:
        """Whether it is known to read what the others read: it has made everything that is published or checked."""
        return self.built >= self.seen and not self._wanted

    @property
    def unseen(self) -> int:
        """Blocks that it keeps."""
        return len(self._waiting)

    def build(self, frame: bytes) -> None:
        """The next block of the source."""
        self.built += 1
        digest, known = digest_of(frame), self._ahead.pop(self.built, None)
        if known is not None and known != digest:
            raise self._differs(self.built, "the block on the stream has other events")
        self._chain = digest_of(digest, self._chain)
        self._remember(self.built, self._chain)
        wanted = self._wanted.pop(self.built, None)
        if wanted is not None and wanted != self._chain:
            raise self._differs(self.built, "the source was not read from its start, or is another")
        if self.built > self.seen:
            self._waiting.append((self.built, frame))

    def see(self, first: int, last: int, frame: bytes) -> None:
        """Blocks of the group on the input stream that count: the next ones."""
        for number in range(max(first, self.seen + 1), last + 1):
            self.seen = number
            if first != last:
                self._drop(number)  # of several blocks in one frame, which no adapter writes, none can be compared
            elif number > self.built:
                self._ahead[number] = digest_of(frame)
            elif self._drop(number) not in (None, frame):
                raise self._differs(number, "the block on the stream has other events")

    def check(self, check: Check) -> None:
        """A check that an active one wrote."""
        self.checked = max(self.checked, check.id)
        if check.id > self.built:
            self._wanted[check.id] = check.digest
        elif self._chains.get(check.id, check.digest) != check.digest:
            raise self._differs(check.id, "the source was not read from its start, or is another")

    def lead(self) -> None:
        """Everything that was on the input when it took over was read: send from there on."""
        self.is_active, self.sent = True, self.seen

    def follow(self) -> None:
        """Note that another publisher is active."""
        self.is_active = False

    def to_send(self) -> list[bytes]:
        """The blocks to be sent now, in order."""
        if not self.is_active or not self.may_lead:
            return []
        due = [(number, frame) for number, frame in self._waiting if number > self.sent]
        if due:
            self.sent = due[-1][0]
        return [frame for _, frame in due]

    def check_due(self, *, now: bool = False) -> Check | None:
        """The check to be written, if it is time: when enough is published, or at takeover and at the end (`now`)."""
        upto = min(self.seen, self.built)
        if not self.is_active or upto <= self.checked or upto not in self._chains:
            return None
        return Check(upto, self._chains[upto]) if now or upto - self.checked >= self.every else None

    def end(self) -> None:
        """The source has ended: it must not be shorter than what is published."""
        upto = max([self.seen, *self._wanted])
        if self.built < upto:
            raise self._differs(upto, f"the source ends with block {self.built}")

    def _drop(self, number: int) -> bytes | None:
        if self._waiting and self._waiting[0][0] == number:
            return self._waiting.popleft()[1]
        return None

    def _remember(self, number: int, chain: bytes) -> None:
        self._chains[number] = chain
        if len(self._chains) > 2 * (self.room + self.every):
            del self._chains[next(iter(self._chains))]

    def _differs(self, number: int, reason: str) -> SourceDiffers:
        return SourceDiffers(id=number, group=self.group, reason=reason)
