"""Active or standby: what an engine does with its lead, from the claim it won to the last buffered block.

The sequencer's side (`lead`) and the publisher's side (`publish`) are steps of two threads; they share the epoch in
which this engine leads, and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from lockstep.engine.runtime.control.election import Election
from lockstep.engine.runtime.output.publishing import Publisher
from lockstep.engine.runtime.sequence.sequencing import Sequencer
from lockstep.runtime import Runtime, logger

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


class Conductor:
    """Follows the election: leads when it is this engine's turn, and steps back when it is not."""

    def __init__(
        self,
        election: Election,
        sequencer: Sequencer,
        publisher: Publisher,
        runtime: Runtime,
        buffered: Callable[[], int],
        tell: Callable[[RoleChange], None],
    ) -> None:
        """`buffered` is the last block that this engine has computed."""
        self._election, self._sequencer, self._publisher = election, sequencer, publisher
        self._runtime, self._buffered, self._tell = runtime, buffered, tell
        self._won: int | None = None
        """The epoch of the election that this engine acts on."""
        self._epoch: int | None = None
        """The epoch of its mark, once that was read back."""
        self._drain: tuple[int, int, float] | None = None
        self.role, self.takeovers = STANDBY, 0

    @property
    def epoch(self) -> int | None:
        """In which it leads, once its mark was read back."""
        return self._epoch

    def lead(self) -> None:
        """Begin or end to lead, as the election and the sequence log say; to be called before each sequencer step."""
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
        """One step of the publisher, which follows the lead; true if there may be more to do at once."""
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
            self._tell(RoleChange(STANDBY, self._sequencer.epoch))

    def _catch_up(self, epoch: int) -> None:
        """What was computed while it was a standby goes out first; then it is active."""
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
        self._tell(RoleChange(ACTIVE, epoch, last, current, self._runtime.monotonic() - began))
