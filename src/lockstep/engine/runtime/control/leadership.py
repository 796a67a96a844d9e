"""Who leads a project, and what an engine does with its lead: from the claim it won to the last buffered block.

The engines are a group, and the project's sequence log is the one seat they share. The group only says who tries. What
counts is decided on the sequence log itself, by marks; so whatever goes wrong here costs time, and never an answer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lockstep.engine.gates.port import Gate
from lockstep.engine.runtime.control.reports import Report
from lockstep.engine.runtime.output.publisher import Publisher
from lockstep.engine.runtime.sequence.sequencer import Sequencer
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
    """The default lease on a bus: how long a leader may be silent."""
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
        """The name of this incarnation of the engine in the group."""
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
        """Whether this engine leads at this moment, by its own clock; has no effect on the lease."""
        return self._seat in self._member.held()

    def join(self) -> None:
        """Stand for election."""
        if not self.takes_part:
            self._member.set_active(True)

    def step_back(self) -> None:
        """Stop standing for election and release the lead; `join` takes part again."""
        self._member.set_active(False)
        self.give_up()

    def give_up(self) -> None:
        """Release the lead, if this engine has it or is to hand it over."""
        if self._seat in {**self._member.held(), **self._member.yielding()}:
            self._member.drained(self._seat)

    def must_yield(self) -> bool:
        """Whether this engine leads and is to hand the lead over."""
        return self._seat in self._member.yielding()

    def leader(self) -> str | None:
        """The member that leads, as far as this engine knows; None if there is none."""
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


class GatedElection(Election):
    """An election with a gate in front: an engine takes part only while the gate lets it.

    It stands in the gate's line from `join` on, and in the group's while the gate is open.
    """

    def __init__(
        self, bus: Bus, streams: ProjectStreams, runtime: Runtime, gate: Gate, *, lease_s: float, rank: int,
        changed: Waiter,
    ) -> None:  # fmt: skip
        super().__init__(bus, streams, runtime, lease_s=lease_s, rank=rank, changed=changed)
        self._gate, self._wanted = gate, False
        self._lock = threading.Lock()
        """Several threads of an engine join and step back; the last call wins."""

    def epoch(self) -> int | None:
        """The epoch in which this engine is to lead now, or None; the gate is looked at first."""
        self._follow_gate()
        return super().epoch()

    def join(self) -> None:
        """Stand for election, and in the gate's line before."""
        with self._lock:
            self._wanted = True
            self._gate.enter()
        self._follow_gate()

    def step_back(self) -> None:
        """Stop standing for election, release the lead, and leave the line of the gate."""
        with self._lock:
            self._wanted = False
            super().step_back()
            self._gate.leave()

    def gate(self) -> str:
        """What the gate says, for people."""
        return self._gate.state()

    def check(self) -> None:
        """Raise what ended the member or the gate, if anything did."""
        super().check()
        self._gate.check()

    def close(self) -> None:
        """Leave both: the lead is released at once."""
        try:
            super().close()
        finally:
            self._gate.close()

    def _follow_gate(self) -> None:
        with self._lock:
            may_try = self._wanted and self._gate.may_lead()
            if may_try and not self.takes_part:
                super().join()
            elif not may_try and self.takes_part:
                super().step_back()


@dataclass(slots=True)
class StallDetector:
    """Notices that nothing is published any more, by this engine's own clock."""

    stall_s: float
    published: int = -1
    since: float = 0.0

    def is_stalled(self, published: int, sequenced: int, now: float, standbys: Callable[[], Iterable[Report]]) -> bool:
        """Whether nothing came out for a while although a standby has computed more than is out."""
        if published != self.published or published >= sequenced:
            self.published, self.since = published, now
            return False
        return now - self.since > self.stall_s and any(report.block > published for report in standbys())


def buffer_too_small(blocks_per_s: float, lease_s: float, buffer_blocks: int) -> bool:
    """Whether a standby's buffer is smaller than what comes while a leader's silence is noticed."""
    return blocks_per_s * 2 * lease_s > buffer_blocks


ACTIVE, STANDBY = "active", "standby"
FIRST_EPOCH = 1


@dataclass(frozen=True, slots=True)
class RoleChange:
    """An engine became active or standby; a takeover says from where to where its buffer went out, and how fast."""

    role: str
    epoch: int
    last: int = 0
    current: int = 0
    drained_s: float = 0.0


class RoleController:
    """Switches this engine between active and standby, as the election decides."""

    def __init__(
        self,
        election: Election,
        sequencer: Sequencer,
        publisher: Publisher,
        runtime: Runtime,
        buffered: Callable[[], int],
        on_role: Callable[[RoleChange], None],
    ) -> None:
        """`buffered` is the last block that this engine has computed."""
        self._election, self._sequencer, self._publisher = election, sequencer, publisher
        self._runtime, self._buffered, self._on_role = runtime, buffered, on_role
        self._won: int | None = None
        """The epoch of the election that this engine acts on."""
        self._epoch: int | None = None
        """The epoch of its mark, once that was read back."""
        self._drain: tuple[int, int, float] | None = None
        self.role, self.takeovers = STANDBY, 0

    @property
    def epoch(self) -> int | None:
        """The epoch in which it leads, once its mark was read back; None: it does not lead."""
        return self._epoch

    def follow_election(self) -> None:
        """Start or stop leading, as the election and the sequence log say. Call it before each sequencer step."""
        won = self._election.epoch()
        if won is not None and won != self._won:
            self._sequencer.lead(won)
        if self._won is not None and (won is None or self._sequencer.is_deposed):
            self._sequencer.follow()
            self._election.give_up()
            won = None
        self._won = won
        self._epoch = self._sequencer.epoch if won is not None and self._sequencer.leads else None

    def publish(self) -> bool:
        """One step of the publisher, which leads or follows as this engine does; true if there may be more at once."""
        epoch, publisher = self._epoch, self._publisher
        if epoch != publisher.epoch or (epoch is None and self.role == ACTIVE):
            self._change(epoch)
        more = publisher.step()
        if epoch is not None and not more:
            publisher.note(self._sequencer.position)
        if epoch is not None and publisher.is_open and self.role == STANDBY:
            self._catch_up(epoch)
        return more

    def _change(self, epoch: int | None) -> None:
        if epoch is not None:
            self._publisher.lead(epoch)
            return
        self._publisher.follow()
        self._drain = None
        if self.role == ACTIVE:
            self.role = STANDBY
            logger.info("Hot failover state switched to standby", extra={"action": "role"})
            self._on_role(RoleChange(STANDBY, self._sequencer.epoch))

    def _catch_up(self, epoch: int) -> None:
        """Publish what was computed as a standby; then the engine is active."""
        if self._drain is None:
            last = self._publisher.last_out
            self._drain = (last, max(last, self._buffered()), self._runtime.monotonic())
            words = "Standby sending buffered messages, last message id = %d, current message id = %d"
            logger.info(words, last, self._drain[1], extra={"action": "takeover"})
        last, current, began = self._drain
        if self._publisher.published < current:
            return
        logger.info("Standby synced, current message id = %d", current, extra={"action": "takeover"})
        level = logging.WARNING if epoch > FIRST_EPOCH else logging.INFO  # nobody led before the first one
        logger.log(level, "Hot failover state switched to active", extra={"action": "role"})
        self.role, self._drain = ACTIVE, None
        self.takeovers += 1
        self._on_role(RoleChange(ACTIVE, epoch, last, current, self._runtime.monotonic() - began))
