"""Publishers that stand in for each other: what each one knows, and what it may do. No clock, no input or output.

All read the same source and make the same blocks 1, 2, 3. One is active and sends; the others keep their blocks until
they read them on the input stream. A block sent twice is a copy with the same number, and engines drop it: so nothing
here has to be fenced. What must not happen is that somebody goes on with other blocks under the same numbers. Hence
each block that is read is compared with the own one; and the active one writes checks, digests over all blocks so far,
for those who come when the blocks themselves are no longer there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from hashlib import blake2b

from lockstep.engine.errors import SourceDiffers

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
    """Blocks made from the source."""
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
        """Whether another block may be made: a full buffer waits, and never drops."""
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
        """Somebody else is active."""
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
