"""Who leads a project: its engines are a group, and its sequence log is the one seat they share.

The group only says who tries. What counts is decided on the sequence log itself, by marks; so whatever goes wrong here
costs time, and never an answer.
"""

from __future__ import annotations

from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.log.port import Bus
from lockstep.runtime import Runtime, Waiter, logger
from lockstep.streams.grouplog import GroupLog
from lockstep.streams.member import GroupMember, seat_name
from lockstep.streams.options import GroupOptions

LEASE_S, LEASE_ON_SERVERS_S = 0.5, 1.0
"""A beat over a network goes out and comes back through a server, which now and then takes its time."""
_EMBEDDED = ("memory:", "lmdb:")


def usual_lease_s(url: str) -> float:
    """How long a leader may be silent on a bus, if nobody says otherwise."""
    return LEASE_S if url.startswith(_EMBEDDED) else LEASE_ON_SERVERS_S


class Election:
    """One engine in the group of its project's engines. It takes part from `join` on."""

    def __init__(
        self, bus: Bus, streams: ProjectStreams, runtime: Runtime, *, lease_s: float, rank: int, changed: Waiter
    ) -> None:
        sequence = bus.open(streams.sequence)
        self._seat = seat_name(sequence)
        self._member = GroupMember(
            GroupLog(bus, streams.group, runtime),
            bus.waiter(),
            {self._seat: sequence},
            runtime,
            GroupOptions(lease_s=lease_s, beat_s=lease_s / 5),
            starts=lambda _: 0,
            changed=changed,
            on_error=_noted,
            rank=rank,
            active=False,
        )

    @property
    def me(self) -> str:
        """The name of this start of this engine in the group."""
        return self._member.id

    @property
    def takes_part(self) -> bool:
        """Whether it stands for election now."""
        return self._member.is_active

    def gate(self) -> str:
        """What stands in front of the election, for people; empty: nothing does."""
        return ""

    def epoch(self) -> int | None:
        """The epoch in which this engine is to lead now, or None."""
        self._member.touch()
        return self._member.held().get(self._seat)

    def is_leading(self) -> bool:
        """Whether the lead is this engine's at this moment, on its own clock; nobody is told that it looked."""
        return self._seat in self._member.held()

    def join(self) -> None:
        """Stand for election."""
        if not self.takes_part:
            self._member.set_active(True)

    def step_back(self) -> None:
        """Let somebody else lead; `join` takes part again."""
        self._member.set_active(False)
        self.give_up()

    def give_up(self) -> None:
        """Release the lead, if it is this engine's, or somebody waits for it to be released."""
        if self._seat in {**self._member.held(), **self._member.yielding()}:
            self._member.drained(self._seat)

    def must_yield(self) -> bool:
        """Whether the lead is this engine's, and is to go to another."""
        return self._seat in self._member.yielding()

    def leader(self) -> str | None:
        """Who leads, as far as this engine knows."""
        return self._member.group_state.seat(self._seat).owner

    def others(self) -> list[str]:
        """The other engines that take part."""
        return [name for name in self._member.group_state.members if name != self.me]

    def check(self) -> None:
        """Raise what ended the member, if anything did."""
        if self._member.error is not None:
            raise self._member.error

    def close(self) -> None:
        """Leave: the lead is released at once."""
        self._member.close()


def _noted(summary: str, error: BaseException | None) -> None:
    logger.warning(summary, extra={"action": "election", "reason": str(error or "")})
