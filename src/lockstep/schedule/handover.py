"""The shards that a node owns follow what its group assigns: they are opened, handed over, given up, and read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lockstep.core.agenda import Event
from lockstep.log.port import Log
from lockstep.runtime import logger
from lockstep.schedule.rounds import OwnedShard
from lockstep.schedule.rows import Fence
from lockstep.schedule.shard import Shard
from lockstep.schedule.shard_crons import ShardContext
from lockstep.streams.cursor import Cursor
from lockstep.streams.member import GroupMember, seat_name


class ShardHandover:
    """Fills and empties `owned`. Shards go by number, and `logs` are those of their requests."""

    def __init__(
        self, owned: dict[int, OwnedShard], logs: Mapping[int, Log], member: GroupMember,
        context: Callable[[], ShardContext], *, dedupe: bool,
    ) -> None:  # fmt: skip
        self._owned, self._logs, self._member = owned, logs, member
        self._context, self._dedupe = context, dedupe
        self._numbers = {seat_name(log): number for number, log in logs.items()}

    def follow(self, *, takes_more: bool) -> bool:
        """Do what the group says; return whether a shard was given up. `takes_more`: new ones are opened."""
        held, yielding = self._member.held(), self._member.yielding()
        before = list(self._owned)
        for number in before:
            self._follow(number, held, yielding)
        mine = {self._numbers[seat]: Fence(seat, self._member.id, held[seat]) for seat in held if seat in self._numbers}
        for number, fence in mine.items():
            if takes_more and number not in self._owned:
                self._open(number, fence)
        busy = {owned.shard.fence.seat for owned in self._owned.values()}
        for seat in yielding.keys() - busy:  # the Master's, and shards that were not opened yet
            self._member.drained(seat)
        return not self._owned.keys() >= set(before)

    def _follow(self, number: int, held: Mapping[str, int], yielding: Mapping[str, int]) -> None:
        """Keep a shard of this node, hand it over, or give it up; one that is in doubt is read again first."""
        fence = self._owned[number].shard.fence
        is_leaving = yielding.get(fence.seat) == fence.epoch
        if not is_leaving and held.get(fence.seat) != fence.epoch:
            del self._owned[number]
            return
        if self._owned[number].in_doubt:
            self._open(number, fence, self._owned[number].shard.in_flight)
        owned = self._owned.get(number)
        if owned is None or not is_leaving:
            return
        owned.leaving = True
        if owned.is_idle:
            del self._owned[number]
            self._member.drained(fence.seat)

    def _open(self, number: int, fence: Fence, under_way: Mapping[bytes, Event] | None = None) -> None:
        """Begin to own a shard, or read again what is stored of it; `under_way` are deliveries that need no new try."""
        context = self._context()
        state = context.store.claim(number, fence)
        if state is None:
            self._owned.pop(number, None)
            return
        shard = Shard(number, fence, state, context)
        shard.resume(under_way or {})
        log = self._logs[number]
        position = max(state.position, log.bounds().first)
        if position != state.position and state.position > 0:
            logger.error(
                "Requests %d to %d of %s were trimmed before they were carried out", state.position, position - 1,
                log.name, extra={"action": "requests_lost", "stream": log.name},
            )  # fmt: skip
        self._owned[number] = OwnedShard(shard, Cursor(log, position, on_gap="fail", dedupe=self._dedupe))
