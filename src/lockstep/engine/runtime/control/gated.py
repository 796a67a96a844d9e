"""An election behind a gate: an engine takes part only while the gate lets it."""

from __future__ import annotations

import threading

from lockstep.engine.gates.port import Gate
from lockstep.engine.runtime.control.election import Election
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.log.port import Bus
from lockstep.runtime import Runtime, Waiter


class GatedElection(Election):
    """See Election. An engine stands in the gate's line from `join` on, and in the group's while the gate is open."""

    def __init__(
        self, bus: Bus, streams: ProjectStreams, runtime: Runtime, gate: Gate, *, lease_s: float, rank: int,
        changed: Waiter,
    ) -> None:  # fmt: skip
        super().__init__(bus, streams, runtime, lease_s=lease_s, rank=rank, changed=changed)
        self._gate, self._wanted = gate, False
        self._lock = threading.Lock()
        """Several threads of an engine join and step back; what the last one wished is what holds."""

    def epoch(self) -> int | None:
        """See Election; the gate is looked at first."""
        self._follow_gate()
        return super().epoch()

    def join(self) -> None:
        """See Election."""
        with self._lock:
            self._wanted = True
            self._gate.enter()
        self._follow_gate()

    def step_back(self) -> None:
        """See Election; the next in the gate's line may try."""
        with self._lock:
            self._wanted = False
            super().step_back()
            self._gate.leave()

    def gate(self) -> str:
        """See Election."""
        return self._gate.state()

    def check(self) -> None:
        """See Election."""
        super().check()
        self._gate.check()

    def close(self) -> None:
        """See Election."""
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
