"""An engine's eye on itself: does it still publish, and would its buffer last until somebody takes over?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lockstep.engine.runtime.control.reports import Report


@dataclass(slots=True)
class Progress:
    """When something was published last, on this engine's own clock."""

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
